"""Moves that are under way: which of them end now, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placement import names
from placement.configuration import Configuration
from placement.model import Class, Pod
from placement.plan.actions import Action, Blocked
from placement.plan.group import Cohort, Ground, Group, Member, Site, Sites, former_slot, released, word_on_eviction
from placement.plan.overflow import is_overflow
from placement.plan.release import finish, is_too_many, undo, unwanted, why_cut_short

OVERDUE_SECONDS = 60.0  # after that a release is undone though its replacement serves: nothing lets the old pod go


def sweeps_of(group: Group, cohort: Cohort, own: Sequence[Member], ground: Ground, now: float) -> Iterator[Action]:
    """Finishes a move whose replacement serves; undoes one that takes too long or that nobody wants any more.

    Before all else it ends what is one too many since a scale-down or a rollout, and what is to wait no longer.
    Replacements are known by their slot. Slots can be doubled, so pods are counted too: of 10 replicas with 2 released
    8 are older, and 9 that serve mean that one replacement does. One that is ready serves after `minReadySeconds`.
    """
    order = sorted(own, key=lambda member: (member.is_available, member.pod.created))
    by_slot = {member.slot: member for member in order}
    there = [pod for pod in cohort.released if not pod.terminating]
    going = sorted(there, key=lambda pod: (former_slot(pod) in by_slot, pod.uid))  # first those without a replacement
    serving = tuple(member.pod for member in own if member.is_available) if cohort.replicas else ()
    surplus = len(serving) - cohort.replicas
    proven = sum(member.still_serves for member in own) - cohort.replicas + len(going)
    for pod in going:
        state, replacement, site = released(pod), by_slot.get(former_slot(pod)), ground.sites.get(pod.node)
        leaves, origin = site is None or site.is_leaving, site.of if site is not None else None
        over_for = now - (state.until if state is not None else 0.0)
        is_replaced = _is_replaced(pod, replacement, site, group, ground.configuration)
        is_kept = asks_to_be_kept(pod, ground.configuration) is not None
        may_go = not pod.ready or (proven > 0 and _keeps_floor(group, cohort, own, origin))
        too_many = is_too_many(group, cohort, pod, is_vacant=replacement is None and surplus >= 0)
        cut_short = why_cut_short(group, pod, leaves=leaves)
        at_once = too_many or bool(cut_short)
        has_strayed = not is_replaced and replacement is not None and replacement.is_available
        if not group.workload.replicas or (too_many and may_go and not is_replaced):
            proven -= 1
            yield unwanted(group.workload, pod, origin, serving)
        elif cut_short and (is_kept or not (is_replaced and may_go) or not (leaves or pod.owner)):
            yield from undo(group, cohort, pod, replacement, None, cut_short, in_every_mode=True)
        elif is_kept and not too_many:
            if not leaves:  # the end of a pod that asks to be kept is the drainer's, and there is none any more
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

    If the old node stays, that is: from one that leaves any place will do. Of two pools a and b of spot and a slot of
    on-demand, a pod that came out in b instead of a has gained nothing, and would go on to a the next time. One that
    is no overflow any more has gained that, wherever it is.
    """
    if replacement is None or not replacement.is_available or replacement.site is None:
        return False
    if site is None or site.is_leaving:
        return True
    if replacement.site.of is not group.slots.class_of(replacement.slot or 0):
        return False
    if is_overflow(pod, group, configuration) and not is_overflow(replacement.pod, group, configuration):
        return True
    return (replacement.site.of, replacement.site.pool) != (site.of, site.pool)


def _keeps_floor(group: Group, cohort: Cohort, own: Sequence[Member], origin: Class | None) -> bool:
    """Enough serve on on-demand without the old pod."""
    if origin is not Class.ON_DEMAND:
        return True
    slots = group.slots
    on_demand = sum(member.still_serves and member.of is Class.ON_DEMAND for member in own)
    return on_demand >= min(slots.floor, slots.mix(cohort.replicas).on_demand)


def given_up(group: Group, cohort: Cohort, newcomer: Member, sites: Sites, now: float) -> Iterator[Action]:
    """Puts the pod back that a newcomer is to replace, where its node stays: nobody misses the newcomer."""
    for pod in cohort.released:
        site = sites.get(pod.node)
        is_there = site is not None and not site.is_leaving and not pod.terminating
        if is_there and newcomer.slot is not None and former_slot(pod) == newcomer.slot:
            yield from undo(group, cohort, pod, newcomer, now)


def asks_to_be_kept(pod: Pod, configuration: Configuration) -> Blocked | None:
    """By its annotations; or by what it has stored, which goes with it, where the configuration says `keep`.

    From a leaving node it is released all the same, so that its replacement is up; but we do not evict it.
    """
    word = word_on_eviction(pod)
    if word == "false" or pod.annotations.get(names.DO_NOT_DISRUPT) == "true":
        return Blocked.KEPT
    is_kept = configuration.keeps_local_storage and pod.needs.has_local_storage
    return Blocked.LOCAL_STORAGE if is_kept and word != "true" else None
