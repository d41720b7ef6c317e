"""Guarded pods in the simulation: no gate, and room is made for them as for a gang of one."""

from __future__ import annotations

import pytest

from placement import names
from placement.gang.belonging import is_guarded
from placement.gang.twins import twin_name
from placement.model import Class, Needs
from placement.plan.planners.guarded import PLACING_SECONDS
from tests.rebalancer.gangsimulation import CPU, MEMBERS, SimulatedJob
from tests.rebalancer.rebalancing import CrashAtWrite, SimulatedRebalancer
from tests.rebalancer.simulation import SimulatedCluster
from tests.rebalancer.test_gang_preemption import preempting

TWIN = twin_name("high")
HIGH = Needs(requests={"cpu": CPU}, priority=100, priority_class=TWIN)
WRITES = MEMBERS + 1 + MEMBERS + 1  # marks, a reservation, evictions, the plain reservation


def guarding(
    nodes: int = 2, fault: CrashAtWrite | None = None, *, is_on: bool = True
) -> tuple[SimulatedCluster, SimulatedRebalancer, SimulatedJob]:
    """A gang of four fills two nodes, and has run for long enough."""
    return preempting(nodes, fault, guard_solo=is_on)


def solo(cluster: SimulatedCluster, pods: int = 1) -> SimulatedJob:
    return SimulatedJob(cluster, "solo", pods, needs=HIGH, is_gang=False)


def test_a_gang_goes_whole_for_a_single_pod() -> None:
    """Not one member of it: all four are evicted, after room is reserved for the pod. A thief gets nothing before."""
    cluster, rebalancer, low = guarding()
    thief = SimulatedJob(cluster, "thief", 1, is_gang=False, needs=Needs(requests={"cpu": 4000}))
    seen: list[int] = []
    job = solo(cluster)
    cluster.onlookers.append(lambda: seen.append(thief.bound) if not job.bound else None)
    cluster.run_until(lambda: job.is_whole, 60)
    assert (rebalancer.count("reserve") >= 1, rebalancer.count("evict"), low.bound) == (True, MEMBERS, 0)
    assert max(seen) == 0
    assert not any(pod.gates for pod in job.pods)


def test_where_there_is_room_the_scheduler_alone_places_it() -> None:
    cluster, rebalancer, low = guarding(3)
    job = solo(cluster)
    cluster.run_until(lambda: job.is_whole, 20)
    cluster.run(5)
    assert (rebalancer.count("reserve"), rebalancer.count("evict"), low.bound) == (0, 0, MEMBERS)


def test_without_a_leader_it_waits_for_room_and_not_for_us() -> None:
    """Nobody lives. When a node comes, it runs there."""
    cluster, rebalancer, _ = guarding()
    rebalancer.is_alive = False
    job = solo(cluster)
    cluster.run(10)
    assert job.bound == 0
    cluster.add_node(Class.ON_DEMAND, cpu=4000)
    cluster.run_until(lambda: job.is_whole, 20)


def test_while_it_is_switched_off_nobody_goes_for_it() -> None:
    cluster, rebalancer, low = guarding(is_on=False)
    job = solo(cluster)
    cluster.run(30)
    assert (job.bound, low.bound, rebalancer.count("reserve", "evict")) == (0, MEMBERS, 0)


def test_pods_of_equal_priority_do_not_go() -> None:
    cluster, rebalancer, low = guarding()
    needs = Needs(requests={"cpu": CPU}, priority_class=twin_name(""))
    job = SimulatedJob(cluster, "solo", 1, needs=needs, is_gang=False)
    cluster.run(30)
    assert (job.bound, low.bound, rebalancer.count("reserve", "evict")) == (0, MEMBERS, 0)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, WRITES + 1))
def test_a_crash_at_any_write_is_repaired_by_the_next_leader(number: int, after: bool) -> None:
    """The pod runs in the end, the gang has gone whole or not at all, and no mark and no nomination is left."""
    cluster, rebalancer, low = guarding(2, CrashAtWrite(number, after))
    job = solo(cluster)
    cluster.run(20)
    if rebalancer.deaths:
        rebalancer.start()
    cluster.run_until(lambda: job.is_whole, 120)
    cluster.run(2 * PLACING_SECONDS)
    assert low.bound in (0, MEMBERS)
    assert not any(pod.nominated for pod in cluster.pods if not pod.node)
    assert not any(names.PREEMPTED_BY in pod.annotations for pod in cluster.pods)


def test_what_is_guarded() -> None:
    """A pod without a gate and a gang, with a twin, that waits."""
    cluster, _, low = guarding()
    job = solo(cluster)
    (pod,) = job.pods
    assert is_guarded(pod)
    assert not any(map(is_guarded, low.pods))
