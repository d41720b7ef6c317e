"""Gangs of lower priority make room for one that finds none: the victims are marked, room is reserved, they go.

1. All victims get a mark (`placement.gang.claim`).
2. When all marks are visible, all members get a reservation that waits for victims. Their room is not free yet, and
   the scheduler gives it to nobody of the same or a lower priority when it is.
3. When all of that is visible, and the gang still fits without the victims, these are evicted one by one. At the first
   refusal the reservation is given back. If it fits in other places only, it is reserved there.
4. When no victim takes room any more, and the gang fits, the reservation is written as a plain one, and the gang starts
   as others do (`reservations`).

One gang at a time. Marks for which nothing is reserved are removed, so a leader that dies leaves nothing behind.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from placement import names
from placement.gang.belonging import gang_key
from placement.gang.candidate import Allowance, Claimant, Rules, WhyNot
from placement.gang.claim import ClaimKey, RoomClaim, claim_of, is_complete
from placement.gang.clearing import Clearing
from placement.gang.evictable import began
from placement.gang.gang import Gang, GangStatus, State
from placement.gang.reservation import AGAIN, Reservation, made_at, plan_id
from placement.gang.services import spare
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
MARKING_SECONDS = 30.0  # for marks and reservations that the API server refused at first
PATIENCE_SECONDS = 30.0  # beyond the longest grace period
MOST_NAMED = 3
# Up to 1.36 a scheduler that was restarted has forgotten for which gated pods it keeps room, until they change. So what
# waits for victims is written again: before the first one goes, if it is not fresh, and as long as others end.
FRESH_SECONDS, FRESH_SECONDS_EACH, TOUCH_SECONDS = 0.5, 0.02, 5.0
UNDER_WAY = "room is being made for another gang"


# --- a gang that finds no room ---------------------------------------------------------------------------------------


def begun(draft: Draft, gang: Gang) -> list[Action] | str:
    """What is written so that room is made for it: marks or reservations. Else why nothing is evicted."""
    scene, least = draft.scene, gang.least(draft.scene.now)
    if scene.candidates is None or least is None:
        return ""
    if gang.terms.exclusive:
        return "gangs with nodes of their own wait for empty ones"
    if scene.marking:
        return []
    own = [(key, pods) for key, pods in draft.claims.items() if key.gang == gang.key and is_complete(pods)]
    if own:
        return _reserved(draft, gang, least, *own[0])
    begun_marks = next(((key, pods) for key, pods in draft.claims.items() if key.gang == gang.key), None)
    if begun_marks is not None and not draft.is_preempting and _age(scene.now, begun_marks[0]) < MARKING_SECONDS:
        return _marked_too(draft, gang, least, *begun_marks)
    is_meant = any(
        key in draft.kept_claims or not all(pod.terminating for pod in pods) for key, pods in draft.claims.items()
    )
    if draft.is_preempting or is_meant:
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


def _age(now: float, key: ClaimKey) -> float:
    """Seconds since the plan was made, by its id."""
    made = made_at(key.plan)
    return math.inf if made is None else abs(now - made)


def _marked_too(draft: Draft, gang: Gang, least: int, key: ClaimKey, marked: Sequence[Pod]) -> list[Action] | str:
    """Some marks were refused, or their writer died: the others get theirs, if the choice would be the same."""
    found = victims_for(draft, gang, least)
    claim = claim_of(marked[0])
    if isinstance(found, str) or claim is None or any(pod.terminating for pod in marked):
        return UNDER_WAY
    have = {pod.uid for pod in marked}
    if len(found.pods) != claim.number or not have < {pod.uid for pod in found.pods}:
        return UNDER_WAY
    draft.is_preempting = True
    draft.kept_claims.add(key)
    return [_marked(pod, claim.text(), found.sentence) for pod in found.pods if pod.uid not in have]


def _reserved(draft: Draft, gang: Gang, least: int, key: ClaimKey, victims: Sequence[Pod]) -> list[Action] | str:
    found = places(draft.room.without(victims), gang.gated, least, gang.terms.classes, draft.odds(gang))
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
    candidates = scene.candidates(claimant)
    if not candidates:  # nothing is counted then: many may wait
        return WhyNot.NOTHING_LOWER.value
    why = ""
    for of in gang.terms.classes or (None,):
        found = choose(claimant, candidates, Clearing(draft.room, members, of), _rules(draft))
        if isinstance(found, NoVictims):
            why = why or found.sentence.removeprefix(f"{gang.key} finds no room: ")
            continue
        then = places(draft.room.without(found.pods), members, least, gang.terms.classes, draft.odds(gang))
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
        lambda pod: _spare(draft, pod),
    )


def _spare(draft: Draft, pod: Pod, *, has_begun: bool = False) -> Sequence[Allowance]:
    """What the service that the pod belongs to can spare; nothing is drawn on where it is no service's."""
    found = draft.scene.service_of(pod)
    site = draft.scene.ground.sites.get(pod.node)
    return spare(found, None if site is None else site.of, has_begun=has_begun) if found is not None else ()


