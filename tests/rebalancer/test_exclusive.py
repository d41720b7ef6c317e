"""Gangs with nodes of their own, in the simulation: nobody else gets in, and no taint outlives its gang."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kube.errors import Conflict
from placement import names
from placement.gang.exclusive import TaintChange, mark_of, taint_changes, taint_of
from placement.model import Key, Needs, NodeTaint, Owner, Pod, Toleration
from rebalancer.nodetaints import AGAIN_SECONDS, NodeTaints
from tests.manualclock import ManualClock
from tests.rebalancer.gangsimulation import CPU, SimulatedJob, gang_cluster
from tests.rebalancer.rebalancing import CrashAtWrite, SimulatedRebalancer
from tests.rebalancer.simulation import PodFacts, SimulatedCluster

TRAIN = Key("shop", "train")
TAINT = taint_of(TRAIN)
TOLERANT = Needs(
    requests={"cpu": CPU}, tolerations=(Toleration(names.EXCLUSIVE_TAINT, "Equal", TAINT.value, "NoSchedule"),)
)
SMALL = Needs(requests={"cpu": 100})
BY_GANG = {names.EXCLUSIVE_NODE: "gang"}


def exclusive_cluster(
    nodes: int = 4, fault: CrashAtWrite | None = None, *, writes_taints: bool = True
) -> tuple[SimulatedCluster, SimulatedRebalancer]:
    """Each node has room for two members; whoever lives writes the taints after each pass."""
    cluster, rebalancer = gang_cluster(nodes, fault)

    def write(change: TaintChange) -> None:
        if not writes_taints:
            raise Conflict("PATCH /x", 409, "", "")
        node = cluster.nodes[change.node]
        others = tuple(each for each in node.taints if each.key != names.EXCLUSIVE_TAINT)
        cluster.put(replace(node, taints=(*others, *([NodeTaint(TAINT.key, change.mark)] if change.mark else []))))

    taints = NodeTaints(write, lambda: cluster.now)
    cluster.actors.append(lambda: taints.look(rebalancer.index.taint_changes) if rebalancer.is_alive else None)
    return cluster, rebalancer


def put_on(cluster: SimulatedCluster, node: str, name: str, owner: Owner | None = None) -> None:
    """A small pod that runs there."""
    made = Pod("shop", f"{name}-{node}", f"{name}-{node}", owner, node=node, needs=SMALL, created=cluster.now)
    cluster.facts[made.uid] = PodFacts()
    cluster.put(made)


def tainted(cluster: SimulatedCluster) -> set[str]:
    return {name for name, node in cluster.nodes.items() if any(t.key == TAINT.key for t in node.taints)}


def strangers(cluster: SimulatedCluster, job: SimulatedJob) -> set[str]:
    """Pods beside running members, which came after them or before."""
    nodes = {pod.node for pod in job.pods if pod.node}
    return {pod.name for pod in cluster.pods if pod.node in nodes and pod.labels.get("app") != job.name}


def test_only_empty_nodes_are_used_and_nobody_else_gets_in() -> None:
    """Two of four nodes are empty. The gang starts there; small pods that come later go elsewhere, until it ends."""
    cluster, _ = exclusive_cluster()
    early = SimulatedJob(cluster, "early", 2, is_gang=False, needs=Needs(requests={"cpu": 2100}))
    cluster.run_until(lambda: early.is_whole, 20)
    job = SimulatedJob(cluster, "train", annotations=BY_GANG, needs=TOLERANT)
    cluster.run_until(lambda: job.is_whole, 20)
    assert tainted(cluster) == {pod.node for pod in job.pods}
    flood = SimulatedJob(cluster, "flood", 10, is_gang=False, needs=SMALL)
    cluster.run_until(lambda: flood.is_whole, 20)
    assert strangers(cluster, job) == set()
    job.stop()
    cluster.run_until(lambda: tainted(cluster) == set(), 20)


def test_it_waits_for_empty_nodes() -> None:
    """There is room for all members, but a small pod runs on each node. When two are empty, it starts on these."""
    cluster, rebalancer = exclusive_cluster()
    for name in cluster.nodes:
        put_on(cluster, name, "small")
    job = SimulatedJob(cluster, "train", annotations=BY_GANG, needs=TOLERANT)
    cluster.run(30)
    assert (job.bound, job.reserved, rebalancer.count("reserve"), tainted(cluster)) == (0, 0, 0, set())
    for pod in [pod for pod in cluster.pods if pod.name.startswith("small")][:2]:
        cluster.delete_pod(pod, 0)
    cluster.run_until(lambda: job.is_whole, 90)
    assert strangers(cluster, job) == set()


def test_pods_of_daemon_sets_do_not_count() -> None:
    cluster, _ = exclusive_cluster(2)
    for name in cluster.nodes:
        put_on(cluster, name, "agent", Owner("DaemonSet", "agent", "ds"))
    job = SimulatedJob(cluster, "train", 2, annotations=BY_GANG, needs=TOLERANT)
    cluster.run_until(lambda: job.is_whole, 20)


def test_members_that_do_not_tolerate_the_taint_do_not_start() -> None:
    """No webhook answered when they were created. Nothing is reserved, and the reason says why."""
    cluster, rebalancer = exclusive_cluster()
    job = SimulatedJob(cluster, "train", annotations=BY_GANG)
    cluster.run(20)
    assert (job.bound, job.reserved, tainted(cluster)) == (0, 0, set())
    assert "Intolerant" in rebalancer.index.gangs[TRAIN].obstacle


def test_where_no_taint_can_be_written_nothing_starts_and_nothing_is_kept() -> None:
    """For half a minute the room is kept, then it is given back; and again later."""
    cluster, rebalancer = exclusive_cluster(writes_taints=False)
    job = SimulatedJob(cluster, "train", annotations=BY_GANG, needs=TOLERANT)
    cluster.run_until(lambda: job.reserved == job.members, 20)
    cluster.run_until(lambda: job.reserved == 0, 60)
    assert (job.bound, rebalancer.count("start")) == (0, 0)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 14))
def test_a_crash_at_any_write_is_repaired_by_the_next_leader(number: int, after: bool) -> None:
    """Small pods come all the time. At no moment does one run beside a member; in the end no taint is left."""
    cluster, rebalancer = exclusive_cluster(4, CrashAtWrite(number, after))
    job = SimulatedJob(cluster, "train", annotations=BY_GANG, needs=TOLERANT)
    flood: list[SimulatedJob] = []
    seen: set[str] = set()

    def watch() -> None:
        if job.bound:
            seen.update(strangers(cluster, job))

    cluster.onlookers.append(watch)
    for count in range(8):
        cluster.run(1)
        flood.append(SimulatedJob(cluster, f"flood-{count}", 2, is_gang=False, needs=SMALL))
    if rebalancer.deaths:
        rebalancer.start()
    cluster.run(5)
    for each in flood:
        each.stop()
    cluster.run_until(lambda: job.is_whole, 300)
    assert seen == set()
    job.stop()
    cluster.run_until(lambda: tainted(cluster) == set(), 30)


def test_taints_of_nobody_go() -> None:
    """Whoever wrote them; other taints stay, and a node whose taint has the value of another gang gets its own."""
    other = NodeTaint("team", "a")
    taints = {"n1": (other, NodeTaint(TAINT.key, "old")), "n2": (other,), "n3": (TAINT,), "n4": (other, TAINT)}
    wanted = {"n3": TAINT.value, "n4": mark_of(Key("shop", "web")), "n5": TAINT.value}
    changes = {each.node: each.mark for each in taint_changes(wanted, taints)}
    assert changes == {"n1": "", "n4": mark_of(Key("shop", "web"))}


def test_what_was_written_a_moment_ago_is_not_written_again() -> None:
    """Its echo is on the way. A change of mind is written at once, and what failed is tried again."""
    clock, written = ManualClock(), list[TaintChange]()
    taints = NodeTaints(written.append, clock)
    on, off = TaintChange("n1", "a"), TaintChange("n1", "")
    for each in (on, on, off):
        taints.look([each])
    assert written == [on, off]
    clock.now += AGAIN_SECONDS
    taints.look([off])
    assert written == [on, off, off]
