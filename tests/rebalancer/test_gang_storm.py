"""Gangs of all priorities come and go while leaders die, schedulers restart and writes fail: never a part of one."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random

import pytest

from placement import names
from placement.configuration import Configuration
from placement.gang.reservation import AGAIN, reservation_of
from placement.gang.settings import Gangs
from placement.model import Class, Needs, Pod
from placement.outcome import Outcome
from tests.rebalancer.gangsimulation import CPU, SimulatedJob
from tests.rebalancer.rebalancing import CrashAtWrite, SimulatedRebalancer
from tests.rebalancer.simulation import SimulatedCluster

NODES, STEPS, REST_SECONDS = 4, 25, 400
SETTINGS = Gangs(enabled=True, minimum_run_time=timedelta(seconds=5), evictions_per_namespace=500, evictions_in_all=500)


class PartialStarts:
    """Looks after every step: a member on a node, and another one with its gate for which no plan keeps room."""

    def __init__(self, jobs: list[SimulatedJob]) -> None:
        self._jobs = jobs
        self._whole: set[str] = set()
        self.found: list[str] = []

    def look(self) -> None:
        for job in self._jobs:
            bound = [pod for pod in job.pods if pod.node]
            if not bound or job.is_whole:
                (self._whole.add if bound else self._whole.discard)(job.name)
            elif job.name not in self._whole:
                plans = {_plan(pod) for pod in bound}
                torn = [pod for pod in job.pods if pod.is_gated and _plan(pod) not in plans]
                if torn and not any(_is_undone(pod) for pod in bound):
                    self.found.append(f"{job.name}: {len(bound)} of {job.members} by {plans}; {torn[0].name} is gated")


def _plan(pod: Pod) -> str:
    found = reservation_of(pod)
    return "" if found is None else found.plan.rstrip(AGAIN)


def _is_undone(pod: Pod) -> bool:
    found = reservation_of(pod)
    return found is not None and found.is_undone


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(each, marks=pytest.mark.soak) for each in range(8, 200))])
def test_a_storm(seed: int) -> None:
    """Nothing starts in part. When it is over, gangs run or wait whole, and no mark or nomination is left."""
    lot = Random(seed)
    cluster = SimulatedCluster(seed, Configuration(gangs=SETTINGS))
    cluster.opt_in("shop")
    for _ in range(NODES):
        cluster.add_node(Class.ON_DEMAND, cpu=2 * CPU)
    rebalancer, jobs = SimulatedRebalancer(cluster), list[SimulatedJob]()
    starts = PartialStarts(jobs)
    cluster.onlookers.append(starts.look)
    in_a_row: Counter[tuple[str, str]] = Counter()

    def refuses(verb: str, pod: Pod) -> Outcome | None:
        is_refused = in_a_row[verb, pod.uid] < 3 and lot.random() < 0.2
        in_a_row[verb, pod.uid] = in_a_row[verb, pod.uid] + 1 if is_refused else 0
        return Outcome.BUSY if is_refused else None

    rebalancer.refuses = refuses
    for number in range(STEPS):
        _act(lot, cluster, rebalancer, jobs, number)
        cluster.run(lot.choice([1, 1, 3, 10]))
    rebalancer.fault = CrashAtWrite(-1)
    rebalancer.refuses = lambda _verb, _pod: None
    cluster.run(REST_SECONDS)
    assert starts.found == []
    live = [job for job in jobs if job.is_on]
    assert [job.name for job in live if job.bound not in (0, job.members)] == []
    assert not any(pod.nominated or names.PREEMPTED_BY in pod.annotations for pod in cluster.pods if not pod.node)
    waiting = [job for job in live if not job.bound]
    free = 2 * NODES - sum(job.bound for job in live)
    assert [job.name for job in waiting if job.members <= free] == [], "there is room for it"


def _act(
    lot: Random, cluster: SimulatedCluster, rebalancer: SimulatedRebalancer, jobs: list[SimulatedJob], number: int
) -> None:
    live = [job for job in jobs if job.is_on]
    match lot.choice(["create", "create", "stop", "die", "restart", "nothing"]):
        case "create" if len(live) < 5:
            needs = Needs(requests={"cpu": CPU}, priority=lot.choice([0, 0, 10, 100]), grace_seconds=lot.choice([1, 2]))
            jobs.append(SimulatedJob(cluster, f"g{number}", lot.choice([1, 2, 4, 6, 8]), needs=needs))
        case "stop" if live:
            lot.choice(live).stop()
        case "die":
            rebalancer.fault = CrashAtWrite(lot.randint(1, 12), after=lot.random() < 0.5)
        case "restart":
            cluster.restart_scheduler()
