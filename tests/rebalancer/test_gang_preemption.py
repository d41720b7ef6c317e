"""The real loop makes room for gangs on a simulated cluster: whole or not at all, whoever dies at any write."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from placement import names
from placement.configuration import Configuration
from placement.gang.settings import Gangs
from placement.model import Budget, Class, Needs, Pod
from placement.outcome import Outcome
from tests.builders.model import budget
from tests.rebalancer.gangsimulation import CPU, MEMBERS, SimulatedJob
from tests.rebalancer.rebalancing import CrashAtWrite, SimulatedRebalancer
from tests.rebalancer.simulation import Making, SimulatedCluster

HIGH = Needs(requests={"cpu": CPU}, priority=100)
WRITES = 2 * MEMBERS + MEMBERS + 2 * MEMBERS  # marks and reservations, evictions, plain reservations and starts


def preempting(
    nodes: int = 2, fault: CrashAtWrite | None = None, **gangs: object
) -> tuple[SimulatedCluster, SimulatedRebalancer, SimulatedJob]:
    """A gang of low priority runs, and has for long enough. The fault strikes after it has started."""
    settings = Gangs(**{"enabled": True, "minimum_run_time": timedelta(seconds=5), **gangs})  # type: ignore[arg-type]
    cluster = SimulatedCluster(configuration=Configuration(gangs=settings))
    cluster.opt_in("shop")
    for _ in range(nodes):
        cluster.add_node(Class.ON_DEMAND, cpu=4000)
    rebalancer = SimulatedRebalancer(cluster)
    low = SimulatedJob(cluster, "low")
    cluster.run_until(lambda: low.is_whole, 20)
    cluster.run(20)
    rebalancer.writes.clear()
    rebalancer.fault = fault or rebalancer.fault
    return cluster, rebalancer, low


def test_a_gang_of_higher_priority_gets_the_room_of_a_lower_one() -> None:
    """All four victims go, once each, and only when room is kept; thieves of their priority get nothing before."""
    cluster, rebalancer, low = preempting()
    thief = SimulatedJob(cluster, "thief", 3, is_gang=False)
    victims = {pod.uid for pod in low.pods}
    seen: list[int] = []
    high = SimulatedJob(cluster, "high", needs=HIGH)
    cluster.onlookers.append(lambda: seen.append(thief.bound))
    cluster.run_until(lambda: high.is_whole, 30)
    assert {write.pod.uid for write in rebalancer.writes if write.verb == "evict" and write.pod} == victims
    assert (rebalancer.count("evict"), low.gated, max(seen)) == (MEMBERS, MEMBERS, 0)
    cluster.run(30)
    assert (rebalancer.count("evict"), low.bound, low.reserved) == (MEMBERS, 0, 0)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, WRITES + 1))
def test_a_crash_at_any_write_ends_whole_or_not_at_all(number: int, after: bool) -> None:
    """Thieves come at once, and the next leader goes on: the gang starts, all victims have gone, no mark is left."""
    cluster, rebalancer, low = preempting(fault=CrashAtWrite(number, after))
    high = SimulatedJob(cluster, "high", needs=HIGH)
    cluster.run_until(lambda: rebalancer.deaths == 1, 30)
    SimulatedJob(cluster, "thief", 3, is_gang=False)
    cluster.run_until(lambda: high.is_whole, 60)
    cluster.run(30)
    assert (high.bound, low.bound, rebalancer.count("evict")) == (MEMBERS, 0, MEMBERS)
    assert not any(names.PREEMPTED_BY in pod.annotations for pod in cluster.pods)


def test_a_scheduler_that_restarts_beside_a_dead_leader_keeps_room() -> None:
    """It has forgotten all that is reserved. It is written again before the first victim goes: thieves get nothing."""
    cluster, rebalancer, low = preempting(fault=CrashAtWrite(2 * MEMBERS, after=True))
    high = SimulatedJob(cluster, "high", needs=HIGH)
    cluster.run_until(lambda: rebalancer.deaths == 1, 30)
    assert high.reserved == MEMBERS
    for pod in low.pods[:2]:  # some end before the others
        cluster.put(replace(pod, needs=replace(pod.needs, grace_seconds=1)))
    rebalancer.is_alive = False
    cluster.run(4)
    cluster.restart_scheduler()
    rebalancer.is_alive = True
    thief = SimulatedJob(cluster, "thief", 3, is_gang=False)
    stolen = [0]
    cluster.onlookers.append(lambda: stolen.append(thief.bound))
    cluster.run_until(lambda: high.is_whole, 60)
    assert (max(stolen), rebalancer.count("evict")) == (0, MEMBERS)


def test_a_gang_goes_elsewhere_if_its_room_is_taken_while_victims_end() -> None:
    """A pod of higher priority takes some of it. There is other room by then: nobody else goes, and it starts."""
    cluster, rebalancer, _low = preempting()
    high = SimulatedJob(cluster, "high", needs=HIGH)
    cluster.run_until(lambda: rebalancer.count("evict") == MEMBERS, 30)
    assert high.reserved == MEMBERS
    cluster.add_node(Class.ON_DEMAND, cpu=4000)
    cluster.cordon(next(pod.nominated for pod in high.pods))
    cluster.run_until(lambda: high.is_whole, 60)
    assert rebalancer.count("evict") == MEMBERS


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 2 * MEMBERS + 4))
def test_a_gang_goes_whole_where_a_part_of_it_would_do(number: int, after: bool) -> None:
    """One member needs the room of one of four. The leader dies while it marks or evicts: no part of them goes."""
    cluster, rebalancer, low = preempting(fault=CrashAtWrite(number, after))
    high = SimulatedJob(cluster, "high", 1, needs=HIGH)
    cluster.run_until(lambda: rebalancer.deaths == 1, 30)
    cluster.run_until(lambda: high.is_whole, 60)
    cluster.run(30)
    assert (high.bound, low.bound, rebalancer.count("evict")) == (1, 0, MEMBERS)
    assert not any(names.PREEMPTED_BY in pod.annotations for pod in cluster.pods)


@pytest.mark.parametrize("number", [*range(1, 2 * MEMBERS + 1)])
def test_a_crash_before_the_first_eviction_costs_nothing_where_the_gang_has_gone(number: int) -> None:
    """Nobody wants the room any more when the next leader comes: marks and reservations go, and no pod."""
    cluster, rebalancer, low = preempting(fault=CrashAtWrite(number, after=True))
    high = SimulatedJob(cluster, "high", needs=HIGH)
    cluster.run_until(lambda: rebalancer.deaths == 1, 30)
    high.stop()
    cluster.run(60)
    assert (low.bound, rebalancer.count("evict")) == (MEMBERS, 0)
    assert not any(names.PREEMPTED_BY in pod.annotations or pod.nominated for pod in cluster.pods)


def test_nothing_goes_for_a_gang_that_would_not_fit_even_then() -> None:
    """One member more than there is room for: nobody is written to, and the reason says so."""
    cluster, rebalancer, low = preempting()
    SimulatedJob(cluster, "high", MEMBERS + 1, needs=HIGH)
    cluster.run(60)
    assert (low.bound, len(rebalancer.writes)) == (MEMBERS, 0)
    assert "does not fit even if everything of lower priority is evicted" in _reason(rebalancer)


def test_a_budget_that_forbids_it_is_named() -> None:
    """It would allow one eviction of four: none is asked for."""
    cluster, rebalancer, low = preempting()
    cluster.put(replace(_budget(), allowed=1, healthy=4, desired=3, expected=4))
    SimulatedJob(cluster, "high", needs=HIGH)
    cluster.run(60)
    assert (low.bound, len(rebalancer.writes)) == (MEMBERS, 0)
    assert "PodDisruptionBudget shop/low" in _reason(rebalancer)


def test_the_same_priority_and_a_young_gang_stay() -> None:
    """A gang of the same priority waits; so does a higher one until the minimum run time is over."""
    cluster, rebalancer, low = preempting(minimum_run_time=timedelta(seconds=60))
    SimulatedJob(cluster, "equal")
    high = SimulatedJob(cluster, "high", needs=HIGH)
    cluster.run(20)
    assert (low.bound, rebalancer.count("evict", "annotate")) == (MEMBERS, 0)
    cluster.run_until(lambda: high.is_whole, 120)


def test_a_refusal_in_the_middle_ends_it() -> None:
    """The third eviction is refused: no other is asked for, and no room is kept. The evicted ones come back."""
    cluster, rebalancer, low = preempting()
    asked: list[str] = []

    def refuses(verb: str, _pod: object) -> Outcome | None:
        if verb == "evict":
            asked.append(verb)
        return Outcome.BLOCKED if verb == "evict" and len(asked) > 2 else None

    rebalancer.refuses = refuses
    high = SimulatedJob(cluster, "high", needs=HIGH)
    cluster.run_until(lambda: len(asked) == 3, 20)
    cluster.run(4)
    assert (len(asked), high.reserved, high.bound) == (3, 0, 0)
    assert not any(names.PREEMPTED_BY in pod.annotations for pod in low.pods)
    rebalancer.refuses = lambda _verb, _pod: None
    cluster.run(120)
    assert (high.bound, low.bound) == (MEMBERS, 0)


def test_no_more_goes_than_is_needed() -> None:
    """Half of the nodes are free, and single pods of low priority are on the other half, one of them too many."""
    cluster, rebalancer, low = preempting(4)
    SimulatedJob(cluster, "solo", 3, is_gang=False)
    cluster.run(20)
    high = SimulatedJob(cluster, "high", 3, needs=HIGH)
    cluster.run_until(lambda: high.is_whole, 30)
    assert (rebalancer.count("evict"), low.bound) == (2, MEMBERS)


def test_surplus_members_go_first() -> None:
    """Of a gang that needs two of its four members, one goes for a gang of one. It comes back gated, and waits."""
    cluster, rebalancer = _with_surplus()
    low = [pod for pod in cluster.pods if pod.labels["app"] == "low"]
    high = SimulatedJob(cluster, "high", 1, needs=HIGH)
    cluster.run_until(lambda: high.is_whole, 30)
    assert (len(low), rebalancer.count("evict")) == (MEMBERS, 1)


def test_a_pause_evicts_nothing_and_gives_room_back() -> None:
    """Paused when all room is kept, before the first eviction."""
    cluster, rebalancer, low = preempting(fault=CrashAtWrite(2 * MEMBERS, after=True))
    high = SimulatedJob(cluster, "high", needs=HIGH)
    cluster.run_until(lambda: rebalancer.deaths == 1, 30)
    rebalancer.is_paused = True
    cluster.run(30)
    assert (low.bound, high.reserved, rebalancer.count("evict")) == (MEMBERS, 0, 0)
    assert not any(names.PREEMPTED_BY in pod.annotations for pod in low.pods)
    rebalancer.is_paused = False
    cluster.run_until(lambda: high.is_whole, 60)


def test_evictions_of_an_hour_are_limited() -> None:
    """Four within an hour in a namespace: a second gang waits until the hour is over."""
    cluster, rebalancer, _ = preempting(4, evictions_per_namespace=4)
    SimulatedJob(cluster, "other")
    cluster.run(20)
    first, second = (SimulatedJob(cluster, name, needs=HIGH) for name in ("first", "second"))
    cluster.run(120)
    assert (first.bound + second.bound, rebalancer.count("evict")) == (MEMBERS, MEMBERS)
    assert "evictions" in _reason(rebalancer)


def test_a_victim_that_does_not_end_is_not_waited_for_for_ever() -> None:
    """Its grace period and a minute are over: the room is given back."""
    cluster, _, low = preempting()
    for pod in low.pods:
        cluster.put(replace(pod, needs=replace(pod.needs, grace_seconds=1)))
    cluster.onlookers.append(lambda: _hang(cluster))
    high = SimulatedJob(cluster, "high", needs=HIGH)
    cluster.run_until(lambda: high.reserved == MEMBERS, 20)
    cluster.run_until(lambda: not high.reserved, 75)
    assert high.bound == 0


def _hang(cluster: SimulatedCluster) -> None:
    for pod in cluster.pods:
        if pod.terminating:
            cluster.facts[pod.uid].dies_at = float("inf")


def _with_surplus() -> tuple[SimulatedCluster, SimulatedRebalancer]:
    settings = Gangs(enabled=True, minimum_run_time=timedelta(0))
    cluster = SimulatedCluster(configuration=Configuration(gangs=settings))
    cluster.opt_in("shop")
    cluster.add_nodes(Class.ON_DEMAND, 2, cpu=4000)
    rebalancer = SimulatedRebalancer(cluster)
    low = SimulatedJob(cluster, "low", annotations={names.POD_GROUP_MIN_MEMBER: "2"})
    cluster.run_until(lambda: low.is_whole, 20)
    return cluster, rebalancer


def _budget() -> Budget:
    return budget("low", namespace="shop", selector={"matchLabels": {"app": "low"}}, min_available=3)


def _reason(rebalancer: SimulatedRebalancer) -> str:
    assert rebalancer.plan is not None
    return "; ".join(each.reason for each in rebalancer.plan.gangs)


# --- services --------------------------------------------------------------------------------------------------------


def _service(members: int, needed: int, **written: str) -> tuple[SimulatedCluster, SimulatedRebalancer, SimulatedJob]:
    """Four replicas on two full nodes, then a gang of higher priority; how many serve at worst is judged as well."""
    settings = Gangs(enabled=True, minimum_run_time=timedelta(seconds=5))
    cluster = SimulatedCluster(configuration=Configuration(gangs=settings))
    cluster.opt_in("shop")
    for _ in range(2):
        cluster.add_node(Class.ON_DEMAND, cpu=4000)
    policy = {names.SPOT_RATIO: "0%", names.MIN_AVAILABLE: str(needed), names.MIN_ON_DEMAND: "0", **written}
    web = cluster.deploy("web", 4, policy, making=Making(needs=Needs(requests={"cpu": CPU}, grace_seconds=2)))
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run_until(lambda: len(cluster.serving(web)) == 4, 60)
    cluster.run(30)
    rebalancer.writes.clear()
    serving = [4]
    cluster.onlookers.append(lambda: serving.append(len(cluster.serving(web))))
    high = SimulatedJob(cluster, "high", members, needs=HIGH)
    cluster.run(90)
    assert min(serving) >= min(needed, 4)
    return cluster, rebalancer, high


def test_a_service_makes_room_above_what_must_serve() -> None:
    """Two of its four replicas must serve: the other two go for a gang of two."""
    _, rebalancer, high = _service(2, needed=2)
    assert (high.is_whole, rebalancer.count("evict")) == (True, 2)


def test_a_service_makes_no_room_below_what_must_serve() -> None:
    """Three of four must serve: nothing goes for a gang of two, and the reason names the service."""
    _, rebalancer, high = _service(2, needed=3)
    assert (high.bound, rebalancer.count("evict")) == (0, 0)
    assert "Deployment shop/web" in _reason(rebalancer)


def test_a_service_makes_no_room_below_its_floor() -> None:
    """One of four must serve, and three of them on on-demand."""
    _, rebalancer, high = _service(2, needed=1, **{names.MIN_ON_DEMAND: "3"})
    assert (high.bound, rebalancer.count("evict")) == (0, 0)
    assert "Deployment shop/web on on-demand" in _reason(rebalancer)


@pytest.mark.parametrize("seed", range(5))
def test_half_of_all_writes_fail(seed: int) -> None:
    """No pod's more than three times in a row. Marks and reservations are completed: the gang starts, and soon."""
    cluster, rebalancer, low = preempting()
    lot, in_a_row = Random(seed), Counter[tuple[str, str]]()

    def refuses(verb: str, pod: Pod) -> Outcome | None:
        is_refused = in_a_row[verb, pod.uid] < 3 and lot.random() < 0.5
        in_a_row[verb, pod.uid] = in_a_row[verb, pod.uid] + 1 if is_refused else 0
        return Outcome.BUSY if is_refused else None

    rebalancer.refuses = refuses
    high = SimulatedJob(cluster, "high", needs=HIGH)
    took = cluster.run_until(lambda: high.is_whole, 150)
    cluster.run(60)
    assert (high.bound, low.bound, low.reserved) == (MEMBERS, 0, 0), took
    assert not any(names.PREEMPTED_BY in pod.annotations for pod in cluster.pods)
