"""When a gang that found no room is tried again: if room may have become free, and now and then without that.

A try searches the whole cluster, so hundreds of gangs that wait must not be tried in every pass. Example: a gang finds
no room at 0 s. A pod that ends at 0.1 s has it tried again at 0.2 s. If nothing happens, that is after 2 s, then after
4 s more, up to about once a minute. Each wait is varied by a fifth, so that gangs do not come all at once, and lasts
until the next quarter of it, so that many come together: what refuses one gang refuses all that are like it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from placement.backoff import doubled
from placement.gang.gang import Gang, GangStatus, State
from placement.gang.run import pause_before
from placement.model import Key

FIRST_SECONDS, LONGEST_SECONDS = 2.0, 60.0  # until a gang is tried again, although nothing has happened
BATCH_SECONDS = 0.2  # and at the earliest, where something has
AFTER_UNDO_SECONDS = 5.0  # until a gang that was rolled back is tried again
REMEMBERED_SECONDS = 3600.0  # restarts of a gang that has not come back
LEAST_SHARE, MOST_SHARE = 0.8, 1.2


@dataclass(frozen=True, slots=True)
class Tried:
    """The last time that room was looked for: with which members, when, how often in a row, what was missing."""

    members: frozenset[str]  # none: it was undone
    freed: int
    at: float
    due: float
    tries: int
    reason: str
    gang: Gang | None = None  # as it was then: most are as they were


class Retries:
    """Memory of what was tried for want of room; `timer` values are passed in. After a restart all is tried again."""

    def __init__(self, between: Callable[[float, float], float]) -> None:
        """`between` gives a number between two others, by chance."""
        self._tried: dict[Key, Tried] = {}
        self._restarts: dict[Key, tuple[int, float]] = {}  # in a row, and when that was seen
        self._between = between

    def resting(self, gangs: Sequence[Gang], freed: int, timer: float) -> Mapping[Key, str]:
        """Gangs that need not be tried now, and why they wait."""
        there = {gang.key for gang in gangs} if self._tried else set()
        for key in [key for key, tried in self._tried.items() if key not in there and timer >= tried.due]:
            del self._tried[key]
        return {
            gang.key: tried.reason
            for gang in gangs
            if (tried := self._tried.get(gang.key)) is not None and self._rests(tried, gang, freed, timer)
        }

    def _rests(self, tried: Tried, gang: Gang, freed: int, timer: float) -> bool:
        """Others must not wait for what a gang's own members do: new members count at once, unless it was undone."""
        if timer >= tried.due:
            return False
        if tried.members and tried.gang is not gang and tried.members != _members(gang):
            return False
        return freed == tried.freed or timer < tried.at + BATCH_SECONDS or not tried.members

    def restarts(self) -> Mapping[Key, int]:
        """How often in a row gangs were restarted that have not started again yet."""
        return {key: count for key, (count, _) in self._restarts.items()}

    def note(self, found: Sequence[GangStatus], freed: int, timer: float) -> None:
        """After a plan. `freed` is what it was when the plan was made."""
        for key in [key for key, (_, at) in self._restarts.items() if timer - at > REMEMBERED_SECONDS]:
            del self._restarts[key]
        for each in found:
            if each.state is State.RESTARTING:
                self._note_restart(each, freed, timer)
                continue
            if each.gang.started:  # they carry the number
                self._restarts.pop(each.gang.key, None)
            before = self._tried.get(each.gang.key)
            tries = 0 if before is None else before.tries
            if each.was_tried:
                wait = doubled(FIRST_SECONDS, tries, LONGEST_SECONDS) * self._between(LEAST_SHARE, MOST_SHARE)
                members = _members(each.gang)
                grid = max(FIRST_SECONDS, wait / 4)
                due = ceil((timer + wait) / grid) * grid if tries else timer + wait
                self._tried[each.gang.key] = Tried(members, freed, timer, due, tries + 1, each.reason, each.gang)
            elif (each.state is State.ROLLING_BACK or each.was_given_up) and (
                before is None or before.members or timer > before.due
            ):
                wait = doubled(AFTER_UNDO_SECONDS, tries, LONGEST_SECONDS) * self._between(LEAST_SHARE, MOST_SHARE)
                text = each.reason if each.was_given_up else "an earlier start was rolled back; Spotweave retries later"
                self._tried[each.gang.key] = Tried(frozenset(), freed, timer, timer + wait, tries + 1, text)

    def _note_restart(self, each: GangStatus, freed: int, timer: float) -> None:
        """Where it has failed again and again, it waits before it starts."""
        run = each.gang.life.run
        if run is None or not run.mark:
            return
        count = run.restarts_after(run.marked_at)
        self._restarts[each.gang.key] = count, timer
        wait = pause_before(count) * self._between(LEAST_SHARE, MOST_SHARE)
        if wait:
            text = f"it was restarted {count} times in a row; Spotweave waits before the next start"
            self._tried[each.gang.key] = Tried(frozenset(), freed, timer, timer + wait, 1, text)


def _members(gang: Gang) -> frozenset[str]:
    return frozenset(pod.uid for pod in gang.gated)
