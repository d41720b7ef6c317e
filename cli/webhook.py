"""`spotweave webhook`: the webhook program, what the image runs."""

from __future__ import annotations

import argparse
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from certs.reconcile import Issuer, Keeper
from certs.renewal import OVERLAP
from cli import __version__, logs
from kube.client import connect
from kube.configuration import load_configuration
from kube.crash import end_with_any_thread
from webhook import program


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "webhook",
        parents=[common],
        help="run the admission webhook",
        description="Run the admission webhook, as the image does.",
    )
    parser.add_argument(
        "--kubeconfig", type=Path, help="path of the kubeconfig (default: the one that kubectl uses, or in-cluster)"
    )
    parser.add_argument("--config", type=Path, help="configuration file (default: the ConfigMap spotweave-config)")
    parser.add_argument("--listen", default="0.0.0.0:8443", metavar="HOST:PORT", help="address for admission, over TLS")
    parser.add_argument(
        "--metrics-listen", default="0.0.0.0:8080", metavar="HOST:PORT", help="address for probes and metrics"
    )
    parser.add_argument("--share-port", action="store_true", help="let several processes listen on the same port")
    parser.add_argument("--peer-listen", metavar="HOST:PORT", help="separate address for calls from other replicas")
    parser.add_argument("--advertise", metavar="HOST:PORT", help="address under which other replicas call this one")
    parser.add_argument(
        "--certificates",
        type=Issuer,
        choices=tuple(Issuer),
        default=Issuer.OWN,
        help="own: issue and publish certificates; secret: serve the Secret that cert-manager or others fill",
    )
    parser.add_argument(
        "--ca-overlap",
        type=_seconds,
        default=OVERLAP,
        metavar="SECONDS",
        help=f"minimum duration of each step of a CA rotation (default: {OVERLAP.seconds})",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    end_with_any_thread()
    logs.calm()
    client = connect(args.kubeconfig, user_agent=f"spotweave-webhook/{__version__}")
    addresses = program.Addresses(
        args.listen, args.metrics_listen, args.share_port, args.peer_listen, _advertised(args)
    )
    keeper = Keeper(client, args.certificates, args.ca_overlap)
    program.run(client, load_configuration(args.config, client), addresses, keeper)
    return 0


def _seconds(text: str) -> timedelta:
    if not text.isdigit() or not 1 <= int(text) <= 86_400:
        raise argparse.ArgumentTypeError(f"expected a whole number of seconds from 1 to 86400, got {text!r}")
    return timedelta(seconds=int(text))


def _advertised(args: argparse.Namespace) -> str:
    """Where other replicas reach this one: the option, else the pod's own address; "" if there are no others."""
    if args.advertise or args.peer_listen:
        return str(args.advertise or args.peer_listen)
    return program.peer_address(os.environ.get("POD_IP", ""), args.listen)
