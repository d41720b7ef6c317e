"""What the board takes for proof, and what the loop does not do twice."""

from __future__ import annotations

from placement import names
from placement.model import Class
from placement.plan.actions import How, Why
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
