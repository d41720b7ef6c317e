"""`spot-ratio: auto`: as much spot as the availability target bears.

Of n replicas m must serve, so h = n − m may be lost. s spot pods are spread evenly over P pools, the ones left over in
those that go most often. The pools that hold more than h are incidents, at their rates; the target bears so many
(`risk.bearable`: 99.9 % bears 4.32 in 30 days, 99.99 % bears 0.432). So with the rates in falling order, j of them
bearable together, there may be h pods in every pool and one more in j of them:

    most(n) = h·P + j       where j < P; else there is no bound

and the ratio is the largest multiple of 5 %, up to 95 %, that has no more spot pods than that. Ten replicas, eight must
serve, 4 pools that go once in 30 days each: at 99.99 % none is bearable, most = 2·4 + 0 = 8, which is 85 % (8 of 10).
At 99.9 % all four are: 95 %. With 2 pools and 99.99 %, most = 4, which is 45 %.

The answer is the most cautious over all sizes that count as one, so that an HPA does not change it with every replica.
Where a share must serve, these are the sizes from one power of two to the next: from 8 to 15, 75 % of which must serve,
2 pools, 99.99 %, the answers are 60, 55, 45, 45, 55, 50, 45 and 45 %; all of them get 45 %. Where it is a count, the
answer depends on the size by nature (8 of 8 bear no spot pod, 8 of 16 bear 16), and a power of two is cut into four: 8
and 9, 10 and 11, … 16 to 19. With 8 that must serve, 10 and 11 get 45 %, 12 and 13 get 70 %: the spot pods that come
with the size are mostly new ones, and few are moved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from placement.availability import needed_by
from placement.model import Budget, Kind, Rollout, Workload
from placement.observation import Rates
from placement.policy import Amount, Auto, Policy, needed
from placement.risk import bearable

STEPS = 20  # of 5 %
LARGEST = 19  # 95 %: some of a workload is always on what does not go
MOST_SIZES = 512  # that are tried


@dataclass(frozen=True, slots=True)
class Need:
    """The source of how many must serve, at any size."""

    kind: Kind
    rollout: Rollout
    declared: Amount | None
    budgets: tuple[tuple[int | str | None, int | str | None], ...] = ()  # minAvailable, maxUnavailable of each

    @property
    def is_share(self) -> bool:
        """It grows with the size; else it is a count, or all but a count."""
        if self.declared is not None:
            return self.declared.share is not None
        if self.budgets:
            return all(str(amount).endswith("%") for pair in self.budgets for amount in pair if amount is not None)
        return self.kind is Kind.DEPLOYMENT and str(self.rollout.max_unavailable).endswith("%")

    def of(self, replicas: int) -> int:
        workload = Workload(self.kind, "", "", "", replicas, rollout=self.rollout)
        budgets = (Budget("", "", min_available=least, max_unavailable=most) for least, most in self.budgets)
        return needed(Policy(min_available=self.declared), workload, needed_by(budgets, replicas))


def settled(policy: Policy, workload: Workload, budgets: Iterable[Budget], rates: Rates) -> Policy:
    """The policy with what `auto` comes to: what the leader chose; until then the first estimate; else as it is."""
    if policy.spot_ratio is not None:
        return policy
    chosen = rates.chosen_for(workload.uid)
    if chosen is not None:
        ratio = Fraction(chosen.step, STEPS)
        return replace(policy, auto=Auto(ratio, len(rates.pools), sum(rates.pools.values()), str(chosen.limit)))
    if not rates.pools:
        return policy
    asked = tuple((each.min_available, each.max_unavailable) for each in budgets)
    need = Need(workload.kind, workload.rollout, policy.min_available, asked)
    falling = rates.falling
    ratio = auto_ratio(workload.replicas, need, policy.min_on_demand, falling, policy.availability_target)
    return replace(policy, auto=Auto(ratio, len(falling), sum(falling)))


def auto_ratio(replicas: int, need: Need, floor: int, falling: tuple[float, ...], target: Fraction) -> Fraction:
    """The most cautious answer over the sizes that count as this one."""
    return _cautious(sizes(replicas, need), need, floor, falling, target)


def sizes(replicas: int, need: Need) -> range:
    """Those that share all but their lower bits: the first bit of a share, the first three of a count."""
    step = 1 << max(0, replicas.bit_length() - (1 if need.is_share else 3))
    least = replicas // step * step
    return range(least, least + step)


@lru_cache(maxsize=4096)
def _cautious(alike: range, need: Need, floor: int, falling: tuple[float, ...], target: Fraction) -> Fraction:
    """A sample if there are very many sizes: a mistyped spec.replicas must not block other workloads."""
    tried = (*alike[:: max(1, len(alike) // MOST_SIZES)], alike[-1])
    return min(ratio_at(size, need.of(size), floor, falling, target) for size in tried)


def ratio_at(replicas: int, must_serve: int, floor: int, falling: tuple[float, ...], target: Fraction) -> Fraction:
    """For one size, with the pools' rates in falling order."""
    most = most_spot(replicas - must_serve, falling, target)
    if most is None or replicas - min(floor, replicas) <= most:
        return Fraction(LARGEST, STEPS)
    return Fraction(min(LARGEST, (STEPS * (most + 1) - 1) // replicas), STEPS)


def most_spot(headroom: int, falling: tuple[float, ...], target: Fraction) -> int | None:
    """How many spot pods may be spread over the pools; None: any number."""
    left = bearable(float(target))
    for extra, rate in enumerate(falling):
        left -= rate
        if left < 0:
            return max(0, headroom) * len(falling) + extra
    return None
