"""Whether what was lost fits in what is left of a class, when all of it is put at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from placement.lack import NoPlace
from placement.model import Class, Pod
from placement.plan.room import Room


def shortage(lost: Sequence[Pod], room: Room, of: Class) -> tuple[Pod, NoPlace] | None:
    """The smallest pod that does not fit when all that were lost are put, and why; None: all fit."""
    refused = room.together(lost, of, have_gone=True).refused
    return refused[-1] if refused else None


def left_out(lost: Iterable[Pod], room: Room, of: Class) -> list[Pod]:
    """Those that do not fit when all are put, the largest first.

    Each takes the emptiest node, so there may be a shortage where a cleverer packing finds none. That costs little:
    soft pods prefer their class all the same. What is not modelled is no shortage.
    """
    refused = room.together(list(lost), of, have_gone=True).refused
    return [pod for pod, refusal in refused if not refusal.lack.is_unknown]
