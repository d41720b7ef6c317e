"""Gangs that wait get room, all of their members at once, after everything else has got its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta

from placement.gang.gang import Gang, GangStatus, State
from placement.gang.odds import share
from placement.gang.reservation import Reservation, plan_id
from placement.gang.terms import START
from placement.lack import NoPlace
from placement.plan.actions import Action, Blocked, How
from placement.plan.draft import Draft
from placement.plan.planners import exclusive, guarded, preemption
from placement.plan.planners.reservations import is_idle, ungated
from placement.plan.planners.writing import reserve
from placement.plan.room import Joint
from placement.plan.whole import places

MOST_REFUSED = 20  # different gangs that are looked for in one plan and find no room: each asks all nodes
MOST_RESERVED = 200  # members in one plan: what is written in half a second; a gang is never divided


def plan(draft: Draft) -> Iterator[Action]:
    """Those that wait; then victims that need not go are told so."""
    yield from _waiting(draft)
    yield from preemption.swept(draft)


def _waiting(draft: Draft) -> Iterator[Action]:
    yield from planned(draft, turns(draft))


def turns(draft: Draft) -> list[Gang]:
    """Those that wait, in their order."""
    return in_turn(each.gang for each in draft.gangs.values() if each.state is State.WAITING and is_idle(each.gang))


def planned(draft: Draft, waiting: Iterable[Gang]) -> Iterator[Action]:
    """One after the other. What refuses one refuses all that are like it, until something changes."""
    refused: dict[object, NoPlace] = {}
    reserved = 0
    for gang in waiting:
        if reserved >= MOST_RESERVED:
            draft.left += 1
            return
        for action in _planned(draft, gang, refused):
            reserved += 1
            yield action


def in_turn(gangs: Iterable[Gang]) -> list[Gang]:
    """By priority; then namespaces take turns; then those that have waited for longest.

    Within a namespace the annotation `priority` decides who goes first. Example: gangs of spec 10 and 0 in one
    namespace; the second has the annotation 100. It goes first, with the rank of 10 among all namespaces.
    """
    by_namespace: dict[str, list[Gang]] = {}
    for gang in gangs:
        by_namespace.setdefault(gang.key.namespace, []).append(gang)
    order: list[tuple[int, int, float, int, Gang]] = []
    for own in by_namespace.values():
        ranks = sorted((gang.priority for gang in own), reverse=True)
        taken: Counter[int] = Counter()
        for rank, gang in zip(ranks, sorted(own, key=lambda gang: (-gang.wish, gang.since, gang.key)), strict=True):
            order.append((-rank, taken[rank], gang.since, len(order), gang))
            taken[rank] += 1
    return [gang for *_, gang in sorted(order)]


def _planned(draft: Draft, gang: Gang, refused: dict[object, NoPlace]) -> Iterator[Action]:
    scene, status = draft.scene, draft.gangs[gang.key]
    timeout = gang.terms.wait_timeout
    is_late = timeout is not None and scene.now - gang.since > timeout.after.total_seconds()
    if is_late:
        status = draft.gangs[gang.key] = replace(status, is_late=True)
    tries = ((pod, how) for pod in gang.gated for how in (How.RESERVE, How.START)) if scene.held else ()
    failing = next((why for pod, how in tries if (why := draft.held(pod, how))), None)
    why = Blocked.PAUSED if scene.is_paused else failing
    if why:
        draft.gangs[gang.key] = replace(status, reason=str(why))
        return
    if is_late and timeout is not None and timeout.then == START:
        draft.gangs[gang.key] = replace(status, reason="wait-timeout is over; it starts without guarantee")
        yield from (ungated(pod, "wait-timeout is over") for pod in gang.gated)
        return
    if gang.key in scene.resting:
        draft.gangs[gang.key] = replace(status, reason=scene.resting[gang.key])
        return
    found = _places(draft, gang, refused)
    if found is None:
        draft.gangs[gang.key] = replace(status, reason="room is looked for later")
        return
    if gang.is_guarded and not isinstance(found, NoPlace):
        draft.gangs[gang.key] = replace(status, reason="the scheduler finds a node for it")
        return
    if isinstance(found, NoPlace):
        yield from _preempting(draft, gang, replace(status, reason=_short(gang, status, found), lack=found.lack))
        return
    plan_of = plan_id(scene.now)
    chance = draft.odds(gang).chance(scene.ground.sites[node] for node in found.places.values())
    draft.gangs[gang.key] = GangStatus(gang, State.RESERVED, _kept(gang, found, chance), chance=chance)
    for pod in gang.gated:
        if pod.uid in found.places:
            yield reserve(draft, pod, Reservation(plan_of, scene.now, found.places[pod.uid]))


def _preempting(draft: Draft, gang: Gang, status: GangStatus) -> list[Action]:
    """What makes room for it; none: nothing may go, and the reason says why."""
    made = preemption.begun(draft, gang)
    if isinstance(made, str):
        reason = f"{status.reason}; nothing is evicted for it: {made}" if made else status.reason
        draft.gangs[gang.key] = replace(status, reason=reason, was_tried=True)
        return []
    if made or gang.key in draft.scene.marking:
        draft.gangs[gang.key] = GangStatus(gang, State.EVICTING, made[0].text if made else "its victims are marked")
    return made


def _places(draft: Draft, gang: Gang, refused: dict[object, NoPlace]) -> Joint | NoPlace | None:
    """None: it is looked for in a later plan."""
    least = gang.least(draft.scene.now)
    assert least is not None  # it would be assembling
    seat = guarded.place(draft, gang) if gang.is_guarded else None
    if seat is not None:
        return seat
    stock = draft.room.beside_all()
    kinds = Counter(draft.room.kind(pod, stock) for pod in gang.gated)
    odds, suits = draft.odds(gang), exclusive.suiting(draft, gang)
    own = gang.key if gang.terms.exclusive else None
    shape = (frozenset(kinds.items()), least, gang.terms.classes, odds.runtime, odds.target, own)
    if shape in refused:
        return refused[shape]
    if len(refused) >= MOST_REFUSED:
        return None
    found = places(draft.room, gang.gated, least, gang.terms.classes, odds, suits)
    if isinstance(found, NoPlace):
        refused[shape] = found
    return found


def _kept(gang: Gang, found: Joint, chance: float | None) -> str:
    """Also the chance that it survives there, where it says for how long it will run."""
    kept = f"room is kept for {len(found.places)} members"
    hours = (gang.terms.expected_runtime or timedelta()).total_seconds() / 3600
    return kept if chance is None else f"{kept}; it survives {hours:g} hours there with a chance of {share(chance)}"


def _short(gang: Gang, status: GangStatus, found: NoPlace) -> str:
    on = f" on {' or '.join(gang.terms.classes)}" if gang.terms.classes else ""
    return f"{status.reason}{on}: {found}"
