"""Drills: what would be lost with a node, a pool, a zone or all spot, and what another ratio would change. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from placement import names
from placement.intent import intent_of
from placement.model import Class, Needs, Pod
from placement.plan.actions import How
from placement.plan.annotate import written
from placement.plan.assess import Assessment, Wish, assess
from placement.plan.group import Group, group_of
from placement.plan.room import Room
from placement.plan.shortage import shortage
from placement.policy import Mistake, mistakes_in
from placement.slots import Mix
from report.answers import Raw, Unclear, Unknown, found
from report.drill import losses
from report.exposure import Domain, exposure, is_in
from report.savings import charged
from report.statusjson import mix_json
from report.view import View
from report.workloadview import WorkloadView

MOST_LOSSES = 500  # workloads in one answer; the total is beside it
MOST_TRIES = 200_000  # moves × nodes for which an exposure is estimated


def choices(view: View) -> Raw:
    """What a drill can be about."""
    every = view.sites.values()
    return {
        "nodes": sorted(site.name for site in every),
        "pools": sorted({site.spot_pool for site in every if site.spot_pool}),
        "zones": sorted({site.zone for site in every}),
    }


def drill(view: View, domain: Domain, name: str = "") -> Raw:
    """What each workload loses, which fall below what must serve, and whether the lost pods fit elsewhere."""
    gone = frozenset(site.name for site in view.sites.values() if is_in(site, domain, name))
    if not gone and domain is not Domain.SPOT:
        raise Unknown(f"{domain} {name!r} does not exist")
    lost = sorted(
        losses(map(view.status, view.seen), gone),
        key=lambda loss: (not loss.falls_below, loss.is_assumed, loss.left - loss.needed),
    )
    below = [loss for loss in lost if loss.falls_below]
    return {
        "domain": str(domain),
        "name": name,
        "nodes": len(gone),
        "replicas": sum(loss.lost for loss in lost),
        "workloads": len(lost),
        "fallBelow": {
            "declared": sum(not loss.is_assumed for loss in below),
            "assumed": sum(loss.is_assumed for loss in below),
        },
        "losses": [loss.raw for loss in lost[:MOST_LOSSES]],
        "room": _room(view, gone),
    }


def _room(view: View, gone: frozenset[str]) -> Raw:
    """Whether each class has room for its own pods, and on-demand for all of them, if spot has none.

    Pods of workloads that are not opted in do not count as lost: it is not known which class they may use.
    """
    ground = view.taken.ground
    left = replace(ground, sites={name: site for name, site in ground.sites.items() if name not in gone})
    room = Room(left, view.used, neighbours=view.neighbours(left))
    pods: dict[Class, list[Pod]] = {of: [] for of in Class}
    for each in view.seen:
        for member in each.assessment.members:
            if member.pod.node in gone and member.site is not None:
                pods[member.site.of].append(member.pod)
    everything = [pod for of in Class for pod in pods[of]]
    return {
        "spot": _fit(pods[Class.SPOT], room, Class.SPOT),
        "onDemand": _fit(pods[Class.ON_DEMAND], room, Class.ON_DEMAND),
        "allOnDemand": _fit(everything, room, Class.ON_DEMAND),
    }


def _fit(pods: Sequence[Pod], room: Room, of: Class) -> Raw:
    """The reason is that of the smallest pod that finds no place."""
    short = shortage(pods, room, of)
    if short is None:
        return {"pods": len(pods), "fits": True, "leftOut": None, "reason": None}
    pod, refusal = short
    return {"pods": len(pods), "fits": False, "leftOut": str(pod.key), "reason": str(refusal)}


# --- another ratio ---------------------------------------------------------------------------------------------------


def what_if(view: View, key: tuple[str, str, str], ratio: str, now: float) -> Raw:
    """As `spotweave plan --set NS/NAME spot-ratio=…`, with the exposure that would follow."""
    asked = {names.SPOT_RATIO: ratio}
    wrong = list(mistakes_in(asked, "workload"))
    if wrong:
        raise Unclear("; ".join(map(str, wrong)))
    seen = found(view, key)
    group, mistakes = _changed(view, seen, asked)
    then = _with_slots(group, view, now)
    blocked = sorted({str(wish.blocked) for wish in then.wishes if wish.blocked is not None})
    return {
        "namespace": key[0],
        "kind": key[1],
        "name": key[2],
        "ratio": ratio,
        "mistakes": [str(each) for each in mistakes if each.annotation == names.SPOT_RATIO],  # a limit, for instance
        "wanted": mix_json(then.wanted),
        "wantedNow": mix_json(seen.wanted),
        "actual": mix_json(seen.actual),
        "moves": len(then.wishes),
        "blocked": blocked,
        "exposure": seen.exposure.raw,
        "savings": seen.savings.raw,
        **outlook(view, then),
    }


def _with_slots(group: Group, view: View, now: float) -> Assessment:
    """As it is once slots are written, which costs no move: until then every move waits, and says only that."""
    first = assess(group, view.taken.ground, now)
    pods = {each.pod.uid: written(each) for each in first.notes}
    cohorts = (replace(each, pods=tuple(pods.get(pod.uid, pod) for pod in each.pods)) for each in group.cohorts)
    return assess(replace(group, cohorts=tuple(cohorts)), view.taken.ground, now) if pods else first


def outlook(view: View, then: Assessment) -> Raw:
    """An estimate of what follows once all moves are done. None: too much to work out.

    `spotweave plan --set` foretells the same by running the plan forward (`rebalancer.forecast`).
    """
    placed, unplaced = _placed(view, then)
    there = None if placed is None else [view.sites[node] for _, node in placed]
    after = None if there is None else exposure(there, then.group.availability, view.observed)
    costs = None if placed is None else charged(placed, then.group.workload.replicas, view.rates)
    mix = None if there is None else Mix.of(place.of for place in there)
    return {
        "then": None if mix is None else mix_json(mix),
        "exposureAfter": None if after is None else after.raw,
        "savingsAfter": None if costs is None else costs.raw,
        "unplaced": unplaced,
    }


def _changed(view: View, seen: WorkloadView, asked: Mapping[str, str]) -> tuple[Group, tuple[Mistake, ...]]:
    group, taken = seen.assessment.group, view.taken
    workload = replace(group.workload, annotations={**group.workload.annotations, **asked})
    namespace, configuration = taken.namespaces[workload.namespace], taken.ground.configuration
    intent = intent_of(workload, namespace, group.budgets, view.observed.rates, configuration)
    return group_of(intent, group.cohorts, group.quotas, group.refused), intent.mistakes


def _place(wish: Wish, room: Room) -> str | None:
    return room.take(wish.member.pod, wish.to, goes_first=wish.how is How.EVICT)


def _placed(view: View, then: Assessment) -> tuple[list[tuple[Needs, str]] | None, int]:
    """Once all moves are done, each to the emptiest node that is proven to take it; and how many have no such place."""
    ground = view.taken.ground
    if len(then.wishes) * len(ground.sites) > MOST_TRIES:
        return None, 0
    room = Room(ground, view.used, neighbours=view.neighbours(ground))
    wishes = {wish.member.pod.uid: wish for wish in then.wishes}
    placed, unplaced = [], 0
    for member in then.members:
        wish = wishes.get(member.pod.uid)
        node = None if wish is None else _place(wish, room)
        unplaced += wish is not None and node is None
        if node is not None or member.stands:
            placed.append((member.pod.needs, node or member.pod.node))
    return placed, unplaced
