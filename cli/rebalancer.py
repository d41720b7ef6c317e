"""`spotweave rebalancer`: the rebalancer program, what the image runs."""

from __future__ import annotations

import argparse
import os
from contextlib import closing
from pathlib import Path
from typing import Any

from cli import __version__, prices
from dashboard.access import Guard, known_hosts
from dashboard.prometheus import PrometheusArchive, checked_url
from kube.client import connect
from kube.configuration import load_configuration
from kube.crash import end_with_any_thread
from kube.crashpoints import Faults
from rebalancer import program


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "rebalancer", parents=[common], help="run the rebalancer", description="Run the rebalancer, as the image does."
    )
    parser.add_argument(
        "--kubeconfig", type=Path, help="path of the kubeconfig (default: the one that kubectl uses, or in-cluster)"
    )
    parser.add_argument("--config", type=Path, help="configuration file (default: the ConfigMap spotweave-config)")
    parser.add_argument(
        "--metrics-listen", default="0.0.0.0:8080", metavar="HOST:PORT", help="address for probes and metrics"
    )
    parser.add_argument(
        "--dashboard-listen",
        default="0.0.0.0:8090",
        metavar="HOST:PORT",
        help="address for the dashboard (default: %(default)s)",
    )
    parser.add_argument(
        "--dashboard-host",
        action="append",
        default=[],
        metavar="NAME",
        help="host name of the dashboard, in addition to loopback, the pod's address and the Service's name",
    )
    parser.add_argument(
        "--dashboard-token-file", type=Path, metavar="F", help="file with the bearer token that users need"
    )
    parser.add_argument(
        "--prometheus-url",
        type=_url,
        metavar="URL",
        help="Prometheus with Spotweave's recording rules, for the last day's spot share (default: from memory)",
    )
    prices.add_options(parser)
    parser.set_defaults(run=run)


def _url(text: str) -> str:
    try:
        return checked_url(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def archive_for(args: argparse.Namespace) -> PrometheusArchive | None:
    if args.prometheus_url is None:
        return None
    archive = PrometheusArchive(args.prometheus_url)
    archive.start()
    return archive


def run(args: argparse.Namespace) -> int:
    end_with_any_thread()
    with closing(connect(args.kubeconfig, user_agent=f"spotweave-rebalancer/{__version__}")) as client:
        configuration = load_configuration(args.config, client)
        known = prices.prices_for(args, configuration, must_read=True)
        made = program.RebalancerProgram(client, configuration, Faults.told_by(os.environ), known, archive_for(args))
        program.run(made, args.metrics_listen, args.dashboard_listen, guard_for(args))
    return 0


def guard_for(args: argparse.Namespace) -> Guard:
    return Guard(known_hosts(os.environ.get("SPOTWEAVE_POD_IP"), args.dashboard_host), args.dashboard_token_file)
