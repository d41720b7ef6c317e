"""What the API answers: pure functions of a view. A workload has the shape of `spotweave status -o json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.history import History
from dashboard.view import Seen, View
from placement.exposure import UNLABELLED, Domain
from placement.model import Class, Pod
from placement.plan.actions import Action
from placement.plan.group import Site, released
from placement.report import mix_json, pods_json, workload_json
from placement.savings import Savings
from placement.slots import Mix

MOST_LISTED = 50  # of each list in the overview; how many there are is told beside it
MOST_MEMBERS = 60  # nodes of one pool that are told one by one
RESOURCES = ("cpu", "memory", "pods")

Raw = dict[str, Any]


class Unknown(Exception):
    """Nothing has that name."""


class Unclear(Exception):
    """The question cannot be understood; the message says what would be."""


# --- the overview ----------------------------------------------------------------------------------------------------


def overview(view: View, history: History) -> Raw:
    statuses = [each.status for each in view.seen]
    actual = sum((each.actual for each in statuses), Mix())
    sites = view.taken.ground.sites.values()
    return {
        "spotShare": {
            **mix_json(actual),
            "wanted": mix_json(sum((each.wanted for each in statuses), Mix())),
            "share": _share(actual),
            "history": history.points(),
        },
        "savings": sum((each.savings for each in view.seen), Savings()).raw,
        "workloads": {
            "total": len(statuses),
            "exact": sum(each.is_exact for each in statuses),
            "soft": sum(each.soft for each in statuses),
            "missed": sum(len(each.missed) for each in statuses),
            "mistaken": sum(bool(each.mistakes) for each in statuses),
        },
        "exposed": _exposed(view.seen),
        "nodes": {
            "total": len(sites),
            "spot": sum(site.of is Class.SPOT for site in sites),
            "leaving": sorted(site.node.name for site in sites if site.is_leaving)[:MOST_LISTED],
            "notReady": sorted(site.node.name for site in sites if not site.node.ready)[:MOST_LISTED],
            "lost": [{"name": name, "class": gone.of, "proof": gone.proof} for name, gone in view.taken.lost.items()],
        },
        "moves": _moves(view),
        "outages": [each.raw for each in view.taken.outages],
        "paused": None if view.paused is None else view.paused.raw,
        "gangs": [],  # their queue comes here
        "events": history.events(),
    }


def _share(mix: Mix) -> float | None:
    count = mix.spot + mix.on_demand
    return round(mix.spot / count, 4) if count else None


def _exposed(seen: Sequence[Seen]) -> Raw:
    """How many workloads would not survive a loss, declared and assumed told apart; and which, the worst first."""
    counts = {kind: Counter[Domain]() for kind in ("declared", "assumed")}
    for each in seen:
        counts["assumed" if each.status.exposure.is_assumed else "declared"].update(each.perils)
    perilous = sorted((each for each in seen if each.perils), key=_peril)
    return {
        **{kind: {str(domain): count[domain] for domain in Domain} for kind, count in counts.items()},
        "total": len(perilous),
        "workloads": [
            {
                **_name(each),
                "assumed": each.status.exposure.is_assumed,
                "losses": [str(domain) for domain in each.perils],
                "text": each.status.exposure.explain(each.perils[0]),
            }
            for each in perilous[:MOST_LISTED]
        ],
    }


def _peril(seen: Seen) -> tuple[object, ...]:
    """Declared before assumed; the smaller the loss that is too much, the worse."""
    exposed = seen.status.exposure
    return (exposed.is_assumed, list(Domain).index(seen.perils[0]), exposed.headroom, seen.key)


def _moves(view: View) -> Raw:
    going = [(each, pod) for each in view.seen for cohort in each.assessment.group.cohorts for pod in cohort.released]
    plan = view.taken.plan
    blocked = Counter[str]()
    for skipped in plan.skipped:
        blocked[str(skipped.blocked)] += skipped.pods
    return {
        "running": [{**_name(each), **_going(pod)} for each, pod in going[:MOST_LISTED]],
        "runningTotal": len(going),
        "next": [_action(each) for each in plan.actions[:MOST_LISTED]],
        "nextTotal": len(plan.actions),
        "blocked": [{"reason": reason, "pods": pods} for reason, pods in blocked.most_common()],
        "skipped": [each.raw() for each in plan.skipped[:MOST_LISTED]],
        "skippedTotal": len(plan.skipped),
    }


def _name(seen: Seen) -> Raw:
    return dict(zip(("namespace", "kind", "name"), seen.key, strict=True))


def _going(pod: Pod) -> Raw:
    state = released(pod)
    return {"pod": pod.name, "node": pod.node, "until": None if state is None else state.until}


def _action(action: Action) -> Raw:
    return {**action.raw(), "text": action.text}


# --- workloads -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Page:
    """Which workloads are asked for, in which order; all of them unless something is said."""

    text: str = ""
    only: str = ""
    sort: str = ""
    is_descending: bool = False
    offset: int = 0
    limit: int | None = None


def _blast(domain: Domain) -> Callable[[Seen], object]:
    return lambda seen: seen.status.exposure.blast(domain).replicas


def _dreads(domain: Domain) -> Callable[[Seen], object]:
    return lambda seen: domain in seen.perils


ORDERS: Mapping[str, Callable[[Seen], object]] = {
    "name": lambda seen: (seen.key[0], seen.key[2]),
    "kind": lambda seen: seen.key[1],
    "replicas": lambda seen: seen.status.workload.replicas,
    "wanted": lambda seen: _share(seen.status.wanted) or 0.0,
    "actual": lambda seen: _share(seen.status.actual) or 0.0,
    "headroom": lambda seen: seen.status.exposure.headroom,
    **{str(domain): _blast(domain) for domain in Domain},
    "survives": lambda seen: -len(seen.perils),
    "soft": lambda seen: seen.status.soft,
    "savings": lambda seen: seen.savings.share or 0.0,
    "lastMove": lambda seen: seen.moved_at or 0.0,
    "reason": lambda seen: seen.status.reason,
}
FILTERS: Mapping[str, Callable[[Seen], object]] = {
    "exposed": lambda seen: seen.perils,
    "declared": lambda seen: seen.perils and not seen.status.exposure.is_assumed,
    "differs": lambda seen: not seen.status.is_exact,
    "moving": lambda seen: seen.assessment.under_way or seen.assessment.wishes,
    "soft": lambda seen: seen.status.soft,
    "mistakes": lambda seen: seen.status.mistakes,
    **{str(domain): _dreads(domain) for domain in Domain},  # would not survive the loss of one
}


def workloads(view: View, page: Page) -> Raw:
    if (page.only and page.only not in FILTERS) or (page.sort and page.sort not in ORDERS):
        raise Unclear(f"only= takes {', '.join(FILTERS)}; sort= takes {', '.join(ORDERS)}")
    found: Iterable[Seen] = view.seen
    if page.only:
        found = filter(FILTERS[page.only], found)
    if page.text:
        found = (each for each in found if page.text.casefold() in "/".join(each.key).casefold())
    ordered = list(found)
    if page.sort:
        ordered.sort(key=ORDERS[page.sort], reverse=page.is_descending)  # type: ignore[arg-type]
    end = None if page.limit is None else page.offset + page.limit
    return {
        "total": len(view.seen),
        "matching": len(ordered),
        "offset": page.offset,
        "paused": None if view.paused is None else view.paused.raw,
        "workloads": [_workload(each) for each in ordered[page.offset : end]],
    }


def _workload(seen: Seen) -> Raw:
    return {
        **workload_json(seen.status),
        "lastMove": seen.moved_at,
        "moves": seen.assessment.under_way,
        "savings": seen.savings.raw,
    }


def workload(view: View, history: History, key: tuple[str, str, str]) -> Raw:
    """One workload: where each pod is and why, what happened, what would happen next, and what is in the way."""
    seen = found(view, key)
    uid = seen.status.workload.uid
    plan, exposed = view.taken.plan, seen.status.exposure
    wishes = [each for each in seen.assessment.wishes if each.blocked is not None]
    return {
        "workload": {**_workload(seen), "pods": [_placed(view, raw) for raw in pods_json(seen.status)]},
        "needed": exposed.availability.needed,
        "risk": exposed.risk.explain(),
        "policy": seen.status.policy.explain(),
        "perils": [exposed.explain(domain) for domain in seen.perils],
        "released": [_going(pod) for cohort in seen.assessment.group.cohorts for pod in cohort.released],
        "next": [_action(each) for each in plan.actions if each.workload is not None and each.workload.uid == uid],
        "blocked": [
            *(f"{each.member.pod.name} should be on {each.to} ({each.why}): {each.blocked}" for each in wishes),
            *(each.text for each in plan.skipped if each.workload.uid == uid),
        ],
        "events": history.events(key, most=200),
    }


def found(view: View, key: tuple[str, str, str]) -> Seen:
    seen = view.by_key.get(key)
    if seen is None:
        raise Unknown(f"there is no {key[1]} {key[0]}/{key[2]}, or it is not opted in")
    return seen


def _placed(view: View, raw_pod: Raw) -> Raw:
    place = view.places.get(raw_pod["node"] or "")
    where: Raw = {"zone": None, "pool": None, "leaving": False}
    if place is not None:
        where = {"zone": place.zone, "pool": place.pool or None, "leaving": place.is_leaving}
    return {**raw_pod, **where}


# --- pools -----------------------------------------------------------------------------------------------------------


def pools(view: View) -> Raw:
    """Nodes by zone × instance type and class: how full, how old, who leaves."""
    there: dict[tuple[str, str, str], list[Site]] = {}
    for site in view.taken.ground.sites.values():
        key = (site.pool.zone or UNLABELLED, site.pool.instance_type or UNLABELLED, str(site.of))
        there.setdefault(key, []).append(site)
    return {
        "zones": sorted({zone for zone, *_ in there}),
        "instanceTypes": sorted({instance_type for _, instance_type, _ in there}),
        "pools": [_pool(view, key, there[key]) for key in sorted(there)],
    }


def _pool(view: View, key: tuple[str, str, str], sites: list[Site]) -> Raw:
    zone, instance_type, of = key
    told = sorted(sites, key=lambda site: (site.is_target, site.node.name))[:MOST_MEMBERS]
    return {
        "zone": zone,
        "instanceType": instance_type,
        "class": of,
        "count": len(sites),
        "leaving": sum(site.is_leaving for site in sites),
        "notReady": sum(not site.node.ready for site in sites),
        "fill": _fill(view, sites),
        "nodes": sorted((_node(view, site) for site in told), key=lambda raw: str(raw["name"])),
    }


def _node(view: View, site: Site) -> Raw:
    return {
        "name": site.node.name,
        "ready": site.node.ready,
        "leaving": site.is_leaving,
        "created": site.node.created or None,
        "fill": _fill(view, [site]),
    }


def _fill(view: View, sites: Sequence[Site]) -> dict[str, float]:
    """The share of each resource that pods ask for."""
    fill = {}
    for resource in RESOURCES:
        total = sum(site.node.allocatable.get(resource, 0) for site in sites)
        asked = sum(view.used(site.node.name).get(resource, 0) for site in sites)
        if total:
            fill[resource] = round(asked / total, 3)
    return fill
