"""The real loop starts gangs on a simulated cluster: whole or not at all, whoever dies at any write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement import names
from placement.gang.gang import State
from placement.gang.reservation import Reservation
from placement.model import Class
from placement.outcome import Outcome
from placement.plan.planners.reservations import PLACING_SECONDS
from tests.rebalancer.gangsimulation import MEMBERS, SimulatedJob, gang_cluster
from tests.rebalancer.rebalancing import CrashAtWrite

WRITES = ("reserve", "unreserve", "start", "ungate", "evict", "replace", "annotate")


def test_a_gang_starts_whole() -> None:
    """Room is kept for all, then all start; each member is written to twice."""
    cluster, rebalancer = gang_cluster()
    job = SimulatedJob(cluster, "train")
    cluster.run_until(lambda: job.is_whole, 20)
    assert [rebalancer.count(verb) for verb in ("reserve", "start")] == [MEMBERS, MEMBERS]
    assert rebalancer.violations == []


def test_a_gang_that_cannot_fit_is_never_written_to() -> None:
    """Room for three of four: for ten minutes nothing is reserved and nothing starts."""
    cluster, rebalancer = gang_cluster()
    SimulatedJob(cluster, "filler", 1, is_gang=False)
    cluster.run(2)
    job = SimulatedJob(cluster, "train")
    cluster.run(600)
    assert (job.gated, rebalancer.count(*WRITES)) == (MEMBERS, 0)


def test_of_two_gangs_on_room_for_one_exactly_one_starts() -> None:
    """The other starts whole when the first has ended; at no moment is a part of either on nodes."""
    cluster, _ = gang_cluster()
    pair = [SimulatedJob(cluster, "a"), SimulatedJob(cluster, "b")]
    seen: set[tuple[int, int]] = set()
    cluster.onlookers.append(lambda: seen.add((pair[0].bound, pair[1].bound)))
    cluster.run(60)
    first, second = sorted(pair, key=lambda job: -job.bound)
    assert (first.bound, second.bound, second.reserved) == (MEMBERS, 0, 0)
    first.stop()
    cluster.run_until(lambda: second.is_whole, 30)
    assert {sum(each) for each in seen} <= {0, MEMBERS}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 2 * MEMBERS + 1))
def test_a_crash_at_any_write_is_repaired_by_the_next_leader(number: int, after: bool) -> None:
    """Thieves of the same priority come at once. They get what is not kept; the gang starts whole, or not at all."""
    cluster, rebalancer = gang_cluster(4, CrashAtWrite(number, after))
    job = SimulatedJob(cluster, "train")
    cluster.run_until(lambda: rebalancer.deaths == 1, 20)
    SimulatedJob(cluster, "thief", 3, is_gang=False)
    cluster.run(120)
    assert job.bound in (0, MEMBERS)
    assert job.is_whole or job.gated == MEMBERS
    assert job.is_whole  # there is room for both


def test_room_that_is_kept_is_kept_from_thieves() -> None:
    """The rebalancer dies when all is reserved. Thieves of the same priority wait; the next leader starts the gang."""
    cluster, rebalancer = gang_cluster(fault=CrashAtWrite(MEMBERS, after=True))
    job = SimulatedJob(cluster, "train")
    cluster.run_until(lambda: rebalancer.deaths == 1, 20)
    thief = SimulatedJob(cluster, "thief", 3, is_gang=False)
    cluster.run_until(lambda: job.is_whole, 20)
    assert thief.bound == 0


def test_a_start_that_gets_no_nodes_is_undone_whole() -> None:
    """A node goes while members start. All are evicted after a minute, and come back with their gate."""
    cluster, rebalancer = gang_cluster()
    job = SimulatedJob(cluster, "train")
    lost: list[str] = []

    def lose() -> None:
        started = [pod for pod in job.pods if not pod.gates and not pod.node]
        if started and not lost:
            lost.append(started[0].nominated)
            cluster.delete_node(lost[0])

    cluster.actors.append(lose)
    cluster.run_until(lambda: bool(lost), 20)
    cluster.run_until(lambda: job.gated == MEMBERS, PLACING_SECONDS + 30)
    assert rebalancer.count("evict", "replace") == MEMBERS
    cluster.run(60)
    assert (job.bound, job.gated) == (0, MEMBERS)
    cluster.add_node(Class.ON_DEMAND, cpu=4000)
    cluster.run_until(lambda: job.is_whole, 120)


def test_members_that_a_budget_keeps_are_joined_by_the_others() -> None:
    """A start is undone, and two members may not be evicted. When there is room again, the gang becomes whole."""
    cluster, rebalancer = gang_cluster()
    rebalancer.refuses = lambda verb, pod: Outcome.BLOCKED if verb == "evict" and pod.node else None
    job = SimulatedJob(cluster, "train")
    lost: list[str] = []

    def lose() -> None:
        started = [pod for pod in job.pods if not pod.gates and not pod.node]
        if started and not lost:
            lost.append(started[0].nominated)
            cluster.delete_node(lost[0])

    cluster.actors.append(lose)
    cluster.run(PLACING_SECONDS + 20)
    assert (job.bound, job.gated, rebalancer.count("replace")) == (2, 2, 2)
    cluster.add_node(Class.ON_DEMAND, cpu=4000)
    cluster.run_until(lambda: job.is_whole, 180)


def test_half_a_start_goes_on_however_long_nobody_led() -> None:
    """The rebalancer dies after two starts, and the next one comes after ten minutes: the room is still kept."""
    cluster, rebalancer = gang_cluster(fault=CrashAtWrite(MEMBERS + 2, after=True))
    job = SimulatedJob(cluster, "train")
    cluster.run_until(lambda: rebalancer.deaths == 1, 20)
    rebalancer.is_alive = False
    cluster.run(600)
    assert (job.bound, job.gated) == (2, 2)
    rebalancer.is_alive = True
    cluster.run_until(lambda: job.is_whole, 20)
    assert rebalancer.count("evict", "replace") == 0


def test_half_a_start_that_cannot_go_on_is_undone() -> None:
    """Its other half has lost its node: after a minute all wait with their gate, and nothing is nominated."""
    cluster, rebalancer = gang_cluster(fault=CrashAtWrite(MEMBERS + 2, after=True))
    job = SimulatedJob(cluster, "train")
    cluster.run_until(lambda: rebalancer.deaths == 1, 20)
    rebalancer.is_alive = False
    cluster.run(2)
    cluster.cordon(next(pod.nominated for pod in job.pods if pod.gates))
    rebalancer.is_alive = True
    cluster.run_until(lambda: job.gated == MEMBERS and not job.reserved, PLACING_SECONDS + 20)
    cluster.run(60)
    assert (job.bound, job.reserved) == (0, 0)


def test_room_for_a_part_is_given_back() -> None:
    """A plan of an earlier leader that does not fit any more leaves no nomination behind."""
    cluster, rebalancer = gang_cluster()
    rebalancer.is_alive = False
    job = SimulatedJob(cluster, "train")
    for pod in job.pods:
        node = next(iter(cluster.nodes))
        plan = Reservation("old", cluster.now - 3600, node).text()
        cluster.put(replace(pod, nominated=node, gang_plan=plan))
    cluster.delete_node(next(iter(cluster.nodes)))
    rebalancer.is_alive = True
    cluster.run(20)
    assert (job.reserved, job.gated, rebalancer.count("start")) == (0, MEMBERS, 0)


def test_a_lost_member_is_replaced_alone() -> None:
    """With `repair` the others go on; the replacement starts when there is room for it."""
    cluster, rebalancer = gang_cluster()
    job = SimulatedJob(cluster, "train", annotations={names.ON_PARTIAL_FAILURE: "repair"})
    cluster.run_until(lambda: job.is_whole, 20)
    survivors = {pod.uid for pod in job.pods[1:]}
    cluster.delete_pod(job.pods[0], 0)
    cluster.run_until(lambda: job.bound == MEMBERS - 1, 10)
    cluster.run_until(lambda: job.is_whole, 30)
    assert survivors <= {pod.uid for pod in job.pods}
    assert rebalancer.count("evict", "replace") == 0


def test_pause_starts_nothing_and_finishes_what_has_begun() -> None:
    """Paused while half of it has started: the other half starts. Another gang waits until the pause is over."""
    cluster, rebalancer = gang_cluster(4, CrashAtWrite(MEMBERS + 2, after=True))
    job = SimulatedJob(cluster, "train")
    rebalancer.hears = lambda _plan, _done: None
    cluster.run_until(lambda: rebalancer.deaths == 1, 20)
    rebalancer.is_paused = True
    other = SimulatedJob(cluster, "later")
    cluster.run(30)
    assert job.is_whole
    assert (other.gated, other.reserved) == (MEMBERS, 0)
    rebalancer.is_paused = False
    cluster.run_until(lambda: other.is_whole, 30)


def test_opting_out_takes_the_gate_off() -> None:
    """Where nobody would start the gang any more, its pods are left to the scheduler."""
    cluster, rebalancer = gang_cluster(1)
    job = SimulatedJob(cluster, "train")
    cluster.run(20)
    assert job.gated == MEMBERS
    cluster.opt_out("shop")
    cluster.run(20)
    assert (job.gated, job.bound) == (0, 2)
    assert rebalancer.count("ungate") == MEMBERS


def test_a_gang_that_waited_for_too_long_starts_without_guarantee() -> None:
    """`1m:start`: after a minute the gates are taken off, and the scheduler places what fits."""
    cluster, rebalancer = gang_cluster(1)
    job = SimulatedJob(cluster, "train", annotations={names.POD_GROUP_WAIT_TIMEOUT: "1m:start"})
    cluster.run(55)
    assert job.gated == MEMBERS
    cluster.run_until(lambda: job.gated == 0, 30)
    assert rebalancer.count("ungate") == MEMBERS
    cluster.run(5)
    assert job.bound == 2


def test_a_refused_write_starts_no_part() -> None:
    """The API server refuses one reservation for a while: nothing starts until all are reserved."""
    cluster, rebalancer = gang_cluster()
    job = SimulatedJob(cluster, "train")
    refused = job.pods[0].uid
    until = cluster.now + 60
    rebalancer.refuses = lambda verb, pod: (
        Outcome.IMPOSSIBLE if (verb, pod.uid) == ("reserve", refused) and cluster.now < until else None
    )
    cluster.run(55)
    assert job.bound == 0
    cluster.run_until(lambda: job.is_whole, 120)


def test_half_a_start_whose_rest_is_refused_is_undone() -> None:
    """The API server lets one of four not start, for good: no part of the gang keeps its nodes."""
    cluster, rebalancer = gang_cluster()
    job = SimulatedJob(cluster, "train")
    refused = job.pods[0].uid
    rebalancer.refuses = lambda verb, pod: Outcome.IMPOSSIBLE if (verb, pod.uid) == ("start", refused) else None
    cluster.run_until(lambda: job.bound == MEMBERS - 1, 20)
    cluster.run_until(lambda: job.gated == MEMBERS, 2 * PLACING_SECONDS)
    assert rebalancer.count("reserve") == MEMBERS + 1  # it got more time once


def test_ten_thousand_gated_pods_cost_no_plan() -> None:
    """What waits for want of room is tried now and then, not in every pass."""
    cluster, rebalancer = gang_cluster(1)
    for number in range(50):
        SimulatedJob(cluster, f"g{number}", 8)
    cluster.run(60)
    tried = [sum(each.was_tried for each in plan.gangs) for plan in [rebalancer.plan] if plan is not None]
    assert rebalancer.count(*WRITES) == 0
    assert rebalancer.plan is not None
    assert {each.state for each in rebalancer.plan.gangs} == {State.WAITING}
    assert sum(tried) < 50
