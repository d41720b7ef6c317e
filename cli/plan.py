"""`spotweave plan`: what the rebalancer would do now and why, and what it would do under another policy."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cli import access, hints, output, prices
from cli.errors import UsageError
from cli.observed import observed_for_reading
from cli.signs import signs_for_reading
from dashboard.viewer import NO_PRICES, Around, Viewer
from kube.client import Client
from kube.configmaps import read_outages, read_pause
from kube.configuration import configuration_for_reading
from kube.snapshot import facts_of, read_snapshot
from placement import names
from placement.configuration import Configuration
from placement.model import Namespace, Sign, Snapshot
from placement.observation import NOTHING_OBSERVED, Observed
from placement.outage import Outages
from placement.pause import Pause, standing
from placement.plan.actions import Plan
from placement.plan.assess import Assessment
from placement.plan.room import Room
from placement.plan.scene import Scene
from placement.plan.select import plan
from placement.policy import mistakes_in
from rebalancer.index import Index
from report.exposure import Exposure, Place, exposure, places
from report.rolloutroom import foreseen
from report.savings import Prices, told
from report.status import statuses
from report.statusjson import mix_json
from report.tables import foreseen_lines
from report.view import View
from report.whatif import outlook


@dataclass(frozen=True, slots=True)
class Picture:
    """The cluster as it is, for a plan that nobody carries out."""

    snapshot: Snapshot
    configuration: Configuration = field(default_factory=Configuration)
    signs: tuple[Sign, ...] = ()
    outages: Outages = field(default_factory=Outages)
    paused: Pause | None = None
    now: float = field(default_factory=time.time)
    observed: Observed = NOTHING_OBSERVED


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and what it was made from."""

    index: Index
    plan: Plan
    where: Mapping[str, Place]
    observed: Observed = NOTHING_OBSERVED

    def exposure_of(self, found: Assessment) -> Exposure:
        ready = [self.where[member.pod.node] for member in found.members if member.serves]
        return exposure(ready, found.group.availability, self.observed)


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("plan", parents=[common], help="show what the rebalancer would do, and why")
    access.add_options(parser)
    parser.add_argument("--config", type=Path, help="configuration file (default: the ConfigMap spotweave-config)")
    parser.add_argument("-n", "--namespace", help="only this namespace")
    output.add_option(parser)
    output.add_watch(parser)
    prices.add_options(parser)
    parser.add_argument(
        "--set",
        dest="changes",
        action="append",
        nargs="+",
        default=[],
        metavar=("NS/NAME", "SETTING=VALUE"),
        help="plan as if the workload had these annotations, such as shop/web spot-ratio=50%%",
    )
    parser.add_argument(
        "--opt-in", action="append", default=[], metavar="NS", help="plan as if the namespace were opted in"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 where there is something to do."""
    return output.show(args, lambda: look(args))


def look(args: argparse.Namespace) -> output.Result:
    with access.client_for(args) as client:
        picture = take_picture(client, args.config)
    hints.check_namespace(args.namespace, picture.snapshot.namespaces)
    is_question = bool(args.changes or args.opt_in)
    for name, *settings in args.changes:
        picture = with_settings(picture, name, settings)
    for namespace in args.opt_in:
        picture = opted_in(picture, namespace)
    made = planned(picture)
    asked = {name for name, *_ in args.changes}
    shown = [each for each in _sorted(made.index) if _is_shown(each, args, asked, is_question)]
    only = {each.group.workload.uid for each in shown}
    part = _part(made.plan, only if args.namespace or is_question else None)
    answered = (
        workloads_json(view_of(made, picture, prices.prices_for(args, picture.configuration)), shown)
        if is_question
        else []
    )
    found = statuses(picture.snapshot, picture.configuration, picture.observed)
    room = Room(made.index.ground, made.index.used, lambda: made.index.waiting, made.index.neighbours)
    ahead = foreseen((each for each in found if each.workload.uid in only), room)
    return output.Result(
        {
            **part.raw(),
            "paused": picture.paused and picture.paused.raw,
            "ahead": [each.raw() for each in ahead],
            **({"workloads": answered} if is_question else {}),
        },
        lambda: Group(_as_table(part, picture, answered), *foreseen_lines(ahead)),
        1 if part.actions or part.outages else 0,
    )


def take_picture(client: Client, config: Path | None) -> Picture:
    now = time.time()
    return Picture(
        read_snapshot(client),
        configuration_for_reading(config, client),
        signs_for_reading(client),
        read_outages(client)[0],
        standing(read_pause(client), now),
        now,
        observed_for_reading(client),
    )


def planned(picture: Picture) -> Planned:
    """What would be done first, if nothing were under way that only the rebalancer knows of."""
    index = Index(picture.configuration)
    for fact in (*facts_of(picture.snapshot), *picture.signs, picture.observed.rates):
        index.observe(None, fact)
    index.drain()
    index.refresh(picture.now, all_of_them=True)
    scene = Scene(
        index.restless,
        index.ground,
        index.used,
        picture.now,
        picture.outages,
        index.lost,
        index.budgets_of,
        index.is_awaited,
        is_paused=picture.paused is not None,
        waiting=index.waiting,
        sizes=index.sizes,
        neighbours=index.neighbours,
    )
    return Planned(index, plan(scene), places(picture.snapshot.nodes, picture.configuration), picture.observed)


def view_of(made: Planned, picture: Picture, known: Prices = NO_PRICES) -> View:
    """What the dashboard would show of it, so that both tell the same."""
    around = Around(
        is_leading=lambda: False,
        is_synced=lambda: True,
        outages=lambda: picture.outages,
        pause=lambda: picture.paused,
        now=lambda: picture.now,
        observed=lambda: picture.observed,
    )
    viewer = Viewer(made.index, around, known)
    viewer.take(made.plan, picture.now)
    view = viewer.view()
    assert view is not None
    return view


# --- what if ---------------------------------------------------------------------------------------------------------


def with_settings(picture: Picture, name: str, settings: Sequence[str]) -> Picture:
    """As if a workload had these annotations."""
    pairs = [each.partition("=") for each in settings]
    wrong = [each for each in settings if "=" not in each]
    written = {names.PREFIX + key.removeprefix(names.PREFIX): value for key, _, value in pairs}
    wrong += [str(mistake) for mistake in mistakes_in(written, "workload")]
    if wrong or not settings:
        told = "; ".join(wrong) or "no setting is given"
        raise UsageError(f"--set {name}: {told}", "expected NS/NAME and SETTING=VALUE, such as spot-ratio=50%")
    found = [each for each in picture.snapshot.workloads if str(each.key) == name]
    if not found:
        hint = hints.meant(name, (str(each.key) for each in picture.snapshot.workloads)) or "expected NS/NAME"
        raise UsageError(f"--set {name}: no such Deployment or StatefulSet", hint)
    changed = {each.uid: replace(each, annotations={**each.annotations, **written}) for each in found}
    workloads = tuple(changed.get(each.uid, each) for each in picture.snapshot.workloads)
    return replace(picture, snapshot=replace(picture.snapshot, workloads=workloads))


def opted_in(picture: Picture, name: str) -> Picture:
    namespace = picture.snapshot.namespaces.get(name)
    if namespace is None or name in names.EXCLUDED_NAMESPACES:
        told = (
            "Spotweave never places pods of this namespace" if namespace is not None else "the namespace does not exist"
        )
        hint = "" if namespace is not None else hints.meant(name, picture.snapshot.namespaces)
        raise UsageError(f"--opt-in {name}: {told}", hint)
    labelled = Namespace(name, {**namespace.labels, names.PLACEMENT: names.ENABLED}, namespace.annotations)
    namespaces = {**picture.snapshot.namespaces, name: labelled}
    return replace(picture, snapshot=replace(picture.snapshot, namespaces=namespaces))


# --- showing ---------------------------------------------------------------------------------------------------------


def _sorted(index: Index) -> list[Assessment]:
    return sorted(index.assessments.values(), key=lambda each: (each.group.workload.key, each.group.workload.kind))


def _is_shown(found: Assessment, args: argparse.Namespace, asked: set[str], is_question: bool) -> bool:
    workload = found.group.workload
    if args.namespace is not None and workload.namespace != args.namespace:
        return False
    return not is_question or str(workload.key) in asked or workload.namespace in args.opt_in


def _part(made: Plan, only: set[str] | None) -> Plan:
    if only is None:
        return made
    actions = tuple(each for each in made.actions if each.workload is not None and each.workload.uid in only)
    return replace(made, actions=actions, skipped=tuple(each for each in made.skipped if each.workload.uid in only))


def workloads_json(view: View, shown: Sequence[Assessment]) -> list[dict[str, Any]]:
    """As the dashboard's API answers another ratio: now, and once all moves are done."""
    return [_workload_json(view, each) for each in shown]


def _workload_json(view: View, found: Assessment) -> dict[str, Any]:
    workload = found.group.workload
    seen = view.by_key[workload.namespace, str(workload.kind), workload.name]
    return {
        "namespace": workload.namespace,
        "kind": str(workload.kind),
        "name": workload.name,
        "wanted": mix_json(found.wanted),
        "actual": mix_json(seen.actual),
        "moves": len(found.wishes),
        "blocked": sorted({str(wish.blocked) for wish in found.wishes if wish.blocked is not None}),
        "exposure": seen.exposure.raw,
        "savings": seen.savings.raw,
        **outlook(view, found),
    }


def _as_table(part: Plan, picture: Picture, answered: Sequence[dict[str, Any]]) -> Group:
    parts: list[Any] = []
    if picture.paused is not None:
        parts.append(Text("Paused: no move starts until `spotweave resume`.", style="yellow"))
    if answered:
        parts += [workloads_table(answered), Text(prices_line(answered), style="dim"), ""]
    parts += [
        Text(f"Note an outage of {each.of} ({', '.join(sorted(each.zones)) or 'everywhere'})") for each in part.outages
    ]
    if part.actions:
        parts.append(_actions_table(part))
    parts += [Text(f"{each.workload.kind} {each.workload.key}: {each.text}", style="dim") for each in part.skipped]
    return Group(*(parts or [Text("Nothing to do.")]))


def _actions_table(part: Plan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("POD", "HOW", "WHY", "FROM", "TO"):
        table.add_column(column, overflow="fold")
    for each in part.actions:
        table.add_row(str(each.pod.key), each.how, each.why, each.origin or "", each.to or each.text)
    return table


def workloads_table(answered: Sequence[dict[str, Any]]) -> Table:
    """Each workload now, and what it would be."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("WORKLOAD", overflow="fold")
    table.add_column("")
    for title in ("MIX\nspot+od", "HEADROOM", "POOL LOSS", "COST"):
        table.add_column(title, justify="right")
    table.add_column("MOVES", justify="right")
    for each in answered:
        after, savings = each["exposureAfter"], each["savingsAfter"]
        name = f"{each['namespace']}/{each['name']}"
        table.add_row(name, "now", *_cells(each["actual"], each["exposure"], each["savings"]), "")
        table.add_row("", "then", *_cells(each["wanted"], after, savings), str(each["moves"]))
    return table


def prices_line(answered: Sequence[dict[str, Any]]) -> str:
    """What costs are compared with, and where the prices of spot come from."""
    costs = [costs for each in answered for costs in (each["savings"], each["savingsAfter"]) if costs is not None]
    sources = sorted({told(source) for each in costs for source in each["sources"]})
    return f"COST is relative to all on-demand; spot prices: {', '.join(sources) or 'none needed'}"


def _cells(mix: dict[str, int], seen: dict[str, Any] | None, saved: dict[str, Any] | None) -> tuple[str, ...]:
    cost = None if saved is None else saved["cost"]
    seen_as = (
        ("?", "?")
        if seen is None
        else (str(seen["headroom"]), "survived" if seen["survives"]["pool"] else "not survived")
    )
    return (f"{mix['spot']}+{mix['onDemand']}", *seen_as, "?" if cost is None else f"{cost:.0%}")
