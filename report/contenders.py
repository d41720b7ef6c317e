"""What is compared in a replay: `auto`, fixed ratios and floors, a cap of each pool, and one that knows the future."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from placement.bursts import hazard
from placement.observation import Interruption, Observed, Watch, extended
from placement.policy import percent
from placement.promise import STEPS, AutoStanding, Service, decided, passed
from placement.slots import Slots
from report.fleet import ReplayTerms, RoomChange, RoomLoss, changes_of
from report.replay import PoolSight, Replayer, ReplayOutcome
from report.trace import UNLIMITED, Trace

TICK_SECONDS = 3600.0
MOST_FLOORS = 20
MOST_COUNTED = 40  # instances of a pool


@dataclass(frozen=True, slots=True)
class FixedSpot:
    """So many on spot, whatever happens."""

    spot: int

    def wanted(self, sight: PoolSight) -> int:
        return self.spot

    def again_at(self) -> float:
        return float("inf")


@dataclass(frozen=True, slots=True)
class CappedSpot:
    """No pool holds more than the headroom."""

    headroom: int

    def wanted(self, sight: PoolSight) -> int:
        return self.headroom * len(sight.live)

    def again_at(self) -> float:
        return float("inf")


class AutoReplayed:
    """`spot-ratio: auto` as the leader decides it, with what it would have observed until then."""

    def __init__(self, terms: ReplayTerms, start: float) -> None:
        self._service = service_of(terms)
        self._standing = AutoStanding(start, start)
        self._observed = Observed()
        self._watched: Counter[str] = Counter()  # seconds that are not in the observations yet
        self._live: Sequence[int] = ()
        self._written = start
        self._was_short = False

    def wanted(self, sight: PoolSight) -> int:
        for pool in self._live:
            self._watched[str(pool)] += sight.now - self._standing.at  # type: ignore[assignment]
        if sight.losses or sight.now >= self._written + TICK_SECONDS:
            self._write(sight)
        standing = passed(self._standing, self._service, sight.now, was_short=self._was_short)
        self._was_short, self._live = sight.short, sight.live
        rates = {pool: self._observed.of(pool).rate for pool in map(str, sight.live)}
        self._standing, _ = decided(standing, self._service, hazard(rates, self._observed.bursts, sight.now))
        step = self._standing.step
        return self._service.spot(self._service.safe if step is None else step)

    def again_at(self) -> float:
        return self._standing.at + TICK_SECONDS

    def _write(self, sight: PoolSight) -> None:
        """As the leader does: all instances that go are interruptions."""
        watches = {pool: Watch(seconds, seconds) for pool, seconds in self._watched.items()}
        lost = [Interruption(str(each.pool), had, sight.now) for each in sight.losses for had in _instances(each)]
        self._observed = extended(self._observed, watches, lost, sight.now)
        self._watched.clear()
        self._written = sight.now


def service_of(terms: ReplayTerms) -> Service:
    return Service(terms.replicas, terms.must_serve, terms.floor, terms.target, terms.missed_seconds)


def _instances(loss: RoomLoss) -> Iterator[int]:
    """What the pool had, for each instance that went. Room without limit goes as a whole; of many a part stands."""
    if loss.had >= UNLIMITED:
        yield 1
        return
    had = min(loss.had, MOST_COUNTED)
    for _ in range(max(1, loss.gone * had // loss.had)):
        yield had


class TriedPolicy(NamedTuple):
    """A policy and what came of it."""

    policy: str
    outcome: ReplayOutcome


class OmniscientShare(NamedTuple):
    """Is on spot as far as there is any, leaves each pool just before it goes, and pays for no move."""

    share: float
    cost: float


class TraceTrial:
    """A trace on which contenders are tried."""

    def __init__(self, trace: Trace, terms: ReplayTerms) -> None:
        self._trace = trace
        self._terms = terms
        self._changes: Sequence[RoomChange] = changes_of(trace, terms.notice_seconds)

    def auto(self) -> ReplayOutcome:
        return self._run(AutoReplayed(self._terms, self._trace.start))

    def fixed(self, ratio: Fraction) -> ReplayOutcome:
        return self._run(FixedSpot(self._spot(ratio)))

    def _spot(self, ratio: Fraction) -> int:
        return Slots(ratio, self._terms.floor).spot(self._terms.replicas)

    def _run(self, chooser: AutoReplayed | FixedSpot | CappedSpot) -> ReplayOutcome:
        pools = len(self._trace.pools)
        return Replayer(self._changes, pools, self._terms, chooser).run(self._trace.start, self._trace.end)

    def omniscient(self) -> OmniscientShare:
        terms, trace = self._terms, self._trace
        turns = sorted(
            (at, number, room) for number, pool in enumerate(trace.pools) for at, room in trace.changes(pool)
        )
        rooms: Counter[int] = Counter()
        spot, before = 0.0, trace.start
        for at, number, room in turns:
            spot += min(terms.most_spot, rooms.total()) * (at - before)
            rooms[number], before = room, at
        share = spot / (terms.replicas * trace.seconds)
        return OmniscientShare(share, 1.0 - share * (1.0 - terms.price))

    def contenders(self) -> list[TriedPolicy]:
        """FixedSpot ratios in steps of 5 %, floors, and the cap; of those that come to the same, the first."""
        terms, firsts = self._terms, dict[int, str]()
        for step in range(STEPS + 1):
            firsts.setdefault(self._spot(Fraction(step, STEPS)), f"spot-ratio {5 * step}%")
        for floor in range(terms.floor, terms.replicas, 1 + terms.replicas // MOST_FLOORS):
            firsts.setdefault(terms.replicas - floor, f"min-on-demand {floor}")
        fixed = [TriedPolicy(policy, self._run(FixedSpot(spot))) for spot, policy in firsts.items()]
        return [*fixed, TriedPolicy("pool cap", self._run(CappedSpot(terms.headroom)))]


def hindsight(contenders: Iterable[TriedPolicy], target: float) -> TriedPolicy:
    """The cheapest that meets the target. All on on-demand always does."""
    return min((each for each in contenders if each.outcome.meets(target)), key=lambda each: each.outcome.cost)


@dataclass(frozen=True, slots=True)
class Replay:
    """A policy on a trace, and what it is compared with."""

    pools: int
    target: float
    asked: TriedPolicy
    auto: TriedPolicy
    omniscient: OmniscientShare
    contenders: tuple[TriedPolicy, ...]

    @property
    def hindsight(self) -> TriedPolicy:
        return hindsight(self.contenders, self.target)

    @property
    def is_met(self) -> bool:
        return self.asked.outcome.meets(self.target)

    @property
    def raw(self) -> dict[str, Any]:
        best = _raw(self.hindsight)
        return {
            "policy": self.asked.policy,
            "pools": self.pools,
            "days": round(self.asked.outcome.days, 3),
            "target": self.target,
            "targetMet": self.is_met,
            **_raw(self.asked),
            "omniscient": {"share": round(self.omniscient.share, 4), "cost": round(self.omniscient.cost, 4)},
            "hindsight": {key: best[key] for key in ("policy", "share", "cost", "availability")},
        }

    @property
    def compared(self) -> list[dict[str, Any]]:
        return [{**_raw(each), "targetMet": each.outcome.meets(self.target)} for each in (self.auto, *self.contenders)]


def _raw(each: TriedPolicy) -> dict[str, Any]:
    found = each.outcome
    return {
        "policy": each.policy,
        "share": round(found.share, 4),
        "cost": round(found.cost, 4),
        "availability": round(found.availability, 7),
        "incidentsPer30Days": round(found.monthly(found.incidents), 2),
        "shortfallMinutesPer30Days": round(found.monthly(found.short_seconds / 60), 2),
        "movesPerDay": round(found.moves / found.days, 2),
    }


def replayed(trace: Trace, terms: ReplayTerms, ratio: Fraction | None) -> Replay:
    """With a ratio, or `auto`."""
    course = TraceTrial(trace, terms)
    auto = TriedPolicy("auto", course.auto())
    asked = auto if ratio is None else TriedPolicy(f"spot-ratio {percent(ratio)}", course.fixed(ratio))
    return Replay(len(trace.pools), terms.target, asked, auto, course.omniscient(), tuple(course.contenders()))
