"""The view: what one pass of the rebalancer left, with what people and Prometheus ask of it worked out once.

Who makes it, and when, is `dashboard.viewer`'s matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from placement.model import NO_AMOUNTS, Namespace, Pod
from placement.observation import NOTHING_OBSERVED, Observed
from placement.outage import Outage
from placement.pause import Pause
from placement.plan.actions import Plan
from placement.plan.assess import Assessment
from placement.plan.group import Ground
from placement.plan.losses import Lost
from placement.plan.neighbours import Neighbours, tenants_in
from report.exposure import Place
from report.nodepools import Floor
from report.savings import Prices, Rate, Savings
from report.status import WorkloadStatus
from report.workloadview import Totals, WorkloadView

NO_PRICES = Prices()
TAKE_SECONDS = 1.0
LASTS_SECONDS = 1.0  # a view lasts so long, however many passes there are


@dataclass(frozen=True, slots=True)
class Taken:
    """What a pass left, as of one moment."""

    at: float
    plan: Plan
    outages: tuple[Outage, ...]  # that stand
    version: int  # of the index
    assessments: Mapping[str, Assessment]  # by the workload's UID
    namespaces: Mapping[str, Namespace]
    ground: Ground
    lost: Lost
    used: Mapping[str, Mapping[str, int]]  # by node: what its pods ask for
    failing: int  # workloads that could not be assessed
    pods: Mapping[str, Sequence[Pod]]  # by node, of everybody


@dataclass(frozen=True)
class View:
    """All that is shown, as of one moment. Views of the same number differ in nothing but that moment."""

    number: int
    taken: Taken
    seen: tuple[WorkloadView, ...]  # in the order of namespace, kind and name
    totals: Totals
    places: Mapping[str, Place]
    rates: Mapping[str, Rate]
    savings: Savings
    floor: Floor
    paused: Pause | None
    observed: Observed = NOTHING_OBSERVED

    def used(self, node: str) -> Mapping[str, int]:
        return self.taken.used.get(node, NO_AMOUNTS)

    def neighbours(self, ground: Ground) -> Neighbours:
        """Who is beside whom, on the nodes that are left."""
        return Neighbours(ground, tenants_in(self.taken.pods, self.taken.namespaces))

    def status(self, seen: WorkloadView) -> WorkloadStatus:
        return seen.status(self.places, self.observed)

    def reason(self, seen: WorkloadView) -> str:
        return seen.reason(self.places, self.observed)

    @cached_property
    def by_key(self) -> Mapping[tuple[str, str, str], WorkloadView]:
        return {each.key: each for each in self.seen}
