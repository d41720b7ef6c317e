"""Workloads as people see them, and their sums. What thousands are summed up by is worked out with few steps for each
pod; the rest, such as why each pod is where it is, when somebody asks for that very workload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from placement import names
from placement.observation import Observed
from placement.plan.assess import Assessment
from placement.plan.group import moved
from placement.policy import Mistake
from placement.slots import Mix
from report.exposure import Domain, Exposure, Place
from report.savings import Savings
from report.status import WorkloadStatus, status_of


@dataclass(eq=False)
class WorkloadView:
    """A workload: what it needs, how it stands, and which losses it would not survive."""

    assessment: Assessment
    exposure: Exposure
    savings: Savings
    _reason: str | None = field(default=None, init=False)

    def status(self, where: Mapping[str, Place], observed: Observed) -> WorkloadStatus:
        """As `spotweave status` tells it. It is not kept: with all its pods it takes more room than all the rest."""
        group = self.assessment.group
        pods = (pod for cohort in group.cohorts for pod in (*cohort.pods, *cohort.let_go))
        return status_of(group, group.revisions, pods, where, observed)

    def reason(self, where: Mapping[str, Place], observed: Observed) -> str:
        """Why it stands as it does; kept, since tables are ordered by it."""
        if self._reason is None:
            self._reason = self.status(where, observed).reason
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

    def changed(self, new: Sequence[WorkloadView], old: Sequence[WorkloadView]) -> Totals:
        """With these workloads, and without those: few have changed since the last time."""
        sums = [*self[:-2], *self.declared, *self.assumed]
        for sign, each in (*((1, each) for each in new), *((-1, each) for each in old)):
            sums = [total + sign * count for total, count in zip(sums, each.tally, strict=True)]
        plain, losses = sums[: -2 * len(Domain)], sums[-2 * len(Domain) :]
        return Totals._make((*plain, tuple(losses[: len(Domain)]), tuple(losses[len(Domain) :])))
