"""All workloads together: what is done now, in which order, within all limits; and what is left, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from placement import names
from placement.decide import falls_back
from placement.model import Budget, Class, Needs, Pod, Pool, Quota, Toleration, Workload
from placement.outage import Outage
from placement.outcome import Outcome
from placement.plan.actions import EVENING, WITHIN, Action, Blocked, How, Plan, Skipped, Why
from placement.plan.assess import Assessment, Wish, asks_to_be_kept, shape_of
from placement.plan.group import (
    Member,
    Moved,
    evicted,
    former_slot,
    own_terms,
    policy_mark,
    seat,
    undone,
)
from placement.plan.losses import Short, burials, left_behind, outages_of_loss
from placement.plan.release import LONGEST_UNDONE_SECONDS, release
from placement.plan.room import Room
from placement.plan.scene import AUTOSCALER_SECONDS, Scene, Target, demand_of, target
from placement.plan.stuck import WayOut
from placement.pools import preferred_pool

# Moves that do not help are stopped: in a namespace when so many of its workloads, and at least a tenth of them, had to
# undo one; everywhere when that happened in so many namespaces, and at least a quarter of them.
BREAKER_WORKLOADS = 5
BREAKER_NAMESPACES = 3
# For whom the scheduler found no node in all this time there is none: what fits is placed within seconds.
HOPELESS_SECONDS = 30.0
MOST_LEAVING = 200  # releases from leaving nodes in one plan: what is written in a second
_HELD = {Outcome.BLOCKED: Blocked.BUDGET, Outcome.IMPOSSIBLE: Blocked.REFUSED}


def plan(scene: Scene) -> Plan:
    """What to do now. First what makes replacements possible, then what restores service, then what improves it.

    Of annotations only so many at once (`most_notes`): 3,000 would take a minute, and a node may be lost meanwhile.
    While moves are paused only what is done in every mode: the way out of our own constraint, what was lost, the end of
    releases that their Deployment has overtaken.
    """
    if not scene.assessments and not scene.outages.standing(scene.now):
        return Plan()
    return _Chooser(scene).plan()


class _Chooser:
    """Makes one plan; what has been promised so far is its state."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._zones = scene.ground.zones
        self._members: dict[str, tuple[Member, ...]] = {
            each.group.workload.uid: each.members for each in scene.assessments
        }
        self._room = Room(scene.ground, scene.used, self._waiting, scene.neighbours)
        self._moves = scene.ground.configuration.moves
        self._per_workload: Counter[str] = Counter()
        self._per_namespace: Counter[str] = Counter()
        self._per_node: Counter[str] = Counter()
        self._probes: Counter[tuple[str, Target]] = Counter()  # with their namespace: a tenant waits for its own alone
        self._in_all = self._begun = 0
        self._without_room: Counter[str] = Counter()  # by namespace
        self._disrupted: Counter[str] = Counter()  # by budget
        self._quota_taken: dict[str, Counter[str]] = {}
        self._skipped: Counter[tuple[str, Why, Blocked]] = Counter()
        for each in scene.assessments:
            self._count_under_way(each)
        self._failing = Counter(
            each.group.workload.namespace
            for each in scene.assessments
            if any(_is_undone(member.pod, scene.now) for member in each.members)
        )
        self._crowded = Counter(
            (each.group.workload.uid, stuck.of) for each in scene.assessments for stuck in each.stuck
        )
        self._way_out = WayOut(scene, self._room, self._skip)
        self._short: list[Short] = []  # pods on leaving nodes for which their class has no room

    def plan(self) -> Plan:
        scene = self._scene
        buried = burials(scene.assessments, scene.lost)
        wishes = _in_turn(wish for each in scene.assessments for wish in self._open(each))
        leaving = (wish for wish in wishes if wish.why is Why.LEAVING)
        behind = list(left_behind(buried, self._room))
        urgent = list(islice(self._moved(leaving), MOST_LEAVING))
        outages = list(outages_of_loss((*behind, *self._short), self._room, scene.outages, scene.now))
        freed = self._way_out.freed()
        outages += freed.outages
        swept = [action for each in scene.assessments for action in each.sweeps]
        sweeps = sorted({(each.how, each.pod.uid): each for each in (*freed.given_up, *swept)}.values(), key=_turn)
        marks = [action for each in scene.assessments for action in self._marks(each)]
        notes = list(self._unheld(action for each in scene.assessments for action in each.notes))
        rest = list(self._moved(wish for wish in wishes if wish.why is not Why.LEAVING))
        ordered = sorted((*notes[: scene.most_notes], *rest), key=lambda action: action.why.rank)
        actions = (*self._unheld((*buried, *urgent, *sweeps, *freed.replaced, *marks)), *ordered)
        workloads = {each.group.workload.uid: each.group.workload for each in scene.assessments}
        skipped = tuple(
            Skipped(workloads[uid], why, blocked, count) for (uid, why, blocked), count in self._skipped.items()
        )
        left = len(notes[scene.most_notes :]) if scene.most_notes is not None else 0
        distinct = tuple(_distinct(outages))
        return Plan(
            distinct,
            tuple(self._way_out.ended(outages)),
            tuple(action for action in actions if action.in_every_mode or not scene.is_paused),
            skipped,
            left + sum(1 for _ in leaving),
            tuple(_witnesses(distinct, workloads.values())),
        )

    def _open(self, each: Assessment) -> Sequence[Wish]:
        """Its wishes that nothing about it blocks; none while moves are paused.

        The others are told and left, lest all that is blocked for long be put in order again in every pass.
        """
        paused = Blocked.PAUSED if self._scene.is_paused else None
        wishes = []
        for wish in each.wishes:
            blocked = paused or wish.blocked
            if blocked is None:
                wishes.append(wish)
            else:
                self._skip(each.group.workload.uid, wish.why, blocked)
        return wishes

    def _moved(self, wishes: Iterable[Wish]) -> Iterator[Action]:
        return (action for wish in wishes if (action := self._move(wish)) is not None)

    def _marks(self, each: Assessment) -> Iterator[Action]:
        """Successors of pods that we evicted are told so: whoever leads next does not evict them again too soon."""
        for member in each.members if self._scene.evicted else ():
            before = self._scene.evicted.get(seat(each.group.workload, member.pod))
            if before is None or before.uid == member.pod.uid or names.MOVED in member.pod.annotations:
                continue
            mark = {names.MOVED: Moved(before.origin, before.policy, before.at, before.tries).text()}
            text = f"it replaces a pod that was evicted from {before.origin}"
            yield Action(How.ANNOTATE, Why.OVER, each.group.workload, member.pod, annotations=mark, text=text)

    def _unheld(self, actions: Iterable[Action]) -> Iterator[Action]:
        """Without what failed a moment ago."""
        for action in actions:
            held = self._held(action.pod, action.how)
            if held is None:
                yield action
            elif action.workload is not None:
                self._skip(action.workload.uid, action.why, held)

    def _held(self, pod: Pod, how: How) -> Blocked | None:
        outcome = self._scene.held.get((pod.uid, how))
        return None if outcome is None else _HELD.get(outcome, Blocked.BUSY)

    def _count_under_way(self, each: Assessment) -> None:
        workload = each.group.workload
        self._per_workload[workload.uid] += each.under_way
        moving = min(each.moving, self._moves.per_namespace)  # others' evictions count for their workload alone
        self._per_namespace[workload.namespace] += moving
        self._in_all += moving
        for cohort in each.group.cohorts:
            for pod in cohort.released:
                if asks_to_be_kept(pod, self._scene.ground.configuration) is not None:
                    continue  # its end is the drainer's, whenever that comes
                aim = target(each.group, former_slot(pod), pod, self._scene.ground)
                self._probes[workload.namespace, aim] += 1
                self._per_node[pod.node] += 1
        released = sum(len(cohort.released) for cohort in each.group.cohorts)
        if released:
            oldest = self._scene.now - AUTOSCALER_SECONDS  # who waits for longer waits for no autoscaler
            waiting = sum(not member.pod.node and member.pod.created > oldest for member in each.members)
            self._without_room[workload.namespace] += min(released, waiting)

    def _waiting(self) -> Iterator[Pod]:
        """Pods that will take room somewhere: not those with a gate, nor those that have fitted nowhere for a while.

        What an autoscaler brings a node for will take that.
        """
        for pod in self._scene.waiting:
            is_fresh = self._scene.now - (pod.changed or pod.created) < HOPELESS_SECONDS
            if not pod.waits and (is_fresh or self._scene.is_coming(pod)):
                yield pod
        for each in self._scene.assessments:
            yield from self._to_come(each)

    def _to_come(self, each: Assessment) -> Iterator[Pod]:
        """Replacements of released pods that their ReplicaSet has not created yet, or that we have not seen yet.

        They stand for as much as the pods that they replace, on either class: the webhook decides on them later.
        """
        classes = self._scene.ground.configuration.classes
        tolerated = tuple(Toleration(**each) for each in classes.tolerations)
        needs: dict[int, Needs] = {}  # one for all that are alike, as before
        for cohort in each.group.cohorts:
            missing = cohort.replicas - len(cohort.live) if cohort.released else 0
            for pod in cohort.released[: max(0, missing)]:
                asked = pod.needs
                alike = needs.setdefault(id(asked), replace(asked, tolerations=(*asked.tolerations, *tolerated)))
                yield replace(pod, node="", needs=alike, required_terms=own_terms(pod, classes))

    # --- moves -------------------------------------------------------------------------------------------------------

    def _move(self, wish: Wish) -> Action | None:
        blocked = self._held(wish.member.pod, wish.how) or self._in_the_way(wish)
        workload = wish.group.workload
        if blocked is not None:
            self._skip(workload.uid, wish.why, blocked)
            return None
        self._promise(wish)
        pod, origin = wish.member.pod, wish.member.of
        if wish.how is How.EVICT:
            rests_on = tuple(each.pod for each in self._members[workload.uid] if each.pod.uid != pod.uid)
            text = f"to {wish.to}"
            return Action(How.EVICT, wish.why, workload, pod, origin, wish.to, text=text, rests_on=rests_on)
        until = self._scene.now + self._moves.timeout.total_seconds() + workload.min_ready_seconds
        return release(wish.group, pod, until, wish.why, origin, wish.to)

    def _in_the_way(self, wish: Wish) -> Blocked | None:
        """What stops this move now, though nothing about its workload does."""
        if wish.member.pod.decision_id is None:
            return Blocked.UNADOPTED  # a released pod's decision tells whose it was
        quota = self._no_quota(wish)
        if quota is not None:
            return quota
        if wish.why is Why.LEAVING:
            return self._no_room(wish)
        return self._limited(wish) or self._no_way_there(wish) or self._no_place(wish)

    def _no_room(self, wish: Wish) -> Blocked | None:
        """What leaves is released as fast as there is room for it.

        A pod of spot may also go to on-demand: then spot is out. Where an autoscaler brings nodes, missing room is no
        outage, and some may wait for it.
        """
        pod, siblings = wish.member.pod, self._members[wish.group.workload.uid]
        if self._room.take(pod, wish.to, siblings, is_urgent=True) is not None:
            return None
        is_scaled = self._scene.ground.configuration.classes.is_scaled
        policy, workload = wish.group.policy, wish.group.workload
        may_fall = not is_scaled and wish.to is Class.SPOT and falls_back(wish.to, policy, workload)
        if may_fall and self._room.take(pod, wish.to.other, siblings, is_urgent=True) is not None:
            self._short.append((wish.to, pod, wish.group.workload))
            return None
        namespace = wish.group.workload.namespace
        self._without_room[namespace] += 1
        may_wait = is_scaled and self._without_room[namespace] <= self._moves.without_room
        return None if may_wait else Blocked.NO_PLACE

    def _limited(self, wish: Wish) -> Blocked | None:
        workload, moves = wish.group.workload, self._moves
        if self._per_workload[workload.uid] >= max(1, moves.per_workload.of(workload.replicas)):
            return Blocked.PER_WORKLOAD
        if self._per_node[wish.member.pod.node] >= moves.per_node:
            return Blocked.PER_NODE
        if self._per_namespace[workload.namespace] >= moves.per_namespace:
            return Blocked.PER_NAMESPACE
        if self._in_all >= moves.at_once:
            return Blocked.IN_ALL
        return Blocked.PER_MINUTE if self._scene.recent + self._begun >= moves.per_minute else None

    def _no_way_there(self, wish: Wish) -> Blocked | None:
        """The class is out, or siblings wait for it already, or one must go ahead to see."""
        scene, namespace = self._scene, wish.group.workload.namespace
        demand = demand_of(wish.member.pod, scene.ground.configuration.classes)
        if scene.outages.stands(wish.to, self._zones[wish.to], demand, scene.now):
            return Blocked.OUTAGE
        if wish.why is not Why.FLOOR and self._crowded[wish.group.workload.uid, wish.to]:
            return Blocked.CROWDED
        if wish.why is not Why.FLOOR and self._is_failing(namespace) and self._is_trying(namespace):
            return Blocked.BREAKER
        aim = self._target(wish)
        is_probed = self._probes[namespace, aim] and self._way_out.needs_probe(aim, demand)
        return Blocked.PROBING if is_probed else None

    def _is_failing(self, namespace: str) -> bool:
        """Moves do not help there, or in a large part of the cluster."""
        if self._fails(namespace):
            return True
        return sum(map(self._fails, self._failing)) >= max(BREAKER_NAMESPACES, len(self._scene.sizes) // 4)

    def _fails(self, namespace: str) -> bool:
        return self._failing[namespace] >= max(BREAKER_WORKLOADS, self._scene.sizes.get(namespace, 0) // 10)

    def _is_trying(self, namespace: str) -> bool:
        return any(count for (where, _), count in self._probes.items() if where == namespace)

    def _target(self, wish: Wish) -> Target:
        return target(wish.group, wish.member.slot, wish.member.pod, self._scene.ground)

    def _no_place(self, wish: Wish) -> Blocked | None:
        """An eviction needs a proven place. A release proves it itself, but only one goes where none is in sight."""
        pod, siblings = wish.member.pod, self._members[wish.group.workload.uid]
        budgets = self._scene.budgets(pod)
        if len(budgets) > 1:
            return Blocked.BUDGET  # the API server evicts no pod that two of them select
        if wish.how is How.EVICT and self._is_cordoned(pod.node):
            return Blocked.CORDONED  # what is evicted from there looks like a drain
        if wish.how is How.EVICT:
            return self._no_eviction(wish, siblings, budgets)
        if any(budget.healthy < budget.desired for budget in budgets):
            return Blocked.BUDGET  # not even with one more could the old pod go
        if self._room.take(pod, wish.to, siblings, self._pool_for(wish)) is not None:
            return None
        if wish.why in WITHIN:
            return Blocked.NO_PLACE  # it would come out where it was, or preempt the very pod that it is to replace
        shape = shape_of(pod)
        namespace = wish.group.workload.namespace
        is_probed = any(
            count and where == namespace and of is wish.to and each == shape
            for (where, (of, _, each)), count in self._probes.items()
        )
        return Blocked.PROBING if is_probed else None

    def _is_cordoned(self, node: str) -> bool:
        site = self._scene.ground.sites.get(node)
        return site is not None and site.node.unschedulable

    def _no_eviction(self, wish: Wish, siblings: Sequence[Member], budgets: Sequence[Budget]) -> Blocked | None:
        """One at a time, while all others serve, and where as many as must are left on either class."""
        group, pod, now = wish.group, wish.member.pod, self._scene.now
        serving = [member for member in siblings if member.is_available]
        if len(serving) < len(siblings) or self._per_workload[group.workload.uid]:
            return Blocked.UNSETTLED
        if self._is_too_soon(wish, now):
            return Blocked.COOL_DOWN
        if not group.availability.is_assumed and len(serving) <= group.needed:
            return Blocked.MINIMUM
        if group.availability.is_assumed and len(serving) <= 1:
            return Blocked.LAST
        if wish.member.of is Class.ON_DEMAND and not _spares_on_demand(wish, serving):
            return Blocked.LAST_ON_DEMAND
        if any(budget.allowed - self._disrupted[str(budget.key)] < 1 for budget in budgets):
            return Blocked.BUDGET
        if self._room.take(pod, wish.to, siblings, self._pool_for(wish), goes_first=True) is None:
            return Blocked.NO_PLACE
        self._disrupted.update(str(budget.key) for budget in budgets)
        return None

    def _pool_for(self, wish: Wish) -> Pool | None:
        """The one that its replacement will prefer, where the move is for the sake of the pool."""
        if wish.why not in EVENING or wish.member.slot is None:
            return None
        group = wish.group
        return preferred_pool(wish.member.slot, group.policy.slots, group.workload, self._scene.ground.spot_pools)

    def _is_too_soon(self, wish: Wish, now: float) -> bool:
        """Its predecessor was evicted within the cool-down, under the same policy."""
        before = self._scene.evicted.get(seat(wish.group.workload, wish.member.pod)) or evicted(wish.member.pod)
        policy = policy_mark(wish.group.policy.slots)
        return before is not None and before.is_too_soon(policy, self._moves.cool_down.total_seconds(), now)

    def _no_quota(self, wish: Wish) -> Blocked | None:
        """A release needs room for one pod more in every quota of the namespace; an eviction, that it may come back."""
        taken = self._quota_taken.setdefault(wish.group.workload.namespace, Counter())
        asked = _asked(wish.member.pod)
        if wish.how is How.EVICT:
            asked = dict.fromkeys(asked, 0)
        if any(not _has_quota(quota, asked, taken) for quota in wish.group.quotas):
            return Blocked.QUOTA
        return None

    def _promise(self, wish: Wish) -> None:
        workload, pod = wish.group.workload, wish.member.pod
        self._per_workload[workload.uid] += 1
        self._per_namespace[workload.namespace] += 1
        self._per_node[pod.node] += 1
        self._probes[workload.namespace, self._target(wish)] += 1
        self._in_all += 1
        self._begun += 1
        if wish.how is How.RELEASE:
            self._quota_taken.setdefault(workload.namespace, Counter()).update(_asked(pod))

    def _skip(self, uid: str, why: Why, blocked: Blocked) -> None:
        self._skipped[uid, why, blocked] += 1


def _spares_on_demand(wish: Wish, serving: Sequence[Member]) -> bool:
    """Whether the floor holds with one less on on-demand."""
    slots = wish.group.policy.slots
    on_demand = sum(member.of is Class.ON_DEMAND for member in serving)
    return on_demand > min(slots.floor, slots.mix(wish.group.workload.replicas).on_demand)


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


def _turn(action: Action) -> int:
    """What is written on replacements comes before what is done to their predecessors."""
    return (How.ANNOTATE, How.DELETE, How.FINISH, How.UNDO).index(action.how)


def _is_undone(pod: Pod, now: float) -> bool:
    """What is said to be longer than we ever wait, somebody else has written."""
    tried = undone(pod)
    return tried is not None and now < tried.until <= now + LONGEST_UNDONE_SECONDS


def _asked(pod: Pod) -> dict[str, int]:
    """What one pod more counts for, in the words of quotas."""
    requests, limits = pod.needs.requests, pod.needs.limits
    return {
        "pods": 1,
        "count/pods": 1,
        **{f"requests.{key}": amount for key, amount in requests.items()},
        **{f"limits.{key}": amount for key, amount in limits.items()},
        **{key: requests[key] for key in ("cpu", "memory", "ephemeral-storage") if key in requests},
    }


def _has_quota(quota: Quota, asked: Mapping[str, int], taken: Mapping[str, int]) -> bool:
    return all(
        quota.used.get(key, 0) + taken.get(key, 0) + amount <= quota.hard[key]
        for key, amount in asked.items()
        if key in quota.hard
    )


def _witnesses(outages: Iterable[Outage], workloads: Iterable[Workload]) -> Iterator[tuple[Workload, Outage]]:
    shown = {each.evidence.workload: each for each in outages if each.evidence is not None}
    for workload in workloads if shown else ():
        outage = shown.get(f"{workload.kind} {workload.key}")
        if outage is not None:
            yield workload, outage


def _distinct(outages: Iterable[Outage]) -> Iterator[Outage]:
    """One for each class, zones, namespace and terms, with a shape that covers all of theirs."""
    smallest: dict[tuple[object, ...], Outage] = {}
    for outage in outages:
        key = (outage.of, outage.zones, outage.namespace, outage.terms)
        known = smallest.get(key, outage)
        smallest[key] = replace(outage, shape=known.shape.least(outage.shape))
    yield from smallest.values()
