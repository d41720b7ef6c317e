"""Writes that fail: the loop goes on, with back-off, and nobody waits for somebody else's errors."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from placement import names
from placement.model import Class, Pod, Workload
from placement.outcome import Outcome
from placement.plan.actions import Blocked
from rebalancer.notify import Teller
from tests.rebalancer.rebalancing import LowestServing, SimulatedRebalancer, mix_of
from tests.rebalancer.simulation import SimulatedCluster
from tests.rebalancer.test_scenarios import settle, shop, spot_nodes


def test_a_refused_release_keeps_nobody_else_from_returning() -> None:
    """Somebody's policy forbids the label of one workload's pods: the others are back on spot long before it is."""
    cluster = shop(spot=6, on_demand=6)
    fenced, web = cluster.deploy("fenced", 3), cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    settle(cluster, rebalancer)
    for name in spot_nodes(cluster):
        cluster.lose(name)
    cluster.run(120)
    rebalancer.refuses = lambda verb, pod: (
        Outcome.IMPOSSIBLE if verb == "release" and pod.labels["app"] == fenced.name else None
    )
    cluster.add_nodes(Class.SPOT, 6, "abc", ("m", "r"))
    cluster.run_until(lambda: rebalancer.is_exact(web), 600)
    assert mix_of(cluster, fenced).spot == 0
    assert str(Blocked.REFUSED) in rebalancer.skipped


def told(rebalancer: SimulatedRebalancer) -> list[str]:
    """What is told from now on."""
    found: list[str] = []

    def tell(workload: Workload, reason: str, text: str, *, is_warning: bool = True, is_once: bool = False) -> None:
        found.append(text)

    rebalancer.hears = Teller(tell).told
    return found


def test_a_refusal_is_told_once() -> None:
    """Though it is tried again every minute."""
    cluster = shop()
    web = cluster.deploy("web", 4)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    settle(cluster, rebalancer)
    events = told(rebalancer)
    rebalancer.refuses = lambda verb, _pod: Outcome.IMPOSSIBLE if verb == "release" else None
    cluster.annotate(web, spot_ratio="0%")
    cluster.run(900)
    assert 8 <= sum(write.verb == "release" for write in rebalancer.writes) <= 60
    assert [text for text in events if str(Blocked.REFUSED) in text] == [f"Not moved (wrong-class): {Blocked.REFUSED}"]


def test_a_budget_that_is_late_is_no_news() -> None:
    """It counts a replacement a moment after it serves: the end of a move is refused, and tried again."""
    cluster = shop()
    web = cluster.deploy("web", 4)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    settle(cluster, rebalancer)
    events = told(rebalancer)
    refused: set[str] = set()

    def first_time(verb: str, pod: Pod) -> Outcome | None:
        if verb != "finish" or pod.uid in refused:
            return None
        refused.add(pod.uid)
        return Outcome.BLOCKED

    rebalancer.refuses = first_time
    cluster.annotate(web, spot_ratio="0%")
    settle(cluster, rebalancer)
    assert refused
    assert not any("Not moved" in text for text in events)


ERRORS = {
    "409 or 500": Outcome.BUSY,
    "429 of a budget": Outcome.BLOCKED,
    "refused": Outcome.IMPOSSIBLE,
}


def moved(cluster: SimulatedCluster, rebalancer: SimulatedRebalancer, web: Workload) -> None:
    cluster.annotate(web, spot_ratio="30%")
    cluster.run_until(lambda: rebalancer.is_exact(web) and rebalancer.is_calm(), 3600)


@pytest.mark.parametrize("outcome", ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("verb", ["annotate", "release", "finish"])
def test_a_write_that_fails_for_minutes_is_tried_again_later_each_time(outcome: Outcome, verb: str) -> None:
    """For five minutes: at most ten tries for each pod, then the mix becomes exact."""
    cluster = shop()
    web = cluster.deploy("web", 10)
    cluster.budget(web, min_available="100%")
    cluster.run(60)
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    settle(cluster, rebalancer)
    until = cluster.now + 300
    rebalancer.refuses = lambda what, _pod: outcome if what == verb and cluster.now < until else None
    moved(cluster, rebalancer, web)
    tries = Counter(write.pod.uid for write in rebalancer.writes if write.verb == verb and write.pod is not None)
    assert 1 < max(tries.values()) <= 10 + 1
    assert lowest.serving["web"] >= 10
    assert rebalancer.violations == []


def test_a_pod_does_not_go_before_its_replacement_is_marked() -> None:
    """Without the mark there is no cool-down: while it cannot be written the old pod stays, and is put back in time."""
    cluster = shop()
    web = cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    settle(cluster, rebalancer)
    cluster.annotate(web, spot_ratio="30%")
    cluster.run_until(lambda: rebalancer.count("release") > 0)
    rebalancer.refuses = lambda verb, _pod: Outcome.BUSY if verb == "annotate" else None
    cluster.run(600)
    assert rebalancer.count("finish") == 0
    assert rebalancer.count("undo") > 0
    rebalancer.refuses = lambda _verb, _pod: None
    cluster.run_until(lambda: rebalancer.is_exact(web), 3600)
    assert rebalancer.violations == []


@pytest.mark.parametrize("seed", range(3))
def test_it_converges_while_a_third_of_all_writes_fail_or_time_out(seed: int) -> None:
    """What timed out may have been done all the same: nothing is done twice that must not be."""
    cluster = shop(seed=seed)
    web = cluster.deploy("web", 10)
    cluster.budget(web, min_available="100%")
    db = cluster.deploy_stateful("db", 4)
    cluster.run(60)
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    settle(cluster, rebalancer)
    random = Random(seed)

    def refuses(_verb: str, _pod: Pod) -> Outcome | None:
        return random.choice(list(ERRORS.values())) if random.random() < 0.2 else None

    rebalancer.refuses = refuses
    rebalancer.loses_answer = lambda _verb, _pod: random.random() < 0.2
    cluster.annotate(db, spot_ratio="30%")
    before = len(rebalancer.writes)
    moved(cluster, rebalancer, web)
    cluster.run_until(lambda: rebalancer.is_exact(db), 3600)
    assert len(rebalancer.writes) - before < 150
    assert lowest.serving["web"] >= 10
    assert not any(names.RELEASED in pod.annotations for pod in cluster.pods)
    assert rebalancer.violations == []
