"""All workloads together: what is done now, in which order, within all limits; and what is left, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from placement import names
from placement.decide import preferred_pool
from placement.model import Budget, Class, Pod, Pool, Quota
from placement.outage import LONGEST_SECONDS, Outage, Outages, Shape, limited_to
from placement.outcome import Outcome
from placement.plan.actions import EVENING, Action, Blocked, How, Plan, Skipped, Why
from placement.plan.assess import PATIENCE, Assessment, Stuck, Wish, asks_to_be_kept, shape_of
from placement.plan.group import (
    Evicted,
    Ground,
    Group,
    Member,
    Moved,
    Site,
    evicted,
    former_slot,
    own_terms,
    policy_mark,
    seat,
    undone,
)
from placement.plan.lost import BY, Lost, burials, outages_of_loss, replaced_on
from placement.plan.release import release
from placement.plan.room import Room, Used
from placement.selector import matches

SHORTEST_OUTAGE_SECONDS = 30.0  # one of ours is not ended sooner, whatever room there seems to be
AUTOSCALER_SECONDS = 600.0  # for so long an autoscaler that is on it is waited for
REPLACE_SECONDS = 3.0  # a pod that is younger, and than the outage, is not replaced again
BREAKER_WORKLOADS = 5
HOPELESS_SECONDS = 600.0  # the scheduler itself tries each pod again every five minutes
_HELD = {Outcome.BLOCKED: Blocked.BUDGET, Outcome.IMPOSSIBLE: Blocked.REFUSED}
Target = tuple[Class, Pool | None, Shape]  # what one probe stands for: the class, the pool that is preferred, the shape


@dataclass(frozen=True, slots=True)
class Scene:
    """What a plan is made from. `assessments` may leave out workloads that are in order."""

    assessments: Sequence[Assessment]
    ground: Ground
    used: Used
    now: float
    outages: Outages = field(default_factory=Outages)
    lost: Lost = field(default_factory=dict)
    budgets: Callable[[Pod], Sequence[Budget]] = lambda _pod: ()
    is_awaited: Callable[[Pod], float] = lambda _pod: float("-inf")  # when an autoscaler said that it is on it
    proofs: Mapping[Target, float] = field(default_factory=dict)  # when a move there last succeeded
    recent: int = 0  # moves begun within the last minute
    evicted: Mapping[str, Evicted] = field(default_factory=dict)  # by seat: what was evicted, for want of a release
    is_paused: bool = False
    waiting: Collection[Pod] = ()  # pods that have no node yet, of everybody
    held: Mapping[tuple[str, How], Outcome] = field(default_factory=dict)  # by UID: what failed a moment ago, and how
    most_notes: int | None = None  # annotations at once; None: all


def plan(scene: Scene) -> Plan:
    """What to do now. First what makes replacements possible, then what restores service, then what improves it.

    Of annotations only so many at once (`most_notes`): 3,000 would take a minute, and a node may be lost meanwhile.
    """
    if scene.is_paused:
        return Plan(skipped=tuple(_paused(scene)))
    if not scene.assessments and not scene.outages.standing(scene.now):
        return Plan()
    return _Chooser(scene).plan()


def _paused(scene: Scene) -> Iterator[Skipped]:
    for each in scene.assessments:
        if each.wishes:
            yield Skipped(each.group.workload, each.wishes[0].why, Blocked.PAUSED, len(each.wishes))


class _Chooser:
    """Makes one plan; what has been promised so far is its state."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._zones = scene.ground.zones
        self._members: dict[str, tuple[Member, ...]] = {
            each.group.workload.uid: each.members for each in scene.assessments
        }
        self._room = Room(scene.ground, scene.used, self._waiting)
        self._moves = scene.ground.configuration.moves
        self._per_workload: Counter[str] = Counter()
        self._per_namespace: Counter[str] = Counter()
        self._per_node: Counter[str] = Counter()
        self._probes: Counter[Target] = Counter()
        self._in_all = self._begun = 0
        self._disrupted: Counter[str] = Counter()  # by budget
        self._quota_taken: dict[str, Counter[str]] = {}
        self._skipped: Counter[tuple[str, Why, Blocked]] = Counter()
        for each in scene.assessments:
            self._count_under_way(each)
        failing = sum(any(_is_undone(member.pod, scene.now) for member in each.members) for each in scene.assessments)
        self._is_failing = failing >= BREAKER_WORKLOADS

    def plan(self) -> Plan:
        scene = self._scene
        buried = burials(scene.assessments, scene.lost)
        wishes = sorted((wish for each in scene.assessments for wish in each.wishes), key=_importance)
        urgent = self._moved(wish for wish in wishes if wish.why is Why.LEAVING)
        replacements = replaced_on(buried, urgent)
        outages = list(outages_of_loss(replacements, self._room, scene.outages, scene.now))
        swept = [action for each in scene.assessments for action in each.sweeps]
        replaced, given_up = self._stuck(outages)
        sweeps = sorted({(action.how, action.pod.uid): action for action in (*given_up, *swept)}.values(), key=_turn)
        marks = [action for each in scene.assessments for action in self._marks(each)]
        notes = list(self._unheld(action for each in scene.assessments for action in each.notes))
        rest = self._moved(wish for wish in wishes if wish.why is not Why.LEAVING)
        ordered = sorted((*notes[: scene.most_notes], *rest), key=lambda action: action.why.rank)
        actions = (*self._unheld((*buried, *urgent, *sweeps, *replaced, *marks)), *ordered)
        workloads = {each.group.workload.uid: each.group.workload for each in scene.assessments}
        skipped = tuple(
            Skipped(workloads[uid], why, blocked, count) for (uid, why, blocked), count in self._skipped.items()
        )
        left = len(notes[scene.most_notes :]) if scene.most_notes is not None else 0
        return Plan(tuple(_distinct(outages)), tuple(self._ended(outages)), actions, skipped, left)

    def _moved(self, wishes: Iterable[Wish]) -> list[Action]:
        return [action for wish in wishes if (action := self._move(wish)) is not None]

    def _marks(self, each: Assessment) -> Iterator[Action]:
        """Successors of pods that we evicted are told so: whoever leads next does not evict them again too soon."""
        for member in each.members if self._scene.evicted else ():
            before = self._scene.evicted.get(seat(each.group.workload, member.pod))
            if before is None or before.uid == member.pod.uid or names.MOVED in member.pod.annotations:
                continue
            mark = {names.MOVED: Moved(before.origin, before.policy, before.at, before.tries).text()}
            text = f"its predecessor was evicted from {before.origin}"
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
        self._per_namespace[workload.namespace] += each.under_way
        self._in_all += each.under_way
        for cohort in each.group.cohorts:
            for pod in cohort.released:
                if asks_to_be_kept(pod) is not None:
                    continue  # its end is the drainer's, whenever that comes
                self._probes[target(each.group, former_slot(pod), pod, self._scene.ground)] += 1
                self._per_node[pod.node] += 1

    def _waiting(self) -> Iterator[Pod]:
        """Pods that will take room somewhere. For whom the scheduler found none in all this time, we find none."""
        for pod in self._scene.waiting:
            if not pod.unschedulable or self._scene.now - pod.changed < HOPELESS_SECONDS:
                yield pod

    # --- pods that cannot be scheduled -------------------------------------------------------------------------------

    def _stuck(self, outages: list[Outage]) -> tuple[list[Action], list[Action]]:
        """Replaces pods that require a class that is known to be out; notes outages for those that waited enough.

        And gives up moves whose newcomers wait in vain: nobody serves less for that, so it is no outage.
        """
        replaced: list[Action] = []
        given_up: list[Action] = []
        for each in self._scene.assessments:
            for stuck in each.stuck:
                (given_up if stuck.undo else replaced).extend(self._one_stuck(stuck, outages))
        return replaced, given_up

    def _one_stuck(self, stuck: Stuck, outages: list[Outage]) -> Sequence[Action]:
        scene, pod = self._scene, stuck.pod
        workload, policy = stuck.group.workload, stuck.group.policy
        if policy.rebalance != "auto" or not stuck.falls_back:
            return ()
        terms, zones = own_terms(pod, scene.ground.configuration.classes), self._zones[stuck.of]
        if scene.outages.stands(stuck.of, zones, terms, shape_of(pod), scene.now):
            if stuck.undo or not self._is_old_enough(stuck):
                return stuck.undo
            if self._is_admitted_in_vain(stuck):
                outages.append(Outage(stuck.of, 0.0, limited_to(zones, terms), by=BY))
                return ()
            text = f"{stuck.of} is out: it is created anew, with {stuck.of} preferred"
            return (Action(How.REPLACE, Why.STUCK, workload, pod, stuck.of, text=text),)
        waited = scene.now - stuck.since
        if waited < stuck.after:
            self._skip(workload.uid, Why.STUCK, Blocked.WAITING)
        elif waited < AUTOSCALER_SECONDS and scene.now - scene.is_awaited(pod) < AUTOSCALER_SECONDS:
            self._skip(workload.uid, Why.STUCK, Blocked.AUTOSCALER)
        elif stuck.undo and not self._needs_probe(target(stuck.group, pod.slot, pod, scene.ground)):
            return stuck.undo
        elif not stuck.undo and waited < PATIENCE * stuck.after and self._room.take(pod, stuck.of.other) is None:
            self._skip(workload.uid, Why.STUCK, Blocked.NO_PLACE)
        else:  # of a class that was out a probe tells that it still is
            outages.append(Outage(stuck.of, 0.0, limited_to(zones, terms), shape_of(pod), by=BY))
            return stuck.undo
        return ()

    def _is_old_enough(self, stuck: Stuck) -> bool:
        """It was created before the outage was noted, or a while ago: what was just created anew is not replaced again.

        That happens where a webhook has not read of the outage.
        """
        created = stuck.pod.created
        return self._scene.now - created >= REPLACE_SECONDS or any(created < since for since in self._since(stuck.of))

    def _is_admitted_in_vain(self, stuck: Stuck) -> bool:
        """It was created while the outage stood, and not softened: webhooks after ours made it ask for more.

        What is noted for its shape does not cover what it asked for when it was admitted.
        """
        return all(since + REPLACE_SECONDS < stuck.pod.created for since in self._since(stuck.of))

    def _since(self, of: Class) -> list[float]:
        """When the outages of a class that stand were noted."""
        return [each.since for each in self._scene.outages.standing(self._scene.now) if each.of is of]

    def _ended(self, new: Sequence[Outage]) -> Iterator[Outage]:
        """Outages that we noted ourselves, of a class that has room again, with nobody waiting for it."""
        scene = self._scene
        waiting = {stuck.of for each in scene.assessments for stuck in each.stuck} | {outage.of for outage in new}
        lost = {gone.of for gone in scene.lost.values() for each in scene.assessments if each.lost}
        for outage in scene.outages.standing(scene.now):
            is_young = scene.now - outage.since < SHORTEST_OUTAGE_SECONDS
            if outage.by != BY or is_young or outage.of in waiting or outage.of in lost:
                continue
            if any(self._has_room_for(outage.shape, site) for site in self._room.targets(outage.of)):
                yield outage

    def _has_room_for(self, shape: Shape, site: Site) -> bool:
        free = self._room.free(site)
        return Shape(max(1, shape.cpu_millis), shape.memory_mib).covers(
            Shape(free.get("cpu", 0), free.get("memory", 0) // 1024**2)
        )

    # --- moves -------------------------------------------------------------------------------------------------------

    def _move(self, wish: Wish) -> Action | None:
        blocked = wish.blocked or self._held(wish.member.pod, wish.how) or self._in_the_way(wish)
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
        until = self._scene.now + self._moves.timeout.total_seconds()
        return release(wish.group, pod, until, wish.why, origin, wish.to)

    def _in_the_way(self, wish: Wish) -> Blocked | None:
        """What stops this move now, though nothing about its workload does."""
        if wish.member.pod.decision_id is None:
            return Blocked.UNADOPTED  # a released pod's decision tells whose it was
        quota = self._no_quota(wish)
        if quota or wish.why is Why.LEAVING:
            return quota
        return self._limited(wish) or self._no_way_there(wish) or self._no_place(wish)

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
        """The class is out, or others wait for it already, or one must go ahead to see."""
        scene, shape = self._scene, shape_of(wish.member.pod)
        terms = own_terms(wish.member.pod, scene.ground.configuration.classes)
        if scene.outages.stands(wish.to, self._zones[wish.to], terms, shape, scene.now):
            return Blocked.OUTAGE
        if any(
            stuck.of is wish.to and shape_of(stuck.pod).covers(shape)
            for each in scene.assessments
            for stuck in each.stuck
        ):
            return Blocked.CROWDED
        if self._is_failing and self._probes.total():
            return Blocked.BREAKER
        aim = self._target(wish)
        return Blocked.PROBING if self._probes[aim] and self._needs_probe(aim) else None

    def _target(self, wish: Wish) -> Target:
        return target(wish.group, wish.member.slot, wish.member.pod, self._scene.ground)

    def _needs_probe(self, aim: Target) -> bool:
        """Since the class was last out for it, none that preferred this pool has got there yet."""
        to, pool, shape = aim
        recent = (each for each in self._scene.outages.noted if self._scene.now < each.until + LONGEST_SECONDS)
        ends = [each.until for each in recent if each.of is to and each.shape.covers(shape)]
        proofs = self._scene.proofs.items()
        proven = [at for (of, where, proof), at in proofs if (of, where) == (to, pool) and shape.covers(proof)]
        return bool(ends) and max(proven, default=float("-inf")) < max(ends)

    def _no_place(self, wish: Wish) -> Blocked | None:
        """An eviction needs a proven place. A release proves it itself, but only one goes where none is in sight."""
        pod, siblings = wish.member.pod, self._members[wish.group.workload.uid]
        budgets = self._scene.budgets(pod)
        if len(budgets) > 1:
            return Blocked.BUDGET  # the API server evicts no pod that two of them select
        if wish.how is How.EVICT:
            return self._no_eviction(wish, siblings, budgets)
        if any(budget.healthy < budget.desired for budget in budgets):
            return Blocked.BUDGET  # not even with one more could the old pod go
        if self._room.take(pod, wish.to, siblings, self._pool_for(wish)) is not None:
            return None
        if wish.why in EVENING:
            return Blocked.NO_PLACE  # it would come out where it was
        shape = shape_of(pod)
        is_probed = any(of is wish.to and each == shape for of, _, each in self._probes)
        return Blocked.PROBING if is_probed else None

    def _no_eviction(self, wish: Wish, siblings: Sequence[Member], budgets: Sequence[Budget]) -> Blocked | None:
        """One at a time, while all others serve, and where as many as must are left on either class."""
        group, pod, now = wish.group, wish.member.pod, self._scene.now
        serving = [member for member in siblings if member.serves]
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
        if self._room.take(pod, wish.to, siblings, self._pool_for(wish)) is None:
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
        self._probes[self._target(wish)] += 1
        self._in_all += 1
        self._begun += 1
        if wish.how is How.RELEASE:
            self._quota_taken.setdefault(workload.namespace, Counter()).update(_asked(pod))

    def _skip(self, uid: str, why: Why, blocked: Blocked) -> None:
        self._skipped[uid, why, blocked] += 1


def target(group: Group, slot: int | None, pod: Pod, ground: Ground) -> Target:
    """Where the replacement of a pod in this slot will try to go."""
    if slot is None:
        return Class.ON_DEMAND, None, shape_of(pod)
    pool = preferred_pool(slot, group.policy.slots, group.workload, ground.spot_pools)
    return group.policy.slots.class_of(slot), pool, shape_of(pod)


def _spares_on_demand(wish: Wish, serving: Sequence[Member]) -> bool:
    """Whether the floor holds with one less on on-demand."""
    slots = wish.group.policy.slots
    on_demand = sum(member.of is Class.ON_DEMAND for member in serving)
    return on_demand > min(slots.floor, slots.mix(wish.group.workload.replicas).on_demand)


def _importance(wish: Wish) -> tuple[int, int, str, int]:
    """By reason; then those with the least to spare; then as they come, the highest slots first."""
    workload = wish.group.workload
    return (wish.why.rank, workload.replicas - wish.group.needed, workload.uid, -(wish.member.slot or 0))


def _turn(action: Action) -> int:
    """What is written on replacements comes before what is done to their predecessors."""
    return (How.ANNOTATE, How.DELETE, How.FINISH, How.UNDO).index(action.how)


def _is_undone(pod: Pod, now: float) -> bool:
    tried = undone(pod)
    return tried is not None and now < tried.until


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


def _distinct(outages: Iterable[Outage]) -> Iterator[Outage]:
    """One for each class and zones, with a shape that covers all of theirs."""
    smallest: dict[tuple[Class, frozenset[str]], Outage] = {}
    for outage in outages:
        known = smallest.get((outage.of, outage.zones), outage)
        smallest[outage.of, outage.zones] = replace(outage, shape=known.shape.least(outage.shape))
    yield from smallest.values()


def selecting(budgets: Iterable[Budget], pod: Pod) -> tuple[Budget, ...]:
    """The budgets that select a pod."""
    return tuple(each for each in budgets if each.namespace == pod.namespace and matches(each.selector, pod.labels))