def _overdrawn(draft: Draft, victims: Sequence[Pod]) -> str:
    """A service that has fewer replicas to spare by now than are still to go: others may have failed meanwhile."""
    has_begun = any(pod.terminating for pod in victims) or not is_complete(victims)
    left = [pod for pod in victims if not pod.terminating]
    drawn = Counter(each for pod in left for each in _spare(draft, pod, has_begun=has_begun))
    over = next((each for each, count in drawn.items() if count > each.left), None)
    return "" if over is None else f"{over.name} has too few replicas to spare by now"


# --- a gang whose members wait for victims ---------------------------------------------------------------------------


def proceeding(draft: Draft, gang: Gang, held: Held) -> list[Action]:
    """Its victims are evicted, or waited for; or the room is given back."""
    key = ClaimKey(gang.key, held[0][1].plan.rstrip(AGAIN))
    victims = draft.claims.get(key, [])
    draft.kept_claims.add(key)
    draft.is_preempting = True
    if draft.scene.marking:
        return _kept(draft, held)
    rest = _reserved_too(draft, gang, held, victims)
    if rest:
        draft.gangs[gang.key] = GangStatus(gang, State.EVICTING, _reason(draft, victims))
        return [*_kept(draft, held), *rest]
    lack = _lack(draft, held, victims)
    elsewhere = None if lack is None else _elsewhere(draft, gang, held, victims)
    why = _given_up(draft, gang, held, victims) or (
        f"it does not fit any more: {lack}" if lack and not elsewhere else ""
    )
    if why:
        text = f"nothing more is evicted for it: {why}"
        draft.gangs[gang.key] = GangStatus(gang, State.WAITING, text, was_given_up=True)
        return [unreserved(pod, why) for pod, _ in held]
    draft.gangs[gang.key] = GangStatus(gang, State.EVICTING, _reason(draft, victims))
    if elsewhere:
        return _again(draft, held, elsewhere)
    # Once one has gone, all go that were marked with it: a gang of which a part has gone is of no use.
    has_begun = bool(victims) and not is_complete(victims)
    if not has_begun and _lack(draft, held, ()) is None:
        draft.gangs[gang.key] = GangStatus(gang, State.EVICTING, "its room is free")
        return [reserve(draft, pod, Reservation(key.plan + AGAIN, draft.scene.now, one.node)) for pod, one in held]
    reminders = _reminders(draft, held)
    reminded = {action.pod.uid for action in reminders}
    _kept(draft, [(pod, found) for pod, found in held if pod.uid not in reminded])
    if min(map(_times, held)) < min(1, _times_due(held, draft.scene.now)):  # nobody goes before the first
        return reminders
    left = [pod for pod in victims if not pod.terminating]
    for pod in left:  # no move takes another replica of a service away meanwhile
        found = draft.scene.service_of(pod)
        if found is not None:
            draft.limits.promise_victim(found.group.workload.uid)
    draft.left += len(left) > MOST_AT_ONCE
    evictions = [_evicted(draft, gang, pod, victims) for pod in left[:MOST_AT_ONCE]]
    return [*reminders, *evictions]


