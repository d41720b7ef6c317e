"""Guarded pods (`guardSolo`) belong to no gang: the scheduler places them, and room is made for them as for gangs.

They have no gate, so none of them waits for us: where there is room, the scheduler finds it. What it may not do is take
a node from a single member of a gang. So while a guarded pod finds none, victims are chosen for it as for a gang of
one, its room is reserved by a nomination before the first of them goes, and then it is left to the scheduler again.
"""

from __future__ import annotations

from placement.gang.gang import Gang, GangStatus, State
from placement.plan.actions import Action, Blocked
from placement.plan.draft import Draft
from placement.plan.planners.writing import Held, unreserved
from placement.plan.room import Joint

PLACING_SECONDS = 30.0  # for the scheduler to use the room that was made


def place(draft: Draft, gang: Gang) -> Joint | None:
    """Its seat among the pods that wait, or the node that an autoscaler brings; None: it has none."""
    (pod,) = gang.gated
    if draft.scene.is_coming(pod):
        return Joint({})
    return Joint({pod.uid: draft.seats[pod.uid]}) if pod.uid in draft.seats else None


def awaiting(draft: Draft, gang: Gang, held: Held) -> list[Action]:
    """Its room is free: the scheduler binds it within a moment. Else the room is given back."""
    now = draft.scene.now
    is_late = now - max(found.at for _, found in held) > PLACING_SECONDS
    if is_late or draft.scene.is_paused:
        why = str(Blocked.PAUSED) if draft.scene.is_paused else "the scheduler did not use the room that was made"
        draft.gangs[gang.key] = GangStatus(gang, State.WAITING, why, was_given_up=True)
        return [unreserved(pod, why) for pod, _ in held]
    for pod, found in held:
        draft.room.hold(pod, found.node)
    draft.gangs[gang.key] = GangStatus(gang, State.PLACING, "its room is free")
    return []
