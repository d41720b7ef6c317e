"""Gangs in the simulation: a Job whose pods are members, created again with their gate when they are lost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from placement import names
from placement.configuration import Configuration
from placement.gang.settings import Gangs
from placement.model import Class, Needs, Owner, Pod
from tests.rebalancer.rebalancing import CrashAtWrite, SimulatedRebalancer
from tests.rebalancer.simulation import PodFacts, SimulatedCluster

CPU = 2000  # of a member; a node has 4,000, so two fit
MEMBERS = 4
WITH_GANGS = Configuration(gangs=Gangs(enabled=True))


@dataclass
class SimulatedJob:
    """Keeps as many pods as it has members; what it saw of them is kept, too."""

    cluster: SimulatedCluster
    name: str
    members: int = MEMBERS
    annotations: dict[str, str] = field(default_factory=dict)
    needs: Needs = field(default_factory=lambda: Needs(requests={"cpu": CPU}))
    is_gang: bool = True
    is_on: bool = True

    def __post_init__(self) -> None:
        self.cluster.third_parties.append(self.act)
        self.act()

    @property
    def pods(self) -> list[Pod]:
        return [pod for pod in self.cluster.pods if pod.labels.get("app") == self.name and not pod.terminating]

    @property
    def bound(self) -> int:
        return sum(bool(pod.node) for pod in self.pods)

    @property
    def gated(self) -> int:
        return sum(pod.is_gated for pod in self.pods)

    @property
    def reserved(self) -> int:
        return sum(bool(pod.nominated) for pod in self.pods)

    @property
    def is_whole(self) -> bool:
        return self.bound == self.members

    def act(self) -> None:
        for _ in range(self.members - len(self.pods) if self.is_on else 0):
            self._create()

    def stop(self) -> None:
        self.is_on = False
        for pod in self.pods:
            self.cluster.delete_pod(pod, 0)

    def _create(self) -> None:
        name = f"{self.name}-{self.cluster.new_id('m')}"
        written = {names.POD_GROUP: self.name, names.POD_GROUP_MIN_MEMBER: str(self.members), **self.annotations}
        gang: dict[str, Any] = {
            "annotations": written,
            "labels": {"app": self.name, names.GANG_LABEL: names.GANG_MEMBER},
            "gates": (names.GANG_GATE,),
        }
        made = Pod("shop", name, name, Owner("Job", self.name, f"job-{self.name}", "batch"), created=self.cluster.now)
        plain: dict[str, Any] = {"labels": {"app": self.name}}
        made = replace(made, needs=self.needs, **(gang if self.is_gang else plain))
        self.cluster.facts[made.uid] = PodFacts()
        self.cluster.put(made)


def gang_cluster(nodes: int = 2, fault: CrashAtWrite | None = None) -> tuple[SimulatedCluster, SimulatedRebalancer]:
    """Nodes of 4 CPU: two have room for one gang of four."""
    cluster = SimulatedCluster(configuration=WITH_GANGS)
    cluster.opt_in("shop")
    for _ in range(nodes):
        cluster.add_node(Class.ON_DEMAND, cpu=4000)
    return cluster, SimulatedRebalancer(cluster, fault=fault)
