"""What the API answers: pure functions of a view. A workload has the shape of `spotweave status -o json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

import msgspec

from placement.gang.gang import State
from placement.model import Class, Key, Pod
from placement.plan.actions import Action, How
from placement.plan.losses import GoneNode
from placement.plan.marks import released
from placement.slots import Mix
from report.exposure import Domain
from report.history import History
from report.skipped import skipped_json, skipped_sentence
from report.statusjson import mix_json, pods_json, workload_json
from report.view import View
from report.workloadview import WorkloadView

MOST_LISTED = 50  # of each list in the overview; the total is beside it

Raw = dict[str, Any]


class Unknown(Exception):
    """Nothing has that name."""


class Unclear(Exception):
    """The question cannot be understood; the message says what would be."""


# --- the overview ----------------------------------------------------------------------------------------------------


def overview(view: View, history: History, *, with_pools: bool = False) -> Raw:
    totals, (source, points) = view.totals, history.points()
    actual = Mix(totals.spot, totals.on_demand)
    sites = view.taken.ground.sites.values()
    return {
        "spotShare": {
            **mix_json(actual),
            "wanted": mix_json(Mix(totals.wanted_spot, totals.wanted_on_demand)),
            "share": _share(actual),
            "history": points,
            "historySource": source,
        },
        "savings": view.savings.raw,
        "workloads": {
            "total": len(view.seen),
            "exact": totals.exact,
            "soft": totals.soft,
            "missed": totals.missed,
            "mistaken": totals.mistaken,
        },
        "exposed": _exposed(view),
        "nodes": {
            "total": len(sites),
            "spot": sum(site.of is Class.SPOT for site in sites),
            **_named("leaving", sorted(site.node.name for site in sites if site.is_leaving)),
            **_named("notReady", sorted(site.node.name for site in sites if not site.node.ready)),
            **_named("lost", [_gone(name, gone) for name, gone in sorted(view.taken.lost.items())]),
        },
        "moves": _moves(view),
        "held": _held(view),
        "outages": [each.raw for each in view.taken.outages],
        "paused": None if view.paused is None else view.paused.raw,
        "skipped": _skipped(view),
        "gangs": _gangs(view),
        "events": history.events(),
        **({"pools": view.floor.encoded} if with_pools else {}),
    }


def _skipped(view: View) -> Raw:
    """Pods of opted-in namespaces that are not placed: how many, and by namespace and reason, the most first."""
    found = view.taken.skipped
    return {
        "pods": sum(found.values()),
        "text": skipped_sentence(found),
        "reasons": skipped_json(found)[:MOST_LISTED],
        "reasonsTotal": len(found),
    }


def _gangs(view: View) -> Raw:
    """How many there are by state, and those that do not simply run; the first that somebody has to look at."""
    states = Counter(str(each.status.state) for each in view.queue)
    waiting = [each for each in view.queue if each.status.state is not State.RUNNING]
    return {
        "enabled": view.taken.ground.configuration.gangs.enabled,
        "total": len(view.queue),
        "states": dict(sorted(states.items())),
        "late": sum(each.status.is_late for each in view.queue),
        "waiting": [each.raw for each in waiting[:MOST_LISTED]],
        "waitingTotal": len(waiting),
    }


def gangs(view: View, page: Selection) -> Raw:
    """All gangs, those first that somebody has to look at; `only` is a state."""
    if page.only and page.only not in tuple(State):
        raise Unclear(f"only= accepts {', '.join(State)}")
    found = [each for each in view.queue if page.only in ("", each.status.state)]
    if page.text:
        found = [each for each in found if page.text.casefold() in str(each.status.gang.key).casefold()]
    end = None if page.limit is None else page.offset + page.limit
    return {
        "enabled": view.taken.ground.configuration.gangs.enabled,
        "total": len(view.queue),
        "matching": len(found),
        "offset": page.offset,
        "gangs": [_encoded(each.raw) for each in found[page.offset : end]],
    }


def gang(view: View, history: History, key: Key) -> Raw:
    """One gang: its members and where they are, its plan, who makes room, and what happened to it."""
    seen = view.gang(key)
    if seen is None:
        raise Unknown(f"there is no gang {key}")
    return {**seen.raw, "events": history.events(gang=key, most=200)}


def _held(view: View) -> Raw:
    """Evictions by others that wait, in the order in which their holds end."""
    found = [(key, each) for key, held in view.held.items() for each in held]
    found.sort(key=lambda each: (each[1].until, each[0], each[1].pod))
    evictions = [{**_named_by(key), **each.raw} for key, each in found[:MOST_LISTED]]
    return {"pods": len(found), "evictions": evictions}


def _gone(name: str, gone: GoneNode) -> Raw:
    return {"name": name, "class": gone.of, "proof": gone.proof}


def _named(key: str, found: Sequence[object]) -> Raw:
    """The first of them, and how many there are."""
    return {key: found[:MOST_LISTED], f"{key}Total": len(found)}


def _share(mix: Mix) -> float | None:
    count = mix.spot + mix.on_demand
    return round(mix.spot / count, 4) if count else None


def _exposed(view: View) -> Raw:
    """How many workloads would not survive a loss, by declared and assumed minima; and which, the worst first."""
    perilous = [each for each in view.seen if each.perils]
    return {
        "declared": dict(zip(map(str, Domain), view.totals.declared, strict=True)),
        "assumed": dict(zip(map(str, Domain), view.totals.assumed, strict=True)),
        "total": len(perilous),
        "workloads": [
            {
                **_name(each),
                "assumed": each.exposure.is_assumed,
                "losses": [str(domain) for domain in each.perils],
                "text": each.exposure.explain(each.perils[0]),
            }
            for each in nsmallest(MOST_LISTED, perilous, key=lambda each: each.peril)
        ],
    }


def _moves(view: View) -> Raw:
    moving = [each for each in view.seen if each.assessment.under_way]
    going = [(each, pod) for each in moving for cohort in each.assessment.group.cohorts for pod in cohort.released]
    plan = view.taken.plan
    coming = [each for each in plan.actions if each.how is not How.ANNOTATE]
    blocked = Counter[str]()
    for skipped in plan.skipped:
        blocked[str(skipped.blocked)] += skipped.pods
    return {
        "running": [{**_name(each), **_going(pod)} for each, pod in going[:MOST_LISTED]],
        "runningTotal": len(going),
        "next": [_action(each) for each in coming[:MOST_LISTED]],
        "nextTotal": len(coming),
        "notes": len(plan.actions) - len(coming),  # slots and marks to be written: no pod moves for them
        "blockedPods": blocked.total(),
        "blocked": [{"reason": reason, "pods": pods} for reason, pods in blocked.most_common()],
        "skipped": [each.raw() for each in plan.skipped[:MOST_LISTED]],
        "skippedTotal": len(plan.skipped),
    }


def _name(seen: WorkloadView) -> Raw:
    return _named_by(seen.key)


def _named_by(key: tuple[str, str, str]) -> Raw:
    return dict(zip(("namespace", "kind", "name"), key, strict=True))


def _going(pod: Pod) -> Raw:
    state = released(pod)
    return {"pod": pod.name, "node": pod.node, "until": None if state is None else state.until}


def _action(action: Action) -> Raw:
    return {**action.raw(), "text": action.text}


# --- workloads -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selection:
    """Which workloads are asked for, in which order; all of them unless something is said."""

    text: str = ""
    only: str = ""
    minimum: str = ""  # "declared" or "assumed"
    sort: str = ""
    is_descending: bool = False
    offset: int = 0
    limit: int | None = None


def _blast(domain: Domain) -> Callable[[WorkloadView], object]:
    return lambda seen: seen.exposure.blast(domain).replicas


def _dreads(domain: Domain) -> Callable[[WorkloadView], object]:
    return lambda seen: domain in seen.perils


ORDERS: Mapping[str, Callable[[WorkloadView], object]] = {
    "name": lambda seen: (seen.key[0], seen.key[2]),
    "kind": lambda seen: seen.key[1],
    "replicas": lambda seen: seen.assessment.group.workload.replicas,
    "wanted": lambda seen: _share(seen.wanted) or 0.0,
    "actual": lambda seen: _share(seen.actual) or 0.0,
    "headroom": lambda seen: seen.exposure.headroom,
    **{str(domain): _blast(domain) for domain in Domain},
    "survives": lambda seen: -len(seen.perils),
    "soft": lambda seen: seen.soft,
    "savings": lambda seen: seen.savings.share or 0.0,
}
FILTERS: Mapping[str, Callable[[WorkloadView], object]] = {
    "exposed": lambda seen: seen.perils,
    "declared": lambda seen: seen.perils and not seen.exposure.is_assumed,
    "differs": lambda seen: seen.actual != seen.wanted,
    "moving": lambda seen: seen.assessment.under_way or seen.assessment.wishes,
    "soft": lambda seen: seen.soft,
    "mistakes": lambda seen: seen.mistakes,
    **{str(domain): _dreads(domain) for domain in Domain},  # would not survive the loss of one
}


MINIMA: Mapping[str, Callable[[WorkloadView], object]] = {
    "declared": lambda seen: not seen.exposure.is_assumed,
    "assumed": lambda seen: seen.exposure.is_assumed,
}


def workloads(view: View, history: History, page: Selection) -> Raw:
    orders: Mapping[str, Callable[[WorkloadView], object]] = {
        **ORDERS,
        "lastMove": lambda seen: _last_move(seen, history) or 0.0,
        "reason": view.reason,
    }
    for name, asked, known in (
        ("only", page.only, FILTERS),
        ("sort", page.sort, orders),
        ("minimum", page.minimum, MINIMA),
    ):
        if asked and asked not in known:
            raise Unclear(f"{name}= accepts {', '.join(known)}")
    found: Iterable[WorkloadView] = view.seen
    if page.minimum:
        found = filter(MINIMA[page.minimum], found)
    if page.only:
        found = filter(FILTERS[page.only], found)
    if page.text:
        found = (each for each in found if page.text.casefold() in "/".join(each.key).casefold())
    ordered = list(found)
    if page.sort:
        ordered.sort(key=orders[page.sort], reverse=page.is_descending)  # type: ignore[arg-type]
    end = None if page.limit is None else page.offset + page.limit
    return {
        "total": len(view.seen),
        "matching": len(ordered),
        "offset": page.offset,
        "paused": None if view.paused is None else view.paused.raw,
        "workloads": [_encoded(_workload(view, each, history)) for each in ordered[page.offset : end]],
    }


def _encoded(raw: Raw) -> msgspec.Raw:
    """At once, where there may be thousands: they take five times as much room before."""
    return msgspec.Raw(msgspec.json.encode(raw))


def _last_move(seen: WorkloadView, history: History) -> float | None:
    """From its pods or from memory: an eviction leaves no note, and a rollout removes notes."""
    return max(filter(None, (seen.moved_at, history.moved_at(seen.key))), default=None)


def _workload(view: View, seen: WorkloadView, history: History) -> Raw:
    return {
        **workload_json(view.status(seen)),
        "lastMove": _last_move(seen, history),
        "moves": seen.assessment.under_way,
        "savings": seen.savings.raw,
    }


def workload(view: View, history: History, key: tuple[str, str, str]) -> Raw:
    """One workload: where each pod is and why, what happened, what would happen next, and what is in the way."""
    seen = found(view, key)
    uid = seen.assessment.group.workload.uid
    plan, status, exposed = view.taken.plan, view.status(seen), seen.exposure
    wishes = [each for each in seen.assessment.wishes if each.blocked is not None]
    return {
        "workload": {**_workload(view, seen, history), "pods": [_placed(view, raw) for raw in pods_json(status)]},
        "needed": exposed.availability.needed,
        "risk": exposed.risk.explain(),
        "policy": status.policy.explain(),
        "perils": [exposed.explain(domain) for domain in seen.perils],
        "released": [_going(pod) for cohort in seen.assessment.group.cohorts for pod in cohort.released],
        "next": [
            _action(each)
            for each in plan.actions
            if each.how is not How.ANNOTATE and each.workload is not None and each.workload.uid == uid
        ],
        "blocked": [
            *(each.explain() for each in wishes),
            *(each.text for each in plan.skipped if each.workload.uid == uid),
        ],
        "events": history.events(key, most=200),
    }


def found(view: View, key: tuple[str, str, str]) -> WorkloadView:
    seen = view.by_key.get(key)
    if seen is None:
        raise Unknown(f"{key[1]} {key[0]}/{key[2]} does not exist or is not opted in")
    return seen


def _placed(view: View, raw_pod: Raw) -> Raw:
    site = view.sites.get(raw_pod["node"] or "")
    where: Raw = {"zone": None, "pool": None, "leaving": False}
    if site is not None:
        where = {"zone": site.zone, "pool": site.spot_pool or None, "leaving": site.is_leaving}
    return {**raw_pod, **where}
