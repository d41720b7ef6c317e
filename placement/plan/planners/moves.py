"""Pods that should be elsewhere are moved, within all limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from placement.model import Budget, Class, Pool
from placement.plan.actions import DEPARTING, EVENING, WITHIN, Action, Blocked, How, Why
from placement.plan.assess import Wish, shape_of
from placement.plan.begin import begun
from placement.plan.breaker import Breaker
from placement.plan.draft import Draft
from placement.plan.group import Member
from placement.plan.marks import evicted, policy_mark, seat
from placement.plan.scene import demand_of, target
from placement.pools import preferred_pool


def plan(draft: Draft) -> Iterator[Action]:
    """What leaves its node is the matter of `leaving`."""
    wishes = [wish for wish in draft.wishes if wish.why not in DEPARTING]
    if wishes:
        yield from begun(draft, wishes, _Obstacles(draft).of)


class _Obstacles:
    """What stops a move now, though nothing about its workload does."""

    def __init__(self, draft: Draft) -> None:
        scene = draft.scene
        self._draft = draft
        self._scene = scene
        self._room = draft.room
        self._limits = draft.limits
        self._breaker = Breaker(scene.assessments, scene.sizes, scene.now)
        self._crowded = Counter(
            (each.group.workload.uid, stuck.of) for each in scene.assessments for stuck in each.stuck
        )

    def of(self, wish: Wish) -> Blocked | None:
        return self._limits.refusal(wish) or self._no_way_there(wish) or self._no_place(wish)

    def _no_way_there(self, wish: Wish) -> Blocked | None:
        """The class is out, or siblings wait for it already, or one must go ahead to see."""
        scene, namespace = self._scene, wish.group.workload.namespace
        demand = demand_of(wish.member.pod, scene.ground.configuration.classes)
        if scene.outages.stands(wish.to, scene.ground.zones[wish.to], demand, scene.now):
            return Blocked.OUTAGE
        if wish.why is not Why.FLOOR and self._crowded[wish.group.workload.uid, wish.to]:
            return Blocked.CROWDED
        if wish.why is not Why.FLOOR and self._breaker.is_open(namespace) and self._limits.is_trying(namespace):
            return Blocked.BREAKER
        aim = target(wish.group, wish.member.slot, wish.member.pod, scene.ground)
        is_probed = self._limits.is_probed(namespace, aim) and self._draft.way_out.needs_probe(aim, demand)
        return Blocked.PROBING if is_probed else None

    def _no_place(self, wish: Wish) -> Blocked | None:
        """An eviction needs a proven place. A release proves it itself, but only one goes where none is in sight."""
        pod, siblings = wish.member.pod, self._draft.siblings(wish)
        budgets = self._scene.budgets(pod)
        if len(budgets) > 1:
            return Blocked.BUDGET  # the API server evicts no pod that two of them select
        if wish.how is How.EVICT and self._is_cordoned(pod.node):
            return Blocked.CORDONED  # what is evicted from there looks like a drain
        if wish.how is How.EVICT:
            return self._no_eviction(wish, siblings, budgets)
        if any(budget.healthy < budget.desired for budget in budgets):
            return Blocked.BUDGET  # not even with one more could the old pod go
        if self._room.take(pod, wish.to, self._pool_for(wish)) is not None:
            return None
        if wish.why in WITHIN:
            return Blocked.NO_PLACE  # it would come out where it was, or preempt the very pod that it is to replace
        if self._is_one_per_host(wish):
            return Blocked.NO_PLACE
        is_probed = self._limits.is_probed_for(wish.group.workload.namespace, wish.to, shape_of(pod))
        return Blocked.PROBING if is_probed else None

    def _is_one_per_host(self, wish: Wish) -> bool:
        """Its own siblings keep it from every node that there is, and nobody brings more.

        Ten replicas that want a host each, and six spot nodes: the seventh would wait, be put back, and try again for
        ever. Meanwhile others of its namespace would wait for what became of it.
        """
        is_scaled = self._scene.ground.configuration.classes.is_scaled
        return bool(wish.member.pod.needs.anti_affinity and self._room.targets(wish.to)) and not is_scaled

    def _is_cordoned(self, node: str) -> bool:
        site = self._scene.ground.sites.get(node)
        return site is not None and site.node.unschedulable

    def _no_eviction(self, wish: Wish, siblings: Sequence[Member], budgets: Sequence[Budget]) -> Blocked | None:
        """One at a time, while all others serve, and where as many as must are left on either class."""
        group, pod = wish.group, wish.member.pod
        serving = [member for member in siblings if member.is_available]
        if self._limits.is_moving(group.workload.uid):
            return Blocked.UNSETTLED
        if len(serving) < len(siblings):
            return Blocked.UNREADY
        if self._is_too_soon(wish):
            return Blocked.COOL_DOWN
        refused = self._limits.refusal_of_budgets(budgets)
        if refused is not None:
            return refused
        if not group.availability.is_assumed and len(serving) <= group.needed:
            return Blocked.MINIMUM
        if group.availability.is_assumed and len(serving) <= 1:
            return Blocked.LAST
        if wish.member.of is Class.ON_DEMAND and not _spares_on_demand(wish, serving):
            return Blocked.LAST_ON_DEMAND
        if self._room.take(pod, wish.to, self._pool_for(wish), goes_first=True) is None:
            return Blocked.NO_PLACE
        self._limits.promise_to(budgets)
        return None

    def _pool_for(self, wish: Wish) -> Pool | None:
        """The one that its replacement will prefer, where the move is for the sake of the pool."""
        if wish.why not in EVENING or wish.member.slot is None:
            return None
        group = wish.group
        return preferred_pool(wish.member.slot, group.slots, group.workload, self._scene.ground.spot_pools)

    def _is_too_soon(self, wish: Wish) -> bool:
        """Its predecessor was evicted within the cool-down, under the same policy."""
        before = self._scene.evicted.get(seat(wish.group.workload, wish.member.pod)) or evicted(wish.member.pod)
        policy, cool_down = policy_mark(wish.group.slots), self._scene.ground.configuration.moves.cool_down
        return before is not None and before.is_too_soon(policy, cool_down.total_seconds(), self._scene.now)


def _spares_on_demand(wish: Wish, serving: Sequence[Member]) -> bool:
    """Whether the floor holds with one less on on-demand."""
    slots = wish.group.slots
    on_demand = sum(member.of is Class.ON_DEMAND for member in serving)
    return on_demand > min(slots.floor, slots.mix(wish.group.workload.replicas).on_demand)
