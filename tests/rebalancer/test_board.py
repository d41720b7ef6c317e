"""What the board takes for proof, and what the loop does not do twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from placement import names
from placement.configuration import Configuration
from placement.model import Class, Needs, Node, NodeTaint, Owner, Pod, Sign, Workload
from placement.outage import Outages
from placement.plan.actions import How, Why
from rebalancer.board import Board
from rebalancer.executor import Executor
from rebalancer.loop import Loop, Watched
from tests.rebalancer.rebalancing import Rebalancer, Watcher
from tests.rebalancer.simulation import Cluster, Facts


def small() -> Cluster:
    cluster = Cluster()
    cluster.opt_in("shop")
    cluster.add_nodes(Class.SPOT, 1)
    cluster.add_nodes(Class.ON_DEMAND, 2, "ab")
    cluster.deploy("web", 4)
    cluster.run(30)
    return cluster


def test_the_clouds_word_about_an_earlier_node_of_that_name_proves_nothing() -> None:
    """It was deleted, registered anew under its name, and deleted again without a word."""
    cluster = small()
    rebalancer = Rebalancer(cluster)
    cluster.run(60)
    name = next(pod.node for pod in cluster.pods if cluster.class_of(pod) is Class.SPOT)
    cluster.lose(name)
    cluster.run(60)
    cluster.add_node(Class.SPOT, name=name)
    cluster.run(600)
    assert any(pod.node == name for pod in cluster.pods)
    buried = rebalancer.count("bury")
    cluster.lose(name, proof=False)
    cluster.run(30)
    assert rebalancer.count("bury") == buried
    assert rebalancer.violations == []


def test_a_workload_that_cannot_be_assessed_stops_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    """It is told once, left alone, and looked at again when it changes."""
    cluster = small()
    rebalancer = Rebalancer(cluster)
    board, (web,) = rebalancer.board, cluster.workloads
    other = cluster.deploy("other", 2)
    cluster.run(30)
    board.observe(web, replace(web, template=None))  # type: ignore[arg-type]
    for _ in range(3):
        board.drain()
        board.refresh(cluster.now, all_of_them=True)
    assert set(board.assessments) == {other.uid}
    assert board.failing == {web.uid}
    assert [record.message for record in caplog.records] == [
        "Deployment shop/web cannot be assessed, and is left alone"
    ]
    board.observe(web, web)
    board.drain()
    board.refresh(cluster.now)
    assert board.failing == set()
    assert web.uid in board.assessments


@pytest.mark.parametrize("tries", ["5000", "9" * 5000, "-1", "x"], ids=["many", "long", "negative", "no digits"])
def test_what_anybody_writes_on_a_pod_stops_nothing(tries: str) -> None:
    """Its move is undone, and how often that was is read from the pod."""
    cluster = small()
    rebalancer = Rebalancer(cluster)
    cluster.run(60)
    for pod in cluster.pods:
        cluster.put(replace(pod, annotations={**pod.annotations, names.UNDONE: f"{tries}/2020-01-01T00:00:00Z"}))
    cluster.annotate(cluster.workloads[0], spot_ratio="0%")
    for node in cluster.nodes.values():
        if node.labels[names.CAPACITY] == "on-demand":
            cluster.put(replace(node, taints=(NodeTaint("full"),)))
    cluster.run(600)
    assert rebalancer.count("undo") > 0
    assert rebalancer.board.failing == set()


def test_a_pod_that_was_put_back_is_not_put_back_again_before_it_is_seen() -> None:
    """Opted out in the middle of a move, while the stores lag by some seconds: one write for each pod."""
    cluster = small()
    rebalancer = Rebalancer(cluster)
    cluster.run(60)
    cluster.annotate(cluster.workloads[0], spot_ratio="0%")
    cluster.run_until(lambda: rebalancer.count("release") > 0)
    rebalancer.lag_seconds = 4.0
    released = sum(names.RELEASED in pod.annotations for pod in cluster.pods)
    cluster.opt_out("shop")
    cluster.run(30)
    assert rebalancer.count("undo") == released
    assert not any(names.RELEASED in pod.annotations for pod in cluster.pods)


def test_the_board_knows_who_waits_and_which_ports_are_taken() -> None:
    """A pod waits until it has a node, and holds its ports until it is finished."""
    board = Board(Configuration())
    waits = Pod("shop", "p", "u", needs=Needs(host_ports=(80,)))
    placed = replace(waits, node="n", phase="Running")
    steps = [(None, waits), (waits, placed), (placed, replace(placed, phase="Succeeded"))]
    seen = []
    for old, new in steps:
        board.observe(old, new)
        board.drain()
        seen.append((len(board.waiting), dict(board.used("n"))))
    assert seen == [(1, {}), (0, {"host-port/80": 1, "pods": 1}), (0, {})]
    board.observe(None, waits)
    board.observe(waits, replace(waits, terminating=True))
    board.drain()
    assert list(board.waiting) == []


def lost_with(*signs: Sign, **fields: Any) -> str:
    """What proves the loss of a node with a pod on it that was like this when it was last seen."""
    board = Board(Configuration())
    seen = Node("n", uid="n-uid", created=1.0, **fields)
    for each in (seen, Pod("shop", "p", "u", node="n"), *signs):
        board.observe(None, each)
    board.observe(seen, None)
    board.drain()
    return board.lost["n"].proof


def test_only_the_clouds_word_about_a_node_and_karpenters_finalizer_are_proof() -> None:
    """Not an Event about something else of that name, nor a deletion that was held up for whatever reason."""
    said = Sign("default", "e", "DeletingNode", "n", 9.0, "n-uid", "Node")
    assert lost_with(said)
    assert lost_with(said, replace(said, name="f", at=10.0, kind="NodeClaim"))
    assert not lost_with(replace(said, kind="NodeClaim"))
    assert not lost_with(deleting=True)
    assert lost_with(deleting=True, outlives_machine=True)
    assert lost_with(unschedulable=True)


def test_the_end_of_a_move_has_the_reason_of_its_beginning() -> None:
    """For as long as one rebalancer remembers it; whoever takes over in between says that it is over, no more."""
    for is_killed in (False, True):
        cluster = small()
        rebalancer = Rebalancer(cluster)
        cluster.run(60)
        cluster.annotate(cluster.workloads[0], spot_ratio="0%")
        cluster.run_until(lambda it=rebalancer: it.count("release") > 0)  # type: ignore[misc]
        if is_killed:
            rebalancer.kill()
        cluster.run(120)
        ends = {
            (each.action.how, each.action.why)
            for _, _, done in rebalancer.passes
            for each in done
            if each.action.how in (How.FINISH, How.UNDO)
        }
        assert (How.FINISH, Why.RATIO) in ends or is_killed
        assert ((How.FINISH, Why.OVER) in ends) is is_killed


def test_workloads_for_which_only_time_passes_are_looked_at_once_a_second() -> None:
    """Many may be blocked for long: a change elsewhere is not their matter, one of their own pods' is."""
    cluster = small()
    rebalancer = Rebalancer(cluster)
    cluster.run(60)
    cluster.annotate(cluster.workloads[0], spot_ratio="0%", rebalance="plan-only")
    cluster.run(5)
    board, now = rebalancer.board, cluster.now + 100
    (uid,) = [each.group.workload.uid for each in board.restless]
    board.refresh(now)
    first = board.assessments[uid]
    board.refresh(now + 0.1)
    assert board.assessments[uid] is first
    member = first.members[0].pod
    board.observe(member, replace(member, ready=False))
    board.drain()
    board.refresh(now + 0.2)
    second = board.assessments[uid]
    assert second is not first
    board.refresh(now + 1.2)
    assert board.assessments[uid] is not second


