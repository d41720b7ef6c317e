"""A plan in the making: what all planners share while they work on it, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from placement.gang.claim import ClaimKey, claims_of
from placement.gang.gang import Gang, GangStatus
from placement.gang.odds import Odds, odds_of
from placement.model import Key, Pod
from placement.outage import Outage
from placement.outcome import Outcome
from placement.plan.actions import Action, Blocked, How, Skipped, Why
from placement.plan.assess import Assessment, Wish
from placement.plan.group import Member
from placement.plan.limits import MoveLimits
from placement.plan.losses import Short, outages_of_loss
from placement.plan.room import Room
from placement.plan.scene import Scene
from placement.plan.stuck import Freed, WayOut
from placement.plan.waiting import waiting_pods

_HELD = {Outcome.BLOCKED: Blocked.BUDGET, Outcome.IMPOSSIBLE: Blocked.REFUSED}


class Draft:
    """One room, one set of limits, one record of what was skipped. What planners have promised so far is its state."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.room = Room(scene.ground, scene.used, lambda: waiting_pods(scene), scene.neighbours)
        for pod in scene.nominated:
            self.room.hold(pod, pod.nominated)
        self.limits = MoveLimits(scene)
        self.way_out = WayOut(scene, self.room, self.skip)
        self.gangs: dict[Key, GangStatus] = {}  # what became of each
        self.claims = claims_of(scene.marked)  # victims of gangs that have not gone yet
        self.kept_claims: set[ClaimKey] = set()  # those that go on
        self.is_preempting = False  # for a gang: one at a time
        self.searches = 0  # for victims
        self.short: list[Short] = []  # pods that lose their nodes, and for which their class has no room
        self.left = 0  # what is left to the next pass, which follows at once
        self.workloads = {each.group.workload.uid: each.group.workload for each in scene.assessments}
        self._members = {each.group.workload.uid: each.members for each in scene.assessments}
        self._skipped: Counter[tuple[str, Why, Blocked]] = Counter()
        self.wishes = _in_turn(wish for each in scene.assessments for wish in self._open(each))

    @cached_property
    def freed(self) -> Freed:
        """What is done about pods that find no node because of us. Looked for once, when a planner first asks."""
        return self.way_out.freed()

    def odds(self, gang: Gang) -> Odds:
        """What its chance to survive is worked out from."""
        return odds_of(gang.terms, self.scene.observed)

    @cached_property
    def seats(self) -> Mapping[str, str]:
        """By UID: the nodes that pods will get which wait now."""
        there = self.room.stock().crowd.pods.items()
        return {pod.uid: node for node, pods in there for pod in pods}

    def siblings(self, wish: Wish) -> tuple[Member, ...]:
        """The members of its workload, itself among them."""
        return self._members[wish.group.workload.uid]

    # --- what is skipped ---------------------------------------------------------------------------------------------

    def skip(self, workload_uid: str, why: Why, blocked: Blocked) -> None:
        self._skipped[workload_uid, why, blocked] += 1

    def skipped(self) -> Iterator[Skipped]:
        for (uid, why, blocked), count in self._skipped.items():
            yield Skipped(self.workloads[uid], why, blocked, count)

    def held(self, pod: Pod, how: How, text: str | None = None) -> Blocked | None:
        """Why this is not tried now: it failed a moment ago, for the same reason if `text` gives one."""
        held = self.scene.held.get((pod.uid, how))
        if held is None or (text is not None and held.text not in (None, text)):
            return None
        return _HELD.get(held.outcome, Blocked.BUSY)

    def unheld(self, actions: Iterable[Action]) -> Iterator[Action]:
        """Without what failed a moment ago."""
        if not self.scene.held:
            yield from actions
            return
        for action in actions:
            held = self.held(action.pod, action.how, action.text)
            if held is None:
                yield action
            elif action.workload is not None:
                self.skip(action.workload.uid, action.why, held)

    def _open(self, each: Assessment) -> Sequence[Wish]:
        """Its wishes that nothing about it blocks; none while moves are paused.

        The others are skipped here, so that a backlog that is blocked for long is not sorted again in every pass.
        """
        paused = Blocked.PAUSED if self.scene.is_paused else None
        wishes = []
        for wish in each.wishes:
            blocked = paused or wish.blocked
            if blocked is None:
                wishes.append(wish)
            else:
                self.skip(each.group.workload.uid, wish.why, blocked)
        return wishes

    # --- outages -----------------------------------------------------------------------------------------------------

    def outages(self) -> list[Outage]:
        """Those that planners have found, for lost and leaving nodes first."""
        scene = self.scene
        return [*outages_of_loss(self.short, self.room, scene.outages, scene.now), *self.freed.outages]


def _in_turn(wishes: Iterable[Wish]) -> list[Wish]:
    """By reason; then namespaces take turns, so that none waits for another's backlog.

    Within a namespace those with the least to spare, then as they come, the highest slots first.
    """
    turns: Counter[tuple[int, str]] = Counter()
    ordered: list[tuple[int, int, int, Wish]] = []
    for wish in sorted(wishes, key=_need):
        rank, namespace = wish.why.rank, wish.group.workload.namespace
        ordered.append((rank, turns[rank, namespace], len(ordered), wish))
        turns[rank, namespace] += 1
    return [wish for *_, wish in sorted(ordered)]


def _need(wish: Wish) -> tuple[int, str, int]:
    workload = wish.group.workload
    return (workload.replicas - wish.group.needed, workload.uid, -(wish.member.slot or 0))
