"""The real loop looks after gangs that run on a simulated cluster: members are lost, time runs out, leaders die."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from placement import names
from placement.gang.gang import State
from placement.gang.run import Run, run_of
from placement.model import Class, Quota
from placement.outcome import Outcome
from placement.plan.planners.life import REFUSED_SECONDS
from tests.rebalancer.gangsimulation import MEMBERS, WITH_GANGS, SimulatedJob, gang_cluster
from tests.rebalancer.rebalancing import CrashAtWrite, SimulatedRebalancer
from tests.rebalancer.simulation import TERMINATION, SimulatedCluster

CUSTOM = "TrainingRun"  # an owner that says nothing of its number
STARTS = 2 * MEMBERS  # writes until a gang runs: reservations and starts
RESTARTS = 2 * (MEMBERS - 1)  # writes until the rest is evicted: marks and evictions


def running(
    nodes: int = 2,
    fault: CrashAtWrite | None = None,
    policy: str = "",
    annotations: dict[str, str] | None = None,
    owner: str = "Job",
) -> tuple[SimulatedCluster, SimulatedRebalancer, SimulatedJob]:
    """A gang that runs. The fault strikes after it has started."""
    cluster, rebalancer = gang_cluster(nodes, fault)
    if fault is not None:
        fault.at += STARTS
    said = {names.ON_PARTIAL_FAILURE: policy} if policy else {}
    job = SimulatedJob(cluster, "train", annotations={**said, **(annotations or {})}, owner=owner)
    cluster.run_until(lambda: job.is_whole, 20)
    cluster.run(2)
    return cluster, rebalancer, job


class Heard:
    """All Events that plans asked for."""

    def __init__(self, rebalancer: SimulatedRebalancer) -> None:
        self.told: dict[str, str] = {}
        rebalancer.hears = lambda plan, _done: self.told.update(
            {reason: text for status in plan.gangs for reason, text in status.news}
        )


def uids(job: SimulatedJob) -> set[str]:
    return {pod.uid for pod in job.pods}


def lose_by_hand(cluster: SimulatedCluster, job: SimulatedJob) -> None:
    cluster.delete_pod(job.pods[0], 0)


def lose_its_node(cluster: SimulatedCluster, job: SimulatedJob) -> None:
    """Its machine is gone, with proof; another node comes for it."""
    cluster.lose(job.pods[0].node)
    cluster.add_node(Class.ON_DEMAND, cpu=4000)


def fail_one(cluster: SimulatedCluster, job: SimulatedJob) -> None:
    """Its container ends with an error; the Job creates another pod."""
    cluster.put(replace(job.pods[0], phase="Failed"))


def preempt_one(cluster: SimulatedCluster, job: SimulatedJob) -> None:
    """The scheduler deletes it."""
    cluster.put(replace(job.pods[0], disrupted=names.PREEMPTED))
    cluster.delete_pod(cluster.objects["pods"][job.pods[0].key])


LOSSES: dict[str, Callable[[SimulatedCluster, SimulatedJob], None]] = {
    "deleted by hand": lose_by_hand,
    "its node is gone": lose_its_node,
    "it failed": fail_one,
    "preempted by the scheduler": preempt_one,
}


# --- restart-gang ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES.keys())
def test_a_lost_member_restarts_the_gang(lose: Callable[[SimulatedCluster, SimulatedJob], None]) -> None:
    """The others are evicted, come back with their gate, and all start together: never a part of the new run."""
    cluster, rebalancer, job = running()
    heard, before = Heard(rebalancer), uids(job)
    parts: set[int] = set()
    cluster.onlookers.append(lambda: parts.add(sum(bool(pod.node) for pod in job.pods if pod.uid not in before)))
    lose(cluster, job)
    cluster.run_until(lambda: job.is_whole and not before & uids(job), 60)
    assert parts <= {0, MEMBERS}
    assert (
        "1 of its 4 members was lost" in heard.told[names.EVENT_GANG_LOST]
        or "2 of its" in heard.told[names.EVENT_GANG_LOST]
    )
    assert rebalancer.violations == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, RESTARTS + 1))
def test_a_crash_at_any_write_of_a_restart_is_repaired(number: int, after: bool) -> None:
    """The marks are on the pods: the next leader evicts the rest, and the gang becomes whole."""
    cluster, rebalancer, job = running(fault=CrashAtWrite(number, after))
    before = uids(job)
    lose_by_hand(cluster, job)
    cluster.run_until(lambda: job.is_whole and not before & uids(job), 60)
    assert rebalancer.deaths == 1


def test_a_scale_down_is_no_failure() -> None:
    """The Job wants three from now on. The others go on, and the run is noted to have three."""
    cluster, rebalancer, job = running(annotations={names.POD_GROUP_MIN_MEMBER: "3"})
    survivors = {pod.uid for pod in job.pods[1:]}
    job.change(parallelism=3)
    cluster.delete_pod(job.pods[0], 0)
    cluster.run(30)
    assert uids(job) == survivors
    assert rebalancer.count("evict") == 0


def test_a_scale_down_below_the_declared_number_is_no_failure() -> None:
    """Its owner wants fewer than start together: that is its own wish. Later losses are counted from there."""
    cluster, rebalancer, job = running()
    job.change(parallelism=3)
    cluster.delete_pod(job.pods[0], 0)
    cluster.run(30)
    assert (job.bound, rebalancer.count("evict")) == (3, 0)
    assert {run.number for pod in job.pods if (run := run_of(pod)) is not None} == {3}


def test_members_that_succeeded_are_not_lost() -> None:
    """Three of four have ended well: the last one goes on."""
    cluster, rebalancer, job = running()
    for pod in job.pods[:3]:
        cluster.put(replace(pod, phase="Succeeded"))
    cluster.run(30)
    assert (job.bound, rebalancer.count("evict")) == (4, 0)


def test_a_member_above_the_minimum_is_no_loss() -> None:
    """Two must run together, and three are left: the others go on, and a replacement joins."""
    cluster, _rebalancer, job = running(annotations={names.POD_GROUP_MIN_MEMBER: "2"})
    survivors = {pod.uid for pod in job.pods[1:]}
    lose_by_hand(cluster, job)
    cluster.run_until(lambda: job.is_whole, 30)
    assert survivors <= uids(job)


def test_the_owner_that_goes_restarts_nothing() -> None:
    """The Job is deleted, and its pods go one by one."""
    cluster, rebalancer, job = running()
    job.is_on = False
    cluster.remove(job.job)
    for pod in job.pods:
        cluster.delete_pod(pod, 0)
        cluster.run(3)
    assert rebalancer.count("evict", "annotate") == 0


def test_a_gang_that_fails_again_and_again_waits_for_longer() -> None:
    """A member dies as soon as the gang runs: six restarts take longer and longer; the pods carry how many."""
    cluster, rebalancer, job = running()
    times = []
    for count in range(6):
        before, began = uids(job), cluster.now
        lose_by_hand(cluster, job)
        cluster.run_until(lambda: job.is_whole and not before & uids(job), 200)  # noqa: B023
        times.append(cluster.now - began)
        assert {run.restarts for pod in job.pods if (run := run_of(pod)) is not None} == {count + 1}
    assert times[0] < 15
    assert times[-1] > 50
    rebalancer.kill()
    before = uids(job)
    lose_by_hand(cluster, job)
    cluster.run_until(lambda: job.gated == MEMBERS, 30)
    cluster.run(60)
    assert job.gated == MEMBERS  # the next leader knows from the pods that it was restarted six times


def test_a_run_that_lasted_begins_a_new_row() -> None:
    """After eleven minutes a loss is the first one again."""
    cluster, _, job = running()
    for pod in job.pods:
        cluster.put(
            replace(pod, annotations={**pod.annotations, names.GANG_RUN: Run("p", cluster.now - 700, 4, 5).text()})
        )
    cluster.run(2)
    before = uids(job)
    lose_by_hand(cluster, job)
    cluster.run_until(lambda: job.is_whole and not before & uids(job), 20)
    assert {run.restarts for pod in job.pods if (run := run_of(pod)) is not None} == {1}


def test_nothing_is_restarted_while_paused() -> None:
    """When the pause is over, it is."""
    cluster, rebalancer, job = running()
    rebalancer.is_paused = True
    before = uids(job)
    lose_by_hand(cluster, job)
    cluster.run(30)
    assert rebalancer.count("evict") == 0
    rebalancer.is_paused = False
    cluster.run_until(lambda: job.is_whole and not before & uids(job), 30)


def test_a_budget_that_keeps_the_others_ends_the_restart() -> None:
    """Nobody may evict them: after a while they stay, and the replacement joins them."""
    cluster, rebalancer, job = running()
    survivors = {pod.uid for pod in job.pods[1:]}
    rebalancer.refuses = lambda verb, pod: Outcome.BLOCKED if verb == "evict" and pod.node else None
    lose_by_hand(cluster, job)
    cluster.run_until(lambda: job.is_whole, REFUSED_SECONDS + 120)
    cluster.run(60)
    assert job.is_whole
    assert survivors <= uids(job)


def test_a_job_that_would_fail_by_it_is_not_restarted() -> None:
    """It counts evictions as failures, and has none to spare: the others go on, and the reason says what helps."""
    cluster, rebalancer, job = running()
    heard = Heard(rebalancer)
    job.change(ignores_disruption=False, backoff_limit=3, failed=1)
    survivors = {pod.uid for pod in job.pods[1:]}
    lose_by_hand(cluster, job)
    cluster.run_until(lambda: job.is_whole, 30)
    assert survivors <= uids(job)
    assert "podFailurePolicy" in heard.told[names.EVENT_GANG_LOST]


def test_a_job_that_counts_evictions_is_warned_about_while_it_waits() -> None:
    """It can be changed in time. A Job that ignores them is not."""
    cluster, rebalancer = gang_cluster(1)
    heard = Heard(rebalancer)
    SimulatedJob(cluster, "fine")
    cluster.run(5)
    assert names.EVENT_GANG_MISTAKE not in heard.told
    SimulatedJob(cluster, "train", ignores_disruption=False)
    cluster.run(5)
    assert "Job train counts each eviction" in heard.told[names.EVENT_GANG_MISTAKE]


def test_pods_without_an_owner_are_not_evicted() -> None:
    """They would not come back: the others go on, and an Event says so."""
    cluster, rebalancer, job = running(owner="")
    heard = Heard(rebalancer)
    lose_by_hand(cluster, job)
    cluster.run(30)
    assert (job.bound, rebalancer.count("evict", "delete")) == (3, 0)
    assert "no owner" in heard.told[names.EVENT_GANG_LOST]


# --- a node that will go ---------------------------------------------------------------------------------------------


def test_a_notice_restarts_the_gang_before_the_node_goes() -> None:
    """All members are told on their annotations, and evicted at once: when the node goes, all run elsewhere."""
    cluster, rebalancer, job = running()
    heard, before = Heard(rebalancer), uids(job)
    leaving = job.pods[0].node
    notices: set[str] = set()
    cluster.onlookers.append(lambda: notices.update(p.name for p in job.pods if names.GANG_NOTICE in p.annotations))
    cluster.add_node(Class.ON_DEMAND, cpu=4000)
    cluster.cordon(leaving, TERMINATION)
    cluster.run_until(lambda: job.is_whole and not before & uids(job), 30)
    assert leaving not in {pod.node for pod in job.pods}
    assert len(notices) == MEMBERS
    assert leaving in heard.told[names.EVENT_GANG_NOTICE]
    assert leaving in heard.told[names.EVENT_GANG_LOST]


def test_a_notice_with_repair_moves_what_is_on_the_node() -> None:
    """Two of four are there: both are evicted at once, and their replacements join the others."""
    cluster, _, job = running(policy="repair")
    leaving = job.pods[0].node
    others = {pod.uid for pod in job.pods if pod.node != leaving}
    cluster.add_node(Class.ON_DEMAND, cpu=4000)
    cluster.cordon(leaving, TERMINATION)
    cluster.run_until(lambda: job.is_whole and leaving not in {pod.node for pod in job.pods}, 30)
    assert others <= uids(job)


def test_a_notice_that_is_taken_back_is_taken_from_the_pods() -> None:
    """With `continue` nothing else happens: the annotation comes and goes with the taint."""
    cluster, rebalancer, job = running(policy="continue")
    leaving = job.pods[0].node
    cluster.cordon(leaving, TERMINATION)
    cluster.run(5)
    assert all(pod.annotations.get(names.GANG_NOTICE, "").endswith(f"/{leaving}") for pod in job.pods)
    cluster.uncordon(leaving)
    cluster.run(5)
    assert not any(names.GANG_NOTICE in pod.annotations for pod in job.pods)
    assert rebalancer.count("evict") == 0


def test_what_moves_services_leaves_members_alone() -> None:
    """A Deployment whose pods are a gang is assessed by no planner of moves: no slot, no mix, no release."""
    cluster = SimulatedCluster(configuration=WITH_GANGS)
    cluster.opt_in("shop")
    cluster.add_nodes(Class.ON_DEMAND, 4)
    rebalancer = SimulatedRebalancer(cluster)
    web = cluster.deploy("web", 4, {names.SPOT_RATIO: "50%"})
    cluster.run(30)
    assert rebalancer.index.assessments
    cluster.change(web, template=replace(web.template, is_gang=True))
    before = len(rebalancer.writes)
    cluster.cordon(next(iter(cluster.nodes)), TERMINATION)
    cluster.run(60)
    assert (dict(rebalancer.index.assessments), len(rebalancer.writes)) == ({}, before)


# --- fail-gang, continue ---------------------------------------------------------------------------------------------


def test_fail_gang_suspends_the_job() -> None:
    """All of its pods go, and none comes back until somebody resumes it. Then the gang starts whole."""
    cluster, rebalancer, job = running(policy="fail-gang")
    heard = Heard(rebalancer)
    lose_by_hand(cluster, job)
    cluster.run_until(lambda: job.job.is_suspended and not job.pods, 30)
    cluster.run(30)
    assert job.pods == []
    assert "resume Job train" in heard.told[names.EVENT_GANG_FAILED]
    job.change(is_suspended=False)
    cluster.run_until(lambda: job.is_whole, 30)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 2 * MEMBERS))
def test_fail_gang_blocks_what_cannot_be_suspended(number: int, after: bool) -> None:
    """Pods of another owner come back with their gate, and stay there, whichever write a leader dies at.

    When somebody deletes them, the gang starts again.
    """
    cluster, rebalancer, job = running(fault=CrashAtWrite(number, after), policy="fail-gang", owner=CUSTOM)
    lose_by_hand(cluster, job)
    cluster.run_until(lambda: job.gated == MEMBERS, 60)
    rebalancer.kill()
    cluster.run(60)
    assert job.gated == MEMBERS
    assert rebalancer.plan is not None
    (status,) = rebalancer.plan.gangs
    assert status.state is State.BLOCKED
    assert status.reason.startswith("Failed: ")
    for pod in job.pods:
        cluster.delete_pod(pod, 0)
    cluster.run_until(lambda: job.is_whole, 30)


def test_fail_gang_deletes_pods_without_an_owner() -> None:
    """That is what was asked for."""
    cluster, rebalancer, job = running(policy="fail-gang", owner="")
    lose_by_hand(cluster, job)
    cluster.run_until(lambda: not job.pods, 30)
    assert rebalancer.count("delete") == MEMBERS - 1
    assert rebalancer.violations == []


def test_continue_starts_no_replacement_before_the_others_have_ended() -> None:
    """Three go on; the new pod waits. When they have succeeded, it starts, so that its Job can end."""
    cluster, rebalancer, job = running(policy="continue")
    survivors = {pod.uid for pod in job.pods[1:]}
    lose_by_hand(cluster, job)
    cluster.run(60)
    assert (job.bound, job.gated, rebalancer.count("evict")) == (3, 1, 0)
    for pod in job.pods:
        if pod.uid in survivors:
            cluster.put(replace(pod, phase="Succeeded"))
    cluster.run_until(lambda: job.is_whole, 30)


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_job_is_suspended_when_its_time_is_over() -> None:
    """Counted from when the gang ran; an Event announces it."""
    cluster, rebalancer, job = running(annotations={names.TIME_LIMIT: "5m"})
    heard = Heard(rebalancer)
    cluster.run(250)
    assert heard.told == {}
    cluster.run(35)
    assert "over soon" in heard.told[names.EVENT_GANG_LIMIT]
    assert not job.job.is_suspended
    cluster.run_until(lambda: job.job.is_suspended and not job.pods, 30)
    assert "Job train is suspended" in heard.told[names.EVENT_GANG_LIMIT]


def extended_on_owner(cluster: SimulatedCluster, job: SimulatedJob) -> None:
    job.change(annotations={names.TIME_LIMIT: "10m"})


def extended_on_member(cluster: SimulatedCluster, job: SimulatedJob) -> None:
    pod = job.pods[2]
    cluster.put(replace(pod, annotations={**pod.annotations, names.TIME_LIMIT: "10m"}))


@pytest.mark.parametrize("extend", [extended_on_owner, extended_on_member])
def test_a_time_limit_may_be_extended_while_it_runs(extend: Callable[[SimulatedCluster, SimulatedJob], None]) -> None:
    """Five minutes become ten, on the Job or on one of the members; the next leader counts from the same moment."""
    cluster, rebalancer, job = running(annotations={names.TIME_LIMIT: "5m"})
    cluster.run(200)
    extend(cluster, job)
    cluster.run(200)
    rebalancer.kill()
    cluster.run(180)
    assert (job.bound, job.job.is_suspended) == (MEMBERS, False)
    cluster.run_until(lambda: job.job.is_suspended, 40)


def test_a_time_limit_may_be_shortened_while_it_runs() -> None:
    """What one member says in another way than the rest counts."""
    cluster, _, job = running(annotations={names.TIME_LIMIT: "5h"})
    pod = job.pods[2]
    cluster.put(replace(pod, annotations={**pod.annotations, names.TIME_LIMIT: "1m"}))
    cluster.run_until(lambda: job.job.is_suspended, 90)


def test_bare_pods_are_deleted_and_others_only_told_when_their_time_is_over() -> None:
    """What has no end goes on, and is still looked after."""
    cluster, rebalancer, job = running(annotations={names.TIME_LIMIT: "1m"}, owner="")
    cluster.run_until(lambda: not job.pods, 90)
    assert rebalancer.violations == []
    cluster, rebalancer, job = running(annotations={names.TIME_LIMIT: "1m"}, owner=CUSTOM)
    heard, before = Heard(rebalancer), uids(job)
    cluster.run(90)
    assert uids(job) == before
    assert "nothing is done" in heard.told[names.EVENT_GANG_LIMIT]
    lose_by_hand(cluster, job)
    cluster.run_until(lambda: job.is_whole and not before & uids(job), 60)


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_a_gang_that_waits_for_too_long_fails() -> None:
    """`1m:fail`: its Job is suspended, and room that comes later starts nothing."""
    cluster, rebalancer = gang_cluster(1)
    heard = Heard(rebalancer)
    job = SimulatedJob(cluster, "train", annotations={names.POD_GROUP_WAIT_TIMEOUT: "1m:fail"})
    cluster.run(55)
    assert (job.gated, job.job.is_suspended) == (MEMBERS, False)
    cluster.run_until(lambda: job.job.is_suspended and not job.pods, 30)
    assert "waited for longer" in heard.told[names.EVENT_GANG_FAILED]
    cluster.add_node(Class.ON_DEMAND, cpu=4000)
    cluster.run(30)
    assert job.pods == []
    job.change(is_suspended=False)
    cluster.run_until(lambda: job.is_whole, 30)


def test_what_cannot_be_suspended_stays_blocked_after_its_timeout() -> None:
    """Room that comes later starts nothing, under the next leader neither."""
    cluster, rebalancer = gang_cluster(1)
    job = SimulatedJob(cluster, "train", annotations={names.POD_GROUP_WAIT_TIMEOUT: "1m:fail"}, owner=CUSTOM)
    cluster.run(70)
    cluster.add_node(Class.ON_DEMAND, cpu=4000)
    rebalancer.kill()
    cluster.run(30)
    assert (job.gated, rebalancer.count("annotate")) == (MEMBERS, 1)
    assert rebalancer.plan is not None
    assert rebalancer.plan.gangs[0].reason.startswith("Failed: it waited for longer")


def test_members_that_a_quota_refuses_are_named() -> None:
    """Three of four may exist: nothing is reserved, and the reason names the quota. With more of it all start."""
    cluster, rebalancer = gang_cluster()
    hard = Quota("shop", "compute", {"pods": 3}, {"pods": 3})
    cluster.put(hard)
    job = SimulatedJob(cluster, "train", 3, annotations={names.POD_GROUP_MIN_MEMBER: "4"})
    cluster.run(10)
    assert rebalancer.plan is not None
    (status,) = rebalancer.plan.gangs
    assert (status.state, rebalancer.count("reserve")) == (State.BLOCKED, 0)
    assert status.reason == "QuotaShort: ResourceQuota compute has no room for 1 more member"
    cluster.put(replace(hard, hard={"pods": 4}))
    job.change(parallelism=4)
    cluster.run_until(lambda: job.is_whole, 30)


def test_a_gang_of_an_earlier_version_gets_its_run() -> None:
    """It runs without a note: that is written once, so that losses count from then on."""
    cluster, rebalancer, job = running()
    for pod in job.pods:
        left = {key: value for key, value in pod.annotations.items() if key != names.GANG_RUN}
        cluster.put(replace(pod, annotations=left))
    cluster.run(10)
    assert rebalancer.count("annotate") == MEMBERS
    before = uids(job)
    lose_by_hand(cluster, job)
    cluster.run_until(lambda: job.is_whole and not before & uids(job), 30)
