"""The replicas of a replayed workload: where they serve, what starts, and what a trace takes away."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import merge
from itertools import pairwise
from typing import NamedTuple

from report.trace import Trace

ON_DEMAND = -1  # beside the numbers of pools
NOWHERE = -2


@dataclass(frozen=True, slots=True)
class ReplayTerms:
    """The workload that is replayed, and what its cloud does."""

    replicas: int = 10
    must_serve: int = 8
    floor: int = 1  # min-on-demand
    target: float = 0.999
    recovery_seconds: float = 195.0  # until a replacement serves
    notice_seconds: float = 0.0  # before a pool goes
    price: float = 0.33  # of spot, as a share of on-demand
    moves_at_once: int = 2

    @property
    def headroom(self) -> int:
        return self.replicas - self.must_serve

    @property
    def most_spot(self) -> int:
        return max(0, self.replicas - self.floor)

    @property
    def missed_seconds(self) -> float:
        """For how long a lost replica is missed."""
        return max(0.0, self.recovery_seconds - self.notice_seconds)


class RoomChange(NamedTuple):
    """A pool has other room from now on; `announced`: it will have less, and nothing new may go there."""

    at: float
    pool: int
    room: int
    announced: bool


def changes_of(trace: Trace, notice_seconds: float) -> list[RoomChange]:
    """All changes in order. A loss is announced before it comes, but not before the pool had come."""
    return list(merge(*(_changes(trace, number, pool, notice_seconds) for number, pool in enumerate(trace.pools))))


def _changes(trace: Trace, number: int, pool: str, notice_seconds: float) -> list[RoomChange]:
    turns = trace.changes(pool)
    found = [RoomChange(at, number, room, announced=False) for at, room in turns]
    for (before_at, before), (at, room) in pairwise(turns):
        if room < before:
            found.append(RoomChange(max(before_at, at - notice_seconds), number, room, announced=True))
    return sorted(found, key=lambda each: (each.at, each.announced and each.room > 0))


class RoomLoss(NamedTuple):
    """A pool has lost room for so many of the instances that it had room for."""

    pool: int
    had: int
    gone: int


class _Start:
    """A replica that starts, in place of one that still serves (a move) or of one that is lost."""

    __slots__ = ("place", "ready", "source")

    def __init__(self, ready: float, place: int, source: int) -> None:
        self.ready, self.place, self.source = ready, place, source


class ReplayedFleet:
    """Where the replicas are. `headed` is where they will be when what was started serves."""

    def __init__(self, terms: ReplayTerms, pools: int) -> None:
        self.terms = terms
        self.serving = [0] * pools
        self.headed = [0] * pools
        self.on_demand = self.on_demand_headed = terms.replicas
        self.room = [0] * pools  # of each pool
        self.left = [0] * pools  # what is known to be left soon; never more than the room
        self.starting: deque[_Start] = deque()
        self.moves = 0

    # --- what happens to it

    def change(self, change: RoomChange) -> RoomLoss | None:
        """What is lost with it, or announced to be."""
        pool, before = change.pool, self.left[change.pool]
        if change.announced:
            self.left[pool] = min(before, change.room)
        else:
            self._take(pool, change.room)
        return RoomLoss(pool, before, before - self.left[pool]) if self.left[pool] < before else None

    def _take(self, pool: int, room: int) -> None:
        self.room[pool] = self.left[pool] = room
        gone = max(0, self.serving[pool] - room)
        if gone:
            self._lose(pool, gone)
        if self.headed[pool] > room:
            self._cancel(pool)

    def _lose(self, pool: int, gone: int) -> None:
        self.serving[pool] -= gone
        for each in self.starting:
            if each.source == pool and gone:
                each.source, gone = NOWHERE, gone - 1
        self.headed[pool] -= gone

    def _cancel(self, pool: int) -> None:
        """What was starting there and has no room any more: a move that is undone, or a replica that is missing."""
        kept: deque[_Start] = deque()
        for each in reversed(self.starting):
            if each.place == pool and self.headed[pool] > self.room[pool]:
                self._head(pool, -1)
                self._head(each.source, 1)
            else:
                kept.appendleft(each)
        self.starting = kept

    def arrive(self, now: float) -> None:
        while self.starting and self.starting[0].ready <= now:
            each = self.starting.popleft()
            self._serve(each.place, 1)
            self._serve(each.source, -1)

    def start(self, now: float, place: int, source: int = NOWHERE) -> None:
        self.starting.append(_Start(now + self.terms.recovery_seconds, place, source))
        self._head(place, 1)
        self._head(source, -1)

    def _head(self, place: int, by: int) -> None:
        if place >= 0:
            self.headed[place] += by
        elif place == ON_DEMAND:
            self.on_demand_headed += by

    def _serve(self, place: int, by: int) -> None:
        if place >= 0:
            self.serving[place] += by
        elif place == ON_DEMAND:
            self.on_demand += by

    # --- what it is like

    @property
    def is_short(self) -> bool:
        return self.on_demand + sum(self.serving) < self.terms.must_serve

    @property
    def missing(self) -> int:
        return self.terms.replicas - self.on_demand_headed - sum(self.headed)

    @property
    def live(self) -> list[int]:
        return [pool for pool, room in enumerate(self.left) if room]

    @property
    def moving(self) -> int:
        return sum(each.source != NOWHERE for each in self.starting)

    @property
    def spot(self) -> int:
        """That serve there, or replace what was lost."""
        replacing = sum(each.source == NOWHERE and each.place >= 0 for each in self.starting)
        return sum(self.serving) + replacing

    def charged(self) -> float:
        """What is paid now, of the price of one on on-demand: what starts is paid for, too."""
        spot = sum(self.serving) + sum(each.place >= 0 for each in self.starting)
        others = self.on_demand + sum(each.place == ON_DEMAND for each in self.starting)
        return others + spot * self.terms.price

    def emptiest(self) -> int:
        """The pool with the fewest replicas, of those with room for one more."""
        free = [pool for pool, room in enumerate(self.left) if room > self.headed[pool]]
        return min(free, key=self.headed.__getitem__, default=NOWHERE)

    def fullest(self) -> int:
        return max(range(len(self.headed)), key=self.headed.__getitem__, default=NOWHERE)
