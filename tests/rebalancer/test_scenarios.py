"""Stories of a cluster, each with a watcher that counts serving replicas all the time (issue 5, "Must show")."""

from __future__ import annotations

from placement import names
from placement.model import Class
from placement.slots import Mix
from tests.rebalancer.rebalancing import Rebalancer, Watcher, mix_of
from tests.rebalancer.simulation import TERMINATION, Cluster

SPOT, ON_DEMAND = Class.SPOT, Class.ON_DEMAND


def shop(spot: int = 6, on_demand: int = 4, seed: int = 0, step_seconds: float = 1.0) -> Cluster:
    """A namespace that is opted in, and nodes of eight places each in three zones."""
    cluster = Cluster(seed, step_seconds=step_seconds)
    cluster.opt_in("shop")
    cluster.add_nodes(SPOT, spot, "abc", ("m", "r"))
    cluster.add_nodes(ON_DEMAND, on_demand, "abc")
    return cluster


def settle(cluster: Cluster, rebalancer: Rebalancer, seconds: float = 900.0) -> float:
    """Until every mix is exact and the plan is empty; how long it took."""
    took = cluster.run_until(
        lambda: all(rebalancer.is_exact(each) for each in cluster.workloads) and rebalancer.is_calm(), seconds
    )
    return took


def test_a_changed_ratio_costs_exactly_the_difference_in_moves_and_no_replica() -> None:
    """70 → 30 → 90 % of 50 under minAvailable 100 %: 20 moves, then 30; never 49 serving."""
    cluster = shop(spot=9, on_demand=9)
    web = cluster.deploy("web", 50, {names.SPOT_RATIO: "70%"})
    cluster.budget(web, min_available="100%")
    cluster.run(60)
    rebalancer, watcher = Rebalancer(cluster), Watcher(cluster)
    settle(cluster, rebalancer)
    assert rebalancer.count("release") == 0
    for ratio, moves in (("30%", 20), ("90%", 30)):
        before = rebalancer.count("release")
        cluster.annotate(web, spot_ratio=ratio)
        cluster.run(5)
        settle(cluster, rebalancer)
        assert rebalancer.count("release") - before == moves
    assert mix_of(cluster, web) == Mix(45, 5)
    assert rebalancer.count("undo", "evict", "bury") == 0
    assert watcher.low["web"] >= 50
    assert rebalancer.violations == []


def test_a_lone_replica_on_the_wrong_class_is_moved_and_never_missed() -> None:
    """Admission missed it, it runs on spot, its budget allows nothing: it is moved all the same."""
    cluster = shop(on_demand=0)
    cluster.webhook_is_up = False
    for node in list(cluster.nodes.values()):  # without our toleration it could not get there
        cluster.put(node.__class__(node.name, node.labels, allocatable=node.allocatable))
    web = cluster.deploy("web", 1)
    cluster.budget(web, min_available=1)
    cluster.run(60)
    assert mix_of(cluster, web) == Mix(1, 0)
    cluster.webhook_is_up = True
    cluster.add_nodes(ON_DEMAND, 1)
    rebalancer, watcher = Rebalancer(cluster), Watcher(cluster)
    settle(cluster, rebalancer)
    assert mix_of(cluster, web) == Mix(0, 1)
    assert rebalancer.count("release") == rebalancer.count("finish") == 1
    assert watcher.low["web"] >= 1
    assert rebalancer.violations == []


def test_a_node_that_comes_back_is_not_touched() -> None:
    """Deleted and registered again after 10 s, with no proof that its machine was gone."""
    cluster = shop()
    web = cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer = Rebalancer(cluster)
    settle(cluster, rebalancer)
    pods = {pod.uid for pod in cluster.pods_of(web)}
    name = next(pod.node for pod in cluster.pods_of(web) if cluster.class_of(pod) is SPOT)
    node, before = cluster.nodes[name], len(rebalancer.writes)
    cluster.lose(name, proof=False)
    cluster.run(10)
    cluster.put(node)
    cluster.gone_at.clear()
    cluster.run(90)
    assert len(rebalancer.writes) == before
    assert {pod.uid for pod in cluster.pods_of(web)} == pods


def test_announced_loss() -> None:
    cluster = shop(step_seconds=0.5)
    web = cluster.deploy("web", 10)
    cluster.budget(web, max_unavailable=0)
    cluster.run(60)
    rebalancer, watcher = Rebalancer(cluster), Watcher(cluster)
    settle(cluster, rebalancer)
    leaving = [name for name, node in cluster.nodes.items() if node.labels[names.CAPACITY] == "spot"]
    for name in leaving:
        cluster.cordon(name, TERMINATION)
    cluster.run(1)
    assert rebalancer.count("release") == 7
    took = cluster.run_until(lambda: not any(pod.node in leaving for pod in cluster.pods), 120)
    assert took <= 10 + 5
    assert watcher.low["web"] >= 10
    assert rebalancer.violations == []
