"""How good a place is for a gang: how often it would be lost there, and whether that is good enough for spot.

Of the pools that hold a gang, the ones that are lost least are chosen (`placement.plan.whole`). With
`availability-target`, spot must offer such a chance to survive (`placement.gang.survival`), or the next class is taken.

Example: eight members on four nodes of one spot pool, which was never watched, run for two days: chance 91 %. Over two
such pools, two nodes each, it is 85.2 %. On four on-demand nodes: 99.7 %. With a target of 90 % the first will do, and
the second will not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from placement.gang.survival import survival
from placement.gang.terms import GangTerms
from placement.observation import NOTHING_OBSERVED, Observed
from placement.plan.ground import Site


@dataclass(frozen=True, slots=True)
class Odds:
    """What is known of losses, how long the gang will run, and which chance is good enough for spot."""

    observed: Observed = NOTHING_OBSERVED
    runtime: timedelta | None = None
    target: float | None = None

    def pool_rate(self, site: Site) -> float:
        """Of the pool alone that the node is in; on-demand is lost node by node."""
        return self.observed.of(site.spot_pool).rate if site.spot_pool else 0.0

    def chance(self, sites: Iterable[Site]) -> float | None:
        """None: it is not said for how long the gang will run."""
        return survival(sites, self.observed, self.runtime).chance

    def too_small(self, sites: Iterable[Site]) -> float | None:
        """The chance there, if the gang asks for a better one."""
        found = self.chance(sites)
        return found if found is not None and self.target is not None and found < self.target else None


NO_ODDS = Odds()


def odds_of(terms: GangTerms, observed: Observed) -> Odds:
    target = terms.availability_target
    return Odds(observed, terms.expected_runtime, None if target is None else float(target))


def share(chance: float) -> str:
    """`91.1 %`; what is nearly certain is not rounded up to that."""
    shown = math.floor(chance * 1000) / 10 if chance < 1 else 100.0
    return f"{shown:g} %"
