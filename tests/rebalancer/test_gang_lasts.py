"""What must not end a gang that runs, and what one tenant must not do to the gangs of others."""

from __future__ import annotations

from dataclasses import replace

from placement import names
from placement.gang.exclusive import kept_apart, mark_of, taint_of
from placement.gang.run import RESTART, run_of
from placement.model import Budget, Class, Key, Needs, NodeTaint, Pod
from placement.outcome import Outcome
from tests.rebalancer.gangsimulation import MEMBERS, WITH_GANGS, SimulatedJob, gang_cluster
from tests.rebalancer.rebalancing import CrashAtWrite, SimulatedRebalancer
from tests.rebalancer.simulation import SimulatedCluster
from tests.rebalancer.test_gang_life import running, uids


def kept(before: set[str], job: SimulatedJob) -> int:
    return len(before & uids(job))


def without_runs(cluster: SimulatedCluster, job: SimulatedJob) -> None:
    """As an earlier version has started it."""
    for pod in job.pods:
        said = {name: value for name, value in pod.annotations.items() if name != names.GANG_RUN}
        cluster.put(replace(pod, annotations=said))


# --- nothing was lost ------------------------------------------------------------------------------------------------


def test_karpenters_taint_on_a_node_that_stays_ends_nothing() -> None:
    """It waits for a replacement then, and may give up. A taint of the cloud does end the run."""
    cluster, _, job = running(3)
    before, node = uids(job), job.pods[0].node
    cluster.cordon(node, NodeTaint(names.DISRUPTED, "", "NoSchedule"))
    cluster.run(10)
    assert kept(before, job) == MEMBERS
    cluster.cordon(node, NodeTaint("aws-node-termination-handler/spot-itn", "", "NoSchedule"))
    cluster.run(10)
    assert kept(before, job) == 0


def test_an_adoption_that_is_cut_short_goes_on() -> None:
    """A gang of an earlier version gets its run pod by pod. Whoever leads next must not take the rest for lost."""
    fault = CrashAtWrite(10**6)
    cluster, rebalancer, job = running(fault=fault)
    before = uids(job)
    without_runs(cluster, job)
    fault.at = fault.seen + 3
    cluster.run(40)
    assert (rebalancer.deaths, kept(before, job)) == (1, MEMBERS)
    assert all(run_of(pod) is not None for pod in job.pods)


def test_an_adoption_of_which_one_write_fails_goes_on() -> None:
    """409 or 429 for one pod."""
    cluster, rebalancer, job = running()
    before, first, refused = uids(job), job.pods[0].uid, list[str]()
    without_runs(cluster, job)

    def refuse_once(_verb: str, pod: Pod) -> Outcome | None:
        if pod.uid != first or refused:
            return None
        refused.append(pod.uid)
        return Outcome.BUSY

    rebalancer.refuses = refuse_once
    cluster.run(40)
    assert (len(refused), kept(before, job)) == (1, MEMBERS)


def test_members_without_the_label_do_not_make_the_others_fewer() -> None:
    """Gangs were switched on while two of four ran."""
    cluster, _, job = running()
    before = uids(job)
    without_runs(cluster, job)
    for pod in job.pods[:2]:
        labels = {name: value for name, value in pod.labels.items() if name != names.GANG_LABEL}
        cluster.put(replace(cluster.objects["pods"][pod.key], labels=labels))
    cluster.run(40)
    assert kept(before, job) == MEMBERS


def test_our_own_evictions_are_no_drain_of_a_cordoned_node() -> None:
    """Gang a restarts, with members on a node that is only cordoned. Gang b has members there, too, and goes on."""
    cluster = SimulatedCluster(configuration=WITH_GANGS)
    cluster.opt_in("shop")
    for _ in range(4):
        cluster.add_node(Class.ON_DEMAND, cpu=8000)
    evict = cluster.evict

    def evict_and_say_so(pod: Pod) -> object:
        answer = evict(pod)
        there = cluster.objects["pods"].get(pod.key)
        if not answer and there is not None:
            cluster.put(replace(there, evicted=True, disrupted=names.EVICTED))
        return answer

    cluster.evict = evict_and_say_so  # type: ignore[method-assign, assignment]
    SimulatedRebalancer(cluster)
    jobs = [SimulatedJob(cluster, name) for name in "ab"]
    cluster.run_until(lambda: all(job.is_whole for job in jobs), 20)
    cluster.run(2)
    (shared, *_) = {pod.node for pod in jobs[0].pods} & {pod.node for pod in jobs[1].pods}
    cluster.cordon(shared)
    before = [uids(job) for job in jobs]
    cluster.delete_pod(next(pod for pod in jobs[0].pods if pod.node != shared), 0)
    cluster.run(30)
    assert [kept(each, job) for each, job in zip(before, jobs, strict=True)] == [0, MEMBERS]


