"""Moves that are under way: which of them end now, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placement import names
from placement.configuration import Configuration
from placement.eviction import is_asked
from placement.model import Class, Pod
from placement.plan.actions import Action, Blocked
from placement.plan.ground import Ground, Site, Sites
from placement.plan.group import Cohort, Group, Member
from placement.plan.marks import former_slot, released, word_on_eviction
from placement.plan.overflow import is_overflow
from placement.plan.release import finish, is_too_many, undo, unwanted, why_cut_short

BROKEN_SECONDS = 30.0  # a replica that has not served for so long is not waited for
OVERDUE_SECONDS = 60.0  # after this a release is undone although its replacement serves: the eviction fails


def sweeps_of(group: Group, cohort: Cohort, own: Sequence[Member], ground: Ground, now: float) -> Iterator[Action]:
    """Finishes a move whose replacement serves; undoes one that takes too long or is no longer wanted.

    First it ends releases that a scale-down or rollout made superfluous, and those that must not wait any longer.
    Replacements are recognised by their slot. Slots can be doubled, so pods are counted too. Example: 2 of 10 replicas
    are released, so 8 are older. If 9 serve, one replacement serves. A ready pod serves after `minReadySeconds`. If
    one of the 8 is broken, a pod that has to go anyway does not wait for it: 8 are enough.
    """
    order = sorted(own, key=lambda member: (member.is_available, member.pod.created))
    by_slot = {member.slot: member for member in order}
    there = [pod for pod in cohort.released if not pod.terminating]
    going = sorted(there, key=lambda pod: (former_slot(pod) in by_slot, pod.uid))  # those without a replacement first
    serving = tuple(member.pod for member in own if member.is_available) if cohort.replicas else ()
    surplus = len(serving) - cohort.replicas
    proven = sum(member.still_serves for member in own) - cohort.replicas + len(going)
    broken = _broken(group, own, going, ground.configuration, now)
    for pod in going:
        state, replacement, site = released(pod), by_slot.get(former_slot(pod)), ground.sites.get(pod.node)
        origin = site.of if site is not None else None
        leaves = site is None or site.is_leaving or is_asked(pod, group.policy, now)
        over_for = now - (state.until if state is not None else 0.0)
        is_replaced = _is_replaced(pod, replacement, None if leaves else site, group, ground.configuration)
        is_kept = asks_to_be_kept(pod, ground.configuration) is not None
        too_many = is_too_many(group, cohort, pod, is_vacant=replacement is None and surplus >= 0)
        spare = proven + (broken if leaves and not too_many else 0)
        may_go = not pod.ready or (spare > 0 and _keeps_floor(group, cohort, own, origin))
        cut_short = why_cut_short(group, pod, leaves=leaves)
        at_once = too_many or bool(cut_short)
        has_strayed = not is_replaced and replacement is not None and replacement.is_available
        if not group.workload.replicas or (too_many and may_go and not is_replaced):
            proven -= 1
            yield unwanted(group.workload, pod, origin, serving)
        elif cut_short and (is_kept or not (is_replaced and may_go) or not (leaves or pod.owner)):
            yield from undo(group, cohort, pod, replacement, None, cut_short, in_every_mode=True)
        elif is_kept and not too_many:
            if not leaves:  # a pod that asks to be kept is ended by the drainer, and there is no drainer any more
                yield from undo(group, cohort, pod, replacement, None)
        elif is_replaced and may_go and (leaves or too_many or not pod.ready or over_for < OVERDUE_SECONDS):
            assert replacement is not None
            proven -= 1
            yield from finish(group, pod, replacement, origin, now, at_once=leaves or at_once, in_every_mode=at_once)
        elif not leaves and (has_strayed or over_for >= (OVERDUE_SECONDS if is_replaced else 0)):
            yield from undo(group, cohort, pod, replacement, now, has_strayed=has_strayed)


def _is_replaced(
    pod: Pod, replacement: Member | None, site: Site | None, group: Group, configuration: Configuration
) -> bool:
    """The replacement serves where it should: on the class of its slot, and not where the old pod was.

    This applies if the old pod may stay, on `site`. If it has to go (None), any place will do. Example: an on-demand
    slot, and two spot pools a and b. A replacement in b instead of a gains nothing, and the next move would go back to
    a. A pod that loses the overflow priority has gained that, wherever it runs.
    """
    if replacement is None or not replacement.is_available or replacement.site is None:
        return False
    if site is None:
        return True
    if replacement.site.of is not group.slots.class_of(replacement.slot or 0):
        return False
    if is_overflow(pod, group, configuration) and not is_overflow(replacement.pod, group, configuration):
        return True
    return (replacement.site.of, replacement.site.pool) != (site.of, site.pool)


def _broken(group: Group, own: Sequence[Member], going: Sequence[Pod], configuration: Configuration, now: float) -> int:
    """Replicas that were there before the first release and have not served for a while. Nobody replaces them.

    A release notes when its time is over; how long it may last says when it began.
    """
    idle = [each.pod for each in own if not each.still_serves and now - each.pod.changed >= BROKEN_SECONDS]
    if not idle:
        return 0
    lasts = configuration.moves.timeout.total_seconds() + group.workload.min_ready_seconds
    first = min((state.until - lasts for pod in going if (state := released(pod)) is not None), default=0.0)
    return sum(pod.created < first for pod in idle)


def _keeps_floor(group: Group, cohort: Cohort, own: Sequence[Member], origin: Class | None) -> bool:
    """Enough serve on on-demand without the old pod."""
    if origin is not Class.ON_DEMAND:
        return True
    slots = group.slots
    on_demand = sum(member.still_serves and member.of is Class.ON_DEMAND for member in own)
    return on_demand >= min(slots.floor, slots.mix(cohort.replicas).on_demand)


def given_up(group: Group, cohort: Cohort, newcomer: Member, sites: Sites, now: float) -> Iterator[Action]:
    """Puts back the pod that a newcomer should replace, if its node stays. The newcomer is not needed then."""
    for pod in cohort.released:
        site = sites.get(pod.node)
        is_asked_for = is_asked(pod, group.policy, now)  # it would be released again at once
        is_there = site is not None and not site.is_leaving and not pod.terminating and not is_asked_for
        if is_there and newcomer.slot is not None and former_slot(pod) == newcomer.slot:
            yield from undo(group, cohort, pod, newcomer, now)


def asks_to_be_kept(pod: Pod, configuration: Configuration) -> Blocked | None:
    """By its annotations; or by its local storage, which is lost with it, if the configuration says `keep`.

    On a leaving node it is still released, so that its replacement comes up, but we do not evict it.
    """
    word = word_on_eviction(pod)
    if word == "false" or pod.annotations.get(names.DO_NOT_DISRUPT) == "true":
        return Blocked.KEPT
    is_kept = configuration.keeps_local_storage and pod.needs.has_local_storage
    return Blocked.LOCAL_STORAGE if is_kept and word != "true" else None
