"""`spotweave demo`: a real control plane, Spotweave on it, and a short story told with real pods."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from cli import __version__, kubectl
from cli.run import running
from cli.status import as_table
from kube.client import Client, connect
from kube.configmaps import read_configuration
from kube.snapshot import read_snapshot
from localcluster import Choice, LocalCluster, Options, demo_profile
from localcluster.progress import Progress
from placement.status import WorkloadStatus, statuses

EXAMPLES = Path(__file__).parent.parent / "manifests" / "examples"
NAMESPACE = "demo"
SETTLE_SECONDS = 60.0
MOVE_SECONDS = 240.0  # pods are moved when they are half a minute old, one after the other
PACE = Options(controller_qps=200, controller_burst=400)  # by default the controllers create 20 objects a second


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("demo", parents=[common], help="show it all on a control plane of its own")
    parser.add_argument("--once", action="store_true", help="end after the story (or set DEMO_ONCE=1)")
    parser.set_defaults(run=run, log_level="warning")


def run(args: argparse.Namespace) -> int:
    """Exit code 0 only if every mix was exact at every rest point."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    once = args.once or os.environ.get("DEMO_ONCE") == "1"
    console = Console(soft_wrap=False, highlight=False)
    with LocalCluster.start(demo_profile(), options=PACE, progress=Progress()) as cluster:
        console.print("[bold]A cluster of 12 nodes in 3 zones is up.[/] Installing Spotweave …")
        with running(cluster.kubeconfig, log_format=args.log_format, log_level=args.log_level, rebalancers=1):
            story = Story(console, cluster, connect(cluster.kubeconfig, user_agent=f"demo/{__version__}"))
            exact = story.tell()
            if not once:
                console.print(_next_commands(cluster), soft_wrap=True)
                _wait_for_ctrl_c(console)
            return 0 if exact else 1


@dataclass(slots=True)
class Story:
    """What the demo does, and whether every mix was exact."""

    console: Console
    cluster: LocalCluster
    client: Client
    exact: bool = True

    def tell(self) -> bool:
        self._chapter("Four workloads in a namespace with the label spotweave.dev/placement=enabled")
        kubectl.call("apply", "-f", str(EXAMPLES / "namespace.yaml"), kubeconfig=self.cluster.kubeconfig)
        kubectl.call("apply", "-f", str(EXAMPLES), kubeconfig=self.cluster.kubeconfig)
        self._rest(with_pods=True)
        for replicas in (25, 4, 10):
            self._chapter(f"web is scaled to {replicas}: no pod needs to move")
            self._kubectl("scale", "deployment/web", f"--replicas={replicas}")
            self._rest()
        self._chapter("web is rolled out: the new revision has the same mix")
        self._kubectl("set", "image", "deployment/web", "app=example/app:2.0")
        self._rest()
        self._chapter("web asks for 30 % spot: three pods move, each replaced before it goes")
        self._kubectl("annotate", "deployment/web", "spotweave.dev/spot-ratio=30%", "--overwrite")
        self._rest()
        self._chapter("All spot nodes vanish at once: their pods run on on-demand meanwhile")
        self.console.print(
            "A StatefulSet's wait a minute for Kubernetes, unless it has spotweave.dev/replace-lost-pods: fast."
        )
        self.cluster.reclaim(Choice(all_spot=True))
        self.console.print(as_table(wait_until(self._statuses, is_at_rest, MOVE_SECONDS)))
        self._chapter("Spot is back: one pod looks ahead, the others follow, and nobody serves one replica less")
        self.cluster.restore()
        self._rest()
        return self.exact

    def _kubectl(self, *arguments: str) -> None:
        kubectl.call("-n", NAMESPACE, *arguments, kubeconfig=self.cluster.kubeconfig)

    def _chapter(self, title: str) -> None:
        self.console.print(f"\n[bold blue]▌ {title}[/]")

    def _rest(self, *, with_pods: bool = False) -> None:
        """Waits until the workloads are at rest and nothing is left to move, then shows and judges them."""
        for workload in ("deployment/billing", "deployment/typo", "deployment/web", "statefulset/store"):
            self._kubectl("rollout", "status", workload, f"--timeout={SETTLE_SECONDS:.0f}s")
        found = wait_until(self._statuses, is_settled, MOVE_SECONDS)
        self.exact = self.exact and is_settled(found)
        self.console.print(as_table(found, with_pods=with_pods))

    def _statuses(self) -> tuple[WorkloadStatus, ...]:
        return statuses(read_snapshot(self.client), read_configuration(self.client))


def is_at_rest(found: tuple[WorkloadStatus, ...]) -> bool:
    """One revision each, and as many pods as asked for, all of them serving and none on its way out."""
    return bool(found) and all(
        each.revisions == 1 and len(each.pods) == each.workload.replicas and all(pod.serves for pod in each.pods)
        for each in found
    )


def is_settled(found: tuple[WorkloadStatus, ...]) -> bool:
    return is_at_rest(found) and all(each.is_exact for each in found)


def wait_until(
    read: Callable[[], tuple[WorkloadStatus, ...]],
    is_done: Callable[[tuple[WorkloadStatus, ...]], bool],
    timeout_seconds: float,
) -> tuple[WorkloadStatus, ...]:
    """What is read when it is as wished, or when time is up."""
    deadline = time.monotonic() + timeout_seconds
    while not is_done(found := read()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _next_commands(cluster: LocalCluster) -> str:
    return f"""
[bold]Try it yourself[/], in another terminal:
  export KUBECONFIG={cluster.kubeconfig}
  alias kubectl={cluster.kubectl}
  .venv/bin/spotweave status --pods
  kubectl -n {NAMESPACE} scale deployment/web --replicas=100
  kubectl -n {NAMESPACE} delete pod -l app=web
  kubectl -n {NAMESPACE} describe pod -l app=web
  kubectl -n {NAMESPACE} annotate deployment/typo spotweave.dev/spot-ratio=50% --overwrite"""


def _wait_for_ctrl_c(console: Console) -> None:
    console.print("\nThe cluster stays up until Ctrl-C.")
    try:
        signal.pause()
    except KeyboardInterrupt:
        console.print("Stopping; nothing is left behind.")
