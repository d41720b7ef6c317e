"""`spotweave drill`: what each workload would lose with a node, a pool, a zone or all spot, before it happens."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cli import access, hints, output
from cli.errors import UsageError
from cli.plan import Picture, planned, view_of
from kube.configuration import configuration_for_reading
from kube.snapshot import read_snapshot
from placement.configuration import Configuration
from placement.model import Class, Snapshot
from placement.plan.ground import Site, sites_of
from report import whatif
from report.drill import Loss, drill, nodes_in
from report.exposure import Domain
from report.tables import ASSUMED, SHORT_KIND

MOST_NAMED = 20
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
        "drill",
        parents=[common],
        help="show what workloads would lose with a node, a pool, a zone or all spot",
        description="Show what each workload would lose with a node, a pool, a zone or all spot.",
    )
    access.add_options(parser)
    parser.add_argument("target", type=target, metavar="WHAT", help=EXPECTED)
    parser.add_argument("--config", type=Path, help="configuration file (default: the ConfigMap spotweave-config)")
    parser.add_argument("-n", "--namespace", help="only this namespace")
    output.add_option(parser)
    output.add_watch(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 if a workload would fall below a declared min-available."""
    return output.show(args, lambda: look(args))


def look(args: argparse.Namespace) -> output.Result:
    with access.client_for(args) as client:
        configuration = configuration_for_reading(args.config, client)
        snapshot = read_snapshot(client)
    return found(snapshot, configuration, args.target, args.namespace)


def found(
    snapshot: Snapshot, configuration: Configuration, what: Target, namespace: str | None = None
) -> output.Result:
    hints.check_namespace(namespace, snapshot.namespaces)
    nodes = _nodes(snapshot, configuration, what)
    lost = drill(snapshot, configuration, nodes)
    losses = sorted((each for each in lost if namespace in (None, each.workload.namespace)), key=_worst_first)
    picture = Picture(snapshot, configuration)
    room = whatif.drill(view_of(planned(picture), picture), what.domain, what.name)["room"]
    every = sites_of(snapshot.nodes.values(), configuration).values()
    has_spot = any(site.of is Class.SPOT and site.name not in nodes for site in every)
    return output.Result(
        {**as_json(what, nodes, losses), "room": room},
        lambda: as_table(what, nodes, losses, _fits(room, has_spot)),
        1 if any(each.falls_below and not each.is_assumed for each in losses) else 0,
    )


def _worst_first(loss: Loss) -> tuple[bool, bool, int]:
    return not loss.falls_below, loss.is_assumed, loss.left - loss.needed


def _nodes(snapshot: Snapshot, configuration: Configuration, what: Target) -> frozenset[str]:
    """That there is no such pool is a mistake worth telling; that there is no spot is not."""
    nodes = nodes_in(snapshot, configuration, what.domain, what.name)
    if not nodes and what.domain is not Domain.SPOT:
        every = sites_of(snapshot.nodes.values(), configuration).values()
        known = sorted({_named(site, what.domain) for site in every} - {""})
        close = hints.meant(what.name, known) if len(known) > MOST_NAMED else ""
        told = close or _some(known) or f"the cluster has no {what.domain}s"
        raise UsageError(f"{what.domain} {what.name!r} does not exist", told)
    return nodes


def _some(known: Sequence[str]) -> str:
    """A cluster may have thousands of nodes."""
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    return f"choose from {', '.join(known[:MOST_NAMED])}{more}" if known else ""


def _named(site: Site, domain: Domain) -> str:
    return {Domain.NODE: site.name, Domain.POOL: site.spot_pool, Domain.ZONE: site.zone}.get(domain, "")


# --- showing ---------------------------------------------------------------------------------------------------------


def as_json(what: Target, nodes: frozenset[str], losses: Sequence[Loss]) -> dict[str, Any]:
    """The same fields as in the dashboard's API."""
    below = [each for each in losses if each.falls_below]
    assumed = sum(each.is_assumed for each in below)
    return {
        "domain": str(what.domain),
        "name": what.name,
        "nodes": len(nodes),
        "replicas": sum(each.lost for each in losses),
        "workloads": len(losses),
        "fallBelow": {"declared": len(below) - assumed, "assumed": assumed},
        "losses": [each.raw for each in losses],
    }


def as_table(what: Target, nodes: frozenset[str], losses: Sequence[Loss], fits: Iterable[Text]) -> Group:
    on_top = Text(f"If we lose {what} ({len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}):", style="bold")
    if not losses:
        return Group(on_top, Text("No workload loses a replica."))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("WORKLOAD", overflow="fold")
    for title in ("LOST", "LEFT", "MUST SERVE"):
        table.add_column(title, justify="right")
    table.add_column("", no_wrap=True)
    for each in losses:
        table.add_row(*_row(each))
    return Group(on_top, table, *_notes(losses), *fits)


def _row(loss: Loss) -> tuple[Text, ...]:
    workload = loss.workload
    style = "" if not loss.falls_below else "yellow" if loss.is_assumed else "bold red"
    return (
        Text(f"{workload.namespace}/{workload.name} ({SHORT_KIND[workload.kind]})"),
        Text(str(loss.lost)),
        Text(str(loss.left), style=style),
        Text(f"{loss.needed}{'*' if loss.is_assumed else ''}"),
        Text("below minimum" if loss.falls_below else "", style=style),
    )


def _notes(losses: Sequence[Loss]) -> Iterator[Text]:
    below = [each for each in losses if each.falls_below]
    declared = sum(not each.is_assumed for each in below)
    told = f"{len(below)} of {len(losses)} workloads would fall below their minimum, {declared} below a declared one"
    yield Text(
        f"! {told}" if below else "All workloads keep their minimum of serving replicas.",
        style="yellow" if below else "green",
    )
    if any(each.is_assumed for each in losses):
        yield Text(ASSUMED, style="dim")


FITS = {
    "spot": "Room for {pods} from spot on the other spot nodes",
    "onDemand": "Room for {pods} from on-demand on the other on-demand nodes",
    "allOnDemand": "Room for {pods} on the remaining on-demand nodes alone",
}


def _fits(room: Mapping[str, Any], has_spot: bool) -> Iterator[Text]:
    """Whether the pods that go fit on what is left, of all namespaces, by what they ask for."""
    for kind, text in FITS.items():
        fit = room[kind]
        if fit["pods"] and (has_spot or kind != "spot"):
            told = text.format(pods="the pod" if fit["pods"] == 1 else f"the {fit['pods']} pods")
            verdict = "yes" if fit["fits"] else f"no, not for {fit['leftOut']}: {fit['reason']}"
            yield Text(f"{told}: {verdict}", style="dim")
