"""`spotweave rebalancer`: the rebalancer program, what the image runs."""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import signal
import socket
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from cli import __version__
from cli.configuration import load_configuration
from kube.client import Client, connect
from kube.faults import Faults
from kube.lease import Leader
from placement.configuration import Configuration
from rebalancer.app import create_app, serving
from rebalancer.metrics import Metrics

log = logging.getLogger(__name__)


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("rebalancer", parents=[common], help="run the rebalancer")
    parser.add_argument("--kubeconfig", type=Path, help="how to reach the cluster (default: as kubectl, or in-cluster)")
    parser.add_argument("--config", type=Path, help="configuration file (default: the ConfigMap spotweave-config)")
    parser.add_argument("--metrics-listen", default="0.0.0.0:8080", metavar="HOST:PORT", help="probes and metrics")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs until SIGTERM or SIGINT; then whoever waits takes over at once."""
    threading.excepthook = _end
    faults = Faults.told_by(os.environ)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with closing(connect(args.kubeconfig, user_agent=f"spotweave-rebalancer/{__version__}")) as client:
        program = Program(client, load_configuration(args.config, client), faults)
        with serving(create_app(program.metrics, program.missing), args.metrics_listen):
            program.leader.start()
            try:
                stopping.wait()
            finally:
                program.leader.stop()
    return 0


class Program:
    """The rebalancer, put together."""

    def __init__(self, client: Client, configuration: Configuration, faults: Faults) -> None:
        self.configuration = configuration
        self.metrics = Metrics()
        self.leader = Leader(client, _identity(), faults=faults)
        self.metrics.leading.set_function(lambda: float(self.leader.is_leading()))

    def missing(self) -> str | None:
        """What is missing until this replica is ready. It need not lead for that."""
        return "the Lease was not read yet" if self.leader.holder is None else None


def _identity() -> str:
    """The pod's name, and something that a restart of its container changes."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


def _end(failure: threading.ExceptHookArgs) -> None:
    """A thread that dies leaves work that nobody does any more: better to start anew."""
    name = failure.thread.name if failure.thread else "?"
    trace = (failure.exc_type, failure.exc_value or failure.exc_type(), failure.exc_traceback)
    log.critical("thread %s died; ending the program", name, exc_info=trace)
    os._exit(1)
