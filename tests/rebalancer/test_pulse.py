"""A loop that hangs loses its Lease and its health; one that only fails loses its Lease."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest

from kube.election import Terms
from kube.lease import Leader
from placement.configuration import Configuration
from placement.outage import Outages
from placement.plan.actions import Action, How, Plan, Why
from rebalancer.executor import Done, Executor, LastLook
from rebalancer.index import Index
from rebalancer.loop import Loop, Watched
from rebalancer.metrics import RebalancerMetrics
from rebalancer.probes import probes
from rebalancer.pulse import Pulse
from tests.builders.model import pod
from tests.kube.scripted import Answer, Script, scripted_api
from tests.manualclock import ManualClock
from tests.rebalancer.rebalancing import Here
from tests.serving.client import Visitor

QUICK = Terms(duration_seconds=2, safe_seconds=0.5, renew_seconds=0.05, look_seconds=0.05, retry_seconds=0.02)
LIMIT_SECONDS = 0.4  # a pass begins every 0.05 s here


def test_what_counts_as_work_and_what_as_an_end() -> None:
    """A pass that fails has ended, but a loop that only fails does no work."""
    clock = ManualClock()
    pulse = Pulse(clock, limit_seconds=60)
    steps: list[tuple[Callable[[], None], float, bool, bool]] = [
        (pulse.work, 59, True, True),
        (pulse.work, 60, False, False),
        (pulse.fail, 0, False, True),
        (pulse.work, 40, True, True),
        (pulse.fail, 40, False, True),
    ]
    for happens, seconds, is_fit, is_healthy in steps:
        happens()
        clock.now += seconds
        assert (pulse.is_fit(), pulse.hang() is None) == (is_fit, is_healthy)
    clock.now += 20
    assert pulse.hang() == "no pass has ended for 60 s"


def test_every_write_of_a_long_pass_counts() -> None:
    """A thousand burials through a slow API server are no hang."""
    beats: list[int] = []
    sight = LastLook(lambda: False, lambda: False, lambda _: None, lambda _: None, lambda _: None)
    nobody = cast(Any, None)
    executor = Executor(nobody, nobody, Here(), Here(), sight, on_progress=lambda: beats.append(1))
    actions = tuple(Action(How.BURY, Why.LOST, None, pod(f"p{number}", number)) for number in range(5))
    executor.perform(Plan(actions=actions))
    assert len(beats) == 5


class HangingExecutor:
    """What carries plans out: it waits, or fails, for as long as the test wants."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.fails = False
        self.under_way: tuple[str, ...] = ()

    def perform(self, _plan: Plan) -> Sequence[Done]:
        self.may_go_on.wait()
        if self.fails:
            raise ValueError("out of luck")
        return []


class LoopReplica:
    """A loop, its Lease and its probe, put together as the program does."""

    def __init__(self, client: Any, limit_seconds: float) -> None:
        self.pulse, self.work, self.is_synced = Pulse(limit_seconds=limit_seconds), HangingExecutor(), True
        wake = threading.Event()
        self.leader = Leader(client, "me", is_fit=self.pulse.is_fit, terms=QUICK)
        watched = Watched(lambda: self.is_synced, self.leader.is_leading, Outages, lambda _now: False)
        executor = cast(Executor, self.work)
        self.loop = Loop(Index(Configuration()), executor, watched, lambda *_: wake.set(), wake, self.pulse)
        self._thread = threading.Thread(target=self.loop.run)
        metrics = RebalancerMetrics(lambda: None, lambda: True)
        self._probes = Visitor(probes(metrics, lambda: None, self.pulse.hang))

    def is_healthy(self) -> bool:
        return self._probes.get("/healthz").status_code == 200

    def start(self) -> None:
        self._thread.start()
        self.leader.start()

    def stop(self) -> None:
        self.work.may_go_on.set()
        self.loop.stop()
        self._thread.join(20)
        self.leader.stop()


def offer_lease(script: Script) -> None:
    """A Lease that was given up, and that no other replica wants."""
    lease = {"holderIdentity": "", "leaseDurationSeconds": 1}
    script.answer(_answer(1, lease), *[_answer(2, {**lease, "holderIdentity": "me"})] * 5000)


def _answer(version: int, spec: dict[str, Any]) -> Answer:
    return Answer(json.dumps({"metadata": {"resourceVersion": str(version)}, "spec": spec}).encode())


@contextmanager
def running(limit_seconds: float = LIMIT_SECONDS) -> Iterator[LoopReplica]:
    with scripted_api() as (script, client):
        offer_lease(script)
        replica = LoopReplica(client, limit_seconds)
        replica.start()
        try:
            wait_for(replica.leader.is_leading)
            yield replica
        finally:
            replica.stop()
            script.closing.set()


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def test_a_loop_that_hangs_loses_its_lease_and_its_health_and_gets_both_back() -> None:
    with running() as replica:
        assert replica.is_healthy()
        replica.work.may_go_on.clear()
        wait_for(lambda: not replica.leader.is_leading())
        wait_for(lambda: not replica.is_healthy())
        time.sleep(4 * QUICK.look_seconds)  # what it is about: it does not take the Lease meanwhile
        assert not replica.leader.is_leading()
        replica.work.may_go_on.set()
        wait_for(replica.leader.is_leading)
        assert replica.is_healthy()


def test_a_loop_that_only_fails_loses_its_lease_and_is_not_restarted(caplog: pytest.LogCaptureFixture) -> None:
    """Another replica may do better. After a failure the loop waits for one second at first, then for two."""
    with running(limit_seconds=2.5) as replica:
        replica.work.fails = True
        wait_for(lambda: not replica.leader.is_leading())
        assert "out of luck" in caplog.text
        assert replica.is_healthy()


def test_a_loop_that_waits_for_its_stores_goes_on() -> None:
    """Not synced yet, or the API server is away: a pass that may conclude nothing has ended."""
    with running() as replica:
        replica.is_synced = False
        time.sleep(3 * LIMIT_SECONDS)  # what it is about
        assert replica.leader.is_leading()
        assert replica.is_healthy()