def _reserved_too(draft: Draft, gang: Gang, held: Held, victims: Sequence[Pod]) -> list[Action]:
    """Some reservations were refused, or their writer died: the others get theirs, before the first eviction."""
    least, kept = gang.least(draft.scene.now), {pod.uid for pod, _ in held}
    rest = [pod for pod in gang.gated if pod.uid not in kept]
    is_late = _times_due(held, draft.scene.now - MARKING_SECONDS) > 0
    if least is None or len(held) >= least or len(rest) < least - len(held) or is_late or draft.scene.is_paused:
        return []
    room = draft.room.without(victims)
    for pod, found in held:
        room.hold(pod, found.node)
    places_of_rest = places(room, rest, least - len(held), gang.terms.classes, draft.odds(gang))
    if isinstance(places_of_rest, NoPlace):
        return []
    plan, at = held[0][1].plan, min(found.at for _, found in held)
    return [
        reserve(draft, pod, Reservation(plan, at, places_of_rest.places[pod.uid], awaits_victims=True))
        for pod in rest
        if pod.uid in places_of_rest.places
    ]


def _elsewhere(draft: Draft, gang: Gang, held: Held, victims: Sequence[Pod]) -> Mapping[str, str] | None:
    """Other places for all of them, by UID: somebody has taken room, such as a pod of a higher priority."""
    members = [pod for pod, _ in held]
    found = places(draft.room.without(victims), members, len(members), gang.terms.classes, draft.odds(gang))
    return None if isinstance(found, NoPlace) else found.places


def _again(draft: Draft, held: Held, nodes: Mapping[str, str]) -> list[Action]:
    """The same plan of the same moment, on other nodes."""
    plan, at = held[0][1].plan.rstrip(AGAIN), min(found.at for _, found in held)
    marks = AGAIN * (1 + max(map(_times, held)))
    return [reserve(draft, pod, Reservation(plan + marks, at, nodes[pod.uid], awaits_victims=True)) for pod, _ in held]


def _reminders(draft: Draft, held: Held) -> list[Action]:
    """The same once more, with more marks: any change of a pod reminds the scheduler. Only what is due."""
    due = _times_due(held, draft.scene.now)
    plan = held[0][1].plan.rstrip(AGAIN) + AGAIN * due
    return [reserve(draft, pod, replace(found, plan=plan)) for pod, found in held if found.plan.count(AGAIN) < due]


def _times(one: tuple[Pod, Reservation]) -> int:
    """How often it was written again."""
    return one[1].plan.count(AGAIN)


def _times_due(held: Held, now: float) -> int:
    """How often it should have been: not while it is fresh, then every few seconds."""
    age = now - min(found.at for _, found in held) - FRESH_SECONDS - FRESH_SECONDS_EACH * len(held)
    return 0 if age <= 0 else 1 + int(age / TOUCH_SECONDS)


def _kept(draft: Draft, held: Held) -> list[Action]:
    for pod, found in held:
        draft.room.hold(pod, found.node)
    return []


def _given_up(draft: Draft, gang: Gang, held: Held, victims: Sequence[Pod]) -> str:
    """Why; "": it goes on."""
    scene, least = draft.scene, gang.least(draft.scene.now)
    if scene.is_paused or gang.obstacle:
        return gang.obstacle or str(Blocked.PAUSED)
    plans = {found.plan.rstrip(AGAIN) for _, found in held}
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
    overdrawn = _overdrawn(draft, victims)
    if overdrawn:
        return overdrawn
    is_late = scene.now - max(found.at for _, found in held) > grace + MARKING_SECONDS + PATIENCE_SECONDS
    if is_late and victims:
        return "its victims did not end in time"
    return ""


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