def under_way() -> tuple[Cluster, Rebalancer, Workload, Pod]:
    """A workload, one of whose pods was just released."""
    cluster = small()
    rebalancer = Rebalancer(cluster)
    cluster.run(60)
    web = cluster.workloads[0]
    cluster.annotate(web, spot_ratio="0%")
    cluster.run_until(lambda: any(pod.is_released for pod in cluster.pods))
    return cluster, rebalancer, web, next(pod for pod in cluster.pods if pod.is_released)


def test_a_released_pod_goes_with_its_workload() -> None:
    """Kubernetes collects it. One that the version before released is nothing's, and left to us."""
    for is_older in (False, True):
        cluster, rebalancer, web, old = under_way()
        cluster.delete(web)
        if is_older:
            cluster.put(replace(cluster.disown(old), terminating=False))
            cluster.facts[old.uid].dies_at = float("inf")
        cluster.run(10)
        assert cluster.pods == []
        deleted = [write.pod.name for write in rebalancer.writes if write.verb == "delete" and write.pod]
        assert deleted == ([old.name] if is_older else [])
        assert rebalancer.violations == []


def test_a_released_pod_goes_back_to_a_replica_set_that_was_left_behind() -> None:
    """`kubectl delete deployment --cascade=orphan`."""
    cluster, rebalancer, web, old = under_way()
    (left,) = cluster.sets_of(web)
    cluster.delete(web, orphan=True)
    cluster.run(10)
    assert rebalancer.count("delete", "finish") == 0
    again = cluster.pod(old.key)
    assert again is not None
    assert again.owner is not None
    assert again.owner.uid == left.uid


