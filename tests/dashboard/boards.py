"""Boards made by hand, and the dashboard over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dashboard.access import LOOPBACK, Guard
from dashboard.answercache import AnswerCache
from dashboard.server import LIMITS, PageServer
from dashboard.viewer import Around, Viewer
from placement import names
from placement.configuration import Configuration
from placement.model import Class, Kind, Namespace, Node, Owner, Pod, ReplicaSet, Snapshot, Template, Workload
from placement.observation import NOTHING_OBSERVED, Observed
from placement.outage import Outages
from placement.outcome import Outcome
from placement.pause import Pause
from placement.plan.actions import Action, Plan
from placement.plan.scene import Scene
from placement.plan.select import plan
from rebalancer.index import Index
from report.history import History
from tests.placement.plans import NOW, node, pod
from tests.serving.client import Visitor

SPOT, ON_DEMAND = Class.SPOT, Class.ON_DEMAND
NODES = (
    node("od-a", ON_DEMAND, "a", created=NOW - 7200),
    node("od-b", ON_DEMAND, "b"),
    node("spot-a", SPOT, "a", cpu=8000),
    node("spot-b", SPOT, "b"),
)
# Ten replicas of which eight must serve: six on spot, four of them in one zone.
WEB = ("od-a", "spot-a", "spot-a", "od-b", "spot-a", "spot-b", "od-a", "spot-a", "spot-b", "od-b")


def deployment(name: str, where: Iterable[str], **annotations: str) -> tuple[Workload, ReplicaSet, list[Pod]]:
    """A Deployment whose pods are on these nodes, slot by slot."""
    on = list(where)
    written = {names.PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
    template = Template(labels={"app": name})
    workload = Workload(Kind.DEPLOYMENT, "shop", name, name, len(on), annotations=written, template=template)
    revision = f"{name}-1"
    owner = Owner("Deployment", name, name)
    replica_set = ReplicaSet("shop", revision, revision, owner, len(on), template=template, observed=len(on))
    pods = [pod(f"{name}-{slot}", slot, each, owner=revision) for slot, each in enumerate(on)]
    return workload, replica_set, pods


def snapshot(
    *deployments: tuple[Workload, ReplicaSet, list[Pod]], nodes: Iterable[Node] = NODES, **fields: Any
) -> Snapshot:
    return Snapshot(
        {"shop": Namespace("shop", {names.PLACEMENT: names.ENABLED})},
        {each.name: each for each in nodes},
        tuple(workload for workload, *_ in deployments),
        tuple(replica_set for _, replica_set, _ in deployments),
        tuple(each for *_, pods in deployments for each in pods),
        **fields,
    )


SHOP = snapshot(deployment("web", WEB, spot_ratio="60%", min_available="8"), deployment("one", ["od-a"]))


@dataclass
class Shown:
    """The dashboard over a index, with a clock that stands still."""

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
        for each in (seen.namespaces.values(), seen.nodes.values(), seen.workloads, seen.replica_sets, seen.pods):
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
                index.restless,
                index.ground,
                index.used,
                self.now,
                is_paused=self.pause is not None,
                neighbours=index.neighbours,
            )
        )
        self.history.note(self.viewer.take(made, self.now), done, self.now)
        return made

    def get(self, path: str, status: int = 200) -> Any:
        answer = self.client.get(f"/api/v1/{path}")
        assert answer.status_code == status, answer.text
        return answer.get_json()


def shown(seen: Snapshot = SHOP, **fields: Any) -> Shown:
    """The dashboard after its first pass."""
    made = Shown(**fields)
    made.sees(seen)
    made.passes()
    return made


def without(nodes: Iterable[Node], *gone: str) -> tuple[Node, ...]:
    return tuple(each for each in nodes if each.name not in gone)


def drained(name: str) -> Node:
    return replace(next(each for each in NODES if each.name == name), unschedulable=True, drained=True)


def with_token(path: Path) -> Guard:
    return Guard(frozenset(LOOPBACK), path)
