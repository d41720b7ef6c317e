"""Less churn: what is not rewritten, and not moved, though it could be (issue 13)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from placement import names
from placement.eviction import EvictionAsked
from placement.model import Class, Node, Pod
from placement.plan.actions import Blocked, How
from placement.plan.gathering import LONGEST_SECONDS, Gathering
from tests.builders.model import node
from tests.builders.plan import ground
from tests.rebalancer.rebalancing import SimulatedRebalancer
from tests.rebalancer.simulation import TERMINATION, SimulatedCluster

SPOT, ON_DEMAND = Class.SPOT, Class.ON_DEMAND


def shop(spot: int = 6, spot_cpu: int = 8000) -> SimulatedCluster:
    """Nodes of eight places each in three zones, or of so many of spot as their CPU has."""
    cluster = SimulatedCluster()
    cluster.opt_in("shop")
    cluster.add_nodes(SPOT, spot, "abc", cpu=spot_cpu)
    cluster.add_nodes(ON_DEMAND, 6, "abc")
    return cluster


def test_a_burst_on_nodes_that_come_one_by_one_writes_each_slot_once_at_most() -> None:
    """10 → 40, and eight spot nodes of three places each come a second apart, three of a zone at a time.

    Before, 77 annotations were written, up to six on one pod, and five pods moved.
    """
    cluster = shop(spot=3, spot_cpu=3000)
    web = cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(60)
    cluster.change(cluster.again(web), replicas=40)
    cluster.run(4)
    for number in range(8):
        cluster.add_node(SPOT, "abc"[number // 3], cpu=3000)
        cluster.run(1)
    cluster.run(300)
    written = Counter(write.pod.name for write in rebalancer.writes if write.pod and write.verb == "annotate")
    assert max(written.values(), default=0) <= 1
    assert written.total() <= 15
    assert rebalancer.count("release") == 0
    assert rebalancer.is_exact(web)


def test_what_has_just_returned_is_not_moved_on_to_even_out_pools() -> None:
    """All spot is lost. It comes back one node at a time, so the first pool gets the most. Three may be lost of ten.

    Before, a pod that had returned was moved again, as exposed, within half a minute.
    """
    cluster = shop()
    web = cluster.deploy("web", 10, {names.MIN_AVAILABLE: "7"})
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(60)
    for name in [name for name in cluster.nodes if name.startswith("spot")]:
        cluster.lose(name)
    cluster.run(60)
    for zone in "abcabc":
        cluster.add_node(SPOT, zone)
        cluster.run(20)
    assert begun(rebalancer) == Counter({"return": 7})
    cluster.run(cluster.configuration.moves.cool_down.total_seconds())
    assert rebalancer.is_exact(web)
    assert begun(rebalancer)["exposed"] <= 1, "later it may be moved, within limits"


def rolled_out_without_the_webhook() -> tuple[SimulatedCluster, SimulatedRebalancer, float]:
    """All pods are new and come out anywhere; and when that ended."""
    cluster = shop()
    web = cluster.deploy("web", 10)
    cluster.run(60)
    cluster.webhook_is_up = False
    cluster.roll_out(web)
    cluster.run_until(lambda: bool(cluster.again(web).rolled_out))
    cluster.webhook_is_up = True
    return cluster, SimulatedRebalancer(cluster), cluster.now


def test_no_pod_is_moved_in_the_first_minutes_after_a_rollout() -> None:
    """`kubectl rollout status` would see a replica less. Later they are moved."""
    cluster, rebalancer, ended = rolled_out_without_the_webhook()
    cluster.run(cluster.configuration.moves.after_rollout.total_seconds() - 2)
    assert begun(rebalancer).total() == 0
    assert str(Blocked.ROLLED_OUT) in rebalancer.skipped
    (web,) = cluster.workloads
    assert web.rolled_out == ended
    cluster.run_until(lambda: rebalancer.is_exact(web), 600)
    assert begun(rebalancer).total() > 0
    assert cluster.again(web).rolled_out == ended, "a move renews it"


def test_pods_that_leave_anyway_do_not_wait_for_the_end_of_a_rollout() -> None:
    """On a node that leaves, and where others evict them."""
    cluster, rebalancer, _ = rolled_out_without_the_webhook()
    cluster.run(20)  # they are adopted meanwhile
    first, *others = cluster.pods
    evicted = next(pod for pod in others if pod.node != first.node)
    cluster.put(ask_to_evict(evicted, cluster.now))
    cluster.cordon(first.node, TERMINATION)
    cluster.run(5)
    assert begun(rebalancer)["node-leaving"] == sum(pod.node == first.node for pod in (first, *others))
    assert begun(rebalancer)["eviction-asked"] == 1


def ask_to_evict(pod: Pod, now: float) -> Pod:
    note = {names.EVICTION_ASKED: EvictionAsked(now, "alice").text()}
    return replace(pod, annotations={**pod.annotations, **note})


def begun(rebalancer: SimulatedRebalancer) -> Counter[str]:
    """The moves so far, by their reason."""
    done = (each.action for _, _, done in rebalancer.passes for each in done)
    return Counter(str(action.why) for action in done if action.how is How.RELEASE)


@pytest.mark.parametrize("asks", [False, True], ids=["by a notice", "and others evict their pods"])
def test_nodes_that_leave_one_after_the_other_cost_one_release_per_pod(asks: bool) -> None:
    """All six spot nodes, a tenth of a second apart, with seven pods. Before, there were sixteen releases."""
    cluster = SimulatedCluster(1, step_seconds=0.1)
    cluster.opt_in("shop")
    cluster.add_nodes(SPOT, 6, "abc")
    cluster.add_nodes(ON_DEMAND, 6, "abc")
    web = cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(60)
    began = cluster.now
    for name in sorted(name for name in cluster.nodes if name.startswith("spot")):
        cluster.cordon(name, TERMINATION)
        for pod in [pod for pod in cluster.pods_of(web) if pod.node == name and asks]:
            cluster.put(ask_to_evict(pod, cluster.now))
        cluster.run(0.1)
    cluster.run(60)
    released = [write for write in rebalancer.writes if write.verb == "release"]
    assert len(released) == len({write.pod.name for write in released if write.pod}) == 7
    assert max(write.at - began for write in released) <= 6 * 0.1 + LONGEST_SECONDS


def test_gathering() -> None:
    """A node waits until none has followed for 0.4 s, a second at most. What left before does not wait."""
    gone, left, right = (node(name, SPOT) for name in ("gone", "left", "right"))
    gathering = Gathering()

    def nodes(timer: float, *leaving: Node) -> set[str]:
        there = {each.name: each for each in (gone, left, right)}
        there |= {each.name: replace(each, taints=(TERMINATION,)) for each in leaving}
        found = gathering.nodes(ground(*there.values()), timer)
        assert gathering.is_waiting == bool(found)
        return set(found)

    assert nodes(100.0, gone) == set()
    assert nodes(101.0, gone, left) == {"left"}
    assert nodes(101.3, gone, left, right) == {"left", "right"}
    assert nodes(101.6, gone, left, right) == {"left", "right"}
    assert nodes(101.8, gone, left, right) == set()
    assert nodes(101.9, gone, left) == set()
    assert nodes(102.1, gone, left, right) == {"right"}, "it stayed, and leaves again; the other has waited"
