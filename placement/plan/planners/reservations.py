"""Gangs for which room is kept start, or give it back; and a start that did not get all members onto nodes is undone.

All of it follows from the pods. So a new leader goes on where the last one stopped: what is reserved is verified and
started, what has begun to start goes on, what is marked as undone is evicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from placement import names
from placement.gang.gang import Gang, GangStatus, State, status_of
from placement.gang.reservation import AGAIN, Reservation, plan_id, reservation_of
from placement.lack import NoPlace
from placement.model import Pod
from placement.plan.actions import Action, Blocked, How, Why
from placement.plan.draft import Draft
from placement.plan.ground import Ground
from placement.plan.planners import exclusive, guarded, preemption
from placement.plan.planners.writing import Held, joined_run, reserve, unreserved
from placement.plan.room import size_of
from placement.plan.whole import holds, places

PLACING_SECONDS = 60.0  # for all members to get their nodes, once the first has started
STRAY_SECONDS = 10.0  # its namespace may have opted in a moment ago, and we hear of it after its pods
KEPT_SECONDS = 30.0  # for so long room is kept where starts fail
# Up to 1.36 a scheduler that was restarted has forgotten for which gated pods it keeps room, until they change. So what
# was reserved some time ago is reserved again, once, right before the start; that of a large gang takes its time.
FRESH_SECONDS, FRESH_SECONDS_EACH = 2.0, 0.02
MOST_NODES = 100  # so many at most are named in a member's affinity


def plan(draft: Draft) -> Iterator[Action]:
    """First what others must leave free. Then each gang on its own, those first that have begun to start."""
    scene = draft.scene
    yield from _freed(draft)
    for gang in scene.gangs:
        draft.gangs[gang.key] = status_of(gang, scene.now)
        _keep(draft, gang)
    for gang in sorted((gang for gang in scene.gangs if gang.is_settled and _is_under_way(gang)), key=_turn):
        yield from _undone(draft, gang) or _proceeding(draft, gang)


def _freed(draft: Draft) -> Iterator[Action]:
    """Only so many at once: anybody can make pods with our gate, in any namespace, and nodes may be lost meanwhile."""
    scene = draft.scene
    strays = (pod for pod in scene.strays if scene.now - pod.created > STRAY_SECONDS)
    due = [pod for pod in strays if not draft.held(pod, How.UNGATE)]
    most = len(due) if scene.most_notes is None else scene.most_notes
    draft.left += max(0, len(due) - most)
    yield from (ungated(pod, "no gang will start it") for pod in due[:most])


def _keep(draft: Draft, gang: Gang) -> None:
    """For members that are on their way to a node; and for gated ones that cannot be judged now."""
    for pod in gang.starting:
        if pod.nominated:
            draft.room.hold(pod, pod.nominated)
    if not gang.is_settled:
        for pod, _ in gang.reservations:
            draft.room.hold(pod, pod.nominated)


def _is_under_way(gang: Gang) -> bool:
    return bool(gang.starting) or any(pod.nominated for pod in gang.gated) or any(pod.gang_plan for pod in gang.running)


def _turn(gang: Gang) -> tuple[bool, float, str]:
    """Those that have begun, then the oldest plans."""
    held = gang.reservations
    has_begun = any(found.plan in gang.begun for _, found in held)
    return (not has_begun, min((found.at for _, found in held), default=0.0), str(gang.key))


# --- a start that is undone ------------------------------------------------------------------------------------------


def _undone(draft: Draft, gang: Gang) -> list[Action]:
    """All of its members are marked before the first is evicted, so that the next leader evicts the rest."""
    written = {pod.uid: found for pod in gang.started if (found := reservation_of(pod)) is not None}
    plans = {found.plan for found in written.values() if found.is_undone} | _overdue(draft, gang)
    if not plans:
        return []
    is_short = len(gang.running) + gang.done < gang.needed or not gang.needed
    concerned = gang.started if is_short else gang.starting
    pods = [pod for pod in concerned if pod.uid in written and written[pod.uid].plan in plans]
    if any(pod.owner is None for pod in pods):
        reason = "not all members have a node; pods without an owner are not evicted, since they would not come back"
        draft.gangs[gang.key] = GangStatus(gang, State.PLACING, reason)
        return []
    draft.gangs[gang.key] = GangStatus(gang, State.ROLLING_BACK, "not all members got a node in time")
    back = [unreserved(pod, "the start is undone") for pod in gang.gated if pod.nominated]
    unmarked = [pod for pod in pods if not written[pod.uid].is_undone]
    if unmarked:
        return back + [_marked(pod, written[pod.uid], is_undone=True) for pod in unmarked]
    if not pods:  # all of them have a node by now
        return [_marked(pod, written[pod.uid], is_undone=False) for pod in gang.running if _is_marked(pod)]
    if _must_stay(draft, pods, written):
        return back + [_marked(pod, written[pod.uid], is_undone=False) for pod in pods]
    return back + [_act(How.ROLL_BACK, pod, "not all members of its gang got a node in time") for pod in pods]


def _must_stay(draft: Draft, pods: Sequence[Pod], written: Mapping[str, Reservation]) -> bool:
    """All that are left have nodes, and their budgets have kept them for long: the others join when there is room.

    Else the gang would never be whole: what is being undone gets no room.
    """
    refused = (Blocked.BUDGET, Blocked.REFUSED)
    tried = PLACING_SECONDS + KEPT_SECONDS
    return all(
        pod.node and draft.held(pod, How.ROLL_BACK) in refused and draft.scene.now - written[pod.uid].at > tried
        for pod in pods
    )


def _is_marked(pod: Pod) -> bool:
    found = reservation_of(pod)
    return found is not None and found.is_undone


def _overdue(draft: Draft, gang: Gang) -> set[str]:
    """Plans that have not got all members onto nodes in time, counted from the last that was written.

    Not one whose other half can still start: nobody led for a while. What has no room yet is not given more time.
    """
    latest: dict[str, float] = {}
    for pod in (*gang.starting, *(pod for pod, _ in gang.reservations)):
        found = reservation_of(pod)
        if found is not None:
            latest[found.plan] = max(found.at, latest.get(found.plan, 0.0))
    late = {plan for plan, at in latest.items() if draft.scene.now - at > PLACING_SECONDS and gang.started_by(plan)}
    return {plan for plan in late if not _can_go_on(draft, gang, plan)}


def _can_go_on(draft: Draft, gang: Gang, plan: str) -> bool:
    held = [(pod, found) for pod, found in gang.reservations if found.plan == plan]
    return bool(held) and not _had_more_time(gang, held) and _fit(draft, held) is None


def _had_more_time(gang: Gang, held: Held) -> bool:
    """They were written again, and none has started since: something refuses that, and more time would not help."""
    before = [each.at for pod in gang.started_by(held[0][1].plan) if (each := reservation_of(pod)) is not None]
    return max(found.at for _, found in held) > max(before)


# --- a start that goes on --------------------------------------------------------------------------------------------


def _proceeding(draft: Draft, gang: Gang) -> list[Action]:
    held = gang.reservations
    kept = {pod.uid for pod, _ in held}
    strays = [unreserved(pod, "no plan") for pod in gang.gated if pod.nominated and pod.uid not in kept]
    begun = [(pod, found) for pod, found in held if found.plan in gang.begun]
    if begun:
        rest = [unreserved(pod, "another plan is under way") for pod, found in held if (pod, found) not in begun]
        return [*strays, *rest, *_go_on(draft, gang, begun)]
    if any(found.awaits_victims for _, found in held):
        return [*strays, *preemption.proceeding(draft, gang, held)]
    return [*strays, *_begin(draft, gang, held)] if held else strays


def _go_on(draft: Draft, gang: Gang, held: Held) -> list[Action]:
    """In every mode, paused or not: half a gang is of no use. Where room was lost, other room is looked for."""
    now, plan = draft.scene.now, held[0][1].plan
    if exclusive.untainted(draft, gang, held) is not None:
        draft.gangs[gang.key] = GangStatus(gang, State.PLACING, "half of it has started; others are kept away first")
        return exclusive.kept(draft, held)
    if _fit(draft, held) is None:
        if now - max(found.at for _, found in held) <= PLACING_SECONDS / 2 or _had_more_time(gang, held):
            return _started(draft, gang, held, in_every_mode=True)
        kept = {pod.uid: found.node for pod, found in held}  # written again, so that all get their minute
        return [reserve(draft, pod, Reservation(plan, now, kept[pod.uid]), in_every_mode=True) for pod, _ in held]
    odds, suits = draft.odds(gang), exclusive.suiting(draft, gang)
    found = places(draft.room, [pod for pod, _ in held], len(held), gang.terms.classes, odds, suits)
    if isinstance(found, NoPlace):
        draft.gangs[gang.key] = GangStatus(gang, State.PLACING, f"half of it has started; for the rest {found}")
        for pod, reservation in held:
            draft.room.hold(pod, reservation.node)
        return []
    nodes = found.places
    return [reserve(draft, pod, Reservation(plan, now, nodes[pod.uid]), in_every_mode=True) for pod, _ in held]


def _begin(draft: Draft, gang: Gang, held: Held) -> list[Action]:
    """All at once, if all of them still fit; else the room is given back, and the gang waits."""
    if gang.is_guarded:
        return guarded.awaiting(draft, gang, held)
    now, least = draft.scene.now, gang.least(draft.scene.now)
    made = min(found.at for _, found in held)
    is_whole = least is not None and len(held) >= least and len({found.plan for _, found in held}) == 1
    failing = next((why for pod, _ in held if (why := draft.held(pod, How.START))), None)
    given_up = gang.obstacle or (str(Blocked.PAUSED) if draft.scene.is_paused else "")
    if not is_whole and not given_up:
        return _completed(draft, gang, held) or [unreserved(pod, "its gang is not whole") for pod, _ in held]
    if failing is not None and now - made > KEPT_SECONDS:
        given_up = given_up or str(failing)
    short = None if given_up else _fit(draft, held)
    if given_up or short is not None:
        return [unreserved(pod, given_up or str(short)) for pod, _ in held]
    unready = exclusive.unready(draft, gang, held)
    if unready is not None:
        return unready
    is_fresh = now - made <= FRESH_SECONDS + FRESH_SECONDS_EACH * len(held)
    is_renewed = held[0][1].is_renewed and now - made <= KEPT_SECONDS
    if failing is None and not is_fresh and not is_renewed:
        plan = plan_id(now) + AGAIN
        return [reserve(draft, pod, Reservation(plan, now, found.node)) for pod, found in held]
    return _started(draft, gang, held)


def _completed(draft: Draft, gang: Gang, held: Held) -> list[Action]:
    """A plan that was cut short gets its other members, where there still is room; none: there is not."""
    least, kept = gang.least(draft.scene.now), {pod.uid for pod, _ in held}
    rest = [pod for pod in gang.gated if pod.uid not in kept]
    if least is None or len({found.plan for _, found in held}) > 1 or _fit(draft, held) is not None:
        return []
    for pod, found in held:
        draft.room.hold(pod, found.node)
    odds, suits = draft.odds(gang), exclusive.suiting(draft, gang)
    found_for_rest = places(draft.room, rest, least - len(held), gang.terms.classes, odds, suits)
    if isinstance(found_for_rest, NoPlace):
        return []
    plan, nodes = held[0][1].plan, found_for_rest.places
    return [reserve(draft, pod, Reservation(plan, draft.scene.now, nodes[pod.uid])) for pod in rest if pod.uid in nodes]


def _fit(draft: Draft, held: Held) -> NoPlace | None:
    return holds(draft.room, [pod for pod, _ in held], {pod.uid: found.node for pod, found in held})


def _started(draft: Draft, gang: Gang, held: Held, *, in_every_mode: bool = False) -> list[Action]:
    """The hardest first. Each may go to any node of the plan: pinned to one, it would be stranded if that went."""
    written = {names.GANG_RUN: joined_run(draft, gang, held).text()}
    nodes = _names({found.node for _, found in held}, draft.scene.ground)
    actions = []
    for pod, found in sorted(held, key=lambda each: size_of(each[0]), reverse=True):
        draft.room.hold(pod, found.node)
        text = f"room is kept for all of its gang, on {found.node} for it"
        started = Action(How.START, Why.GANG, None, pod, annotations=written, text=text, nodes=nodes)
        actions.append(replace(started, in_every_mode=in_every_mode))
    return actions


def _names(nodes: Iterable[str], ground: Ground) -> tuple[str, ...]:
    """As their labels give them; none where affinity cannot name them all."""
    labels = {ground.sites[node].node.labels.get(names.HOSTNAME, "") for node in nodes}
    return tuple(sorted(labels)) if "" not in labels and len(labels) <= MOST_NODES else ()


# --- actions ---------------------------------------------------------------------------------------------------------


def ungated(pod: Pod, why: str) -> Action:
    return _act(How.UNGATE, pod, why)


def _marked(pod: Pod, found: Reservation, *, is_undone: bool) -> Action:
    text = "its gang is rolled back" if is_undone else "its gang runs after all"
    written = Reservation(found.plan, found.at, found.node, is_undone).text()
    return Action(
        How.ANNOTATE, Why.GANG, None, pod, annotations={names.GANG_PLAN: written}, text=text, in_every_mode=True
    )


def _act(how: How, pod: Pod, text: str) -> Action:
    return Action(how, Why.GANG, None, pod, text=text, in_every_mode=True)


def is_idle(gang: Gang) -> bool:
    """Nothing is reserved for any of its members, nor under way: room may be looked for."""
    return gang.is_settled and not gang.reservations and not any(pod.nominated for pod in gang.gated)
