"""`spotweave demo`: a real control plane with Spotweave, and a short guided tour with real pods."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console

from cli import __version__, logs
from demo.gangstory import CONFIGURATION
from demo.story import NAMESPACE, PACE, Story
from demo.supervisor import running
from kube.client import connect
from localcluster import LocalCluster, demo_profile
from localcluster.progress import Progress
from placement import names


def add_parser(commands: Any, _common: argparse.ArgumentParser) -> None:
    own = logs.options()  # a default of its own would be all other commands' too, which share theirs
    parser = commands.add_parser(
        "demo",
        parents=[own],
        help="run a guided demo on a local control plane",
        description="Run a guided demo on a local control plane: workloads scale, spot goes and comes back.",
    )
    parser.add_argument("--once", action="store_true", help="exit when the demo is over (or set DEMO_ONCE=1)")
    parser.set_defaults(run=run, log_level="error")  # what the programs warn of is what the story is about


def run(args: argparse.Namespace) -> int:
    """Exit code 0 only if every mix was exact at every rest, and every replica served again after every loss."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    once = args.once or os.environ.get("DEMO_ONCE") == "1"
    console = Console(soft_wrap=False, highlight=False)
    with LocalCluster.start(demo_profile(), options=PACE, progress=Progress()) as cluster:
        console.print("[bold]A cluster of 12 nodes in 3 zones is up.[/] Installing Spotweave …")
        with (
            running(
                cluster.kubeconfig,
                config=_configuration(cluster.directory),
                log_format=args.log_format,
                log_level=args.log_level,
                rebalancers=1,
            ) as spotweave,
            closing(connect(cluster.kubeconfig, user_agent=f"demo/{__version__}")) as client,
        ):
            console.print(f"[bold]The dashboard:[/] {spotweave.dashboard} shows every step live.", soft_wrap=True)
            exact = Story(console, cluster, client).tell()
            console.print(_verdict(exact))
            if not once:
                console.print(_invitation(cluster, spotweave.dashboard or ""), soft_wrap=True)
                _wait_for_ctrl_c(console)
            return 0 if exact else 1


def _configuration(directory: Path) -> Path:
    """The demo shows gangs, too. The directory goes with the cluster, however that ends."""
    path = directory / names.CONFIG_KEY
    path.write_text(CONFIGURATION)
    return path


def _verdict(exact: bool) -> str:
    told = (
        "Every workload had the wanted mix after every step, and every gang was whole."
        if exact
        else "[bold red]Some workloads did not have the wanted mix, or some gang was not whole, after every step.[/]"
    )
    return f"\n[bold]{told}[/]"


def _invitation(cluster: LocalCluster, page: str) -> str:
    """Only where the cluster stays up: all of it ends with the demo."""
    return f"""\
The dashboard shows what happened: {page}
  {page}#/workloads  what each workload can lose without an interruption
  {page}#/drill      what a loss or another ratio would change

[bold]Try it yourself[/], in another terminal:
  export KUBECONFIG={cluster.kubeconfig}
  alias kubectl={cluster.kubectl}
  .venv/bin/spotweave status --pods
  .venv/bin/spotweave drill spot
  .venv/bin/spotweave queue preview -f manifests/examples/gangs/mpi.yaml
  kubectl -n {NAMESPACE} scale deployment/web --replicas=100
  .venv/bin/spotweave plan --set {NAMESPACE}/web spot-ratio=30%
  kubectl -n {NAMESPACE} describe deployment/web"""


def _wait_for_ctrl_c(console: Console) -> None:
    console.print("\nThe cluster runs until you press Ctrl-C.")
    try:
        signal.pause()
    except KeyboardInterrupt:
        console.print("Stopping and removing the cluster.")
