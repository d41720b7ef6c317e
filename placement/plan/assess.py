"""One workload: which slots to write, which moves to finish or undo, which moves are wanted, and what is in their way.

Nothing here depends on any other workload, so an answer holds until something about this one changes (or time passes:
`Assessment.is_restless`). What may be done at once is `choose`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from placement import names
from placement.configuration import Configuration
from placement.decide import falls_back
from placement.model import Class, Pod
from placement.outage import Shape
from placement.plan.actions import EVENING, Action, Blocked, How, Why
from placement.plan.annotate import notes_of, slots_for
from placement.plan.crowd import classes_of_slots, crowded
from placement.plan.ends import asks_to_be_kept, given_up, sweeps_of
from placement.plan.group import (
    Cohort,
    Ground,
    Group,
    Member,
    Moved,
    Site,
    Sites,
    members_of,
    moved,
    own_terms,
    policy_mark,
    undone,
)
from placement.plan.overflow import is_overflow
from placement.plan.release import has_way_back
from placement.policy import surge
from placement.slots import Mix

ON_DEMAND_FALLBACK_SECONDS = 120.0
BREAKER_PODS = 3


@dataclass(frozen=True, slots=True)
class Wish:
    """A pod that should be elsewhere."""

    group: Group
    member: Member
    why: Why
    to: Class
    how: How
    blocked: Blocked | None = None

    def explain(self) -> str:
        """`web-4 should run on on-demand (wrong-class): a rollout is under way`."""
        where = "in another pool" if self.why in EVENING else f"on {self.to}"
        where = "at its own priority" if self.why is Why.OVERFLOW else where
        return f"{self.member.pod.name} should run {where} ({self.why}): {self.blocked}"


@dataclass(frozen=True, slots=True)
class Stuck:
    """A pod that cannot be scheduled, and by our constraint."""

    group: Group
    pod: Pod
    of: Class
    since: float
    after: float  # seconds it may wait while the class might still come
    falls_back: bool
    undo: tuple[Action, ...] = ()  # where it is to replace a pod that was released, and can be put back


@dataclass(frozen=True, slots=True)
class Assessment:
    """What one workload needs."""

    group: Group
    members: tuple[Member, ...]
    wanted: Mix
    actual: Mix  # ready, by the class of their nodes, as `status` tells it
    lasting: Mix  # the same without those on nodes that are leaving
    notes: tuple[Action, ...] = ()  # annotations to write
    sweeps: tuple[Action, ...] = ()  # moves to finish or to undo
    wishes: tuple[Wish, ...] = ()
    stuck: tuple[Stuck, ...] = ()
    lost: tuple[Pod, ...] = ()
    under_way: int = 0  # moves of ours and others' evictions
    moving: int = 0  # of these: moves of ours
    is_written: bool = True  # pods carry the slots that they should have

    @property
    def is_restless(self) -> bool:
        """Time alone may change the answer."""
        changing = self.notes or self.sweeps or self.wishes or self.stuck or self.lost or self.under_way
        return bool(changing) or self._has_new

    @property
    def _has_new(self) -> bool:
        """Most workloads know no minReadySeconds, and their pods are not looked through."""
        return self.group.workload.min_ready_seconds > 0 and any(member.is_new for member in self.members)


def assess(group: Group, ground: Ground, now: float) -> Assessment:
    """What one workload needs now."""
    sites, configuration = ground.sites, ground.configuration
    classes = configuration.classes
    members: list[Member] = []
    notes: list[Action] = []
    sweeps: list[Action] = []
    stuck: list[Stuck] = []
    lost: list[Pod] = []
    for cohort in group.cohorts:
        own = members_of(cohort, group, sites, classes, now)
        if cohort.released:
            sweeps += sweeps_of(group, cohort, own, ground, now)
        if len(own) < len(cohort.pods) or [each for each in own if each.site is None]:  # most have all in their places
            stuck += _stuck(group, cohort, own, sites, now)
            lost += _lost(cohort, sites)
        given = slots_for(group, cohort, own)
        notes += notes_of(group, cohort, own, given, configuration)
        members += [each._replace(slot=slot) if each.slot != (slot := given[each.pod.uid]) else each for each in own]
    there = _serving(group, members, sites)
    actual = Mix.of([site.of for site in there])
    is_moving = any(cohort.released for cohort in group.cohorts)
    is_steady = not is_moving and not [site for site in there if site.is_leaving]
    lasting = actual if is_steady else Mix.of(each.site.of for each in members if each.serves and each.site)
    found = Assessment(
        group,
        tuple(members),
        wanted=group.wanted(group.revisions),
        actual=actual,
        lasting=lasting,
        notes=tuple(notes),
        sweeps=tuple(sweeps),
        stuck=tuple(stuck),
        lost=tuple(lost),
        under_way=_going(group, len(members)) + (moving := _moving(group, configuration) if is_moving else 0),
        moving=moving,
        is_written=not [member for member in members if member.written != member.slot],
    )
    wishes = tuple(_wishes(found, ground, now))
    return replace(found, wishes=wishes) if wishes else found


def stranded(group: Group, ground: Ground, now: float) -> Assessment | None:
    """An opted-out workload's pods that wait because of what we required of them; None: there are none."""
    found = assess(replace(group, policy=replace(group.policy, rebalance="off")), ground, now)
    stuck = tuple(replace(each, undo=()) for each in found.stuck)
    return replace(found, notes=(), sweeps=(), wishes=(), lost=(), stuck=stuck) if stuck else None


