"""`spot-ratio: auto`: as many replicas on spot as the availability target can pay for.

The target is a budget: 99.9 % allows a workload to have fewer replicas than must serve for 86.4 s a day. A part of it
(`SPENT`) accrues with time. At the start, ten days' worth may be borrowed, and at most thirty days' worth are saved.
What a workload was short is taken off. So the target holds over any time from the start that is longer than ten days,
whatever the pools do, as long as one loss costs no more than what is left:

    nothing left for one more loss    only the headroom is on spot: whatever goes, enough replicas serve
    else                              the most replicas whose expected shortfall in two days is covered by what is left

A loss takes j pools together. It leaves a workload short if the replicas on them are more than the headroom, for the
time that a replacement takes to serve, less the notice. Example: 10 replicas, 8 must serve, 4 pools with a loss in ten
days each, of which 90 % take one pool and 10 % take two, and 195 s to recover. There are 0.4 / 1.1 = 0.364 such events
a day. The even spread over four pools is

    8 replicas: 2 2 2 2    short if two pools go       0.364 · 0.1 · 195 s = 7 s a day
    9 replicas: 3 2 2 2    short whenever a pool goes  0.364 · 195 s = 71 s a day

With 820 s left (99.9 %, at the start), 820 − 195 = 625 s may be risked in two days: 9 replicas. With 300 s left it is
8. With 190 s left it is 2. Above the headroom in each pool all losses count: replicas that come back after a loss are
not spread evenly any more. If announced losses are always outrun, nothing is short, and as many go to spot as may.

Down at once, up slowly: it goes up six hours after it went down, and in a day by no more replicas than the workload
has. So a workload is moved at most twice a day as a whole, once up and once down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from placement.slots import Slots

STEPS = 20  # of 5 %
LARGEST = 19  # 95 %: some of a workload is always on what does not go
DAY_SECONDS = 86_400.0
SPENT = 0.95  # of what the target allows; the rest is for what is seen late
BORROWED_DAYS = 10.0
SAVED_DAYS = 30.0
COVERED_DAYS = 2.0  # of expected shortfall that must be there
RISE_SECONDS = 6 * 3600.0  # after a fall
MOST_TOGETHER = 6  # pools; more count as so many
OUTRUN_SECONDS = 1.0  # what is missed for less is not missed


@dataclass(frozen=True, slots=True)
class Service:
    """What a workload promises, and for how long it misses a lost replica."""

    replicas: int
    must_serve: int
    floor: int
    target: float
    missed_seconds: float

    @property
    def headroom(self) -> int:
        return max(0, self.replicas - self.must_serve)

    def spot(self, step: int) -> int:
        """How many are on spot, at so many twentieths."""
        return Slots(Fraction(step, STEPS), self.floor).spot(self.replicas)

    @property
    def safe(self) -> int:
        """The largest step that needs no assumption: without all spot, enough replicas serve."""
        return next(step for step in range(LARGEST, -1, -1) if self.spot(step) <= self.headroom)

    @property
    def daily_seconds(self) -> float:
        """Of shortfall that are spent in a day."""
        return (1.0 - self.target) * SPENT * DAY_SECONDS

    @property
    def is_outrun(self) -> bool:
        """Replacements serve before what was announced is gone."""
        return self.missed_seconds <= OUTRUN_SECONDS


@dataclass(frozen=True, slots=True)
class Hazard:
    """What to expect of the pools that a workload can use."""

    pools: int = 0  # that are there
    losses: float = 0.0  # of a pool, in a day, all pools together
    together: tuple[float, ...] = (1.0,)  # the share of losses that take one pool, two, three …

    @property
    def events(self) -> float:
        """In a day, where pools that go together count once."""
        return self.losses / math.fsum(pools * share for pools, share in enumerate(self.together, 1))


@dataclass(frozen=True, slots=True)
class AutoStanding:
    """What is remembered of a workload."""

    since: float  # when the first budget was borrowed; with all saved that can be, thirty days ago
    at: float  # until when all is counted
    short_seconds: float = 0.0  # spent, of all that accrued since
    step: int | None = None  # so many twentieths may be on spot; None: not decided yet
    fell: float = -math.inf
    rises: float = 0.0  # replicas that were moved up; a workload's size is taken off in a day

    def left(self, service: Service) -> float:
        return max(BORROWED_DAYS, (self.at - self.since) / DAY_SECONDS) * service.daily_seconds - self.short_seconds


class SpotLimit(StrEnum):
    """Why there is no more on spot, and what would allow more."""

    LARGEST = "the most that `auto` uses"  # the floor may leave less
    BUDGET = "past losses used up what the target allows, so only what can be lost at once; time allows more"
    STRICT = "one loss costs more than the target allows in a month; a lower target or a faster start would allow more"
    RISK = "more would risk the target; more pools, a lower min-available or a faster start would allow more"
    RISING = "it rises slowly after a loss; the next hours allow more"
    POOLS = "no spot pool is there; spot nodes would allow more"


def passed(standing: AutoStanding, service: Service, now: float, *, was_short: bool) -> AutoStanding:
    """With the time up to now."""
    elapsed = max(0.0, now - standing.at)
    short = standing.short_seconds + (elapsed if was_short else 0.0)
    rises = max(0.0, standing.rises - elapsed / DAY_SECONDS * service.replicas)
    after = replace(standing, at=max(now, standing.at), short_seconds=short, rises=rises)
    if after.left(service) <= SAVED_DAYS * service.daily_seconds:
        return after
    return replace(after, since=after.at - SAVED_DAYS * DAY_SECONDS, short_seconds=0.0)


def decided(standing: AutoStanding, service: Service, hazard: Hazard) -> tuple[AutoStanding, SpotLimit]:
    """With how much may be on spot from now on, and why no more."""
    now, known = standing.at, standing.step
    if not hazard.pools:
        return standing, SpotLimit.POOLS
    step, limit = bearable(service, hazard, standing.left(service))
    if known is None:
        return replace(standing, step=step), limit
    if service.spot(step) == service.spot(known):
        return standing, limit  # a small workload that grows begins with what it had
    if step < known:
        return replace(standing, step=step, fell=now), limit
    return _risen(standing, known, step, service, limit)


def _risen(
    standing: AutoStanding, known: int, wanted: int, service: Service, limit: SpotLimit
) -> tuple[AutoStanding, SpotLimit]:
    before = service.spot(known)
    most = before + int(service.replicas - standing.rises)
    step = next(step for step in range(wanted, known - 1, -1) if step == known or service.spot(step) <= most)
    if standing.at - standing.fell < RISE_SECONDS or step == known:
        return standing, SpotLimit.RISING
    rises = standing.rises + service.spot(step) - before
    return replace(standing, step=step, rises=rises), limit if step == wanted else SpotLimit.RISING


def bearable(service: Service, hazard: Hazard, left_seconds: float) -> tuple[int, SpotLimit]:
    """How many twentieths may be on spot with so much of the budget left."""
    spare = left_seconds - service.missed_seconds
    if spare <= 0:
        is_strict = service.missed_seconds >= SAVED_DAYS * service.daily_seconds
        return service.safe, SpotLimit.STRICT if is_strict else SpotLimit.BUDGET
    for step in range(LARGEST, service.safe, -1):
        if expected_short(service.spot(step), service, hazard) * COVERED_DAYS <= spare:
            return step, SpotLimit.LARGEST if step == LARGEST else SpotLimit.RISK
    return service.safe, SpotLimit.LARGEST if service.safe == LARGEST else SpotLimit.RISK


def expected_short(spot: int, service: Service, hazard: Hazard) -> float:
    """Seconds in a day."""
    if service.is_outrun or spot <= service.headroom:
        return 0.0
    parts = (
        share * breaking(pools, spot, hazard.pools, service.headroom) for pools, share in enumerate(hazard.together, 1)
    )
    return hazard.events * service.missed_seconds * math.fsum(parts)


@lru_cache(maxsize=65536)
def breaking(lost: int, spot: int, pools: int, headroom: int) -> float:
    """How likely the loss of so many of the pools takes more replicas than the headroom, if they are spread evenly.

    10 replicas over 4 pools are 3 3 2 2. With a headroom of 4, two pools hold more in five of six cases.
    """
    if spot > headroom * pools:
        return 1.0
    lost = min(lost, pools)
    each, larger = divmod(spot, pools)
    broken = sum(
        math.comb(larger, of_larger) * math.comb(pools - larger, lost - of_larger)
        for of_larger in range(max(0, lost - (pools - larger)), min(lost, larger) + 1)
        if lost * each + of_larger > headroom
    )
    return broken / math.comb(pools, lost)


def shares(counts: Iterable[float], prior: tuple[float, ...], weight: float) -> tuple[float, ...]:
    """Of losses that took one pool, two, three …; what was assumed before counts as so many losses."""
    known = [count + weight * share for count, share in zip(counts, prior, strict=True)]
    total = math.fsum(known)
    return tuple(each / total for each in known)
