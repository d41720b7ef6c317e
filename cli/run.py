"""`spotweave run`: installs and runs Spotweave on a local control plane."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
from pathlib import Path
from typing import Any

from cli import access
from demo.supervisor import running

log = logging.getLogger(__name__)


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "run",
        parents=[common],
        help="install and run Spotweave on a local control plane",
        description="Install Spotweave on a local control plane and run its programs as processes, until you stop it.",
    )
    parser.add_argument(
        "--kubeconfig",
        type=access.kubeconfig,
        required=True,
        help="kubeconfig with admin access to the local control plane",
    )
    parser.add_argument("--webhooks", type=_count, default=1, metavar="N", help="number of webhook processes")
    parser.add_argument(
        "--rebalancers", type=_count, default=1, metavar="N", help="number of rebalancer processes; one of them leads"
    )
    parser.add_argument("--config", type=Path, help="configuration file; becomes the ConfigMap spotweave-config")
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    if not text.isdigit() or int(text) > 16:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to 16, got {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with running(
            args.kubeconfig,
            args.webhooks,
            args.config,
            args.log_format,
            args.log_level,
            rebalancers=args.rebalancers,
        ) as installed:
            print(json.dumps(installed.report()), flush=True)
            installed.watch()
    except KeyboardInterrupt:
        log.info("stopped")
    return 0
