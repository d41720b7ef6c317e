"""The forecast: what comes of a cluster when the rebalancer has done all that it will do.

The plan is made again and again on an index of its own, and carried out there: a pod that is moved is gone, and its
replacement stands where the fit test has a place for it. Nothing else is guessed, so that a forecast cannot differ from
what the plan then does. Example: 4 pods on on-demand at 70 % want 2 + 2. The first pass writes slots, the next two
move one pod each; if spot has room for one alone, the mix rests at 1 + 3, and "no node has room" is what lasts.

Time passes where nothing else happens: pods grow old enough, cool-downs and outages end, windows open. So what is left
in the end is what lasts, and not what is so for a moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count

from placement import names
from placement.availability import NO_BUDGETS
from placement.clusterstate import cluster_state
from placement.model import NO_AMOUNTS, Class, Pod
from placement.plan.actions import EVENING, WITHIN, Action, Blocked, How, Plan
from placement.plan.annotate import written
from placement.plan.assess import Assessment
from placement.plan.group import Member
from placement.plan.replacement import Replacements
from placement.plan.room import Room
from placement.plan.scene import Scene
from placement.plan.select import plan
from placement.plan.waiting import waiting_pods
from placement.pools import preferred_pool
from placement.window import Window
from rebalancer.index import Index
from report.foretold import NOT_READY, Ending

STEP_SECONDS = 1.0
DAY_SECONDS = 86_400.0  # the longest that anything keeps a pod from being moved again
MOST_PASSES = 2_000
MOST_RESTS = 20  # how often time is let pass: a workload that never comes to rest must not keep anybody waiting
WINDOW_STEP_SECONDS = 900.0
LONGEST_WAIT_SECONDS = 35 * DAY_SECONDS  # for a window


class Forecast:
    """Runs the plan forward. The index is its own: what it says afterwards is about the future."""

    def __init__(self, index: Index, scene_at: Callable[[float], Scene], now: float) -> None:
        self._index = index
        self._scene_at = scene_at
        self._now = now
        self._ids = count(1)
        self._moves: Counter[str] = Counter()  # by the workload's UID
        self._windows: set[str] = set()  # UIDs of workloads that wait for theirs
        self._futile: dict[tuple[str, ...], Blocked] = {}  # moves for which there is no place, until something moves
        self._bought: dict[str, int] = {}  # by the workload's UID: its moves when a node was last brought for it
        self.added: Counter[Class] = Counter()  # nodes that an autoscaler is assumed to bring
        self._last = Plan()
        first = scene_at(now)
        nodes = [site.node for site in first.ground.sites.values()]
        state = cluster_state(nodes, (), NO_BUDGETS, first.ground.configuration)
        self._replacements = Replacements(state, first.outages)

    def run(self) -> dict[str, Ending]:
        """By the workload's UID."""
        rests = has_moved = 0
        for _ in range(MOST_PASSES):
            done = self._pass()
            has_moved |= done
            if done:
                self._now += STEP_SECONDS
            elif has_moved and self._futile:
                self._futile.clear()  # what moved has left room behind
                has_moved = 0
            elif rests < MOST_RESTS and self._lets_time_pass(rests):
                rests += 1
            else:
                break
        return {uid: self._ending(found) for uid, found in self._index.assessments.items()}

    # --- one pass ----------------------------------------------------------------------------------------------------

    def _pass(self) -> bool:
        """Whether anything was done that changes anything."""
        index = self._index
        index.drain()
        index.refresh(self._now)
        scene = self._scene_at(self._now)
        scene = replace(scene, assessments=[self._without_futile(each) for each in scene.assessments])
        self._last = plan(scene)
        room = Room(scene.ground, scene.used, lambda: waiting_pods(scene), scene.neighbours)
        known = {each.group.workload.uid: each for each in scene.assessments}
        done = [self._carry_out(action, room, known) for action in self._last.actions]
        return any(done)

    def _carry_out(self, action: Action, room: Room, known: Mapping[str, Assessment]) -> bool:
        pod = action.pod
        if action.how is How.ANNOTATE:
            return self._change(pod, written(action))
        if action.how is How.FINISH:
            return self._change(pod, None)
        found = known.get(action.workload.uid) if action.workload is not None else None
        if action.how not in (How.RELEASE, How.EVICT) or found is None:
            return False
        return self._move(action, room, found)

    def _change(self, old: Pod, new: Pod | None) -> bool:
        if old == new:
            return False
        self._index.observe(old, new)
        return True

    def _move(self, action: Action, room: Room, found: Assessment) -> bool:
        group, pod, to = found.group, action.pod, action.to
        member = next(each for each in found.members if each.pod.uid == pod.uid)
        assert member.slot is not None
        assert to is not None
        uid = f"then-{next(self._ids)}"
        new, decision = self._replacements.of(pod, group, member.slot, uid, self._now)
        if decision.placed is None:
            return self._gives_up(action, Blocked.OWN_TERMS)
        node = self._place(action, replace(new, uid=pod.uid, node=pod.node), room, found, member, is_soft=decision.soft)
        if node is None:
            return self._buys(action, new) or self._gives_up(action, Blocked.NO_PLACE)
        self._index.observe(pod, None)
        ready_at = self._now - group.workload.min_ready_seconds - 1
        self._index.observe(None, replace(new, node=node, phase="Running", ready=True, changed=ready_at))
        self._moves[group.workload.uid] += 1
        return True

    def _place(
        self, action: Action, pod: Pod, room: Room, found: Assessment, member: Member, *, is_soft: bool
    ) -> str | None:
        """Its slot's pool is preferred. A move between pools is for the sake of that very one."""
        group, to = found.group, action.to
        assert to is not None
        goes_first = action.how is How.EVICT
        pool = preferred_pool(member.slot or 0, group.slots, group.workload, self._index.ground.spot_pools)
        classes = (to, to.other) if is_soft else (to,)
        pools = (pool,) if action.why in EVENING else (pool, None) if pool is not None else (None,)
        tries = ((of, where) for of in classes for where in pools)
        found_places = (room.take(pod, of, where, goes_first=goes_first) for of, where in tries)
        return next((node for node in found_places if node is not None), None)

    # --- an autoscaler -----------------------------------------------------------------------------------------------

    def _buys(self, action: Action, pod: Pod) -> bool:
        """Where an autoscaler brings nodes, one like those that are there comes for a replacement that waits.

        Once for each move: if that did not help, another one would not either.
        """
        assert action.workload is not None
        assert action.to is not None
        uid, ground = action.workload.uid, self._index.ground
        is_bought = self._bought.get(uid) == self._moves[uid]
        if not ground.configuration.classes.is_scaled or is_bought:
            return False
        self._bought[uid] = self._moves[uid]
        for site in ground.targets[action.to]:
            alone = Room(replace(ground, sites={site.node.name: site}), lambda _node: NO_AMOUNTS)
            if alone.fits_empty(pod, action.to):
                name = f"new-{action.to}-{self.added[action.to] + 1}"
                labels = {**site.node.labels, names.HOSTNAME: name}
                self._index.observe(None, replace(site.node, name=name, uid=name, labels=labels))
                self.added[action.to] += 1
                return True
        return False

    # --- what cannot be ----------------------------------------------------------------------------------------------

    def _gives_up(self, action: Action, blocked: Blocked) -> bool:
        """The real move would be undone, and tried again later, for ever: pods of a workload ask for the same."""
        assert action.workload is not None
        self._futile[self._kind(action.workload.uid, action.pod, action.to, is_within=action.why in WITHIN)] = blocked
        return False

    def _without_futile(self, each: Assessment) -> Assessment:
        if not self._futile or not each.wishes:
            return each
        uid = each.group.workload.uid
        kinds = (self._kind(uid, wish.member.pod, wish.to, is_within=wish.why in WITHIN) for wish in each.wishes)
        stopped = zip(each.wishes, (self._futile.get(kind) for kind in kinds), strict=True)
        return replace(each, wishes=tuple(replace(wish, blocked=wish.blocked or known) for wish, known in stopped))

    def _kind(self, workload_uid: str, pod: Pod, to: Class | None, *, is_within: bool) -> tuple[str, ...]:
        """A claim is bound to a place of its own, so each such pod stands for itself."""
        is_own = pod.needs.has_claims or is_within
        return (workload_uid, str(to), str(is_within), pod.uid if is_own else "")

    # --- time --------------------------------------------------------------------------------------------------------

    def _lets_time_pass(self, rests: int) -> bool:
        """A day at first; then until a window opens."""
        if rests == 0:
            self._now += DAY_SECONDS
            return True
        closed = [each for each in self._index.assessments.values() if _waits_for_window(each)]
        self._windows.update(each.group.workload.uid for each in closed)
        openings = (self._opening(each.group.policy.rebalance_window) for each in closed)
        soonest = min((at for at in openings if at is not None), default=None)
        self._now = self._now if soonest is None else soonest
        return soonest is not None

    def _opening(self, window: Window | None) -> float | None:
        assert window is not None
        steps = range(1, int(LONGEST_WAIT_SECONDS / WINDOW_STEP_SECONDS))
        moments = (self._now + step * WINDOW_STEP_SECONDS for step in steps)
        return next((at for at in moments if window.is_open(at)), None)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _ending(self, found: Assessment) -> Ending:
        uid = found.group.workload.uid
        return Ending(found, self._moves[uid], tuple(self._stays(found)), uid in self._windows)

    def _stays(self, found: Assessment) -> Iterator[tuple[str, int]]:
        """Why pods are not where they should be: what the last plan left, and what is never planned."""
        uid = found.group.workload.uid
        skipped = [each for each in self._last.skipped if each.workload.uid == uid and each.why not in WITHIN]
        reasons: Counter[str] = Counter()
        for each in skipped:
            reasons[str(each.blocked)] += each.pods
        misplaced = [member.pod for member in found.members if _is_misplaced(found, member)]
        reasons[str(Blocked.OWN_TERMS)] += sum(names.LEFT_ALONE in pod.annotations for pod in misplaced)
        reasons[NOT_READY] += sum(not member.pod.ready for member in found.members)
        reasons[str(Blocked.MISSING)] += max(0, found.group.workload.replicas - len(found.members))
        yield from ((reason, pods) for reason, pods in reasons.items() if pods)


def _is_misplaced(found: Assessment, member: Member) -> bool:
    is_there = member.site is not None and member.slot is not None
    return is_there and found.group.slots.class_of(member.slot or 0) is not member.of


def _waits_for_window(found: Assessment) -> bool:
    return any(wish.blocked is Blocked.WINDOW for wish in found.wishes)
