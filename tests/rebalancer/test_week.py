"""A week of anything: random events in a simulated cluster, and the rules of design §8 hold after every step."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.rebalancer.story import RATIOS, Story

IS_SOAK = bool(os.environ.get("SPOTWEAVE_SOAK"))
which = st.integers(0, 19)


class Week(RuleBasedStateMachine):
    """What people, clouds and processes do. Each event is followed by a while in which everybody works."""

    @initialize(seed=st.integers(0, 10_000), lag_seconds=st.sampled_from([0.0, 0.0, 2.0, 4.0]))
    def begin(self, seed: int, lag_seconds: float) -> None:
        self.story = Story(seed, lag_seconds)

    @rule(seconds=st.sampled_from([1, 3, 10, 30, 120, 600, *([3600, 4 * 3600, 12 * 3600] if IS_SOAK else [])]))
    def wait(self, seconds: int) -> None:
        self.story.wait(seconds)

    @rule(which=which, replicas=st.integers(0, 9))
    def scale(self, which: int, replicas: int) -> None:
        self.story.scale(which, replicas)
        self.story.wait(2)

    @rule(which=which)
    def roll_out(self, which: int) -> None:
        self.story.roll_out(which)
        self.story.wait(5)

    @rule(which=which, ratio=st.sampled_from(RATIOS), floor=st.integers(0, 2))
    def ratio(self, which: int, ratio: str, floor: int) -> None:
        self.story.ratio(which, ratio, floor)
        self.story.wait(5)

    @rule(which=which, proof=st.booleans())
    def lose(self, which: int, proof: bool) -> None:
        self.story.lose(which, proof)
        self.story.wait(3)

    @rule()
    def lose_all_spot(self) -> None:
        self.story.lose_all_spot()
        self.story.wait(20)

    @rule()
    def come_back(self) -> None:
        self.story.come_back()
        self.story.wait(2)

    @rule(which=which, notice=st.booleans())
    def leave(self, which: int, notice: bool) -> None:
        self.story.leave(which, notice)
        self.story.wait(5)

    @rule()
    def stay(self) -> None:
        self.story.stay()

    @rule(is_up=st.booleans())
    def webhook(self, is_up: bool) -> None:
        self.story.webhook(is_up)

    @rule(which=st.integers(0, 50), seconds=st.sampled_from([5, 30, 200]))
    def crash(self, which: int, seconds: int) -> None:
        self.story.crash(which, seconds)
        self.story.wait(2)

    @rule(spare=st.sampled_from([None, 0, 1, 5]))
    def quota(self, spare: int | None) -> None:
        self.story.quota(spare)

    @rule(is_there=st.booleans())
    def label(self, is_there: bool) -> None:
        self.story.label(is_there)
        self.story.wait(2)

    @rule()
    def kill(self) -> None:
        self.story.kill()

    @rule(which=which, amount=st.sampled_from(["0", "1", "100%", "50%"]))
    def budget(self, which: int, amount: str) -> None:
        self.story.budget(which, amount)

    @rule(which=which)
    def delete(self, which: int) -> None:
        self.story.delete(which)
        self.story.wait(2)

    @rule(is_paused=st.booleans())
    def pause(self, is_paused: bool) -> None:
        self.story.pause(is_paused)

    @rule(which=which, is_paused=st.booleans())
    def pause_rollout(self, which: int, is_paused: bool) -> None:
        self.story.pause_rollout(which, is_paused)
        self.story.wait(2)

    @rule(which=which, mode=st.sampled_from(["auto", "plan-only", "off"]))
    def mode(self, which: int, mode: str) -> None:
        self.story.mode(which, mode)
        self.story.wait(5)

    @rule(pods=st.sampled_from([0, 4, 8]))
    def fill(self, pods: int) -> None:
        self.story.fill(pods)
        self.story.wait(5)

    @rule(share=st.sampled_from([0.0, 0.3, 1.0]))
    def refuse(self, share: float) -> None:
        self.story.refuse(share)
        self.story.wait(10)

    def teardown(self) -> None:
        if hasattr(self, "story"):
            self.story.end()


Week.TestCase.settings = settings(
    max_examples=40 if IS_SOAK else 8,
    stateful_step_count=150 if IS_SOAK else 16,
    deadline=None,
    derandomize=not IS_SOAK,
    suppress_health_check=list(HealthCheck),
)
TestWeek = pytest.mark.soak(Week.TestCase) if IS_SOAK else Week.TestCase  # `make soak` tells long stories
