"""The dashboard over a snapshot that a test gives, without a rebalancer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dashboard.access import LOOPBACK, Guard
from dashboard.answercache import AnswerCache
from dashboard.server import LIMITS, PageServer
from dashboard.viewer import Around, Viewer
from placement.configuration import Configuration
from placement.model import Node, Snapshot
from placement.observation import NOTHING_OBSERVED, Observed
from placement.outage import Outages
from placement.outcome import Outcome
from placement.pause import Pause
from placement.plan.actions import Action, Plan
from placement.plan.scene import Scene
from placement.plan.select import plan
from rebalancer.index import Index
from report.history import History
from tests.builders.model import NOW
from tests.builders.snapshots import NODES, SHOP
from tests.serving.client import Visitor


@dataclass
class DashboardHarness:
    """The dashboard over an index, with a clock that stands still."""

    index: Index = field(default_factory=lambda: Index(Configuration()))
    history: History = field(default_factory=History)
    guard: Guard = field(default_factory=Guard)
    now: float = NOW
    is_leading: bool = True
    is_synced: bool = True
    outages: Outages = field(default_factory=Outages)
    pause: Pause | None = None
    observed: Observed = NOTHING_OBSERVED

    def __post_init__(self) -> None:
        around = Around(
            lambda: self.is_leading,
            lambda: self.is_synced,
            lambda: self.outages,
            lambda: self.pause,
            lambda: self.now,
            lambda: self.observed,
        )
        self.viewer = Viewer(self.index, around)
        self.cache = AnswerCache(self.viewer, self.history)
        self.client = Visitor(PageServer(self.cache, self.guard).answer, LIMITS)

    def sees(self, seen: Snapshot) -> None:
        for each in (
            seen.namespaces.values(),
            seen.nodes.values(),
            seen.workloads,
            seen.replica_sets,
            seen.pods,
            seen.others,
        ):
            for fact in each:
                self.index.observe(None, fact)
        for budget in seen.budgets:
            self.index.observe(None, budget)
        self.index.observe(None, self.observed.rates)

    def passes(self, done: Sequence[tuple[Action, Outcome | None]] = ()) -> Plan:
        """One pass of the loop, as the rebalancer makes it."""
        self.index.drain()
        self.index.refresh(self.now)
        index = self.index
        made = plan(
            Scene(
                index.restless(),
                index.ground,
                index.used,
                self.now,
                is_paused=self.pause is not None,
                neighbours=index.neighbours,
                gangs=index.restless_gangs(),
                nominated=index.nominated,
                candidates=index.candidates,
                marked=list(index.marked.values()),
            )
        )
        self.history.note(self.viewer.take(made, self.now), done, self.now)
        return made

    def get(self, path: str, status: int = 200) -> Any:
        answer = self.client.get(f"/api/v1/{path}")
        assert answer.status_code == status, answer.text
        return answer.get_json()


def dashboard_of(seen: Snapshot = SHOP, **fields: Any) -> DashboardHarness:
    """The dashboard after its first pass."""
    made = DashboardHarness(**fields)
    made.sees(seen)
    made.passes()
    return made


def without(nodes: Iterable[Node], *gone: str) -> tuple[Node, ...]:
    return tuple(each for each in nodes if each.name not in gone)


def drained(name: str) -> Node:
    return replace(next(each for each in NODES if each.name == name), unschedulable=True, drained=True)


def with_token(path: Path) -> Guard:
    return Guard(frozenset(LOOPBACK), path)
