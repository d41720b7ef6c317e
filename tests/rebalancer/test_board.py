"""What the board takes for proof, and what the loop does not do twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from placement import names
from placement.configuration import Configuration
from placement.model import Class, NodeTaint, Owner, Pod, Sign, Workload
from rebalancer.board import Board
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
    cluster, rebalancer, web, old = under_way()
    cluster.delete(web)
    cluster.run(10)
    assert cluster.pods == []
    assert [write.pod.name for write in rebalancer.writes if write.verb == "delete" and write.pod] == [old.name]
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
