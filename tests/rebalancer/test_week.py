"""A week of anything: random events in a simulated cluster, and the rules of design §8 hold after every step."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.rebalancer.eventfulcluster import RATIOS, EventfulCluster

IS_SOAK = bool(os.environ.get("SPOTWEAVE_SOAK"))
which = st.integers(0, 19)


class Week(RuleBasedStateMachine):
    """What people, clouds and processes do. Each event is followed by a while in which everybody works."""

    @initialize(seed=st.integers(0, 10_000), lag_seconds=st.sampled_from([0.0, 0.0, 2.0, 4.0]))
    def begin(self, seed: int, lag_seconds: float) -> None:
        self.eventful = EventfulCluster(seed, lag_seconds)

    @rule(seconds=st.sampled_from([1, 3, 10, 30, 120, 600, *([3600, 4 * 3600, 12 * 3600] if IS_SOAK else [])]))
    def wait(self, seconds: int) -> None:
        self.eventful.wait(seconds)

    @rule(which=which, replicas=st.integers(0, 9))
    def scale(self, which: int, replicas: int) -> None:
        self.eventful.scale(which, replicas)
        self.eventful.wait(2)

    @rule(which=which)
    def roll_out(self, which: int) -> None:
        self.eventful.roll_out(which)
        self.eventful.wait(5)

    @rule(which=which, ratio=st.sampled_from(RATIOS), floor=st.integers(0, 2))
    def ratio(self, which: int, ratio: str, floor: int) -> None:
        self.eventful.ratio(which, ratio, floor)
        self.eventful.wait(5)

    @rule(which=which, proof=st.booleans())
    def lose(self, which: int, proof: bool) -> None:
        self.eventful.lose(which, proof)
        self.eventful.wait(3)

    @rule()
    def lose_all_spot(self) -> None:
        self.eventful.lose_all_spot()
        self.eventful.wait(20)

    @rule()
    def come_back(self) -> None:
        self.eventful.come_back()
        self.eventful.wait(2)

    @rule(which=which, notice=st.booleans())
    def leave(self, which: int, notice: bool) -> None:
        self.eventful.leave(which, notice)
        self.eventful.wait(5)

    @rule()
    def stay(self) -> None:
        self.eventful.stay()

    @rule(is_up=st.booleans())
    def webhook(self, is_up: bool) -> None:
        self.eventful.webhook(is_up)

    @rule(which=st.integers(0, 50), seconds=st.sampled_from([5, 30, 200]))
    def crash(self, which: int, seconds: int) -> None:
        self.eventful.crash(which, seconds)
        self.eventful.wait(2)

    @rule(spare=st.sampled_from([None, 0, 1, 5]))
    def quota(self, spare: int | None) -> None:
        self.eventful.quota(spare)

    @rule(is_there=st.booleans())
    def label(self, is_there: bool) -> None:
        self.eventful.label(is_there)
        self.eventful.wait(2)

    @rule()
    def kill(self) -> None:
        self.eventful.kill()

    @rule(which=which, amount=st.sampled_from(["0", "1", "100%", "50%"]))
    def budget(self, which: int, amount: str) -> None:
        self.eventful.budget(which, amount)

    @rule(which=which)
    def delete(self, which: int) -> None:
        self.eventful.delete(which)
        self.eventful.wait(2)

    @rule(is_paused=st.booleans())
    def pause(self, is_paused: bool) -> None:
        self.eventful.pause(is_paused)

    @rule(which=which, is_paused=st.booleans())
    def pause_rollout(self, which: int, is_paused: bool) -> None:
        self.eventful.pause_rollout(which, is_paused)
        self.eventful.wait(2)

    @rule(which=which, mode=st.sampled_from(["auto", "plan-only", "off"]))
    def mode(self, which: int, mode: str) -> None:
        self.eventful.mode(which, mode)
        self.eventful.wait(5)

    @rule(pods=st.sampled_from([0, 4, 8]))
    def fill(self, pods: int) -> None:
        self.eventful.fill(pods)
        self.eventful.wait(5)

    @rule(share=st.sampled_from([0.0, 0.3, 1.0]))
    def refuse(self, share: float) -> None:
        self.eventful.refuse(share)
        self.eventful.wait(10)

    def teardown(self) -> None:
        if hasattr(self, "eventful"):
            self.eventful.end()


Week.TestCase.settings = settings(
    max_examples=40 if IS_SOAK else 8,
    stateful_step_count=150 if IS_SOAK else 16,
    deadline=None,
    derandomize=not IS_SOAK,
    suppress_health_check=list(HealthCheck),
)
TestWeek = pytest.mark.soak(Week.TestCase) if IS_SOAK else Week.TestCase  # `make soak` tells long stories
