"""Stories of real applications whose pods keep apart, where the fit test decides."""

from __future__ import annotations

from dataclasses import replace

from placement import names
from placement.configuration import Configuration
from placement.lack import Lack
from placement.model import AttachLimits, Claim, Class, NodeRequirement, PodTerm, Volume
from placement.plan.actions import Blocked
from placement.plan.shortage import shortage
from placement.slots import Mix
from report.rolloutroom import room_in
from tests.rebalancer.rebalancing import LowestServing, SimulatedRebalancer, mix_of
from tests.rebalancer.simulation import POD_NEEDS, Making, SimulatedCluster
from tests.rebalancer.test_scenarios import crowded, settle, shop, spot_nodes

SPOT, ON_DEMAND = Class.SPOT, Class.ON_DEMAND


def apart(app: str) -> Making:
    """Each on a host of its own, by required anti-affinity."""
    term = PodTerm(names.HOSTNAME, (NodeRequirement("app", "In", (app,)),))
    return Making(needs=replace(POD_NEEDS, anti_affinity=(term,)))


def test_argo_cd_repo_servers_do_not_wait_beside_free_on_demand_hosts() -> None:
    """10 replicas on hosts of their own, 7 for spot, which has 5 hosts: two fall back after 60 s, and all serve."""
    cluster = shop(spot=5, on_demand=7)
    rebalancer = SimulatedRebalancer(cluster)
    server = cluster.deploy("argocd-repo-server", 10, {names.SPOT_RATIO: "70%"}, making=apart("argocd-repo-server"))
    crowds = crowded(cluster, server)
    took = cluster.run_until(lambda: len(cluster.serving(server)) == 10, 300)
    assert took <= 60 + 10 + 10
    assert mix_of(cluster, server) == Mix(5, 5)
    cluster.run(600)
    assert mix_of(cluster, server) == Mix(5, 5)
    assert len(cluster.serving(server)) == 10
    cluster.add_nodes(SPOT, 3, "abc")
    settle(cluster, rebalancer, 3600)
    assert mix_of(cluster, server) == Mix(7, 3)
    assert crowds == []
    assert rebalancer.violations == []


def test_argo_cd_repo_servers_come_through_a_rollout_on_as_many_hosts_as_replicas() -> None:
    """The surge finds no host of its own until an old pod goes: that is no outage that outlasts the rollout."""
    cluster = shop(spot=5, on_demand=7)
    rebalancer = SimulatedRebalancer(cluster)
    server = cluster.deploy("argocd-repo-server", 10, {names.SPOT_RATIO: "70%"}, making=apart("argocd-repo-server"))
    cluster.run_until(lambda: len(cluster.serving(server)) == 10, 300)
    lowest = LowestServing(cluster)
    cluster.roll_out(server)
    cluster.run(5)
    cluster.run_until(lambda: len(cluster.serving(server)) == 10 and rebalancer.is_calm(), 900)
    assert lowest.serving["argocd-repo-server"] >= 7  # its own maxUnavailable is 25 %
    assert mix_of(cluster, server) == Mix(5, 5)
    assert rebalancer.violations == []


def test_zookeeper_returns_to_spot_one_pod_at_a_time() -> None:
    """Three ordinals on hosts of their own, `maxUnavailable: 1`. All spot is lost and comes back."""
    cluster = shop(spot=3, on_demand=4)
    keeper = cluster.deploy_stateful("zookeeper", 3, {names.SPOT_RATIO: "67%"}, ordered=True, making=apart("zookeeper"))
    cluster.budget(keeper, max_unavailable=1)
    rebalancer, crowds = SimulatedRebalancer(cluster), crowded(cluster, keeper)
    cluster.run(120)
    settle(cluster, rebalancer)
    assert mix_of(cluster, keeper) == Mix(2, 1)
    for name in spot_nodes(cluster):
        cluster.lose(name)
    cluster.run_until(lambda: len(cluster.serving(keeper)) == 3, 600)
    assert mix_of(cluster, keeper) == Mix(0, 3)
    lowest = LowestServing(cluster)
    cluster.add_nodes(SPOT, 3, "abc")
    settle(cluster, rebalancer, 7200)
    assert mix_of(cluster, keeper) == Mix(2, 1)
    assert lowest.serving["zookeeper"] >= 2
    assert crowds == []
    assert rebalancer.violations == []


def test_a_stateful_set_that_was_moved_to_spot_returns_soon_after_spot_does() -> None:
    """Its pods were evicted to spot, and that helped. That a later loss of spot brings them back is no move of ours."""
    cluster = shop(spot=0, on_demand=4)
    keeper = cluster.deploy_stateful("keeper", 3, {names.SPOT_RATIO: "67%"})
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(120)
    cluster.add_nodes(SPOT, 3, "abc")
    cluster.run_until(lambda: mix_of(cluster, keeper) == Mix(2, 1), 1200)
    cluster.run(30)
    for name in spot_nodes(cluster):
        cluster.lose(name)
    cluster.run_until(lambda: len(cluster.serving(keeper)) == 3, 300)
    cluster.add_nodes(SPOT, 3, "abc")
    assert cluster.run_until(lambda: mix_of(cluster, keeper) == Mix(2, 1), 1200) < 240  # the cool-down is 600
    assert rebalancer.violations == []


