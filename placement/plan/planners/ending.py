"""What ends the pods of a gang, as its planners write it: Jobs are suspended, pods are evicted, deleted or noted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from placement import names
from placement.gang.gang import Gang
from placement.model import Owner, Pod
from placement.plan.actions import Action, How, Why
from placement.plan.draft import Draft

LONGEST_NOTE = 500


def way_back(gang: Gang) -> str:
    """What somebody has to change so that it starts again."""
    stopped = sorted({f"{each.kind} {each.name}" for each in suspendable(gang).values()})
    if stopped:
        return f"resume {' and '.join(stopped)} (spec.suspend: false)"
    return "delete its waiting pods, or create it again"


def suspended_for(gang: Gang, pod: Pod) -> Owner | None:
    """What is suspended to end this pod; None: nothing can be."""
    facts = gang.life.owners.get(pod.owner.uid) if pod.owner is not None else None
    return facts.suspends if facts is not None else None


def suspendable(gang: Gang) -> Mapping[str, Owner]:
    """Jobs and JobSets of its members, by UID."""
    found = (suspended_for(gang, pod) for pod in gang.pods)
    return {each.uid: each for each in found if each is not None}


def suspending(gang: Gang, why: str) -> list[Action]:
    """One write for each; it names one of its pods."""
    actions: dict[str, Action] = {}
    for pod in gang.pods:
        owner = suspended_for(gang, pod)
        if owner is not None and owner.uid not in actions:
            actions[owner.uid] = Action(How.SUSPEND, Why.GANG, None, pod, text=why, owner=owner)
    return list(actions.values())


def tell(draft: Draft, gang: Gang, reason: str, text: str) -> None:
    status = draft.gangs[gang.key]
    draft.gangs[gang.key] = replace(status, news=(*status.news, (reason, text)))


def annotated(pod: Pod, written: Mapping[str, str | None], text: str) -> Action:
    return Action(How.ANNOTATE, Why.GANG, None, pod, annotations=written, text=text, in_every_mode=True)


def noted(draft: Draft, pod: Pod, why: str) -> Action:
    return annotated(pod, {names.GANG_FAILED: f"{draft.scene.now:.0f}/{why}"[:LONGEST_NOTE]}, why)


def evicted(pod: Pod, text: str) -> Action:
    return Action(How.ROLL_BACK, Why.GANG, None, pod, text=text, in_every_mode=True)


def deleted(pod: Pod, text: str) -> Action:
    return Action(How.END, Why.GANG, None, pod, text=text)
