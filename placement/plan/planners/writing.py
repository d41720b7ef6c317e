"""What is written to members of gangs while they have their gate: room is kept for them, or given back."""

from __future__ import annotations

from collections.abc import Sequence

from placement import names
from placement.gang.reservation import Reservation
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
