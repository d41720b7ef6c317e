"""`spotweave drill`: who would lose what if a node, a pool, a zone or all spot went, told before it goes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cli import access, show
from cli.configuration import configuration_for_reading
from cli.status import ASSUMED, SHORT_KIND
from kube.snapshot import read_snapshot
from localcluster.errors import ClusterError
from placement.configuration import Configuration
from placement.drill import Loss, drill, nodes_in
from placement.exposure import Domain, Place, places
from placement.model import Snapshot

EXPECTED = "node=NAME, pool=ZONE/TYPE, zone=NAME or spot"


@dataclass(frozen=True, slots=True)
class Target:
    """What goes: `pool=zone-a/m5`, or `spot`, which has no name."""

    domain: Domain
    name: str = ""

    def __str__(self) -> str:
        return f"{self.domain}={self.name}" if self.name else str(self.domain)


def target(text: str) -> Target:
    kind, equals, name = text.partition("=")
    is_whole = kind in tuple(Domain) and bool(name) == bool(equals) == (kind != Domain.SPOT)
    if not is_whole:
        raise argparse.ArgumentTypeError(f"expected {EXPECTED}, got {text!r}")
    return Target(Domain(kind), name)


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "drill", parents=[common], help="who would lose what if a node, pool, zone or all spot went"
    )
    access.add_options(parser)
    parser.add_argument("targets", type=target, nargs="+", metavar="WHAT", help=f"{EXPECTED}; several go at once")
    parser.add_argument("--config", type=Path, help="configuration file (default: the ConfigMap spotweave-config)")
    parser.add_argument("-n", "--namespace", help="only this namespace")
    show.add_option(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 where a workload would fall below a min-available that somebody declared."""
    return show.show(args, lambda: look(args))


def look(args: argparse.Namespace) -> show.Finding:
    with access.client_for(args) as client:
        configuration = configuration_for_reading(args.config, client)
        snapshot = read_snapshot(client)
    return found(snapshot, configuration, args.targets, args.namespace)


def found(
    snapshot: Snapshot, configuration: Configuration, targets: Sequence[Target], namespace: str | None = None
) -> show.Finding:
    nodes = frozenset[str]().union(*(_nodes(snapshot, configuration, each) for each in targets))
    losses = [each for each in drill(snapshot, configuration, nodes) if namespace in (None, each.workload.namespace)]
    return show.Finding(
        as_json(targets, nodes, losses),
        lambda: as_table(targets, nodes, losses),
        1 if any(each.falls_below and not each.is_assumed for each in losses) else 0,
    )


def _nodes(snapshot: Snapshot, configuration: Configuration, each: Target) -> frozenset[str]:
    """That there is no such pool is a mistake worth telling; that there is no spot is not."""
    nodes = nodes_in(snapshot, configuration, each.domain, each.name)
    if not nodes and each.domain is not Domain.SPOT:
        known = sorted({_named(place, each.domain) for place in places(snapshot.nodes, configuration).values()} - {""})
        told = f"there are {', '.join(known)}" if known else f"there is no {each.domain} at all"
        raise ClusterError(f"there is no {each.domain} {each.name!r}", told, exit_code=2)
    return nodes


def _named(place: Place, domain: Domain) -> str:
    return {Domain.NODE: place.node, Domain.POOL: place.pool, Domain.ZONE: place.zone}.get(domain, "")


# --- showing ---------------------------------------------------------------------------------------------------------


def as_json(targets: Sequence[Target], nodes: frozenset[str], losses: Sequence[Loss]) -> dict[str, Any]:
    return {
        "targets": [str(each) for each in targets],
        "nodes": sorted(nodes),
        "workloads": [
            {
                "namespace": each.workload.namespace,
                "kind": str(each.workload.kind),
                "name": each.workload.name,
                "lost": each.lost,
                "left": each.left,
                "needed": each.needed,
                "assumed": each.is_assumed,
                "fallsBelow": each.falls_below,
            }
            for each in losses
        ],
    }


def as_table(targets: Sequence[Target], nodes: frozenset[str], losses: Sequence[Loss]) -> Group:
    what = " and ".join(map(str, targets))
    on_top = Text(f"Without {what} ({len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}):", style="bold")
    if not losses:
        return Group(on_top, Text("nobody loses a replica."))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("WORKLOAD", overflow="fold")
    for title in ("LOST", "LEFT", "MUST SERVE"):
        table.add_column(title, justify="right")
    table.add_column("", no_wrap=True)
    for each in losses:
        table.add_row(*_row(each))
    return Group(on_top, table, *_notes(losses))


def _row(loss: Loss) -> tuple[Text, ...]:
    workload = loss.workload
    style = "" if not loss.falls_below else "yellow" if loss.is_assumed else "bold red"
    return (
        Text(f"{workload.namespace}/{workload.name} ({SHORT_KIND[workload.kind]})"),
        Text(str(loss.lost)),
        Text(str(loss.left), style=style),
        Text(f"{loss.needed}{'*' if loss.is_assumed else ' '}"),
        Text("falls below" if loss.falls_below else "", style=style),
    )


def _notes(losses: Sequence[Loss]) -> Iterator[Text]:
    below = [each for each in losses if each.falls_below]
    declared = sum(not each.is_assumed for each in below)
    told = f"{len(below)} of {len(losses)} would serve fewer than they must, {declared} of them declared"
    yield Text(f"! {told}" if below else "All serve as many as they must.", style="yellow" if below else "green")
    if any(each.is_assumed for each in losses):
        yield Text(ASSUMED, style="dim")
