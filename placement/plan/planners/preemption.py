"""Gangs of lower priority make room for one that finds none: the victims are marked, room is reserved, they go.

1. All victims get a mark (`placement.gang.claim`).
2. When all marks are visible, all members get a reservation that waits for victims. Their room is not free yet, and
   the scheduler gives it to nobody of the same or a lower priority when it is.
3. When all of that is visible, and the gang still fits without the victims, these are evicted one by one. At the first
   refusal the reservation is given back.
4. When no victim takes room any more, and the gang fits, the reservation is written as a plain one, and the gang starts
   as others do (`reservations`).

One gang at a time. Marks for which nothing is reserved are removed, so a leader that dies leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placement import names
from placement.gang.belonging import gang_key
from placement.gang.candidate import Claimant, Rules
from placement.gang.claim import ClaimKey, RoomClaim, is_complete
from placement.gang.clearing import Clearing
from placement.gang.evictable import began
from placement.gang.gang import Gang, GangStatus, State
from placement.gang.reservation import AGAIN, Reservation, plan_id
from placement.gang.victims import NoVictims, Victims, choose
from placement.lack import NoPlace
from placement.model import Pod
from placement.plan.actions import Action, Blocked, How, Why
from placement.plan.draft import Draft
from placement.plan.planners.writing import Held, reserve, unreserved
from placement.plan.room import size_of
from placement.plan.whole import holds, places

MOST_SEARCHES = 3  # for victims in one plan
MOST_AT_ONCE = 16  # evictions in one plan: one after the other, and others wait for it
PATIENCE_SECONDS = 30.0  # beyond the longest grace period
MOST_NAMED = 3
UNDER_WAY = "room is being made for another gang"


# --- a gang that finds no room ---------------------------------------------------------------------------------------


def begun(draft: Draft, gang: Gang) -> list[Action] | str:
    """What is written so that room is made for it: marks or reservations. Else why nothing is evicted."""
    scene, least = draft.scene, gang.least(draft.scene.now)
    if scene.candidates is None or least is None:
        return ""
    if scene.marking:
        return []
    own = [(key, pods) for key, pods in draft.claims.items() if key.gang == gang.key and is_complete(pods)]
    if own:
        return _reserved(draft, gang, least, *own[0])
    if draft.claims or draft.is_preempting:
        return UNDER_WAY
    if draft.searches >= MOST_SEARCHES:
        return "victims are looked for later"
    draft.searches += 1
    found = victims_for(draft, gang, least)
    if isinstance(found, str):
        return found
    draft.is_preempting = True
    mark = RoomClaim(gang.key, plan_id(scene.now), len(found.pods)).text()
    return [_marked(pod, mark, found.sentence) for pod in found.pods]


def _reserved(draft: Draft, gang: Gang, least: int, key: ClaimKey, victims: Sequence[Pod]) -> list[Action] | str:
    found = places(draft.room.without(victims), gang.gated, least, gang.terms.classes)
    if isinstance(found, NoPlace):
        return f"it does not fit any more once its victims have gone: {found}"
    draft.kept_claims.add(key)
    nodes, now = found.places, draft.scene.now
    return [
        reserve(draft, pod, Reservation(key.plan, now, nodes[pod.uid], awaits_victims=True))
        for pod in gang.gated
        if pod.uid in nodes
    ]


def victims_for(draft: Draft, gang: Gang, least: int) -> Victims | str:
    """Nothing goes unless all members then have a place, by the test that reserves it."""
    scene = draft.scene
    assert scene.candidates is not None
    members = tuple(sorted(gang.gated, key=lambda pod: (size_of(pod), pod.name), reverse=True)[:least])
    claimant = Claimant(gang.key, members, gang.wish, gang.priority)
    candidates = [each for each in draft.candidates if each.key != gang.key]
    why = ""
    for of in gang.terms.classes or (None,):
        found = choose(claimant, candidates, Clearing(draft.room, members, of), _rules(draft))
        if isinstance(found, NoVictims):
            why = why or found.sentence.removeprefix(f"{gang.key} finds no room: ")
            continue
        then = places(draft.room.without(found.pods), members, least, gang.terms.classes)
        if found.pods and not isinstance(then, NoPlace):
            return found
        why = why or (f"it would not fit: {then}" if isinstance(then, NoPlace) else "")
    return why


def _rules(draft: Draft) -> Rules:
    scene, gangs = draft.scene, draft.scene.ground.configuration.gangs
    used = scene.preempted
    return Rules(
        scene.now,
        scene.ground.sites,
        lambda namespace: gangs.evictions_per_namespace - used.get(namespace, 0),
        gangs.evictions_in_all - used.get("", 0),
        gangs.minimum_run_time.total_seconds(),
        scene.budgets,
    )


# --- a gang whose members wait for victims ---------------------------------------------------------------------------


def proceeding(draft: Draft, gang: Gang, held: Held) -> list[Action]:
    """Its victims are evicted, or waited for; or the room is given back."""
    key = ClaimKey(gang.key, held[0][1].plan.removesuffix(AGAIN))
    victims = draft.claims.get(key, [])
    draft.kept_claims.add(key)
    draft.is_preempting = True
    if draft.scene.marking:
        return _kept(draft, held)
    why = _given_up(draft, gang, held, victims)
    if why:
        text = f"nothing more is evicted for it: {why}"
        draft.gangs[gang.key] = GangStatus(gang, State.WAITING, text, was_given_up=True)
        return [unreserved(pod, why) for pod, _ in held]
    has_begun = any(pod.terminating for pod in victims)
    if not has_begun and _lack(draft, held, ()) is None:
        draft.gangs[gang.key] = GangStatus(gang, State.EVICTING, "its room is free")
        return [reserve(draft, pod, Reservation(key.plan + AGAIN, draft.scene.now, one.node)) for pod, one in held]
    draft.gangs[gang.key] = GangStatus(gang, State.EVICTING, _reason(draft, victims))
    left = [pod for pod in victims if not pod.terminating]
    draft.left += len(left) > MOST_AT_ONCE
    return [*_kept(draft, held), *(_evicted(draft, gang, pod, victims) for pod in left[:MOST_AT_ONCE])]


def _kept(draft: Draft, held: Held) -> list[Action]:
    for pod, found in held:
        draft.room.hold(pod, found.node)
    return []


def _given_up(draft: Draft, gang: Gang, held: Held, victims: Sequence[Pod]) -> str:
    """Why; "": it goes on."""
    scene, least = draft.scene, gang.least(draft.scene.now)
    if scene.is_paused or gang.obstacle:
        return gang.obstacle or str(Blocked.PAUSED)
    plans = {found.plan.removesuffix(AGAIN) for _, found in held}
    if least is None or len(held) < least or len(plans) > 1:
        return "its members are not complete any more"
    for pod in victims:
        refused = draft.held(pod, How.PREEMPT)
        if refused is Blocked.BUDGET:
            budgets = " and ".join(sorted(str(each.key) for each in scene.budgets(pod)))
            return f"the PodDisruptionBudget {budgets} forbids the eviction of {pod.key}"
        if refused is Blocked.REFUSED:
            return f"the API server refused the eviction of {pod.key}"
    grace = max((pod.needs.grace_seconds for pod in victims), default=0)
    if scene.now - max(found.at for _, found in held) > grace + PATIENCE_SECONDS:
        return "its victims did not end in time"
    lack = _lack(draft, held, victims)
    return "" if lack is None else f"it does not fit any more: {lack}"


def _lack(draft: Draft, held: Held, gone: Sequence[Pod]) -> NoPlace | None:
    room = draft.room.without(gone) if gone else draft.room
    return holds(room, [pod for pod, _ in held], {pod.uid: found.node for pod, found in held})


def swept(draft: Draft) -> Iterator[Action]:
    """Marks for which nothing is reserved are removed."""
    if draft.scene.marking:
        return
    for key, pods in draft.claims.items():
        status = draft.gangs.get(key.gang)
        is_unclear = status is not None and not status.gang.is_settled
        if key not in draft.kept_claims and not is_unclear:
            yield from (_marked(pod, None, "it need not make room") for pod in pods if not pod.terminating)


# --- words and actions -----------------------------------------------------------------------------------------------


def _reason(draft: Draft, victims: Sequence[Pod]) -> str:
    """Who goes, and the cost."""
    whose = sorted({str(gang_key(pod) or pod.key) for pod in victims})
    named = [*whose[:MOST_NAMED], *([f"{len(whose) - MOST_NAMED} more"] if len(whose) > MOST_NAMED else [])]
    pods = "1 pod makes" if len(victims) == 1 else f"{len(victims)} pods make"
    return f"{pods} room: {', '.join(named)}; {_lost(draft, victims)}"


def _lost(draft: Draft, victims: Sequence[Pod]) -> str:
    hours = sum(max(0.0, draft.scene.now - began(pod)) for pod in victims) / 3600
    return f"this loses {hours:.1f} pod-hours of work"


def _evicted(draft: Draft, gang: Gang, pod: Pod, victims: Sequence[Pod]) -> Action:
    """What the victim's owner reads: for whom, why, and what it costs."""
    goes = "1 pod goes" if len(victims) == 1 else f"{len(victims)} pods go"
    lost = f"{goes} for it; {_lost(draft, victims)}"
    text = f"gang {gang.key} (priority {gang.wish}) needs the room, and finds no other; {lost}"
    return Action(How.PREEMPT, Why.GANG, None, pod, text=text)


def _marked(pod: Pod, mark: str | None, text: str) -> Action:
    written = {names.PREEMPTED_BY: mark}
    return Action(How.ANNOTATE, Why.GANG, None, pod, annotations=written, text=text, in_every_mode=mark is None)
