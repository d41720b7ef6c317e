"""`spotweave opt-in`: labels namespaces, and says what the rebalancer may do there. The chart's Job runs it, too."""

from __future__ import annotations

import argparse
from typing import Any

from cli import access, hints
from cli.errors import UsageError
from kube.client import Client
from kube.errors import ApiError, NotFound
from kube.paths import path_of
from placement import names

NAMESPACES = "/api/v1/namespaces"
MODES = ("plan-only", "auto")


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "opt-in",
        parents=[common],
        help="opt namespaces in, each with its rebalance mode",
        description="Opt namespaces in: label each, and write what the rebalancer may do there. "
        "`spotweave plan --opt-in NAMESPACE` shows beforehand what would change.",
    )
    access.add_options(parser)
    parser.add_argument(
        "namespaces",
        nargs="+",
        metavar="NAMESPACE[=MODE]",
        type=_wish,
        help="MODE is plan-only (place new pods, move none; the default) or auto",
    )
    parser.set_defaults(run=run)


def _wish(text: str) -> tuple[str, str]:
    name, _, mode = text.partition("=")
    if "=" in text and mode not in MODES:
        raise argparse.ArgumentTypeError(f"expected NAMESPACE=plan-only or NAMESPACE=auto, got {text!r}")
    if name in names.EXCLUDED_NAMESPACES:
        raise argparse.ArgumentTypeError(f"{name} is never placed")
    return name, mode or MODES[0]


def run(args: argparse.Namespace) -> int:
    """All that exist are written, also where another does not. Exit code 2 then."""
    missing: list[str] = []
    with access.client_for(args) as client:
        for name, mode in args.namespaces:
            try:
                client.patch(path_of(NAMESPACES, name), written(mode))
            except NotFound:
                missing.append(name)
            else:
                print(f"Opted {name} in: {_meaning(mode)}.")
        if missing:
            raise UsageError(f"namespace {missing[0]!r} does not exist", hints.meant(missing[0], _known(client)))
    return 0


def written(mode: str) -> dict[str, Any]:
    """The label and the annotation, as a merge patch."""
    return {"metadata": {"labels": {names.PLACEMENT: names.ENABLED}, "annotations": {names.REBALANCE: mode}}}


def _known(client: Client) -> list[str]:
    """The Job of the chart may read its own namespaces alone."""
    try:
        return [each["metadata"]["name"] for each in client.get_json(NAMESPACES)["items"]]
    except ApiError:
        return []


def _meaning(mode: str) -> str:
    return "new pods are placed, none is moved" if mode == "plan-only" else "new pods are placed, running ones moved"