def test_a_released_pod_whose_replica_set_is_gone_is_evicted_when_all_others_serve() -> None:
    """Somebody deleted the ReplicaSet; its Deployment makes a new one, whose pods take their time."""
    cluster, rebalancer, web, old = under_way()
    watcher = Watcher(cluster)
    (gone,) = cluster.sets_of(web)
    cluster.remove(gone)
    for pod in cluster.owned(gone.uid):
        cluster.remove(pod)
    cluster.run(5)
    assert cluster.pod(old.key) is not None
    watcher.begin()
    cluster.run(60)
    assert cluster.pod(old.key) is None
    assert rebalancer.count("delete") == 0
    assert watcher.low["web"] >= 1
    assert len(cluster.serving(web)) == 4


COPIES: dict[str, Callable[[Pod], Pod]] = {
    "in another namespace": lambda old: replace(old, namespace="elsewhere", name="copy", uid="copy"),
    "of another owner": lambda old: replace(old, name="copy", uid="copy", owner=Owner("Job", "j", "j")),
    "of another Deployment": lambda old: replace(old, name="copy", uid="copy", owner=Owner("Deployment", "b", "b")),
    "with the label of its own": lambda old: replace(
        old, name="copy", uid="copy", labels={**old.labels, names.POD_TEMPLATE_HASH: "abc"}
    ),
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_copy_of_a_released_pod_is_nobodys_business(copied: Callable[[Pod], Pod]) -> None:
    """Not even in a namespace that is opted in: it is neither finished nor put back nor deleted."""
    cluster, rebalancer, _, old = under_way()
    cluster.opt_in("elsewhere")
    copy = copied(old)
    cluster.facts[copy.uid] = Facts()
    cluster.put(copy)
    cluster.run(600)
    assert cluster.pod(old.key) is None
    assert cluster.pod(copy.key) is not None
    assert not any(write.pod is not None and write.pod.uid == copy.uid for write in rebalancer.writes)


def test_an_autoscalers_word_is_about_the_pod_of_that_namespace() -> None:
    """Every namespace has a db-0."""
    board = Board(Configuration())
    board.observe(None, Sign("shop", "e", "TriggeredScaleUp", "db-0", 100.0))
    board.drain()
    assert board.is_awaited(Pod("shop", "db-0")) == 100.0
    assert board.is_awaited(Pod("elsewhere", "db-0")) == float("-inf")


def test_what_comes_before_all_is_read_is_filed_but_nothing_is_concluded() -> None:
    """A whole cluster that waited in a queue would take room for it."""
    rebalancer = Rebalancer(small())
    board, nobody = Board(Configuration()), cast(Executor, None)
    watched = Watched(lambda: False, lambda: True, Outages, lambda _now: False)
    loop = Loop(board, nobody, watched, lambda *_: None)
    for pod in rebalancer.cluster.pods:
        board.observe(None, pod)
    assert loop.once() is None
    assert board.drain() == 0
    assert board.assessments == {}


def test_a_replica_set_that_its_deployment_let_go_of_is_no_revision_of_it() -> None:
    """Somebody changed its labels; when it is deleted, nothing is missed."""
    cluster = small()
    board = Rebalancer(cluster).board
    cluster.run(30)
    web = cluster.workloads[0]
    (own,) = cluster.sets_of(web)
    debug = replace(own, uid="debug", name="debug", replicas=2)
    free = replace(debug, owner=None)
    for old, new in ((None, debug), (debug, free), (free, None)):
        board.observe(old, new)
        board.drain()
        board.refresh(cluster.now, all_of_them=True)
        counted = {cohort.uid for cohort in board.assessments[web.uid].group.cohorts}
        assert counted == ({own.uid, "debug"} if new is debug else {own.uid})
    assert not board.failing
