"""Evictions by others, held and brought to an end by rebalancer and webhook together (ADR 24)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from placement import names
from placement.configuration import Configuration
from placement.eviction import EvictionHold
from placement.model import Class, NodeTaint, Pod, Workload
from placement.plan.actions import Blocked
from tests.rebalancer.heldevictions import HeldEvictions
from tests.rebalancer.rebalancing import SimulatedRebalancer
from tests.rebalancer.simulation import TERMINATION, SimulatedCluster
from tests.rebalancer.test_churn import ask_to_evict

SPOT, ON_DEMAND = Class.SPOT, Class.ON_DEMAND
SCALED = Configuration()
SCALED = replace(SCALED, classes=replace(SCALED.classes, labels=(replace(SCALED.classes.labels[0], is_scaled=True),)))


def shop(configuration: Configuration | None = None, spot: int = 6, spot_cpu: int = 8000) -> SimulatedCluster:
    cluster = SimulatedCluster(1, configuration=configuration or Configuration())
    cluster.opt_in("shop")
    cluster.add_nodes(SPOT, spot, "abc", cpu=spot_cpu)
    cluster.add_nodes(ON_DEMAND, 6, "abc")
    return cluster


def at_rest(cluster: SimulatedCluster, replicas: int, **settings: str) -> tuple[Workload, SimulatedRebalancer]:
    annotations = {names.PREFIX + key.replace("_", "-"): value for key, value in settings.items()}
    web = cluster.deploy("web", replicas, annotations)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(60)
    return web, rebalancer


def on_spot(cluster: SimulatedCluster, web: Workload) -> Pod:
    return next(pod for pod in cluster.pods_of(web) if pod.node.startswith("spot"))


@pytest.mark.parametrize("taints", [(), (TERMINATION,)], ids=["a drain", "a notice"])
def test_a_broken_replica_holds_up_no_drain(taints: tuple[NodeTaint, ...]) -> None:
    """Its node's other pod is replaced and goes, although one of ten does not serve, and never will."""
    cluster = shop()
    web, _ = at_rest(cluster, 10)
    chosen = on_spot(cluster, web)
    cluster.crash(next(pod for pod in cluster.pods_of(web) if pod.node != chosen.node), 1e9)
    cluster.run(60)
    before = len(cluster.serving(web))
    cluster.cordon(chosen.node, *taints)
    seconds, why = HeldEvictions(cluster, web).drain(chosen, 300)
    assert (why, seconds < 30) == (None, True)
    assert before == len(cluster.serving(web)) == 9


def test_a_notice_is_held_no_longer_than_all_else() -> None:
    """Its replacement never serves. The pod was released without a question on it."""
    cluster = shop()
    web, _ = at_rest(cluster, 10, min_available="100%")
    chosen = on_spot(cluster, web)
    cluster.makings[web.uid].start_seconds = 1e9
    cluster.cordon(chosen.node, TERMINATION)
    cluster.run(3)
    seconds, _ = HeldEvictions(cluster, web).drain(chosen, 300)
    assert 80 <= seconds <= 95


def test_a_pod_that_others_evict_is_not_put_back_and_released_again() -> None:
    """Spot is full and its autoscaler brings none: the replacement falls back, the pod is released once, none is lost.

    Before, the pod was put back after each fallback time and released a second later, nine times within its hold.
    """
    cluster = shop(SCALED, spot=7, spot_cpu=1000)
    web, rebalancer = at_rest(cluster, 10, spot_fallback_after="10s")
    chosen = on_spot(cluster, web)
    cluster.cordon(chosen.node)
    _, why = HeldEvictions(cluster, web).drain(chosen, 120)
    assert why is None
    assert rebalancer.count("release") == 1
    assert len(cluster.serving(web)) == 10


def test_all_pods_of_a_node_wait_for_the_autoscaler() -> None:
    """28 of 40 on one node, which goes. Another one comes after 40 s. Before, twenty were released, and eight lost."""
    cluster = shop(SCALED, spot=1, spot_cpu=32_000)
    web, _ = at_rest(cluster, 40)
    held = HeldEvictions(cluster, web)
    leaving = on_spot(cluster, web).node
    there = [pod for pod in cluster.pods_of(web) if pod.node == leaving]
    assert len(there) == 28
    cluster.put(replace(cluster.nodes[leaving], deleting=True, unschedulable=True))
    lowest = 40
    for second in range(80):
        if second == 40:
            cluster.add_node(SPOT, "b", cpu=32_000)
        for pod in there:
            held.evict(pod.key, pod.uid)
        cluster.run(1)
        lowest = min(lowest, len(cluster.serving(web)))
    assert lowest == 40
    assert not any(cluster.pod(pod.key, pod.uid) for pod in there)


def test_a_drain_that_was_given_up_does_not_leave_the_pod_unprotected() -> None:
    """Its note is removed. An hour later the next drain is held again, and costs nothing."""
    cluster = shop()
    web, _ = at_rest(cluster, 1)
    (lone,) = cluster.pods_of(web)
    held = HeldEvictions(cluster, web)
    cluster.makings[web.uid].start_seconds = 400.0
    cluster.cordon(lone.node)
    assert held.drain(lone, 60) == (60.0, "held")
    cluster.uncordon(lone.node)
    cluster.run(3600)
    cluster.makings[web.uid].start_seconds = 5.0
    (again,) = cluster.pods_of(web)
    assert names.EVICTION_ASKED not in again.annotations
    cluster.cordon(again.node)
    assert isinstance(held.evict(again.key, again.uid), EvictionHold)
    lowest = 1
    for _ in range(30):
        cluster.run(1)
        held.evict(again.key, again.uid)
        lowest = min(lowest, len(cluster.serving(web)))
    assert lowest == 1


def _is_fresh(pod: Pod) -> bool:
    return pod.ready and not pod.terminating and names.EVICTION_ASKED not in pod.annotations


def test_a_tenant_that_forges_questions_slows_no_other() -> None:
    """All its pods are released again and again. Ten pods of another tenant, which admission missed, move as usual."""
    cluster = shop(spot=24)
    cluster.opt_in("other")
    theirs = [cluster.deploy(f"their{number}", 40, namespace="other") for number in range(3)]
    for each in theirs:
        cluster.makings[each.uid].start_seconds = 25.0
    cluster.run(90)
    cluster.webhook_is_up = False
    web = cluster.deploy("web", 10)
    cluster.run(40)
    cluster.webhook_is_up = True
    rebalancer, began = SimulatedRebalancer(cluster), cluster.now
    while not rebalancer.is_exact(web):
        assert cluster.now < began + 150
        for pod in [pod for each in theirs for pod in cluster.pods_of(each) if _is_fresh(pod)]:
            cluster.put(ask_to_evict(pod, cluster.now))
        cluster.run(1)
    released = Counter(write.pod.namespace for write in rebalancer.writes if write.verb == "release" and write.pod)
    assert released["other"] > 100
    skipped = {
        each.blocked for _, plan, _ in rebalancer.passes for each in plan.skipped if each.workload.uid == web.uid
    }
    assert not skipped & {Blocked.IN_ALL, Blocked.PER_MINUTE, Blocked.PER_NAMESPACE}
