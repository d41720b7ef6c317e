"""The view: the result of one pass of the rebalancer, with what people and Prometheus need computed once.

`dashboard.viewer` decides when one is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from placement.gang.gang import Gang
from placement.model import NO_AMOUNTS, Key, Namespace, Pod
from placement.observation import NOTHING_OBSERVED, Observed
from placement.outage import Outage
from placement.pause import Pause
from placement.plan.actions import Plan
from placement.plan.assess import Assessment
from placement.plan.ground import Ground, Sites
from placement.plan.losses import Lost
from placement.plan.neighbours import Neighbours, tenants_in
from placement.plan.storage import Storage
from placement.skipped import SkipCounts
from report.gangview import GangView, victims_of
from report.held import HeldEviction, Holding
from report.nodepools import Floor
from report.queue import QueuedGang, in_order, queue_of
from report.savings import Prices, Rate, Savings
from report.status import WorkloadStatus
from report.workloadview import Totals, WorkloadView

HeldByWorkload = Mapping[tuple[str, str, str], tuple[HeldEviction, ...]]  # by the workload's key; those that have any

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
    skipped: SkipCounts  # pods that are not placed
    storage: Storage | None = None  # where volumes can be used
    gangs: Mapping[Key, Gang] = field(default_factory=dict)  # all of them; `plan` has what those that wait wait for
    marked: Mapping[str, Pod] = field(default_factory=dict)  # by UID: pods that are to make room for a gang


@dataclass(frozen=True)
class View:
    """All that is shown, as of one moment. Views of the same number differ in nothing but that moment."""

    number: int
    taken: Taken
    seen: tuple[WorkloadView, ...]  # in the order of namespace, kind and name
    totals: Totals
    rates: Mapping[str, Rate]
    savings: Savings
    floor: Floor
    paused: Pause | None
    observed: Observed = NOTHING_OBSERVED
    held: HeldByWorkload = field(default_factory=dict)

    @property
    def stamp(self) -> tuple[int, float]:
        """What tells views apart. Caches keep it instead of the view, which holds the whole cluster."""
        return self.number, self.taken.at

    @property
    def sites(self) -> Sites:
        return self.taken.ground.sites

    def used(self, node: str) -> Mapping[str, int]:
        return self.taken.used.get(node, NO_AMOUNTS)

    def neighbours(self, ground: Ground) -> Neighbours:
        """Which pods share a node, on the remaining nodes."""
        return Neighbours(ground, tenants_in(self.taken.pods, self.taken.namespaces, self.taken.storage))

    def status(self, seen: WorkloadView) -> WorkloadStatus:
        found = seen.status(self.sites, self.observed)
        held = self.held.get(seen.key)
        return found if held is None else replace(found, held=held)

    def reason(self, seen: WorkloadView) -> str:
        return seen.reason(self.sites, self.observed)

    @cached_property
    def queue(self) -> tuple[QueuedGang, ...]:
        """All gangs, those first that somebody has to look at."""
        return in_order(queue_of(self.taken.plan.gangs, self.taken.gangs, self.taken.at))

    def gang(self, key: Key) -> GangView | None:
        found = next((each for each in self.queue if each.status.gang.key == key), None)
        if found is None:
            return None
        victims = victims_of(found.status, self.taken.marked.values())
        return GangView(found, self.sites, victims, self.observed)

    @cached_property
    def by_key(self) -> Mapping[tuple[str, str, str], WorkloadView]:
        return {each.key: each for each in self.seen}


def held_among(seen: Iterable[WorkloadView], holding: Holding) -> HeldByWorkload:
    """The evictions by others that are held now."""
    found = ((each.key, each.held(holding)) for each in seen if each.noted)
    return {key: held for key, held in found if held}
