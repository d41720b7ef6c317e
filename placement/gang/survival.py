"""The chance that a gang keeps all of its nodes for as long as it runs.

A gang dies with its first member. So every spot pool and every node that it touches counts, each by its rate: losses in
30 days (`placement.risk`).

    chance = exp(-Σ rate · run time / 30 days)

Example: 8 members on 4 nodes of one spot pool, which was never watched (rates 1 and 0.1), for 12 hours:
exp(-(1 + 4 · 0.1) · 12 / 720) = 97.7 %. On two pools it is exp(-(2 + 0.4) · 12 / 720) = 96.1 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from placement.observation import Observed
from placement.plan.ground import Site
from placement.risk import MONTH_HOURS


@dataclass(frozen=True, slots=True)
class Survival:
    """What is lost in 30 days of the pools and nodes that a gang touches, and the chance that it ends before that."""

    losses: float  # in 30 days
    runtime: timedelta | None = None  # as declared
    pools: tuple[str, ...] = ()  # of spot

    @property
    def chance(self) -> float | None:
        """None: nothing says for how long it runs."""
        return None if self.runtime is None else self.chance_for(self.runtime)

    def chance_for(self, runtime: timedelta) -> float:
        return math.exp(-self.losses * runtime.total_seconds() / 3600 / MONTH_HOURS)


def survival(sites: Iterable[Site], observed: Observed, runtime: timedelta | None) -> Survival:
    """Of a gang on these nodes."""
    there = {site.name: site for site in sites}.values()
    pools = sorted({site.spot_pool for site in there if site.spot_pool})
    rates = [*(observed.of(pool).rate for pool in pools), *(observed.node_rate(site.spot_pool) for site in there)]
    return Survival(math.fsum(rates), runtime, tuple(pools))
