"""Workloads as people see them, and their sums. What the sums need is computed with few steps per pod. The rest, such
as why each pod is where it is, is computed when that workload is requested.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from placement import names
from placement.model import Pod
from placement.observation import Observed
from placement.plan.assess import Assessment
from placement.plan.ground import Sites
from placement.plan.marks import moved
from placement.policy import Mistake
from placement.slots import Mix
from report.exposure import Domain, Exposure
from report.held import HeldEviction, Holding, noted
from report.savings import Savings
from report.status import WorkloadStatus, status_of


@dataclass(eq=False)
class WorkloadView:
    """A workload: what it needs, how it stands, and which losses it would not survive."""

    assessment: Assessment
    exposure: Exposure
    savings: Savings
    _reason: str | None = field(default=None, init=False)

    def status(self, sites: Sites, observed: Observed) -> WorkloadStatus:
        """As `spotweave status` shows it. It is not kept: with all its pods it takes more memory than all the rest."""
        group = self.assessment.group
        pods = (pod for cohort in group.cohorts for pod in (*cohort.pods, *cohort.let_go))
        return status_of(group, group.revisions, pods, sites, observed)

    def held(self, holding: Holding) -> tuple[HeldEviction, ...]:
        """Its pods whose eviction waits now."""
        return holding.of(self.assessment.group, self._all_pods) if self.noted else ()

    def reason(self, sites: Sites, observed: Observed) -> str:
        """Why it stands as it does; kept, since tables are ordered by it."""
        if self._reason is None:
            self._reason = self.status(sites, observed).reason
        return self._reason

    @cached_property
    def key(self) -> tuple[str, str, str]:
        workload = self.assessment.group.workload
        return (workload.namespace, str(workload.kind), workload.name)

    @property
    def actual(self) -> Mix:
        return self.assessment.actual

    @property
    def wanted(self) -> Mix:
        return self.assessment.wanted

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        return self.assessment.group.mistakes

    @cached_property
    def soft(self) -> int:
        return sum(names.SOFT in member.pod.annotations for member in self.assessment.members)

    @cached_property
    def missed(self) -> int:
        unknown = (member.pod for member in self.assessment.members if member.written is None)
        return sum(pod.decision_id is None for pod in unknown)

    @cached_property
    def perils(self) -> tuple[Domain, ...]:
        return tuple(domain for domain in Domain if not self.exposure.survives(domain))

    @cached_property
    def peril(self) -> tuple[object, ...]:
        """Declared before assumed; the smaller the loss that is too much, the worse."""
        return (self.exposure.is_assumed, list(Domain).index(self.perils[0]), self.exposure.headroom, self.key)

    @cached_property
    def noted(self) -> tuple[Pod, ...]:
        """Pods whose eviction somebody has asked for, released ones among them."""
        return tuple(noted(self._all_pods))

    @property
    def _all_pods(self) -> tuple[Pod, ...]:
        return tuple(pod for each in self.assessment.group.cohorts for pod in (*each.pods, *each.released))

    @cached_property
    def moved_at(self) -> float | None:
        """When one of its pods last took the place of another that was moved."""
        marks = (moved(member.pod) for member in self.assessment.members)
        return max((mark.at for mark in marks if mark is not None), default=None)

    @cached_property
    def tally(self) -> tuple[int, ...]:
        """What the overview sums up, in the order of `Totals`."""
        dreads, none = [domain in self.perils for domain in Domain], [False] * len(Domain)
        return (
            self.actual.spot,
            self.actual.on_demand,
            self.wanted.spot,
            self.wanted.on_demand,
            int(self.actual == self.wanted),
            self.soft,
            self.missed,
            int(bool(self.mistakes)),
            *(none if self.exposure.is_assumed else dreads),
            *(dreads if self.exposure.is_assumed else none),
        )


class Totals(NamedTuple):
    """Sums over all workloads."""

    spot: int = 0
    on_demand: int = 0
    wanted_spot: int = 0
    wanted_on_demand: int = 0
    exact: int = 0
    soft: int = 0
    missed: int = 0
    mistaken: int = 0
    declared: tuple[int, ...] = (0,) * len(Domain)  # would not survive the loss of a domain
    assumed: tuple[int, ...] = (0,) * len(Domain)

    def changed(self, new: Iterable[tuple[int, ...]], old: Iterable[tuple[int, ...]]) -> Totals:
        """With the tallies of these workloads, and without those: few have changed since the last time."""
        sums = [*self[:-2], *self.declared, *self.assumed]
        for sign, each in (*((1, each) for each in new), *((-1, each) for each in old)):
            sums = [total + sign * count for total, count in zip(sums, each, strict=True)]
        plain, losses = sums[: -2 * len(Domain)], sums[-2 * len(Domain) :]
        return Totals._make((*plain, tuple(losses[: len(Domain)]), tuple(losses[len(Domain) :])))