def _serving(group: Group, members: Sequence[Member], sites: Sites) -> list[Site]:
    """Where ready pods are; also those that were released a moment ago, and that are not on their way out yet."""
    there = [member.site for member in members if member.pod.ready and member.site is not None]
    let_go = [pod for cohort in group.cohorts for pod in cohort.let_go if pod.ready and not pod.terminating]
    return there + [sites[pod.node] for pod in let_go if pod.node in sites]


def _lost(cohort: Cohort, sites: Sites) -> Iterator[Pod]:
    """Pods whose node is gone; also those that a leader marked as failed, and did not live to delete.

    A deletion that is cut off may leave such a pod terminating, with nobody to end it.
    """
    for pod in cohort.pods:
        if pod.node and pod.node not in sites and (not pod.terminating or pod.phase == "Failed"):
            yield pod


def _going(group: Group, live: int) -> int:
    """Pods on their way out, by whomever. Where all are live, none is."""
    if sum([len(cohort.pods) for cohort in group.cohorts]) == live:
        return 0
    return sum(pod.terminating for cohort in group.cohorts for pod in cohort.pods)


def _moving(group: Group, configuration: Configuration) -> int:
    """Moves of ours; not what waits for the drainer, since nobody knows whether there is one."""
    released_pods = (pod for cohort in group.cohorts for pod in cohort.released)
    return sum(asks_to_be_kept(pod, configuration) is None for pod in released_pods)


# --- moves that are wanted -------------------------------------------------------------------------------------------


def _stuck(group: Group, cohort: Cohort, own: Sequence[Member], sites: Sites, now: float) -> Iterator[Stuck]:
    """Pods that wait for a class because we require it of them."""
    for member in own:
        pod = member.pod
        if not pod.unschedulable or pod.node or member.of is None or not pod.decision:
            continue
        if names.SOFT in pod.annotations or names.LEFT_ALONE in pod.annotations:
            continue
        is_spot = member.of is Class.SPOT
        after = group.policy.spot_fallback_after.total_seconds() if is_spot else ON_DEMAND_FALLBACK_SECONDS
        undo = tuple(given_up(group, cohort, member, sites, now)) if cohort.released else ()
        may_fall = falls_back(member.of, group.policy, group.workload)
        yield Stuck(group, pod, member.of, pod.changed or pod.created, after, may_fall, undo)


def _wishes(found: Assessment, ground: Ground, now: float) -> Iterator[Wish]:
    group = found.group
    wanted = [*_leaving(found), *_misplaced(found), *_overflowing(found, ground), *_crowded(found, ground)]
    if not wanted:
        return
    standing = _standing(found, now)
    seen: set[str] = set()
    for member, why, to in sorted(wanted, key=lambda each: each[1].rank):
        if member.pod.uid in seen:
            continue
        seen.add(member.pod.uid)
        how = How.EVICT if _cannot_release(group, member) else How.RELEASE
        blocked = _mode(group, why, now) or standing.get(why.is_urgent)
        if blocked is Blocked.BREAKER and why is Why.FLOOR:
            blocked = None
        yield Wish(group, member, why, to, how, blocked or _of_pod(found, member, why, to, ground, now))


def _leaving(found: Assessment) -> Iterator[tuple[Member, Why, Class]]:
    """Pods whose node will go. What cannot be released is the drainer's."""
    for member in found.members:
        if member.site is None or not member.site.is_leaving or member.slot is None:
            continue
        if not _cannot_release(found.group, member):
            why = Why.CORDON if member.site.is_only_cordoned else Why.LEAVING
            yield member, why, found.group.slots.class_of(member.slot)


