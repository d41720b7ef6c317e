"""What happens to a cluster step by step, while serving replicas are counted all the time (issue 5, "Must show")."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count

import pytest

from placement import names
from placement.model import Class, Namespace, Needs, NodeRequirement, NodeTaint, PodTerm, Quota, Toleration, Workload
from placement.observation import Rates
from placement.outage import Outage, noted
from placement.plan.actions import Blocked, How, Why
from placement.slots import Mix
from tests.rebalancer.rebalancing import CrashAtWrite, LowestServing, SimulatedRebalancer, mix_of
from tests.rebalancer.simulation import POD_NEEDS, TERMINATION, Making, SimulatedCluster
from tests.rebalancer.thirdparties import SimulatedAutoscaler, SimulatedDrainer

SPOT, ON_DEMAND = Class.SPOT, Class.ON_DEMAND


def shop(spot: int = 6, on_demand: int = 4, seed: int = 0, step_seconds: float = 1.0) -> SimulatedCluster:
    """A namespace that is opted in, and nodes of eight places each in three zones."""
    cluster = SimulatedCluster(seed, step_seconds=step_seconds)
    cluster.opt_in("shop")
    cluster.add_nodes(SPOT, spot, "abc", ("m", "r"))
    cluster.add_nodes(ON_DEMAND, on_demand, "abc")
    return cluster


def settle(cluster: SimulatedCluster, rebalancer: SimulatedRebalancer, seconds: float = 900.0) -> float:
    """Until every mix is exact and the plan is empty; how long it took."""
    return cluster.run_until(
        lambda: all(rebalancer.is_exact(each) for each in cluster.workloads) and rebalancer.is_calm(), seconds
    )


def test_a_changed_ratio_costs_exactly_the_difference_in_moves_and_no_replica() -> None:
    """70 → 30 → 90 % of 50 under minAvailable 100 %: 20 moves, then 30; never 49 serving."""
    cluster = shop(spot=9, on_demand=9)
    web = cluster.deploy("web", 50, {names.SPOT_RATIO: "70%"})
    cluster.budget(web, min_available="100%")
    cluster.run(60)
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
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
    assert lowest.serving["web"] >= 50
    assert rebalancer.violations == []


def test_auto_moves_pods_when_rates_change_and_not_when_sizes_do() -> None:
    """Six pools. At 99.99 % they bear 95 % of 8 to 15 replicas; as two, 45 %. An HPA in between moves nothing."""
    cluster = shop(spot=6, on_demand=6)
    web = cluster.deploy("web", 12, {names.SPOT_RATIO: "auto", names.AVAILABILITY_TARGET: "99.99%"})
    cluster.rates = Rates(1, {f"{zone}/{kind}": 1.0 for zone in "abc" for kind in "mr"})
    cluster.run(60)
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    settle(cluster, rebalancer)
    before = rebalancer.count("release")
    assert mix_of(cluster, web) == Mix(11, 1)
    cluster.rates = Rates(2, {"a/m": 1.0, "b/m": 1.0})
    cluster.run(5)
    settle(cluster, rebalancer)
    assert mix_of(cluster, web) == Mix(5, 7)
    assert rebalancer.count("release") - before == 6
    assert lowest.serving["web"] >= 12
    for replicas in (15, 8, 11, 9, 14, 10):
        cluster.change(web, replicas=replicas)
        cluster.run(60)
        settle(cluster, rebalancer)
        assert mix_of(cluster, web) == Mix(9 * replicas // 20, replicas - 9 * replicas // 20)
    released = [each.action for *_, done in rebalancer.passes for each in done if each.action.how is How.RELEASE]
    assert Counter(action.why for action in released)[Why.RATIO] == 6
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
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    settle(cluster, rebalancer)
    assert mix_of(cluster, web) == Mix(0, 1)
    assert rebalancer.count("release") == rebalancer.count("finish") == 1
    assert lowest.serving["web"] >= 1
    assert rebalancer.violations == []


def test_a_node_that_comes_back_is_not_touched() -> None:
    """Deleted and registered again after 10 s, with no proof that its machine was gone."""
    cluster = shop()
    web = cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
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


def spot_nodes(cluster: SimulatedCluster) -> list[str]:
    return [name for name, node in cluster.nodes.items() if node.labels[names.CAPACITY] == "spot"]


POLICIES: tuple[tuple[int, dict[str, str]], ...] = (
    (10, {}),
    (10, {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}),
    (6, {names.SPOT_RATIO: "50%"}),
    (5, {names.MIN_ON_DEMAND: "3"}),
    (4, {names.MIN_AVAILABLE: "4"}),
    (3, {}),
    (2, {names.SPOT_RATIO: "90%"}),
    (1, {}),
    (1, {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}),
    (7, {names.SPOT_RATIO: "70%", names.SPREAD: "none"}),
)


def ten_workloads(cluster: SimulatedCluster) -> list[Workload]:
    """Every other one with a budget that allows nothing."""
    made = []
    for index, (replicas, policy) in enumerate(POLICIES):
        workload = cluster.deploy(f"w{index}", replicas, policy)
        if index % 2:
            cluster.budget(workload, min_available="100%")
        made.append(workload)
    return made


def serve(cluster: SimulatedCluster, workloads: list[Workload]) -> bool:
    return all(len(cluster.serving(each)) >= cluster.again(each).replicas for each in workloads)


def test_all_spot_is_lost_and_comes_back() -> None:
    """The outage is noted before burials; all serve after start time + 3 s; the way back costs nobody a replica."""
    cluster = shop(spot=6, on_demand=8, step_seconds=0.5)
    workloads = ten_workloads(cluster)
    cluster.run(60)
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    settle(cluster, rebalancer)
    lost = spot_nodes(cluster)
    on_demand = {each.name: mix_of(cluster, each).on_demand for each in workloads}
    lowest.begin()
    for name in lost:
        cluster.lose(name)
    took = cluster.run_until(lambda: serve(cluster, workloads), 100)
    assert took <= 10 + 3
    verbs = [write.verb for write in rebalancer.writes if write.verb in ("note", "bury")]
    assert verbs[0] == "note"
    assert verbs.count("note") == 1
    assert all(lowest.serving[name] >= least for name, least in on_demand.items())
    cluster.run(60)
    lowest.begin()
    before = rebalancer.count("release")
    moves = sum(mix_of(cluster, each).on_demand - rebalancer.wanted(each).on_demand for each in workloads)
    cluster.add_nodes(SPOT, 6, "abc", ("m", "r"))
    settle(cluster, rebalancer, 1200)
    assert rebalancer.count("release") - before == moves
    assert rebalancer.count("undo", "evict") == 0
    assert all(lowest.serving[each.name] >= each.replicas for each in workloads)
    assert rebalancer.violations == []


def test_an_announced_loss_costs_nobody_a_replica() -> None:
    """A two-minute notice and a foreign drainer: replacements within a second, nodes empty after start time + 5 s."""
    cluster = shop(spot=6, on_demand=8, step_seconds=0.5)
    workloads = ten_workloads(cluster)
    cluster.run(60)
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    settle(cluster, rebalancer)
    leaving = spot_nodes(cluster)
    spot_pods = sum(pod.node in leaving for pod in cluster.pods)
    cluster.third_parties.append(SimulatedDrainer(cluster))
    for name in leaving:
        cluster.cordon(name, TERMINATION)
    cluster.run(1)
    assert rebalancer.count("release") == spot_pods
    took = cluster.run_until(lambda: not any(pod.node in leaving for pod in cluster.pods), 120)
    assert took <= 10 + 5
    for name in leaving:
        cluster.delete_node(name)
    cluster.run(60)
    budgeted = [each for index, each in enumerate(workloads) if index % 2]
    assert all(lowest.serving[each.name] >= each.replicas for each in budgeted)
    assert rebalancer.violations == []


def test_spot_behind_an_autoscaler_returns() -> None:
    """It brings nodes only for pods that wait: the probe of the way back is one."""
    cluster = shop(spot=3, on_demand=4)
    web = cluster.deploy("web", 10)
    cluster.budget(web, min_available="100%")
    cluster.run(60)
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    settle(cluster, rebalancer)
    for name in spot_nodes(cluster):
        cluster.lose(name)
    cluster.run(120)
    assert mix_of(cluster, web) == Mix(0, 10)
    lowest.begin()
    cluster.third_parties.append(SimulatedAutoscaler(cluster))
    settle(cluster, rebalancer, 3600)
    assert mix_of(cluster, web) == Mix(7, 3)
    assert lowest.serving["web"] >= 10
    assert rebalancer.violations == []


def test_a_rollout_without_the_webhook_is_repaired() -> None:
    """Its pods are adopted where they stand, and those of the wrong class moved."""
    cluster = shop(spot=6, on_demand=6)
    web = cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    settle(cluster, rebalancer)
    cluster.webhook_is_up = False
    cluster.roll_out(web)
    cluster.run(120)
    assert mix_of(cluster, web) == Mix(0, 10)
    cluster.webhook_is_up = True
    lowest.begin()
    before = rebalancer.count("release")  # in vain, while nobody placed the replacements
    settle(cluster, rebalancer)
    assert rebalancer.count("release") - before == 7
    assert lowest.serving["web"] >= 10
    assert rebalancer.violations == []


def test_a_paused_rollout_is_left_alone() -> None:
    """Two revisions, each with the mix of its own pods: no move, no loop, whatever the ratio."""
    cluster = shop()
    web = cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    settle(cluster, rebalancer)
    cluster.roll_out(web)
    cluster.run(5)
    cluster.change(web, rollout=replace(web.rollout, paused=True))
    cluster.run(60)
    assert len({pod.owner for pod in cluster.pods_of(web)}) == 2
    cluster.annotate(web, spot_ratio="30%")
    cluster.run(10)
    before = len(rebalancer.writes)
    cluster.run(600)
    assert len(rebalancer.writes) == before
    assert rebalancer.count("release", "evict") == 0
    assert str(Blocked.ROLLOUT) in rebalancer.skipped


def test_a_stateful_set_is_moved_one_at_a_time_with_proof() -> None:
    """All of it on on-demand, where admission had missed it: the next goes when all serve again."""
    cluster = shop(spot=3, on_demand=4)
    cluster.webhook_is_up = False
    db = cluster.deploy_stateful("db", 8)
    cluster.run(120)
    assert mix_of(cluster, db) == Mix(0, 8)
    cluster.webhook_is_up = True
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    settle(cluster, rebalancer, 1800)
    assert rebalancer.count("evict") == 5
    assert rebalancer.count("release") == 0
    assert lowest.serving["db"] >= 7
    assert rebalancer.violations == []


def test_a_stateful_set_keeps_its_floor_when_two_change_places() -> None:
    """Ordinal 0 is on spot and 1 on on-demand: 0 comes first, or nobody would be on on-demand."""
    cluster = shop(spot=2, on_demand=2)
    db = cluster.deploy_stateful("db", 2, {names.SPOT_RATIO: "50%"})
    cluster.run(60)
    cluster.annotate(db, spot_ratio="0%", min_on_demand="0")
    cluster.run(5)
    first, second = sorted(cluster.pods_of(db), key=lambda pod: pod.name)
    spot, on_demand = first, second
    for pod, other in ((first, second), (second, first)):
        cluster.put(replace(pod, node=other.node))
    assert spot.name < on_demand.name
    cluster.annotate(db, spot_ratio="50%", min_on_demand="1")
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run_until(lambda: rebalancer.count("evict") == 2)
    settle(cluster, rebalancer, 900)
    assert [write.pod.name for write in rebalancer.writes if write.verb == "evict" and write.pod] == ["db-0", "db-1"]
    assert rebalancer.violations == []


def test_a_declared_minimum_holds_for_evictions() -> None:
    """Nothing of a StatefulSet whose owner says that all must serve can be evicted."""
    cluster = shop()
    cluster.webhook_is_up = False
    db = cluster.deploy_stateful("db", 3, {names.MIN_AVAILABLE: "3"})
    cluster.run(60)
    cluster.webhook_is_up = True
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    cluster.run(300)
    assert rebalancer.count("evict") == 0
    assert str(Blocked.MINIMUM) in rebalancer.skipped
    assert lowest.serving[db.name] == 3


def test_unschedulable_spot_pods_fall_back_in_time() -> None:
    """No spot at all: after `spot-fallback-after` they run on on-demand."""
    cluster = shop(spot=0, on_demand=4)
    rebalancer = SimulatedRebalancer(cluster)
    web = cluster.deploy("web", 10, {names.SPOT_FALLBACK_AFTER: "30s"})
    waiting = cluster.deploy("waiting", 3, {names.SPOT_FALLBACK: "wait", names.SPOT_FALLBACK_AFTER: "30s"})
    cluster.run(29)
    assert len(cluster.serving(web)) == 3
    took = cluster.run_until(lambda: len(cluster.serving(web)) == 10, 60)
    assert took <= 30
    assert mix_of(cluster, waiting) == Mix(0, 1)
    assert rebalancer.violations == []


def test_full_on_demand_falls_back_to_spot_after_two_minutes() -> None:
    cluster = shop(spot=6, on_demand=0)
    rebalancer = SimulatedRebalancer(cluster)
    web = cluster.deploy("web", 10)
    lone = cluster.deploy("lone", 1)
    cluster.run(110)
    assert len(cluster.serving(web)) == 7
    cluster.run(60)
    assert len(cluster.serving(web)) == 10
    assert cluster.serving(lone) == []
    assert rebalancer.violations == []


def test_a_quota_without_room_for_one_more_is_told() -> None:
    cluster = shop()
    web = cluster.deploy("web", 10)
    cluster.put(Quota("shop", "pods", {"pods": 10}))
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    settle(cluster, rebalancer)
    cluster.annotate(web, spot_ratio="30%")
    cluster.run(60)
    assert rebalancer.count("release") == 0
    assert rebalancer.skipped == {str(Blocked.QUOTA)}
    cluster.put(Quota("shop", "pods", {"pods": 11}))
    settle(cluster, rebalancer)
    assert rebalancer.count("release") == 4
    assert rebalancer.violations == []


def test_a_namespace_that_opts_out_gets_its_pods_back_and_nothing_else() -> None:
    cluster = shop()
    web = cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    settle(cluster, rebalancer)
    cluster.annotate(web, spot_ratio="30%")
    cluster.run_until(lambda: rebalancer.count("release") > 0)
    moves = rebalancer.count("release")
    cluster.opt_out("shop")
    cluster.run(30)
    assert rebalancer.count("undo") == moves
    assert not any(names.RELEASED in pod.annotations for pod in cluster.pods)
    assert len(cluster.pods_of(web)) == 10
    before = len(rebalancer.writes)
    cluster.run(400)
    assert len(rebalancer.writes) == before
    assert rebalancer.violations == []


def test_modes_and_pause_stop_moves() -> None:
    """`plan-only` and `off` tell what would be done; a pause stops everything; afterwards it is done."""
    cluster = shop()
    web = cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    settle(cluster, rebalancer)
    for mode, blocked in (("plan-only", Blocked.PLAN_ONLY), ("off", Blocked.OFF)):
        cluster.annotate(web, spot_ratio="30%", rebalance=mode)
        cluster.run(60)
        assert rebalancer.count("release") == 0
        assert rebalancer.skipped == {str(blocked)}
    rebalancer.is_paused = True
    cluster.annotate(web, rebalance="")
    cluster.run(60)
    assert rebalancer.count("release") == 0
    assert rebalancer.skipped == {str(Blocked.PAUSED)}
    rebalancer.is_paused = False
    settle(cluster, rebalancer)
    assert rebalancer.count("release") == 4


def test_moves_wait_for_the_window_and_urgent_ones_do_not() -> None:
    """START is a Sunday, 15:06:40 UTC."""
    cluster = shop()
    web = cluster.deploy("web", 10, {names.REBALANCE_WINDOW: "20 15 * * * 1h"})
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    settle(cluster, rebalancer)
    cluster.annotate(web, spot_ratio="30%")
    cluster.run(600)
    assert rebalancer.count("release") == 0
    assert rebalancer.skipped == {str(Blocked.WINDOW)}
    settle(cluster, rebalancer)
    assert rebalancer.count("release") == 4
    cluster.run(3700)
    name = next(pod.node for pod in cluster.pods_of(web))
    cluster.cordon(name, TERMINATION)
    cluster.run(2)
    assert rebalancer.count("release") > 4


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_write_changes_nothing_in_the_end(after: bool) -> None:
    """Killed before or after the n-th write, for every n: the same mix, no double eviction, no pod left released."""
    for at in count(1):
        cluster = shop(spot=4, on_demand=4)
        web = cluster.deploy("web", 8)
        cluster.budget(web, min_available="100%")
        cluster.run(60)
        rebalancer, lowest = SimulatedRebalancer(cluster, fault=CrashAtWrite(at, after)), LowestServing(cluster)
        cluster.annotate(web, spot_ratio="30%")
        settle(cluster, rebalancer)
        cluster.run(30)
        assert rebalancer.violations == []
        assert rebalancer.count("release") == 3
        assert lowest.serving["web"] >= 8
        if not rebalancer.deaths:
            break
    assert at > 10


def test_a_pool_without_room_draws_nobody() -> None:
    """All spot pods are in one pool and the other is full: told, and not tried over and over."""
    cluster = SimulatedCluster()
    cluster.opt_in("shop")
    cluster.put(Namespace("others"))
    cluster.add_node(SPOT, "a", cpu=16_000)
    full = cluster.add_node(SPOT, "b", cpu=2_000)
    cluster.add_nodes(ON_DEMAND, 2)
    cluster.cordon(full.name)
    web = cluster.deploy("web", 10)
    cluster.budget(web, min_available=7)
    cluster.run(60)
    cluster.uncordon(full.name)
    needs = Needs(
        requests={"cpu": 2_000}, node_selector={names.ZONE: "b"}, tolerations=(Toleration(operator="Exists"),)
    )
    cluster.deploy("filler", 1, namespace="others", making=Making(needs))
    cluster.run(20)
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(3600)
    assert rebalancer.count("release") == 0
    assert rebalancer.skipped == {str(Blocked.NO_PLACE)}


@pytest.mark.parametrize("restarts", [False, True], ids=["one leader", "a new leader every five minutes"])
def test_an_ordered_stateful_set_that_cannot_stay_on_spot_is_not_evicted_over_and_over(restarts: bool) -> None:
    """Its spot ordinals are soft. The scheduler, for reasons of its own, puts them elsewhere each time."""
    cluster = shop(spot=2, on_demand=2)
    db = cluster.deploy_stateful("db", 3, ordered=True)
    for node in list(cluster.nodes.values()):  # a taint that Spotweave does not count as repelling
        if node.labels[names.CAPACITY] == "spot":
            cluster.put(replace(node, taints=(*node.taints, NodeTaint("scarce", "", "PreferNoSchedule"))))
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    cluster.run(120)
    lowest.begin()
    for _ in range(6):
        cluster.run(300)
        if restarts:
            rebalancer.kill()
    assert mix_of(cluster, db) == Mix(0, 3)
    assert rebalancer.count("evict") <= 2 * 3
    assert lowest.serving["db"] >= 2
    assert rebalancer.violations == []


def test_a_scale_down_to_nothing_leaves_no_released_pod() -> None:
    """A budget in percent expects none then and allows no eviction, for ever."""
    cluster = shop()
    web = cluster.deploy("web", 4)
    cluster.budget(web, min_available="100%")
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    cluster.annotate(web, spot_ratio="0%")
    cluster.run_until(lambda: rebalancer.count("release") > 0)
    cluster.change(web, replicas=0)
    cluster.run(30)
    assert cluster.pods_of(web) == []
    assert rebalancer.violations == []


@pytest.mark.parametrize("of", [SPOT, ON_DEMAND])
def test_leaving_nodes_are_emptied_a_few_pods_at_a_time_where_there_is_room_for_no_more(of: Class) -> None:
    """All nodes of the class go. Each pod ends when its replacement serves, though its siblings are still to move."""
    cluster = shop(spot=3, on_demand=3)
    web = cluster.deploy("web", 12, {names.MIN_ON_DEMAND: "4"})
    cluster.run(60)
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    settle(cluster, rebalancer)
    leaving = [name for name, node in cluster.nodes.items() if node.labels[names.CAPACITY] == of]
    for name in leaving:
        cluster.cordon(name, TERMINATION)
    cluster.add_node(of, "a", cpu=2_000)
    cluster.run_until(lambda: sum(pod.node in leaving for pod in cluster.pods) < 12 - 3)
    for _ in range(6):
        cluster.run(30)
        cluster.add_node(of, "a", cpu=2_000)
    cluster.run_until(lambda: not any(pod.node in leaving for pod in cluster.pods))
    assert lowest.serving["web"] >= 12
    assert len(cluster.pods_of(web)) == 12
    assert rebalancer.violations == []


def test_a_leaving_node_is_left_behind_however_late_there_is_room() -> None:
    """Spot is full and the policy is to wait: nothing is released until there is room, after ten minutes."""
    cluster = shop(spot=1, on_demand=2)
    web = cluster.deploy("web", 5, {names.SPOT_FALLBACK: "wait"})
    cluster.run(60)
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    settle(cluster, rebalancer)
    (spot,) = spot_nodes(cluster)
    cluster.cordon(spot, TERMINATION)
    cluster.run(600)
    assert len(cluster.pods_of(web)) == 5
    cluster.add_node(SPOT, "b")
    cluster.run_until(lambda: not any(pod.node == spot for pod in cluster.pods))
    settle(cluster, rebalancer)
    assert lowest.serving["web"] >= 5
    assert rebalancer.violations == []


def test_moves_to_a_class_that_is_full_come_to_nothing_and_bother_nobody() -> None:
    """70 → 30 % with on-demand full, for six hours: nobody is evicted for nothing, and no outage is noted."""
    cluster = shop(spot=6, on_demand=1)
    web = cluster.deploy("web", 10)
    cluster.put(Namespace("others"))
    needs = Needs(requests={"cpu": 5_000}, node_selector={names.CAPACITY: "on-demand"})
    cluster.deploy("filler", 1, namespace="others", making=Making(needs))
    cluster.run(60)
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    cluster.run(60)
    lowest.begin()
    cluster.annotate(web, spot_ratio="30%")
    cluster.run(60)
    cluster.step_seconds = 5.0
    cluster.run(6 * 3600)
    assert rebalancer.count("finish", "evict", "note") == 0
    assert 1 <= rebalancer.count("release") <= 40
    assert lowest.serving["web"] >= 10
    cluster.add_node(ON_DEMAND)
    cluster.run_until(lambda: rebalancer.is_exact(web), 4000)
    assert rebalancer.count("finish") == 4
    assert rebalancer.violations == []


def test_many_annotations_do_not_keep_a_notice_waiting() -> None:
    """300 missed pods, 100 annotated in a pass. A node leaves after the first: its pods are released in the third.

    In the second, other nodes may still begin to leave.
    """
    cluster = shop(spot=2, on_demand=60)
    web = cluster.deploy("web", 4)
    cluster.run(30)
    cluster.webhook_is_up = False
    for index in range(20):
        cluster.deploy(f"missed-{index}", 15)
    cluster.run(60)
    cluster.webhook_is_up = True
    rebalancer = SimulatedRebalancer(cluster)
    cluster.step()
    assert rebalancer.count("annotate") == 100
    leaving = next(pod.node for pod in cluster.pods_of(web) if cluster.class_of(pod) is SPOT)
    expected = sum(pod.node == leaving for pod in cluster.pods)
    cluster.cordon(leaving, TERMINATION)
    cluster.step()
    cluster.step()
    assert [write.verb for write in rebalancer.writes[200 : 200 + expected]] == ["release"] * expected
    cluster.run(3)
    assert rebalancer.count("annotate") >= 300


def test_a_pass_that_leaves_something_is_followed_by_another_at_once() -> None:
    cluster = shop(spot=0, on_demand=20)
    cluster.webhook_is_up = False
    cluster.deploy("missed", 120)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    cluster.step()
    assert rebalancer.wake.is_set()
    rebalancer.wake.clear()
    cluster.step()
    assert not rebalancer.wake.is_set()


def test_a_stateful_set_is_left_alone_during_its_own_rollout() -> None:
    """Its controller takes one pod after the other, and so would we: nobody is evicted before it is done."""
    cluster = shop(spot=3, on_demand=4)
    db = cluster.deploy_stateful("db", 8)
    cluster.run(60)
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    settle(cluster, rebalancer)
    cluster.roll_out(db)
    cluster.run(3)
    cluster.annotate(db, spot_ratio="30%")
    stale = f"r{cluster.makings[db.uid].revision - 1}"
    while any(pod.labels[names.CONTROLLER_REVISION_HASH] == stale for pod in cluster.pods_of(db)):
        cluster.step()
        assert rebalancer.count("evict") == 0
    settle(cluster, rebalancer, 1800)
    assert lowest.serving["db"] >= 7


def test_a_paused_deployment_of_one_revision_is_released_from_a_node_that_leaves() -> None:
    """Its ReplicaSet replaces pods as ever. Nothing else is moved."""
    cluster = shop()
    web = cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    settle(cluster, rebalancer)
    cluster.change(web, rollout=replace(web.rollout, paused=True))
    cluster.annotate(web, spot_ratio="30%")
    cluster.run(60)
    assert rebalancer.count("release") == 0
    name = next(pod.node for pod in cluster.pods_of(web) if cluster.class_of(pod) is SPOT)
    leaving = sum(pod.node == name for pod in cluster.pods)
    cluster.cordon(name, TERMINATION)
    cluster.run(2)
    assert rebalancer.count("release") == leaving


@pytest.mark.parametrize("declared", [True, False], ids=["exposed", "balance"])
def test_a_crowd_in_one_pool_is_spread_when_another_pool_comes(declared: bool) -> None:
    """Seven spot pods in one pool, four may be lost: after the moves no pool holds more, and nobody served less."""
    cluster = SimulatedCluster()
    cluster.opt_in("shop")
    cluster.add_node(SPOT, "a")
    cluster.add_nodes(ON_DEMAND, 2)
    web = cluster.deploy("web", 10, {names.MIN_AVAILABLE: "6"} if declared else {})
    cluster.run(60)
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    settle(cluster, rebalancer)
    assert rebalancer.count("release") == 0
    cluster.add_node(SPOT, "b")
    cluster.add_node(SPOT, "c")
    cluster.run(300)  # a node that comes touches nobody: it is seen in the next sweep
    settle(cluster, rebalancer)
    cluster.run(300)
    zones = Counter(cluster.nodes[pod.node].pool.zone for pod in cluster.pods_of(web) if cluster.class_of(pod) is SPOT)
    assert max(zones.values()) <= 4
    whys = {action.why for _, plan, _ in rebalancer.passes for action in plan.actions if action.how is How.RELEASE}
    assert whys == {Why.EXPOSED if declared else Why.BALANCE}
    assert 1 <= rebalancer.count("release") <= 7
    assert lowest.serving["web"] >= 10
    assert rebalancer.violations == []


def test_a_pod_that_asks_to_be_kept_on_a_leaving_node_holds_up_nobody() -> None:
    """Nobody drains the node: the pod stays released for ever, and others move past it, also after an outage."""
    cluster = shop()
    logs = cluster.deploy("logs", 4, making=Making(annotations={names.DO_NOT_DISRUPT: "true"}))
    web = cluster.deploy("web", 10)
    cluster.annotate(web, spot_ratio="0%")
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(120)
    name = next(pod.node for pod in cluster.pods_of(logs) if cluster.class_of(pod) is Class.SPOT)
    cluster.cordon(name, TERMINATION)
    cluster.run_until(lambda: any(pod.is_released for pod in cluster.pods))
    cluster.outages = noted(cluster.outages, Outage(Class.SPOT, 0.0), cluster.now, 60.0)
    cluster.run(120)
    cluster.annotate(web, spot_ratio="90%")
    cluster.run_until(lambda: rebalancer.is_exact(web), 1800)
    assert any(pod.is_released for pod in cluster.pods)


@pytest.mark.parametrize("budget", ["100%", 1, None])
def test_a_release_ends_when_its_workload_is_scaled_to_zero_meanwhile(budget: str | int | None) -> None:
    """No budget keeps a pod that nobody wants any more; its ReplicaSet would have deleted it."""
    cluster = shop()
    web = cluster.deploy("web", 4)
    if budget is not None:
        cluster.budget(web, min_available=budget)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    cluster.annotate(web, spot_ratio="0%")
    cluster.run_until(lambda: rebalancer.count("release") > 0)
    rebalancer.is_paused = True
    cluster.change(web, replicas=0)
    cluster.run(60)
    rebalancer.is_paused = False
    cluster.run(60)
    assert cluster.pods == []


@pytest.mark.parametrize("is_namespace", [True, False], ids=["its namespace", "the workload"])
def test_a_release_ends_when_its_workload_is_rolled_out_and_opted_out_meanwhile(is_namespace: bool) -> None:
    """Its ReplicaSet is to have no pods. It is evicted or, where that is not allowed any more, deleted: all serve."""
    cluster = shop()
    web = cluster.deploy("web", 4)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    cluster.annotate(web, spot_ratio="0%")
    cluster.run_until(lambda: rebalancer.count("release") > 0)
    rebalancer.is_alive = False
    cluster.roll_out(web)
    cluster.run(120)
    if is_namespace:
        cluster.opt_out("shop")
    else:
        cluster.change(web, labels={**cluster.again(web).labels, names.PLACEMENT: names.DISABLED})
    cluster.run(5)
    rebalancer.is_alive = True
    rebalancer.kill()
    cluster.run(60)
    assert [pod.name for pod in cluster.pods if names.RELEASED in pod.annotations] == []
    assert len(cluster.pods) == 4


# --- pods that are to be on hosts of their own -----------------------------------------------------------------------

APART = PodTerm(names.HOSTNAME, (NodeRequirement("app", "In", ("web",)),))
ALONE = Making(needs=replace(POD_NEEDS, anti_affinity=(APART,)))


def crowded(cluster: SimulatedCluster, workload: Workload) -> list[str]:
    """Hosts that were seen with two of its pods, from now on."""
    found: list[str] = []

    def look() -> None:
        hosts = Counter(pod.node for pod in cluster.pods_of(workload) if pod.node)
        found.extend(host for host, number in hosts.items() if number > 1)

    cluster.onlookers.append(look)
    return found


def test_pods_on_hosts_of_their_own_fall_back_when_all_spot_hosts_but_one_are_lost() -> None:
    """Two of three have no spot host left. The loss itself shows it, so they wait for no fallback time."""
    cluster = shop(spot=4, on_demand=4)
    everything = {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}
    web = cluster.deploy("web", 3, everything, making=ALONE)
    cluster.run(60)
    rebalancer, lowest, crowds = SimulatedRebalancer(cluster), LowestServing(cluster), crowded(cluster, web)
    settle(cluster, rebalancer)
    assert mix_of(cluster, web) == Mix(3, 0)
    for pod in cluster.pods_of(web)[1:]:
        cluster.lose(pod.node)
    free = next(name for name in spot_nodes(cluster) if name not in {pod.node for pod in cluster.pods_of(web)})
    cluster.lose(free)
    took = cluster.run_until(lambda: len(cluster.serving(web)) == 3, 200)
    assert took <= 3 + 10
    assert mix_of(cluster, web) == Mix(1, 2)
    lowest.begin()
    cluster.add_nodes(SPOT, 3, "abc", ("m", "r"))
    settle(cluster, rebalancer, 3600)
    assert mix_of(cluster, web) == Mix(3, 0)
    assert lowest.serving["web"] >= 3
    assert crowds == []
    assert rebalancer.violations == []


def test_pods_of_a_stateful_set_on_hosts_of_their_own_are_evicted_only_to_a_free_host() -> None:
    """Three are to go to spot, which has two hosts: two go, one after the other, and the third is left where it is."""
    cluster = shop(spot=2, on_demand=4)
    web = cluster.deploy_stateful("web", 3, {names.SPOT_RATIO: "0%"}, making=ALONE)
    cluster.run(60)
    rebalancer, lowest, crowds = SimulatedRebalancer(cluster), LowestServing(cluster), crowded(cluster, web)
    settle(cluster, rebalancer)
    lowest.begin()
    cluster.annotate(web, spot_ratio="100%", min_on_demand="0")
    cluster.run(1200)
    assert mix_of(cluster, web) == Mix(2, 1)
    assert rebalancer.count("evict") == 2
    assert lowest.serving["web"] >= 2
    assert rebalancer.plan is not None
    assert {each.blocked for each in rebalancer.plan.skipped} == {Blocked.NO_PLACE}
    cluster.add_nodes(SPOT, 1)
    settle(cluster, rebalancer)
    assert mix_of(cluster, web) == Mix(3, 0)
    assert rebalancer.count("evict") == 3
    assert crowds == []
    assert rebalancer.violations == []
