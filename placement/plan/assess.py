"""One workload: which slots to write, which moves to finish or undo, which moves are wanted, and what blocks them.

Nothing here depends on other workloads, so an assessment is valid until something about this one changes, or until time
passes (`Assessment.is_restless`). `select` decides what may be done at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from placement import names
from placement.configuration import Configuration
from placement.decide import falls_back
from placement.eviction import is_asked, is_forgotten
from placement.model import Class, Pod
from placement.outage import Shape
from placement.plan.actions import DEPARTING, EVENING, Action, Blocked, How, Why
from placement.plan.annotate import notes_of, slots_for
from placement.plan.crowd import classes_of_slots, crowded
from placement.plan.ends import asks_to_be_kept, given_up, sweeps_of
from placement.plan.ground import Ground, Site, Sites
from placement.plan.group import Cohort, Group, Member, members_of, own_terms
from placement.plan.marks import Moved, moved, policy_mark, undone
from placement.plan.overflow import is_overflow
from placement.plan.release import can_be_released
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
    """A pod that cannot be scheduled because of our constraint."""

    group: Group
    pod: Pod
    of: Class
    since: float
    after: float  # seconds that it may wait while the class might still get room
    falls_back: bool
    undo: tuple[Action, ...] = ()  # if it replaces a released pod that can be put back


@dataclass(frozen=True, slots=True)
class Assessment:
    """What one workload needs."""

    group: Group
    members: tuple[Member, ...]
    wanted: Mix
    actual: Mix  # ready pods by the class of their nodes, as `status` shows them
    lasting: Mix  # the same without pods on leaving nodes
    notes: tuple[Action, ...] = ()  # annotations to write
    sweeps: tuple[Action, ...] = ()  # moves to finish or to undo
    wishes: tuple[Wish, ...] = ()
    stuck: tuple[Stuck, ...] = ()
    lost: tuple[Pod, ...] = ()
    under_way: int = 0  # our moves, and evictions by others
    moving: int = 0  # of these: our moves
    is_written: bool = True  # all pods carry the slots that they should have

    @property
    def standing(self) -> Iterator[Site]:
        """The nodes of the replicas that serve and are to stay, one for each."""
        return (member.site for member in self.members if member.stands and member.site is not None)

    @property
    def is_restless(self) -> bool:
        """Time alone may change the answer."""
        changing = self.notes or self.sweeps or self.wishes or self.stuck or self.lost or self.under_way
        return bool(changing) or self._has_new

    @property
    def _has_new(self) -> bool:
        """Most workloads have no minReadySeconds; their pods are not searched."""
        return self.group.workload.min_ready_seconds > 0 and any(member.is_new for member in self.members)


def assess(group: Group, ground: Ground, now: float, before: Sequence[Member] = ()) -> Assessment:
    """What one workload needs now. `before` are its members as they were assessed the last time."""
    sites, configuration = ground.sites, ground.configuration
    classes = configuration.classes
    members: list[Member] = []
    notes: list[Action] = []
    sweeps: list[Action] = []
    stuck: list[Stuck] = []
    lost: list[Pod] = []
    for cohort in group.cohorts:
        own = members_of(cohort, group, sites, classes, now, before)
        if cohort.released:
            sweeps += sweeps_of(group, cohort, own, ground, now)
        if len(own) < len(cohort.pods) or [each for each in own if each.site is None]:  # most have all pods in place
            stuck += _stuck(group, cohort, own, sites, now)
            lost += _lost(cohort, sites)
        given = slots_for(group, cohort, own)
        notes += notes_of(group, cohort, own, given, configuration)
        notes += _forgotten(group, own, now)
        members += [each._replace(slot=slot) if each.slot != (slot := given[each.pod.uid]) else each for each in own]
    there = _serving(group, members, sites)
    actual = Mix.of([site.of for site in there])
    is_moving = any(cohort.released for cohort in group.cohorts)
    is_steady = not is_moving and not [site for site in there if site.is_leaving]
    lasting = actual if is_steady else Mix.of(each.site.of for each in members if each.stands and each.site)
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
    """The pods of an opted-out workload that wait because of a class that we required; None if there are none."""
    found = assess(replace(group, policy=replace(group.policy, rebalance="off")), ground, now)
    stuck = tuple(replace(each, undo=()) for each in found.stuck)
    return replace(found, notes=(), sweeps=(), wishes=(), lost=(), stuck=stuck) if stuck else None


def _forgotten(group: Group, own: Sequence[Member], now: float) -> Iterator[Action]:
    """Evictions that were asked for long ago, of pods that are still there. With the note, a later drain is not held.

    In other modes than `auto` nothing is held anyway.
    """
    if group.policy.rebalance != "auto":
        return
    for pod in [member.pod for member in own if names.EVICTION_ASKED in member.pod.annotations]:  # few have it
        if is_forgotten(pod, group.policy, now):
            written = {names.EVICTION_ASKED: None}
            text = "its eviction is no longer asked for"
            yield Action(How.ANNOTATE, Why.OVER, group.workload, pod, annotations=written, text=text)


def _serving(group: Group, members: Sequence[Member], sites: Sites) -> list[Site]:
    """Where ready pods are, including those that were just released and are not terminating yet."""
    there = [member.site for member in members if member.pod.ready and member.site is not None]
    let_go = [pod for cohort in group.cohorts for pod in cohort.let_go if pod.ready and not pod.terminating]
    return there + [sites[pod.node] for pod in let_go if pod.node in sites]


def _lost(cohort: Cohort, sites: Sites) -> Iterator[Pod]:
    """Pods whose node is gone, including those that a leader marked as failed but did not delete before it died.

    An interrupted deletion may leave such a pod terminating, without a kubelet to end it.
    """
    for pod in cohort.pods:
        if pod.node and pod.node not in sites and (not pod.terminating or pod.phase == "Failed"):
            yield pod


def _going(group: Group, live: int) -> int:
    """Pods that are terminating, whatever the cause. If all pods are live, there are none."""
    if sum([len(cohort.pods) for cohort in group.cohorts]) == live:
        return 0
    return sum(pod.terminating for cohort in group.cohorts for pod in cohort.pods)


def _moving(group: Group, configuration: Configuration) -> int:
    """Our moves, without pods that wait for a drainer: it is unknown whether there is one."""
    released_pods = (pod for cohort in group.cohorts for pod in cohort.released)
    return sum(asks_to_be_kept(pod, configuration) is None for pod in released_pods)


# --- moves that are wanted -------------------------------------------------------------------------------------------


def _stuck(group: Group, cohort: Cohort, own: Sequence[Member], sites: Sites, now: float) -> Iterator[Stuck]:
    """Pods that wait for a class because we require it."""
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
    wanted = [*_leaving(found, now), *_misplaced(found), *_overflowing(found, ground), *_crowded(found, ground)]
    if not wanted:
        return
    standing = _standing(found, ground.configuration, now)
    seen: set[str] = set()
    for member, why, to in sorted(wanted, key=lambda each: each[1].rank):
        if member.pod.uid in seen:
            continue
        seen.add(member.pod.uid)
        how = How.RELEASE if can_be_released(group.workload, member.pod) else How.EVICT
        blocked = _mode(group, why, now) or standing.get(why.is_urgent)
        if blocked is Blocked.BREAKER and why is Why.FLOOR:
            blocked = None
        yield Wish(group, member, why, to, how, blocked or _of_pod(found, member, why, to, ground, now))


def _leaving(found: Assessment, now: float) -> Iterator[tuple[Member, Why, Class]]:
    """Pods whose node will go, or that others evict. Pods that cannot be released are left to them."""
    for member in found.members:
        site = member.site
        if site is None or not (site.is_leaving or names.EVICTION_ASKED in member.pod.annotations):
            continue
        why = _why_departing(found, member, site, now)
        if why is not None and member.slot is not None and can_be_released(found.group.workload, member.pod):
            yield member, why, found.group.slots.class_of(member.slot)


def _why_departing(found: Assessment, member: Member, site: Site, now: float) -> Why | None:
    if site.is_leaving and not site.is_only_cordoned:
        return Why.LEAVING
    if names.EVICTION_ASKED in member.pod.annotations and is_asked(member.pod, found.group.policy, now):
        return Why.ASKED
    return Why.CORDON if site.is_leaving else None


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
    """Pods in the right place that still have the low priority from an outage. No pod is evicted for that."""
    group = found.group
    soft = (member for member in found.members if names.SOFT in member.pod.annotations)
    for member in soft:
        if member.site is None or member.slot is None or not is_overflow(member.pod, group, ground.configuration):
            continue
        if group.slots.class_of(member.slot) is member.site.of and can_be_released(group.workload, member.pod):
            yield member, Why.OVERFLOW, member.site.of


def _crowded(found: Assessment, ground: Ground) -> Iterator[tuple[Member, Why, Class]]:
    """Spot pods that are too many in one pool."""
    group = found.group
    why = Why.BALANCE if group.availability.is_assumed else Why.EXPOSED
    for member in crowded(group, found.members, found.lasting, ground):
        # No pod is evicted for what is only advice.
        if why is Why.EXPOSED or can_be_released(group.workload, member.pod):
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


def _standing(found: Assessment, configuration: Configuration, now: float) -> dict[bool, Blocked]:
    """What blocks all moves of the workload, for urgent and for other moves."""
    group = found.group
    if group.is_rolling:
        return {False: Blocked.ROLLOUT, True: Blocked.ROLLOUT}
    if group.workload.rollout.paused:  # with one revision: its ReplicaSet still replaces pods that leave
        return {False: Blocked.ROLLOUT}
    if now < group.workload.rolled_out + configuration.moves.after_rollout.total_seconds():
        return {False: Blocked.ROLLED_OUT}  # a released pod is one available replica less in `kubectl rollout status`
    if group.refused is not None and now < group.refused.until:
        return {False: Blocked.UNPATCHED}
    tried = [undone(member.pod) for member in found.members]
    if sum(each is not None and now < each.until for each in tried) >= max(BREAKER_PODS, len(tried) // 10):
        return {False: Blocked.BREAKER}
    if not found.is_written:  # a replacement takes a free slot, so webhooks must first read which slots are free
        return {False: Blocked.UNSLOTTED}
    # Too many is a scale-down under way: pods that will leave must not count as replicas that serve meanwhile.
    if not all(cohort.settled and len(cohort.live) <= cohort.replicas for cohort in group.cohorts):
        return {False: Blocked.UNSETTLED}
    if not all(len(cohort.live) >= cohort.replicas for cohort in group.cohorts):
        return {False: Blocked.MISSING}
    return {}


def _of_pod(found: Assessment, member: Member, why: Why, to: Class, ground: Ground, now: float) -> Blocked | None:
    """What blocks the move of this pod."""
    pod, limits, classes = member.pod, ground.configuration.moves, ground.configuration.classes
    if why in DEPARTING:
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
    before = moved(pod)  # the back-off of outages decides how soon a pod returns after one
    if before is None or why is Why.RETURN or now >= before.at + limits.cool_down.total_seconds():
        return None
    return Blocked.COOL_DOWN if why in EVENING or _goes_back(before, found.group, to) else None


def _goes_back(before: Moved, group: Group, to: Class) -> bool:
    """To where it came from, under the same policy. To even out pools, a pod that was moved is not moved on either."""
    return before.origin == str(to) and before.policy == policy_mark(group.slots)


def shape_of(pod: Pod) -> Shape:
    """What it requests, in the form in which outages are noted."""
    return Shape.asking(pod.needs.requests)
