"""Clusters that were there before Spotweave, with workloads of all shapes, and what comes of them when they opt in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from cli.plan import Picture, foretold
from kube.snapshot import snapshot_from
from placement import names
from placement.configuration import Configuration
from placement.model import (
    Class,
    HostPort,
    Namespace,
    Needs,
    NodeRequirement,
    PodTerm,
    Quota,
    Rollout,
    Snapshot,
    Workload,
)
from placement.slots import Mix
from report.foretold import Ending
from tests.rebalancer.rebalancing import SimulatedRebalancer
from tests.rebalancer.simulation import POD_NEEDS, Making, SimulatedCluster

BEFORE_SECONDS = 90.0
REST_SECONDS = 1500.0  # an undone move is tried again after five minutes, and after ten
ANNOTATIONS: tuple[Mapping[str, str], ...] = (
    {},
    {},
    {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"},
    {names.SPOT_RATIO: "50%"},
    {names.SPOT_RATIO: "0%"},
    {names.MIN_AVAILABLE: "100%"},
    {names.MIN_AVAILABLE: "1"},
    {names.REBALANCE: "off"},
    {names.REBALANCE: "plan-only"},
    {names.SPREAD: "host:hard"},
)
ROLLOUTS = (Rollout(), Rollout(), Rollout(recreate=True), Rollout(max_surge=0, max_unavailable=1))
BUDGETS: tuple[Mapping[str, int | str], ...] = (
    {},
    {},
    {"max_unavailable": 0},
    {"max_unavailable": 1},
    {"min_available": "100%"},
    {"min_available": 1},
)
OWN: tuple[Mapping[str, str], ...] = (
    {},
    {},
    {names.SAFE_TO_EVICT: "false"},
    {names.DO_NOT_DISRUPT: "true"},
)


@dataclass
class Before:
    """A cluster whose namespace `shop` is not opted in yet."""

    cluster: SimulatedCluster
    workloads: list[Workload] = field(default_factory=list)

    def settle(self) -> None:
        self.cluster.run(BEFORE_SECONDS)

    @property
    def snapshot(self) -> Snapshot:
        kinds = self.cluster.objects.values()
        return snapshot_from(thing for kind in kinds for thing in kind.values())

    def foretold(self) -> Mapping[str, Ending]:
        """By the workload's name, as if `shop` were opted in."""
        known = self.snapshot
        shop = Namespace("shop", {names.PLACEMENT: names.ENABLED})
        picture = Picture(
            replace(known, namespaces={**known.namespaces, "shop": shop}),
            self.cluster.configuration,
            outages=self.cluster.outages,
            now=self.cluster.now,
        )
        return {each.assessment.group.workload.name: each for each in foretold(picture).endings.values()}

    def opts_in(self, seconds: float = REST_SECONDS) -> SimulatedRebalancer:
        self.cluster.opt_in("shop")
        rebalancer = SimulatedRebalancer(self.cluster)
        self.cluster.run(180)
        self.cluster.step_seconds = 5.0
        self.cluster.run(seconds)
        return rebalancer


def grown(seed: int, *, is_tight: bool = False) -> Before:
    """A cluster of any shape, the same for the same seed."""
    random = Random(seed)
    cluster = SimulatedCluster(seed, Configuration(keeps_local_storage=random.random() < 0.3))
    cluster.put(Namespace("shop"))
    before = Before(cluster)
    cluster.add_nodes(Class.ON_DEMAND, 6, "abc")
    cluster.add_nodes(Class.SPOT, random.choice((0, 1, 2, 3) if is_tight else (4, 6)), "abc", ("m", "r"))
    for number in range(random.randint(1, 5)):
        before.workloads.append(_workload(cluster, f"w{number}", random))
    if random.random() < 0.2:
        pods = sum(each.replicas for each in before.workloads)
        cluster.put(Quota("shop", "all", {"pods": pods + random.choice((0, 0, 1))}))
    before.settle()
    return before


def before(cluster: SimulatedCluster, *deploy: Callable[[SimulatedCluster], Workload]) -> Before:
    """These workloads, as they run without Spotweave."""
    cluster.put(Namespace("shop"))
    made = Before(cluster, [each(cluster) for each in deploy])
    made.settle()
    return made


def _workload(cluster: SimulatedCluster, name: str, random: Random) -> Workload:
    replicas, annotations = random.choice((0, 1, 1, 2, 3, 3, 5, 10)), random.choice(ANNOTATIONS)
    making = Making(needs=_needs(name, random), annotations=random.choice(OWN), start_seconds=4.0)
    if random.random() < 0.4:
        made = cluster.deploy_stateful(name, replicas, annotations, ordered=random.random() < 0.5, making=making)
    else:
        made = cluster.deploy(name, replicas, annotations, rollout=random.choice(ROLLOUTS), making=making)
    if budget := random.choice(BUDGETS):
        cluster.budget(made, **budget)
    return made


def _needs(name: str, random: Random) -> Needs:
    apart = PodTerm(names.HOSTNAME, (NodeRequirement("app", "In", (name,)),))
    shapes = (
        POD_NEEDS,
        POD_NEEDS,
        POD_NEEDS,
        replace(POD_NEEDS, anti_affinity=(apart,)),
        replace(POD_NEEDS, host_ports=(HostPort(8080),)),
        replace(POD_NEEDS, has_local_storage=True),
        replace(POD_NEEDS, node_selector={names.CAPACITY: "on-demand"}),
        replace(POD_NEEDS, node_selector={names.ZONE: "a"}),
        replace(POD_NEEDS, requests={"cpu": 9000}),
    )
    return random.choice(shapes)


def mixes(before: Before, rebalancer: SimulatedRebalancer) -> dict[str, Mix]:
    return {each.name: rebalancer.actual(each) for each in before.workloads}
