"""What is written on a workload's pods: slots, deletion costs, and what admission missed. Annotations only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from placement import names
from placement.configuration import Configuration
from placement.model import Pod
from placement.plan.actions import Action, How, Why
from placement.plan.group import Cohort, Group, Member, own_terms
from placement.plan.reslot import adopted, leaned, reslotted
from placement.refusal import UNPATCHED

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
    """Its controller has created and deleted what it wanted, no pod is on its way out, and all of them serve.

    While pods find their nodes one after the other, each of them changes which pool is the fullest: of thirty new pods
    on nodes that an autoscaler brings, many would be rewritten several times.
    """
    if not (cohort.settled and len(cohort.pods) == len(own) == cohort.replicas):
        return False
    return not [member for member in own if not member.pod.ready or member.site is None]


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
            reason = f"{_mark(group, member)}{_reason(group, slot)}"
            written = {names.SLOT: str(slot), names.REASON: reason, **_cost(group, cohort, member, slot)}
            yield Action(How.ANNOTATE, Why.SLOT, group.workload, member.pod, annotations=written, text=f"slot {slot}")
        elif group.refused is not None and _lacks_mark(group, member):
            reason = f"adopted: {UNPATCHED}; {_reason(group, slot)}"
            told = {names.REASON: reason}
            yield Action(How.ANNOTATE, Why.ADOPT, group.workload, member.pod, annotations=told, text=UNPATCHED)


def _adoption(group: Group, cohort: Cohort, member: Member, slot: int, configuration: Configuration) -> Action:
    """A pod that admission missed gets what it would have been given, but for what cannot be changed any more."""
    placed = group.slots.class_of(slot)
    alone = placed not in configuration.classes.allowed(own_terms(member.pod, configuration.classes))
    written: dict[str, str | None] = {
        names.DECISION: f"{cohort.uid}/{ADOPTED}{member.pod.uid}",
        names.SLOT: str(slot),
        names.REASON: f"adopted: {_mark(group, member)}{_reason(group, slot)}",
        names.LEFT_ALONE: "true" if alone else None,
        **_cost(group, cohort, member, slot),
    }
    kept = {key: value for key, value in written.items() if value is not None}
    labels = {} if member.of is None else {names.CLASS: str(member.of)}
    return Action(
        How.ANNOTATE, Why.ADOPT, group.workload, member.pod, annotations=kept, labels=labels, text=f"slot {slot}"
    )


def _mark(group: Group, member: Member) -> str:
    """Why admission left the pod as it was, where that is known. A new slot does not change that."""
    is_marked = UNPATCHED in member.pod.annotations.get(names.REASON, "")
    is_new = member.written is None and group.refused is not None and group.refused.covers(member.pod.created)
    return f"{UNPATCHED}; " if is_marked or is_new else ""


def _lacks_mark(group: Group, member: Member) -> bool:
    """It was adopted a moment before the webhook told why it had left the pod as it was."""
    is_told = UNPATCHED in member.pod.annotations.get(names.REASON, "")
    is_adopted = (member.pod.decision_id or "").startswith(ADOPTED)
    return group.refused is not None and is_adopted and not is_told and group.refused.covers(member.pod.created)


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


def written(action: Action) -> Pod:
    """The action's pod with what it writes. The decision is a field of its own."""
    pod = action.pod
    annotations, labels = {**pod.annotations, **action.annotations}, {**pod.labels, **action.labels}
    decision = annotations.pop(names.DECISION, None)
    return replace(
        pod,
        annotations={key: text for key, text in annotations.items() if text is not None},
        labels={key: text for key, text in labels.items() if text is not None},
        decision=pod.decision if decision is None else decision,
    )
