"""The annotation `gang-plan` of a member: which plan keeps room for it, since when and where; read and written here.

    `19a2f/1750000000.250/node-7`       a plan of 1750000000.250 keeps room for the member on node-7
    `19a2f/1750000000.250/node-7/wait` the same; the room is not free before the plan's victims have gone
    `19a2f+/1750000000.250/node-7`      the same, written a second time right before the start
    `19a2f++/1750000000.250/node-7/wait` the same, written a third time while victims end
    `19a2f/1750000000.250/node-7/undo`  it started by that plan, and the plan is undone: it is evicted, with all others

With the nomination (`status.nominatedNodeName`) it is the reservation. It stays when the gate is taken off: then it
says by which plan the member started, and when.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from placement.gang.belonging import is_guarded
from placement.model import Pod

UNDO = "undo"
WAIT = "wait"
AGAIN = "+"
LONGEST = 512  # of what we write: a node has a name of 253 at most


@dataclass(frozen=True, slots=True)
class Reservation:
    """The plan, when it was made, the node, and whether the start is undone."""

    plan: str
    at: float
    node: str
    is_undone: bool = False
    awaits_victims: bool = False

    @property
    def is_renewed(self) -> bool:
        """It was written again. That is done once: where writes are slow it would never be fresh."""
        return self.plan.endswith(AGAIN)

    def text(self) -> str:
        mark = f"/{UNDO}" if self.is_undone else f"/{WAIT}" if self.awaits_victims else ""
        return f"{self.plan}/{self.at:.3f}/{self.node}{mark}"


def reservation_of(pod: Pod) -> Reservation | None:
    """What is written on a member; None: nothing, or nothing that we wrote."""
    return _read(pod.gang_plan) if pod.gang_plan and len(pod.gang_plan) <= LONGEST else None


@lru_cache(4096)
def _read(text: str) -> Reservation | None:
    plan, _, rest = text.partition("/")
    at, _, rest = rest.partition("/")
    node, _, mark = rest.partition("/")
    try:
        when = float(at)
    except ValueError:
        return None
    is_ours = plan and node and mark in ("", UNDO, WAIT) and 0 < when < 1e11
    return Reservation(plan, when, node, mark == UNDO, mark == WAIT) if is_ours else None


def reserved(pod: Pod) -> Reservation | None:
    """The reservation that holds for a member with its gate, or a guarded pod: annotation and nomination agree."""
    found = reservation_of(pod) if pod.nominated and (pod.is_gated or is_guarded(pod)) else None
    return found if found is not None and found.node == pod.nominated and not found.is_undone else None


def made_at(plan: str) -> float | None:
    """When a plan was made, by its id; None: it is none of ours."""
    try:
        return int(plan.rstrip(AGAIN), 16) / 1000
    except (ValueError, OverflowError):
        return None


def plan_id(now: float) -> str:
    """One for each moment: within a gang no two plans are made at once."""
    return f"{int(now * 1000):x}"