def with_disks(cluster: SimulatedCluster, app: str, zones: str, driver: str = "") -> Making:
    """A claim for each ordinal, bound to a volume in this zone."""
    for ordinal, zone in enumerate(zones):
        terms = ((NodeRequirement(names.ZONE, "In", (zone,)),),)
        cluster.put(Volume(f"volume-{ordinal}", terms, driver=driver))
        cluster.put(Claim("shop", f"data-{app}-{ordinal}", f"volume-{ordinal}"))
    return replace(apart(app), needs=replace(apart(app).needs, claims=("data-*",)))


def test_cassandra_goes_to_spot_only_where_its_volumes_can_be_used() -> None:
    """Volumes in zones a, b and c; spot in a and b alone: two are evicted to their zones, the third never."""
    cluster = shop(spot=0, on_demand=6)
    making = with_disks(cluster, "cassandra", "abc")
    ring = cluster.deploy_stateful("cassandra", 3, {names.SPOT_RATIO: "0%"}, making=making)
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(120)
    settle(cluster, rebalancer)
    assert len(cluster.serving(ring)) == 3
    cluster.add_nodes(SPOT, 4, "ab")
    cluster.annotate(ring, spot_ratio="100%", min_on_demand="0")
    lowest = LowestServing(cluster)
    cluster.run(2400)
    assert mix_of(cluster, ring) == Mix(2, 1)
    assert rebalancer.count("evict") == 2
    assert lowest.serving["cassandra"] >= 2
    assert rebalancer.plan is not None
    assert {each.blocked for each in rebalancer.plan.skipped} == {Blocked.NO_PLACE}
    assert rebalancer.violations == []


def test_a_pod_whose_volume_no_spot_node_can_attach_stays() -> None:
    """One spot node, which attaches no more volumes of the driver: nothing is evicted until it can."""
    cluster = shop(spot=0, on_demand=3)
    making = with_disks(cluster, "db", "aa", "csi.example")
    data = cluster.deploy_stateful("db", 2, {names.SPOT_RATIO: "0%"}, making=making)
    rebalancer = SimulatedRebalancer(cluster)
    cluster.add_nodes(ON_DEMAND, 2, "a")
    cluster.run(120)
    settle(cluster, rebalancer)
    (spot,) = cluster.add_nodes(SPOT, 1, "a")
    cluster.put(AttachLimits(spot.name, {"csi.example": 0}))
    cluster.annotate(data, spot_ratio="50%")
    cluster.run(1200)
    assert rebalancer.count("evict") == 0
    cluster.put(AttachLimits(spot.name, {"csi.example": 1}))
    settle(cluster, rebalancer, 3600)
    assert mix_of(cluster, data) == Mix(1, 1)
    assert rebalancer.violations == []


def test_what_is_not_modelled_is_never_evicted_and_falls_back_all_the_same() -> None:
    """Pods with resource claims stay where they are when the ratio changes; when spot is lost, they come back."""
    cluster = shop(spot=3, on_demand=3)
    making = Making(needs=replace(POD_NEEDS, unmodelled=Lack.UNKNOWN_CLAIMS))
    model = cluster.deploy_stateful("model", 2, {names.SPOT_RATIO: "50%"}, making=making)
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(120)
    assert mix_of(cluster, model) == Mix(1, 1)
    cluster.annotate(model, spot_ratio="0%")
    cluster.run(1200)
    assert mix_of(cluster, model) == Mix(1, 1)
    assert rebalancer.count("evict", "release") == 0
    cluster.annotate(model, spot_ratio="50%")
    for name in spot_nodes(cluster):
        cluster.lose(name)
    cluster.run(240)
    assert len(cluster.serving(model)) == 2


def test_a_drill_of_spot_says_who_finds_no_host() -> None:
    """Seven spot pods on hosts of their own, and four free on-demand hosts with room for many: three find none."""
    cluster = shop(spot=7, on_demand=7)
    rebalancer = SimulatedRebalancer(cluster)
    server = cluster.deploy("server", 10, {names.SPOT_RATIO: "70%"}, making=apart("server"))
    cluster.run(120)
    settle(cluster, rebalancer)
    gone = set(spot_nodes(cluster))
    left = replace(cluster.snapshot(), nodes={name: node for name, node in cluster.nodes.items() if name not in gone})
    lost = [pod for pod in cluster.pods_of(server) if pod.node in gone]
    short = shortage(lost, room_in(left, Configuration()), ON_DEMAND)
    assert len(lost) == 7
    assert short is not None
    assert str(short[1]) == "pod anti-affinity leaves no node"
    assert shortage(lost[:4], room_in(left, Configuration()), ON_DEMAND) is None
