"""`spotweave plan`: what the rebalancer would do now and why, and what it would do under another policy."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
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
from placement.gang.podgroup import PodGroup
from placement.model import Class, Namespace, Sign, Snapshot
from placement.observation import NOTHING_OBSERVED, Observed
from placement.outage import Outages
from placement.pause import Pause, standing
from placement.plan.actions import Plan
from placement.plan.assess import Assessment
from placement.plan.room import Room
from placement.plan.scene import Scene
from placement.plan.select import plan
from placement.policy import mistakes_in
from rebalancer.forecast import Forecast
from rebalancer.index import Index
from report.exposure import Exposure, exposure
from report.foretold import Ending, prices_line, remarks, workloads_table
from report.foretold import workload_json as foretold_json
from report.rolloutroom import Foreseen, foreseen
from report.savings import Prices
from report.status import statuses
from report.tables import foreseen_lines
from report.view import View


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
    observed: Observed = NOTHING_OBSERVED

    def exposure_of(self, found: Assessment) -> Exposure:
        return exposure(found.standing, found.group.availability, self.observed)


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "plan",
        parents=[common],
        help="show what the rebalancer would do, and why",
        description="Show what the rebalancer would do now, what it would not do, and why.",
    )
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
    for name, *settings in args.changes:
        picture = with_settings(picture, name, settings)
    for namespace in args.opt_in:
        picture = opted_in(picture, namespace)
    made = planned(picture)
    return _answer(args, picture, made) if args.changes or args.opt_in else _intention(args, picture, made)


def _intention(args: argparse.Namespace, picture: Picture, made: Planned) -> output.Result:
    """What would be done now."""
    shown = [each for each in _sorted(made.index) if args.namespace in (None, each.group.workload.namespace)]
    part = _part(made.plan, _uids(shown) if args.namespace else None)
    ahead = _ahead(picture, made, shown)
    raw = {**part.raw(), "paused": picture.paused and picture.paused.raw, "ahead": [each.raw() for each in ahead]}
    return output.Result(
        raw,
        lambda: Group(*_paused(picture), *_as_table(part), *foreseen_lines(ahead)),
        1 if part.actions or part.outages else 0,
    )


def _answer(args: argparse.Namespace, picture: Picture, made: Planned) -> output.Result:
    """What would come of a question, once all is done; only about the workloads that it names."""
    asked = {name for name, *_ in args.changes}
    shown = [each for each in _sorted(made.index) if _is_asked(each, args, asked)]
    rest, known = foretold(picture), prices.prices_for(args, picture.configuration)
    endings = [rest.endings[each.group.workload.uid] for each in shown]
    now, then = view_of(made, picture, known), view_of(replace(made, index=rest.index), picture, known)
    answered = [foretold_json(now, then, ending) for ending in endings]
    ahead = _ahead(picture, made, shown)
    part = _part(made.plan, _uids(shown))
    raw = {
        "actions": part.raw()["actions"],
        "skipped": [
            {"workload": f"{each.group.workload.kind} {each.group.workload.key}", "reason": sentence}
            for each, ending in zip(shown, endings, strict=True)
            for sentence in ending.sentences()
        ],
        "paused": picture.paused and picture.paused.raw,
        "ahead": [each.raw() for each in ahead],
        "newNodes": {str(of): rest.added.get(of, 0) for of in Class},
        "workloads": answered,
    }
    return output.Result(
        raw,
        lambda: Group(*_paused(picture), *_answer_table(answered, rest, args), *foreseen_lines(ahead)),
        1 if part.actions or not all(ending.is_quiet for ending in endings) else 0,
    )


def _uids(shown: Sequence[Assessment]) -> set[str]:
    return {each.group.workload.uid for each in shown}


def _ahead(picture: Picture, made: Planned, shown: Sequence[Assessment]) -> tuple[Foreseen, ...]:
    """What the next rollout will lack."""
    index, only = made.index, _uids(shown)
    room = Room(index.ground, index.used, lambda: index.waiting, index.neighbours)
    found = statuses(picture.snapshot, picture.configuration, picture.observed)
    return foreseen((each for each in found if each.workload.uid in only), room)


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
    index = index_of(picture)
    made = plan(scene_at(picture, index, picture.now))
    return Planned(index, made, picture.observed)


def index_of(picture: Picture) -> Index:
    facts = (*facts_of(picture.snapshot), *picture.signs, picture.observed.rates)
    index = Index(picture.configuration, lambda: any(isinstance(each, PodGroup) for each in facts))
    for fact in facts:
        index.observe(None, fact)
    index.drain()
    index.refresh(picture.now, all_of_them=True)
    return index


def scene_at(picture: Picture, index: Index, now: float) -> Scene:
    """What a plan is made from, of a cluster that may be another by then."""
    return Scene(
        index.restless(),
        index.ground,
        index.used,
        now,
        picture.outages,
        index.lost,
        index.budgets_of,
        index.is_awaited,
        is_paused=picture.paused is not None,
        waiting=index.waiting,
        sizes=index.sizes,
        neighbours=index.neighbours,
        is_denied=index.is_denied,
    )


@dataclass(frozen=True, slots=True)
class Foretold:
    """The cluster once the rebalancer has done all that it will do, and how each workload came there."""

    index: Index
    endings: Mapping[str, Ending]  # by the workload's UID
    added: Mapping[Class, int]  # nodes that an autoscaler is assumed to bring


def foretold(picture: Picture) -> Foretold:
    """Runs the plan forward on an index of its own."""
    index = index_of(picture)
    ahead = Forecast(index, lambda now: scene_at(picture, index, now), picture.now)
    endings = ahead.run()
    return Foretold(index, endings, dict(ahead.added))


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


def _is_asked(found: Assessment, args: argparse.Namespace, asked: set[str]) -> bool:
    workload = found.group.workload
    is_here = args.namespace in (None, workload.namespace)
    return is_here and (str(workload.key) in asked or workload.namespace in args.opt_in)


def _part(made: Plan, only: set[str] | None) -> Plan:
    if only is None:
        return made
    actions = tuple(each for each in made.actions if each.workload is not None and each.workload.uid in only)
    return replace(made, actions=actions, skipped=tuple(each for each in made.skipped if each.workload.uid in only))


def _paused(picture: Picture) -> list[RenderableType]:
    if picture.paused is None:
        return []
    return [Text("Paused: no move starts until `spotweave resume`.", style="yellow")]


def _as_table(part: Plan) -> list[RenderableType]:
    parts: list[RenderableType] = [
        Text(f"Note an outage of {each.of} ({', '.join(sorted(each.zones)) or 'everywhere'})") for each in part.outages
    ]
    if part.actions:
        parts.append(_actions_table(part))
    parts += [Text(f"{each.workload.kind} {each.workload.key}: {each.text}", style="dim") for each in part.skipped]
    return parts or [Text("Nothing to do.")]


def _answer_table(answered: Sequence[dict[str, Any]], rest: Foretold, args: argparse.Namespace) -> list[RenderableType]:
    if not answered:
        where = " and ".join(args.opt_in) or "there"
        return [Text(f"Nothing to do: no Deployment or StatefulSet in {where} would be placed.")]
    bought = [f"{number} {of} node{'' if number == 1 else 's'}" for of, number in rest.added.items()]
    assumed = f"This assumes that the autoscaler adds {' and '.join(bought)} like those that exist."
    return [
        workloads_table(answered),
        *remarks(answered),
        *([Text(assumed, style="dim")] if bought else []),
        Text(prices_line(answered), style="dim"),
    ]


def _actions_table(part: Plan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("POD", "HOW", "WHY", "FROM", "TO"):
        table.add_column(column, overflow="fold")
    for each in part.actions:
        table.add_row(str(each.pod.key), each.how, each.why, each.origin or "", each.to or each.text)
    return table
