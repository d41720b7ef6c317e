"""How commands reach a cluster: the options that they share, and what they make of them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli import __version__
from kube.client import Client, connect
from kube.kubeconfig import namespace_of


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig", type=kubeconfig, help="path of the kubeconfig (default: the one that kubectl uses)"
    )
    parser.add_argument("--context", help="context of the kubeconfig (default: its current context)")


@contextmanager
def client_for(args: argparse.Namespace) -> Iterator[Client]:
    client = connect(args.kubeconfig, user_agent=f"spotweave/{__version__}", context=args.context)
    try:
        yield client
    finally:
        client.close()


def namespace_for(args: argparse.Namespace) -> str:
    """The one that was named, else kubectl's."""
    return args.namespace or namespace_of(args.kubeconfig, args.context)


def kubeconfig(text: str) -> Path:
    """A path; an empty one comes from a command that printed nothing, and would mean this directory."""
    if not text:
        raise argparse.ArgumentTypeError(
            "expected the path of a kubeconfig, got an empty value (is a cluster running?)"
        )
    return Path(text)
