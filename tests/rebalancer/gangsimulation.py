"""Gangs in the simulation: a Job whose pods are members, created again with their gate when they are lost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from placement import names
from placement.configuration import Configuration
from placement.gang.settings import Gangs
from placement.model import Class, Job, Key, Needs, Owner, Pod
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
    owner: str = "Job"  # "": bare pods, which come back only if the test creates them
    ignores_disruption: bool = True

    def __post_init__(self) -> None:
        self.cluster.third_parties.append(self.act)
        if self.owner == "Job":
            self.cluster.put(
                Job("shop", self.name, f"job-{self.name}", self.members, ignores_disruption=self.ignores_disruption)
            )
        for _ in range(0 if self.owner else self.members):
            self._create()
        self.act()

    @property
    def job(self) -> Job:
        found = self.cluster.objects["jobs"][Key("shop", self.name)]
        assert isinstance(found, Job)
        return found

    def change(self, **fields: Any) -> None:
        """The Job, as people do it: `parallelism=3`, `is_suspended=False`."""
        self.cluster.put(replace(self.job, **fields))
        self.members = self.job.parallelism

    @property
    def pods(self) -> list[Pod]:
        """Those that count for their owner: what has failed is replaced."""
        own = (pod for pod in self.cluster.pods if pod.labels.get("app") == self.name)
        return [pod for pod in own if not pod.terminating and pod.phase != "Failed"]

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
        if not (self.owner and self.is_on):
            return
        wanted = self.job.wanted if self.owner == "Job" else self.members
        if not wanted:
            for pod in self.pods:
                self.cluster.delete_pod(pod)
        for _ in range(wanted - len(self.pods)):
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
        owner = Owner(self.owner, self.name, f"job-{self.name}", "batch") if self.owner else None
        made = Pod("shop", name, name, owner, created=self.cluster.now)
        if not self.owner:
            self.cluster.disowned.add(name)
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
