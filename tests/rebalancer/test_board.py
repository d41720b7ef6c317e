"""What the board takes for proof, and what the loop does not do twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from placement import names
from placement.configuration import Configuration
from placement.model import Class, Needs, Node, Pod, Sign
from placement.outage import Outages
from rebalancer.board import Board
from rebalancer.executor import Executor
from rebalancer.loop import Loop, Watched
from tests.rebalancer.rebalancing import Rebalancer
from tests.rebalancer.simulation import Cluster


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
