"""Replay: what a ratio would have come to on a trace, with the programs' own decisions and a fake clock.

Decided as in a cluster: how many replicas go to spot (`placement.slots`, `placement.autoratio`), which moves there are
at once (`moves.perWorkload`), when spot is taken for out (`placement.outage`) and which pool is too full
(`placement.plan.crowd`). Simulated: a replica serves so many seconds after it was started. A pool that goes takes its
replicas at once. Where there is notice, replacements start that much earlier. On-demand always has room. A move starts
the replacement first, and the old replica goes when that serves. Example, 195 s to recover:

    notice 0 s      the pool goes at 1000 s, its replicas serve again at 1195 s
    notice 120 s    their replacements start at 880 s and serve at 1075 s: 75 s are missed
    notice 300 s    nothing is missed
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, Protocol

from placement.model import Class
from placement.outage import Outage, Outages, noted
from placement.plan.crowd import surplus
from report.fleet import NOWHERE, ON_DEMAND, ReplayedFleet, ReplayTerms, RoomChange, RoomLoss


class PoolSight(NamedTuple):
    """What a chooser is shown whenever something changed."""

    now: float
    live: Sequence[int]  # pools with room
    losses: Sequence[RoomLoss]  # since the last look
    short: bool  # fewer serve than must


class SpotChooser(Protocol):
    """Decides how many replicas are to be on spot."""

    def wanted(self, sight: PoolSight) -> int: ...

    def again_at(self) -> float:
        """When it wants to be asked again, at the latest."""
        ...


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """What came of it."""

    days: float
    share: float  # of replicas on spot
    cost: float  # of the price of all replicas on on-demand
    short_seconds: float
    incidents: int
    moves: int

    @property
    def availability(self) -> float:
        return 1.0 - self.short_seconds / (self.days * 86_400) if self.days else 1.0

    def monthly(self, amount: float) -> float:
        return amount * 30 / self.days if self.days else 0.0

    def meets(self, target: float) -> bool:
        return self.availability >= target


class Replayer:
    """Carries out on a fleet what a chooser wants."""

    def __init__(self, changes: Sequence[RoomChange], pools: int, terms: ReplayTerms, chooser: SpotChooser) -> None:
        self._changes = changes
        self._terms = terms
        self._chooser = chooser
        self._fleet = ReplayedFleet(terms, pools)
        self._outages = Outages()
        self._retry = float("inf")
        self._noted = float("-inf")

    def run(self, start: float, end: float) -> ReplayOutcome:
        fleet, terms = self._fleet, self._terms
        spot = paid = short = 0.0
        incidents, was_short, before = 0, False, start
        for now, changes in self._moments(start, end):
            elapsed = now - before
            if elapsed > 0:
                spot += fleet.spot * elapsed
                paid += fleet.charged() * elapsed
                short += was_short * elapsed
            if now >= end:
                break
            before = now
            self._step(now, changes)
            incidents += fleet.is_short and not was_short
            was_short = fleet.is_short
        whole = terms.replicas * (end - start)
        return ReplayOutcome((end - start) / 86_400, spot / whole, paid / whole, short, incidents, fleet.moves)

    def _moments(self, start: float, end: float) -> Iterator[tuple[float, list[RoomChange]]]:
        """Whenever something changes in the trace, starts to serve, or is to be tried again."""
        for at, group in groupby([*self._changes, RoomChange(end, 0, 0, announced=True)], key=lambda each: each.at):
            while (soonest := self._soonest()) < at:
                yield soonest, []
            yield at, list(group)

    def _soonest(self) -> float:
        ready = self._fleet.starting[0].ready if self._fleet.starting else float("inf")
        return min(ready, self._retry, self._chooser.again_at())

    def _step(self, now: float, changes: Sequence[RoomChange]) -> None:
        fleet = self._fleet
        fleet.arrive(now)
        losses = [loss for change in changes if (loss := fleet.change(change)) is not None]
        sight = PoolSight(now, fleet.live, losses, fleet.is_short)
        wanted = min(self._terms.most_spot, self._chooser.wanted(sight))
        self._retry = float("inf")
        self._replace(now, wanted)
        self._leave(now, wanted)
        self._move(now, wanted)

    def _replace(self, now: float, wanted: int) -> None:
        """Lost replicas: on spot as many as are wanted there, as far as there is room."""
        for _ in range(self._fleet.missing):
            self._fleet.start(now, self._place(now, wanted))

    def _leave(self, now: float, wanted: int) -> None:
        """Replicas whose end is announced: all of them at once."""
        fleet = self._fleet
        for pool, left in enumerate(fleet.left):
            while fleet.headed[pool] > left:
                fleet.start(now, self._place(now, wanted + 1), source=pool)

    def _place(self, now: float, wanted: int) -> int:
        if sum(self._fleet.headed) >= wanted:
            return ON_DEMAND
        pool = self._fleet.emptiest()
        if pool == NOWHERE:
            self._note(now)
            return ON_DEMAND
        return pool

    def _note(self, now: float) -> None:
        """Spot is out: once for all replicas that find no room."""
        if now > self._noted:
            self._outages, self._noted = noted(self._outages, Outage(Class.SPOT, 0.0), now), now

    def _move(self, now: float, wanted: int) -> None:
        """Moves wait until no lost replica is missed: all replicas must be ready."""
        fleet = self._fleet
        free = self._terms.moves_at_once - fleet.moving
        if free <= 0 or fleet.moving < len(fleet.starting):
            return
        for source, place in self._moves(now, wanted):
            if free <= 0:
                return
            fleet.start(now, place, source)
            fleet.moves += 1
            free -= 1

    def _moves(self, now: float, wanted: int) -> Iterator[tuple[int, int]]:
        """Off spot, onto spot unless an outage is noted, and from a crowded pool to another."""
        fleet = self._fleet
        while sum(fleet.headed) > wanted:
            yield fleet.fullest(), ON_DEMAND
        standing = self._outages.standing(now)
        if sum(fleet.headed) < wanted and standing:
            self._retry = max(each.until for each in standing)
            return
        while sum(fleet.headed) < wanted and (pool := fleet.emptiest()) != NOWHERE:
            yield ON_DEMAND, pool
        while (pool := fleet.emptiest()) != NOWHERE and self._is_crowded():
            yield fleet.fullest(), pool

    def _is_crowded(self) -> bool:
        fleet = self._fleet
        counts = [fleet.headed[pool] for pool, left in enumerate(fleet.left) if left > fleet.headed[pool]]
        counts.append(fleet.headed[fleet.fullest()])
        return not fleet.starting and surplus(counts, self._terms.headroom) > 0
