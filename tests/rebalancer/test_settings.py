"""Settings of workloads that moves must heed, on the simulated cluster."""

from __future__ import annotations

from dataclasses import replace

from placement import names
from placement.model import Class, Pod, Rollout, Workload
from placement.outage import Outage, noted
from placement.plan.actions import Blocked
from placement.slots import Mix
from tests.rebalancer.rebalancing import LowestServing, SimulatedRebalancer, mix_of
from tests.rebalancer.simulation import Making, SimulatedCluster, is_active


def shop(spot: int = 6, on_demand: int = 4) -> SimulatedCluster:
    """A namespace that is opted in, and nodes of eight places each in three zones."""
    cluster = SimulatedCluster()
    cluster.opt_in("shop")
    cluster.add_nodes(Class.SPOT, spot, "abc")
    cluster.add_nodes(Class.ON_DEMAND, on_demand, "abc")
    return cluster


def settle(cluster: SimulatedCluster, rebalancer: SimulatedRebalancer, seconds: float = 1800.0) -> float:
    """Until every mix is exact and the plan is empty; how long it took."""
    return cluster.run_until(
        lambda: all(rebalancer.is_exact(each) for each in cluster.workloads) and rebalancer.is_calm(), seconds
    )


def most_pods(cluster: SimulatedCluster, workload: Workload) -> list[int]:
    """The most pods that the workload ever had beside each other, counted all the time from now on."""
    most = [0]

    def look() -> None:
        most[0] = max(most[0], sum(map(is_active, cluster.pods_of(workload))))

    cluster.onlookers.append(look)
    return most


def test_without_a_surge_there_is_never_a_pod_more_than_replicas() -> None:
    """`maxSurge: 0`: one pod at a time goes, when all others serve and there is a place for it."""
    cluster = shop()
    web = cluster.deploy("web", 6, rollout=Rollout(max_surge=0, max_unavailable=1))
    cluster.run(60)
    rebalancer, lowest, most = SimulatedRebalancer(cluster), LowestServing(cluster), most_pods(cluster, web)
    settle(cluster, rebalancer)
    lowest.begin()
    cluster.annotate(web, spot_ratio="0%")
    settle(cluster, rebalancer)
    assert mix_of(cluster, web) == Mix(0, 6)
    assert rebalancer.count("evict") == 4
    assert rebalancer.count("release") == 0
    assert most == [6]
    assert lowest.serving["web"] >= 5
    assert rebalancer.violations == []


def test_old_pods_stay_until_the_new_ones_were_ready_for_long_enough() -> None:
    """`minReadySeconds: 40`. A pod that takes 10 s to start is not taken for a replacement before 50 s."""
    cluster = shop()
    web = cluster.deploy("web", 10)
    cluster.change(web, min_ready_seconds=40)
    cluster.run(120)
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    settle(cluster, rebalancer)
    gone: list[tuple[Pod, float]] = []
    before = {pod.uid: pod for pod in cluster.pods_of(web)}
    cluster.onlookers.append(lambda: gone.extend(_ended(cluster, before)))
    lowest.begin()
    began = cluster.now
    cluster.annotate(web, spot_ratio="30%")
    settle(cluster, rebalancer)
    assert len(gone) == 4
    assert min(at for _, at in gone) - began >= 10 + 40
    assert lowest.serving["web"] >= 10
    assert rebalancer.count("undo") == 0
    assert rebalancer.violations == []


def _ended(cluster: SimulatedCluster, before: dict[str, Pod]) -> list[tuple[Pod, float]]:
    """Pods that are on their way out since the last look."""
    there = {pod.uid for pod in cluster.pods if not pod.terminating}
    return [(before.pop(uid), cluster.now) for uid in list(before) if uid not in there]


def test_a_stateful_set_waits_as_long_between_two_evictions() -> None:
    """`minReadySeconds: 30`: three pods go, each after its predecessor was ready that long."""
    cluster = shop()
    db = cluster.deploy_stateful("db", 4)
    cluster.change(db, min_ready_seconds=30)
    cluster.run(120)
    rebalancer = SimulatedRebalancer(cluster)
    settle(cluster, rebalancer)
    cluster.annotate(db, spot_ratio="0%")
    settle(cluster, rebalancer)
    times = [write.at for write in rebalancer.writes if write.verb == "evict"]
    assert len(times) == 2
    assert times[1] - times[0] >= 10 + 30
    assert rebalancer.violations == []


def test_pods_with_local_storage_are_moved_and_those_that_ask_to_stay_are_not() -> None:
    """An `emptyDir` pins nothing; `safe-to-evict: "false"` does."""
    cluster = shop()
    stores = replace(Making().needs, has_local_storage=True)
    cache = cluster.deploy("cache", 4, making=Making(stores))
    kept = cluster.deploy("kept", 4, making=Making(stores, annotations={names.SAFE_TO_EVICT: "false"}))
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    settle(cluster, rebalancer)
    for each in (cache, kept):
        cluster.annotate(each, spot_ratio="0%")
    cluster.run(300)
    assert mix_of(cluster, cache) == Mix(0, 4)
    assert mix_of(cluster, kept) == Mix(2, 2)
    assert rebalancer.violations == []


def overflow_pods(cluster: SimulatedCluster, workload: Workload) -> list[Pod]:
    return [pod for pod in cluster.pods_of(workload) if pod.needs.priority_class == names.OVERFLOW_PRIORITY]


def test_the_low_priority_of_an_outage_ends_with_it() -> None:
    """Spot was called out while it had room: two of ten are on spot as overflow, and are replaced when it is over."""
    cluster = shop()
    cluster.outages = noted(cluster.outages, Outage(Class.SPOT, 0.0), cluster.now, 120.0)
    web, db = cluster.deploy("web", 10), cluster.deploy_stateful("db", 5)
    cluster.run(60)
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    assert len(overflow_pods(cluster, web)) == 2
    cluster.run(50)
    assert rebalancer.count("release", "evict") == 0
    assert rebalancer.skipped == {str(Blocked.OUTAGE)}
    lowest.begin()
    cluster.run_until(lambda: not overflow_pods(cluster, web))
    settle(cluster, rebalancer)
    assert rebalancer.count("release") == rebalancer.count("finish") == 2
    assert rebalancer.count("undo", "evict") == 0
    assert lowest.serving["web"] >= 10
    assert overflow_pods(cluster, db)
    assert rebalancer.violations == []
