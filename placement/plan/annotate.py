"""What is written on a workload's pods: slots, deletion costs, and what admission missed. Annotations only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from placement import names
from placement.configuration import Configuration
from placement.plan.actions import Action, How, Why
from placement.plan.group import Cohort, Group, Member, own_terms
from placement.plan.reslot import adopted, leaned, reslotted

LEAVES_FIRST = str(-(2**31))
ADOPTED = "adopted-"  # begins the id of a decision that was made afterwards


def slots_for(group: Group, cohort: Cohort, own: Sequence[Member]) -> dict[str, int]:
    """The slot that each live pod should have; as they are while the controller is at work, or moves are under way."""
    slots = group.slots
    if group.is_stateful:
        return {member.pod.uid: member.slot or 0 for member in own}
    given = reslotted(own, slots, cohort.replicas)
    if cohort.released or not _is_settled(cohort, own):
        return given
    return leaned(own, given, slots)


def _is_settled(cohort: Cohort, own: Sequence[Member]) -> bool:
    """Its controller has created and deleted what it wanted, and no pod is on its way out."""
    return cohort.settled and len(cohort.pods) == len(own) == cohort.replicas


def notes_of(
    group: Group, cohort: Cohort, own: Sequence[Member], given: Mapping[str, int], configuration: Configuration
) -> Iterator[Action]:
    """Annotations that are not as they should be, once the controller is at rest.

    Slots are rewritten a cohort at a time, while the webhook is not asked for new ones; and not while pods are
    released, since a replacement is known by its slot.
    """
    if not (cohort.settled and len(own) >= cohort.replicas) or group.policy.rebalance != "auto":
        return
    if cohort.released and not group.is_stateful:
        given = adopted(own, group.slots, cohort.replicas)
    for member in own:
        slot = given.get(member.pod.uid)
        if slot is None:
            continue
        if member.written is None:
            yield _adoption(group, cohort, member, slot, configuration)
        elif member.written != slot or member.pod.annotations.get(names.DELETION_COST) == LEAVES_FIRST:
            written = {names.SLOT: str(slot), names.REASON: _reason(group, slot), **_cost(group, cohort, member, slot)}
            yield Action(How.ANNOTATE, Why.SLOT, group.workload, member.pod, annotations=written, text=f"slot {slot}")


def _adoption(group: Group, cohort: Cohort, member: Member, slot: int, configuration: Configuration) -> Action:
    """A pod that admission missed gets what it would have been given, but for what cannot be changed any more."""
    placed = group.slots.class_of(slot)
    alone = placed not in configuration.classes.allowed(own_terms(member.pod, configuration.classes))
    written: dict[str, str | None] = {
        names.DECISION: f"{cohort.uid}/{ADOPTED}{member.pod.uid}",
        names.SLOT: str(slot),
        names.REASON: f"adopted: {_reason(group, slot)}",
        names.LEFT_ALONE: "true" if alone else None,
        **_cost(group, cohort, member, slot),
    }
    kept = {key: value for key, value in written.items() if value is not None}
    labels = {} if member.of is None else {names.CLASS: str(member.of)}
    return Action(
        How.ANNOTATE, Why.ADOPT, group.workload, member.pod, annotations=kept, labels=labels, text=f"slot {slot}"
    )


def _reason(group: Group, slot: int) -> str:
    return f"slot {slot} is {group.slots.class_of(slot)} ({group.policy.explain()})"


def _cost(group: Group, cohort: Cohort, member: Member, slot: int) -> dict[str, str]:
    """The highest slot leaves first; users' own costs are theirs, in the template or on the pod.

    What we wrote is known by its value: of slot 4 it is -4, of a newcomer that was to leave first the lowest there is.
    """
    if group.is_stateful or cohort.template.has_deletion_cost:
        return {}
    shown = member.pod.annotations.get(names.DELETION_COST)
    ours = (None, LEAVES_FIRST) if member.written is None else (None, LEAVES_FIRST, str(-member.written))
    return {names.DELETION_COST: str(-slot)} if shown in ours else {}
