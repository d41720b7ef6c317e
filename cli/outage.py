"""`spotweave outage`: shows, notes and clears outages, by hand."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cli import access, output
from cli.errors import UsageError
from cli.pause import pause_for_reading
from kube.client import Client
from kube.configmaps import change_outages, read_outages
from kube.errors import ApiError, Forbidden
from kube.resources import NODES
from kube.snapshot import read_all
from placement import names
from placement.model import Class
from placement.outage import Outage, Outages, cleared, cleared_in, noted, outages_text
from placement.window import parse_duration
from report.sentences import moment, pause_sentence

log = logging.getLogger(__name__)


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "outage",
        help="show, note or clear an outage of spot or on-demand",
        description="While an outage is noted, new pods prefer the class and may run on the other one.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text, function in (
        ("list", "list noted outages", listed),
        ("set", "note that a class is out: new pods only prefer it", note),
        ("clear", "clear noted outages", clear),
    ):
        action = actions.add_parser(name, parents=[common], help=text)
        access.add_options(action)
        action.set_defaults(run=function, writes=name != "list")
        output.add_option(action)
        if name == "list":
            output.add_watch(action)
        else:
            action.add_argument("--class", dest="of", type=_class, choices=list(Class), default=Class.SPOT)
            action.add_argument(
                "--zone", action="append", default=[], metavar="Z", help="only in this zone; repeatable"
            )
        if name == "set":
            action.add_argument(
                "--for",
                dest="lasts",
                type=_duration,
                metavar="D",
                help="duration, such as 30m (default: 5m, doubled each time it is noted again)",
            )


def _class(text: str) -> Class:
    try:
        return Class(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected {' or '.join(Class)}, got {text!r}") from error


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a duration such as 90s, 5m or 1h30m, got {text!r}") from error


def listed(args: argparse.Namespace) -> int:
    """The pause comes first: while it stands, nothing returns to a class that is back."""

    def look() -> output.Result:
        with access.client_for(args) as client:
            outages, _ = read_outages(client)
            paused = pause_for_reading(client, time.time())
        raw_pause = None if paused is None else paused.raw
        on_top = [] if paused is None else [Text(pause_sentence(paused))]
        return output.Result({"paused": raw_pause, **_json(outages)}, lambda: Group(*on_top, as_table(outages)))

    return output.show(args, look)


def note(args: argparse.Namespace) -> int:
    seconds = None if args.lasts is None else args.lasts.total_seconds()
    outage = Outage(args.of, 0.0, frozenset(args.zone))
    with access.client_for(args) as client:
        outages = change_outages(client, lambda known: noted(known, outage, time.time(), seconds))
        doubt = _doubt(client, outage.zones)
    if doubt:
        print(f"spotweave: warning: {doubt}", file=sys.stderr)
    return _show(args, outages)


def _doubt(client: Client, zones: frozenset[str]) -> str:
    """What seems wrong with zones; nothing if the user, who may note outages, may not list nodes."""
    try:
        return unknown_zones(zones, (node.pool.zone for node in read_all(client, NODES))) if zones else ""
    except ApiError:
        return ""


def unknown_zones(zones: Iterable[str], known: Iterable[str]) -> str:
    """`no node is in zone-x; choose from zone-a, zone-b`; a zone may also be one whose nodes have all gone."""
    there = sorted({zone for zone in known if zone})
    unknown = sorted(set(zones).difference(there))
    some = f"choose from {', '.join(there)}" if there else "no node has a zone label"
    return f"no node is in {' or '.join(unknown)}; {some}" if unknown else ""


def clear(args: argparse.Namespace) -> int:
    """Clears what is noted of a class: in the zones that are named, or altogether."""
    zones = frozenset(args.zone)

    def without(known: Outages) -> Outages:
        now = time.time()
        if not zones:
            return cleared(known, [each for each in known.noted if each.of is args.of], now)
        noted_zones = {zone for each in known.standing(now) if each.of is args.of for zone in each.zones}
        if not noted_zones & zones:
            told = f"no outage of {args.of} is noted for {', '.join(sorted(zones))}; `spotweave outage list` shows all"
            raise UsageError(told)
        return cleared_in(known, args.of, zones, now)

    with access.client_for(args) as client:
        outages = change_outages(client, without)
    return _show(args, outages)


def _show(args: argparse.Namespace, outages: Outages) -> int:
    """What is noted now, as `outage list` shows it."""
    return output.show(args, lambda: output.Result(_json(outages), lambda: as_table(outages)))


def _json(outages: Outages) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads(outages_text(outages))
    return raw


def as_table(outages: Outages) -> RenderableType:
    standing = outages.standing(time.time())
    if not standing:
        return Text(f"No outage is noted (version {outages.version}).")
    table = Table(
        box=None, pad_edge=False, header_style="bold", title=f"version {outages.version}", title_justify="left"
    )
    for column in ("CLASS", "ZONES", "FOR", "UNTIL", "NOTED", "BY"):
        table.add_column(column)
    for each in standing:
        zones, until = ", ".join(sorted(each.zones)) or "all", moment(each.until)
        whose = f"{each.namespace}: {each.pods}" if each.namespace else each.pods
        table.add_row(str(each.of), zones, whose, until, f"{each.strikes + 1}×", each.by)
    shown = (each.evidence for each in standing if each.evidence is not None)
    return Group(table, *(Text(f"evidence: pod {each.pod} of {each.workload}") for each in shown))


def outages_for_reading(client: Client, now: float) -> tuple[Outage, ...]:
    """The current outages, for read-only commands. Warns if the user may not read the ConfigMap."""
    try:
        return read_outages(client)[0].standing(now)
    except Forbidden:
        log.warning("not allowed to read the ConfigMap %s: outages are not shown", names.STATE_MAP)
        return ()