def test_bare_members_on_a_node_that_will_go_are_left_there() -> None:
    """They would not come back."""
    cluster, _, job = running(3, owner="")
    before = uids(job)
    cluster.cordon(job.pods[0].node, NodeTaint("aws-node-termination-handler/spot-itn", "", "NoSchedule"))
    cluster.run(30)
    assert kept(before, job) == MEMBERS


def test_a_mark_that_means_nothing_any_more_is_removed() -> None:
    """Marked, then opted out for twenty minutes: opted in again, the gang goes on."""
    cluster, _, job = running()
    before = uids(job)
    run = run_of(job.pods[0])
    assert run is not None
    marked = run.ending(RESTART, cluster.now).text()
    cluster.opt_out("shop")
    cluster.run(1)
    for pod in job.pods:
        cluster.put(replace(pod, annotations={**pod.annotations, names.GANG_RUN: marked}))
    cluster.run(1200)
    cluster.opt_in("shop")
    cluster.run(30)
    found = [run_of(pod) for pod in job.pods]
    assert (kept(before, job), {each.mark for each in found if each is not None}) == (MEMBERS, {""})


def test_a_failed_member_that_was_to_make_room_does_not_stop_care() -> None:
    """A Job keeps its failed pods, with all that is written on them."""
    cluster, _, job = running()
    first = job.pods[0]
    cluster.put(replace(first, phase="Failed", annotations={**first.annotations, names.PREEMPTED_BY: "x/y/1/1"}))
    cluster.run(60)
    before = uids(job)
    cluster.delete_pod(job.pods[0], 0)
    cluster.run_until(lambda: job.is_whole and not before & uids(job), 60)


# --- a restart that cannot be whole ----------------------------------------------------------------------------------


def test_a_budget_that_does_not_allow_all_evictions_together_keeps_the_others() -> None:
    """One of three may go: the lost member alone is replaced. Half a restart helps nobody."""
    cluster, _, job = running()
    budget = Budget("shop", "b", {"matchLabels": {"app": "train"}}, max_unavailable=2, allowed=1, settled=True)
    cluster.put(replace(budget, healthy=3, desired=2, expected=4))
    before = uids(job)
    cluster.delete_pod(job.pods[0], 0)
    cluster.run(60)
    assert (kept(before, job), job.is_whole) == (MEMBERS - 1, True)


# --- what one tenant does to others ----------------------------------------------------------------------------------


def test_a_forged_mark_stops_no_plan() -> None:
    """A number as long as it may be, where a plan has its time."""
    cluster, rebalancer = gang_cluster(1)
    solo = SimulatedJob(cluster, "solo", members=1, is_gang=False)
    cluster.run(5)
    SimulatedJob(cluster, "train")
    (pod,) = solo.pods
    forged = f"shop/train/{'f' * 300}/2"
    cluster.put(replace(pod, annotations={**pod.annotations, names.PREEMPTED_BY: forged}))
    cluster.run(5)
    assert rebalancer.plan is not None


def test_a_forged_mark_on_a_pod_that_ends_slowly_keeps_no_gang_waiting() -> None:
    """It cannot be removed any more, and is no plan of ours."""
    cluster, _ = gang_cluster(2)
    small = Needs(requests={"cpu": 1900})
    low = SimulatedJob(cluster, "low", needs=small)
    cluster.run_until(lambda: low.is_whole, 20)
    cluster.run(400)
    other = SimulatedJob(cluster, "x", members=1, is_gang=False, needs=Needs(requests={"cpu": 100}))
    cluster.run(5)
    (pod,) = other.pods
    cluster.put(replace(pod, annotations={names.PREEMPTED_BY: "other/thing/1/2"}, terminating=True))
    high = SimulatedJob(cluster, "high", needs=replace(small, priority=100))
    cluster.run_until(lambda: high.is_whole, 60)


def test_a_gang_of_a_thousand_million_members_costs_no_more_than_another() -> None:
    """It is counted, and not written down member by member."""
    cluster, rebalancer = gang_cluster(2)
    job = SimulatedJob(cluster, "train", members=1, annotations={names.POD_GROUP_MIN_MEMBER: "999999999"})
    cluster.run(10)
    assert (job.bound, rebalancer.plan is not None) == (0, True)


def test_a_node_is_closed_to_others_only_where_it_was_reserved() -> None:
    """A pod that says `exclusive-node` and chose its node itself, such as a DaemonSet's, closes none."""
    gang = Key("shop", "train")
    own = dict.fromkeys(("reserved", "closed", "chosen"), mark_of(gang))
    taints = {"reserved": (), "closed": (taint_of(gang),), "chosen": ()}
    assert set(kept_apart(own, {"reserved"}, taints)) == {"reserved", "closed"}
