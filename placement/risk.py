"""Risk: how often a workload is expected to fall below what must serve, and for which part of the time.

The expected losses of a pool in 30 days, from the time watched and the observed losses, are

    (losses + prior · 10 days / 30 days) / (days watched + 10 days) · 30 days

The prior is weak: it counts as much as ten days of observation. It keeps an unobserved pool from counting as safe: one
loss of a pool in 30 days, a tenth of that for a single spot node. Never watched: 1. Watched for 30 days without a loss:
(0 + 1/3) / 40 · 30 = 0.25; with three losses: 2.5. On-demand nodes are not watched: each is assumed to fail 0.01 times
in 30 days, about once in eight years.

    incidents per 30 days = Σ rate, over pools and single nodes whose loss leaves fewer than m
    P(available < m)      = incidents · time to recover / 30 days

The workload of `report.exposure`, ten replicas of which eight must serve, headroom 2:

    pool zone-a/m5 3 (all on node a1)    pool zone-b/m5 2+1    pool zone-c/c5 1    on-demand 1+1+1

Too much are pool zone-a/m5, pool zone-b/m5 and node a1. Nothing watched yet: 1 + 1 + 0.1 = 2.1 incidents, and with
ten minutes to recover P = 2.1 · 600 s / 2,592,000 s = 0.000486.

It is an estimate of first order. Pools and nodes are taken to go one at a time and independently of each other, as
often as they did, from where the pods are now; two at once, a whole zone and rollouts are left out. The time to recover
is not observed: ten minutes stand for a notice that was missed, a new node, and the start of the pods on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

MONTH_HOURS = 30 * 24.0
PRIOR_HOURS = 10 * 24.0
POOL_PRIOR = 1.0  # losses of a pool in 30 days
NODE_PRIOR = 0.1  # losses of one spot node in 30 days, without its pool
ON_DEMAND_NODE_RATE = 0.01  # the same of an on-demand node
RECOVERY_SECONDS = 600.0
DAY_HOURS = 24.0


def monthly(losses: float, hours: float, prior: float) -> float:
    """Losses per 30 days, of what was lost so many times in so many hours."""
    return (losses * MONTH_HOURS + prior * PRIOR_HOURS) / (hours + PRIOR_HOURS)


class Peril(NamedTuple):
    """A pool or a single node: how often it goes in 30 days, and the replicas that go with it."""

    rate: float
    replicas: int


@dataclass(frozen=True, slots=True)
class Risk:
    """What is expected of a workload, and for how long the least known of its pools was watched."""

    incidents: float = 0.0  # per 30 days
    unavailability: float = 0.0  # P(available < m)
    hours: float = 0.0

    @property
    def rests_on(self) -> str:
        """`observed 12 days`; `assumed` before the first day is over, and where there is no pool to watch."""
        days = int(self.hours / DAY_HOURS)
        if days < 1:
            return "assumed"
        return "observed 1 day" if days == 1 else f"observed {days} days"

    def explain(self) -> str:
        """`2.1 incidents expected in 30 days, below min-available for 0.0486% of the time (assumed)`."""
        share = f"for {self.unavailability * 100:.3g}% of the time" if self.unavailability < 1 else "now"
        return f"{self.incidents:.3g} incidents expected in 30 days, below min-available {share} ({self.rests_on})"

    @property
    def raw(self) -> dict[str, Any]:
        return {
            "incidentsPer30Days": round(self.incidents, 4),
            "unavailability": round(self.unavailability, 8),
            "restsOn": self.rests_on,
        }


NO_RISK = Risk()


def risk(perils: Iterable[Peril], headroom: int, hours: float = 0.0) -> Risk:
    """Of a workload that may lose so many replicas. One that has fewer than must serve already is unavailable now."""
    incidents = math.fsum(peril.rate for peril in perils if peril.replicas > max(0, headroom))
    return Risk(incidents, 1.0 if headroom < 0 else unavailability(incidents), hours)


def unavailability(incidents: float) -> float:
    """The part of the time that so many incidents in 30 days take."""
    return min(1.0, incidents * RECOVERY_SECONDS / (MONTH_HOURS * 3600))


def bearable(target: float) -> float:
    """The incidents in 30 days that an availability of this much has room for: 99.9 % bears 4.32."""
    return (1.0 - target) * MONTH_HOURS * 3600 / RECOVERY_SECONDS