def _misplaced(found: Assessment) -> Iterator[tuple[Member, Why, Class]]:
    """Pods on another class than their slot's."""
    slots = found.group.slots
    short = found.lasting.on_demand < min(found.wanted.on_demand, slots.floor)
    classes = classes_of_slots(found.group, found.members)
    for member in found.members:
        if member.site is None or member.slot is None or classes[member.slot] is member.site.of:
            continue
        to = classes[member.slot]
        if names.LEFT_ALONE in member.pod.annotations:
            continue
        if to is Class.ON_DEMAND and short:
            yield member, Why.FLOOR, to
        elif names.SOFT in member.pod.annotations and member.pod.labels.get(names.CLASS) != member.site.of:
            yield member, Why.RETURN, to
        else:
            yield member, Why.RATIO, to


def _overflowing(found: Assessment, ground: Ground) -> Iterator[tuple[Member, Why, Class]]:
    """Pods where they belong, at the low priority that an outage gave them. Nothing is evicted for that."""
    group = found.group
    soft = (member for member in found.members if names.SOFT in member.pod.annotations)
    for member in soft:
        if member.site is None or member.slot is None or not is_overflow(member.pod, group, ground.configuration):
            continue
        if group.slots.class_of(member.slot) is member.site.of and not _cannot_release(group, member):
            yield member, Why.OVERFLOW, member.site.of


def _crowded(found: Assessment, ground: Ground) -> Iterator[tuple[Member, Why, Class]]:
    """Spot pods that are too many in one pool."""
    group = found.group
    why = Why.BALANCE if group.availability.is_assumed else Why.EXPOSED
    for member in crowded(group, found.members, found.lasting, ground):
        if why is Why.EXPOSED or not _cannot_release(group, member):  # nobody is evicted for what is only advice
            yield member, why, Class.SPOT


# --- what is in the way ----------------------------------------------------------------------------------------------


def _mode(group: Group, why: Why, now: float) -> Blocked | None:
    policy = group.policy
    if policy.rebalance != "auto":
        return Blocked.OFF if policy.rebalance == "off" else Blocked.PLAN_ONLY
    window = policy.rebalance_window
    if window is not None and not why.is_urgent and not window.is_open(now):
        return Blocked.WINDOW
    return None


def _standing(found: Assessment, now: float) -> dict[bool, Blocked]:
    """What stops all moves of the workload: by whether they are urgent."""
    group = found.group
    if group.is_rolling:
        return {False: Blocked.ROLLOUT, True: Blocked.ROLLOUT}
    if group.workload.rollout.paused:  # with one revision: its ReplicaSet replaces what leaves all the same
        return {False: Blocked.ROLLOUT}
    tried = [undone(member.pod) for member in found.members]
    if sum(each is not None and now < each.until for each in tried) >= max(BREAKER_PODS, len(tried) // 10):
        return {False: Blocked.BREAKER}
    if not found.is_written:  # a replacement takes a free slot: webhooks must have read which are
        return {False: Blocked.UNSETTLED}
    if not all(cohort.settled and len(cohort.live) >= cohort.replicas for cohort in group.cohorts):
        return {False: Blocked.UNSETTLED}
    return {}


def _cannot_release(group: Group, member: Member) -> bool:
    """Where a second pod beside the old one cannot be or must not be, or its owner would not let go of it."""
    workload, needs = group.workload, member.pod.needs
    is_alone = group.is_stateful or workload.rollout.recreate or not surge(workload.rollout, workload.replicas)
    is_tied = needs.has_claims or bool(needs.host_ports)
    return is_alone or is_tied or not has_way_back(workload, member.pod)


def _of_pod(found: Assessment, member: Member, why: Why, to: Class, ground: Ground, now: float) -> Blocked | None:
    """What stops the move of this one pod."""
    pod, limits, classes = member.pod, ground.configuration.moves, ground.configuration.classes
    if why is Why.LEAVING:
        return None
    if to not in classes.allowed(own_terms(pod, classes)):
        return Blocked.OWN_TERMS
    kept = asks_to_be_kept(pod, ground.configuration)
    if kept is not None:
        return kept
    if found.group.would_change_revision(pod):
        return Blocked.ROLLOUT
    tried = undone(pod)
    if tried is not None and now < tried.until:
        return Blocked.UNDONE
    if now - pod.created < limits.min_age.total_seconds():
        return Blocked.YOUNG
    before = moved(pod)  # how soon after an outage a pod returns is the outages' matter
    if (
        before is not None
        and why is not Why.RETURN
        and _is_too_soon(before, found.group, to, limits.cool_down.total_seconds(), now)
    ):
        return Blocked.COOL_DOWN
    return None


def _is_too_soon(before: Moved, group: Group, to: Class, cool_down_seconds: float, now: float) -> bool:
    """Back to where it came from, under the same policy, within the cool-down."""
    return (
        before.origin == str(to) and before.policy == policy_mark(group.slots) and now < before.at + cool_down_seconds
    )


def shape_of(pod: Pod) -> Shape:
    """What it asks for, as outages are noted."""
    return Shape.asking(pod.needs.requests)
