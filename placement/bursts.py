"""Bursts: how much more often pools go soon after a loss, and how many go together.

On real traces a pool goes several times as often in the six hours after a loss, and the zones of a region go together
far more often than by chance. So a pool has two rates. The slow one (`observation.PoolRecord.rate`) is the average of
up to ninety days. The fast one counts the losses of the last hours, each for e^(−t / 6 h), and is held to the slow one
as if that had been watched for a day:

    rate now = (recent losses + slow rate · 1 day) / (6 h + 1 day)

A pool with a loss in ten days has 0.1 · 1 / 1.25 = 0.08 a day while it is quiet, and (1 + 0.1) / 1.25 = 0.88 a day just
after a loss. Pools that go within five minutes are one event. Before any was seen, 80 % of events are taken to hit one
pool; this counts as five events.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from placement.promise import DAY_SECONDS, MOST_TOGETHER, Hazard, shares

FAST_DAYS = 0.25
HELD_DAYS = 1.0
MONTH_DAYS = 30.0
TOGETHER_SECONDS = 300.0
FADING_SECONDS = 30 * DAY_SECONDS
FADED_SECONDS = 3 * DAY_SECONDS  # e^-12 of a loss is left
ASSUMED = (0.8, 0.1, 0.05, 0.03, 0.01, 0.01)
ASSUMED_EVENTS = 5.0


@dataclass(frozen=True, slots=True)
class Recent:
    """The losses of a pool in the last hours, as of the latest."""

    losses: float
    at: float

    def faded(self, now: float) -> float:
        return self.losses * math.exp(-max(0.0, now - self.at) / (FAST_DAYS * DAY_SECONDS))


@dataclass(frozen=True, slots=True)
class Bursts:
    """The latest losses of pools, and how many pools went together."""

    recent: Mapping[str, Recent] = field(default_factory=dict)
    together: tuple[float, ...] = (0.0,) * MOST_TOGETHER
    began: float = 0.0  # the latest event
    lost: frozenset[str] = frozenset()  # in it

    def of(self, pool: str, now: float) -> float:
        known = self.recent.get(pool)
        return known.faded(now) if known is not None else 0.0


NO_BURSTS = Bursts()


def with_loss(bursts: Bursts, pool: str, now: float) -> Bursts:
    """With one more lost pool."""
    recent = {**bursts.recent, pool: Recent(bursts.of(pool, now) + 1.0, now)}
    if abs(now - bursts.began) < TOGETHER_SECONDS and bursts.lost:
        lost = bursts.lost | {pool}
        counts = _counted(_counted(bursts.together, len(bursts.lost), -1.0), len(lost), 1.0)
        return replace(bursts, recent=recent, together=counts, lost=lost)
    fade = math.exp(-max(0.0, now - bursts.began) / FADING_SECONDS)
    counts = _counted(tuple(count * fade for count in bursts.together), 1, 1.0)
    return Bursts(recent, counts, now, frozenset((pool,)))


def _counted(counts: tuple[float, ...], pools: int, by: float) -> tuple[float, ...]:
    number = min(pools, MOST_TOGETHER) - 1
    return (*counts[:number], max(0.0, counts[number] + by), *counts[number + 1 :])


def hazard(rates: Mapping[str, float], bursts: Bursts, now: float) -> Hazard:
    """Of these pools, with their losses in 30 days."""
    losses = math.fsum(_daily(rate, bursts.of(pool, now)) for pool, rate in rates.items())
    return Hazard(len(rates), losses, shares(bursts.together, ASSUMED, ASSUMED_EVENTS))


def _daily(rate: float, recent: float) -> float:
    return (recent + rate / MONTH_DAYS * HELD_DAYS) / (FAST_DAYS + HELD_DAYS)


def bounded(bursts: Bursts, now: float) -> Bursts:
    """Without what has faded."""
    kept = {pool: each for pool, each in bursts.recent.items() if now < each.at + FADED_SECONDS}
    return bursts if len(kept) == len(bursts.recent) else replace(bursts, recent=kept)


# --- text ------------------------------------------------------------------------------------------------------------


def raw_bursts(bursts: Bursts) -> dict[str, Any]:
    return {
        "recent": {pool: [round(each.losses, 4), round(each.at)] for pool, each in sorted(bursts.recent.items())},
        "together": [round(count, 4) for count in bursts.together],
        "began": round(bursts.began),
        "lost": sorted(bursts.lost),
    }


def parse_bursts(raw: dict[str, Any]) -> Bursts:
    recent = {str(pool): Recent(_amount(losses), _amount(at)) for pool, (losses, at) in raw["recent"].items()}
    together = tuple(map(_amount, raw["together"]))
    if len(together) != MOST_TOGETHER:
        raise ValueError(f"together is no list of {MOST_TOGETHER} amounts")
    return Bursts(recent, together, _amount(raw["began"]), frozenset(map(str, raw["lost"])))


def _amount(raw: Any) -> float:
    amount = float(raw)
    if not 0 <= amount < math.inf:
        raise ValueError(f"{raw!r} is no amount")
    return amount
