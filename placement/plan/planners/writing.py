"""What is written to members of gangs while they have their gate: room is kept for them, or given back."""

from __future__ import annotations

from collections.abc import Sequence

from placement import names
from placement.gang.gang import Gang
from placement.gang.reservation import Reservation
from placement.gang.run import RESTART, Run, run_of
from placement.model import Pod
from placement.plan.actions import Action, How, Why
from placement.plan.draft import Draft

Held = Sequence[tuple[Pod, Reservation]]


def reserve(draft: Draft, pod: Pod, reservation: Reservation, *, in_every_mode: bool = False) -> Action:
    """Nobody else is promised that room."""
    draft.room.hold(pod, reservation.node)
    text, written = f"room is kept for it on {reservation.node}", {names.GANG_PLAN: reservation.text()}
    nodes = (reservation.node,)
    return Action(
        How.RESERVE, Why.GANG, None, pod, annotations=written, text=text, nodes=nodes, in_every_mode=in_every_mode
    )


def unreserved(pod: Pod, why: str) -> Action:
    return Action(How.UNRESERVE, Why.GANG, None, pod, annotations={names.GANG_PLAN: None}, text=why, in_every_mode=True)


def joined_run(draft: Draft, gang: Gang, held: Held) -> Run:
    """The run that members join with their start; a new one where none of their gang has started.

    Or where a Deployment rolls out: its new pods are a run of their own, and the old ones that go were not lost.
    """
    now, before = draft.scene.now, gang.life.run
    if before is not None and not before.mark and not _is_rolled_out(gang, before, held):
        return before
    ending = (run_of(pod) for pod in gang.life.remains if pod.terminating)
    restarts = [each.restarts_after(each.marked_at) for each in ending if each is not None and each.mark == RESTART]
    number = min(len(held), gang.needed or len(held)) if before is None else 1
    return Run(held[0][1].plan, now, number, max([*restarts, draft.scene.restarts.get(gang.key, 0)]))


def _is_rolled_out(gang: Gang, run: Run, held: Held) -> bool:
    """They are of a ReplicaSet none of whose pods are in the run, and whose Deployment has some there."""
    of_run = [pod for pod in gang.started if (found := run_of(pod)) is not None and found.name == run.name]
    uids = {pod.owner.uid for pod in of_run if pod.owner is not None}
    owners = gang.life.owners
    roots = {owners[uid].root for uid in uids if uid in owners} - {""}
    joining = {pod.owner.uid for pod, _ in held if pod.owner is not None}
    return any(uid not in uids and uid in owners and owners[uid].root in roots for uid in joining)
