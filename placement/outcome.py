"""The outcome of an action on a pod: few kinds, because a plan can react in only a few ways."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """`is_settled` says whether there is nothing left to do."""

    DONE = "done"  # we did it
    GONE = "gone"  # no such pod any more; or another one under its name, which is none of our business
    BLOCKED = "blocked"  # a disruption budget forbids it now
    BUSY = "busy"  # not now, and perhaps it was done all the same: look again, then try again
    IMPOSSIBLE = "impossible"  # refused, and will be refused again until something is changed

    @property
    def is_settled(self) -> bool:
        return self in (Outcome.DONE, Outcome.GONE)
