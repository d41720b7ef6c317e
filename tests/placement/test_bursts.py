"""Bursts: pools that go again soon, and pools that go together."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.bursts import (
    ASSUMED,
    FADED_SECONDS,
    NO_BURSTS,
    TOGETHER_SECONDS,
    bounded,
    hazard,
    parse_bursts,
    raw_bursts,
    with_loss,
)
from placement.promise import DAY_SECONDS, MOST_TOGETHER
from tests.placement.invariants import many

NOW = 1_750_000_000.0
HOUR = 3600.0


def test_a_pool_goes_more_often_soon_after_a_loss() -> None:
    """A loss in ten days: 0.08 a day while it is quiet, 0.88 just after a loss, and soon less."""
    quiet = hazard({"a": 3.0}, NO_BURSTS, NOW)
    assert quiet.losses == pytest.approx(0.08)
    lost = with_loss(NO_BURSTS, "a", NOW)
    assert hazard({"a": 3.0}, lost, NOW).losses == pytest.approx(0.88)
    assert hazard({"a": 3.0}, lost, NOW + 6 * HOUR).losses == pytest.approx((1 / 2.71828 + 0.1) / 1.25, rel=1e-4)
    assert hazard({"b": 3.0}, lost, NOW).losses == pytest.approx(0.08)  # another pool


def test_pools_that_go_within_minutes_are_one_event() -> None:
    """Three pools within five minutes; one of them an hour later."""
    bursts = with_loss(with_loss(with_loss(NO_BURSTS, "a", NOW), "b", NOW + 60), "c", NOW + TOGETHER_SECONDS - 1)
    assert list(bursts.together) == [0, 0, 1, 0, 0, 0]
    again = with_loss(bursts, "a", NOW + HOUR)
    assert list(again.together) == pytest.approx([1, 0, 1, 0, 0, 0], rel=0.01)
    same = with_loss(again, "a", NOW + HOUR + 60)
    assert same.together == again.together  # the same pool is no other one


def test_before_any_was_seen_four_of_five_events_are_single() -> None:
    """And what is seen soon counts more."""
    assert hazard({"a": 1.0}, NO_BURSTS, NOW).together == pytest.approx(ASSUMED)
    bursts = NO_BURSTS
    for day in range(20):
        bursts = with_loss(with_loss(bursts, "a", NOW + day * DAY_SECONDS), "b", NOW + day * DAY_SECONDS + 5)
    assert hazard({"a": 1.0, "b": 1.0}, bursts, NOW).together[1] > 0.7


@many
@given(st.lists(st.tuples(st.floats(0, 40_000), st.sampled_from("abcdefgh")), max_size=40))
def test_what_is_kept_is_bounded_and_can_be_read_again(losses: list[tuple[float, str]]) -> None:
    """As many counts as ever, none below zero; pools are forgotten when their losses have faded."""
    bursts, at = NO_BURSTS, NOW
    for seconds, pool in losses:
        at += seconds
        bursts = with_loss(bursts, pool, at)
    assert len(bursts.together) == MOST_TOGETHER
    assert all(count >= 0 for count in bursts.together)
    assert sum(bursts.together) <= len(losses)
    read = parse_bursts(json.loads(json.dumps(raw_bursts(bursts))))
    assert raw_bursts(read) == raw_bursts(bursts)
    assert not bounded(bursts, at + FADED_SECONDS).recent


BROKEN: tuple[dict[str, Any], ...] = (
    {"together": [1]},
    {"together": [0, 0, 0, 0, 0, -1]},
    {"together": [0, 0, 0, 0, 0, math.inf]},
    {"began": math.inf},
    {"began": math.nan},
    {"recent": {"a": [1, math.inf]}},
    {"recent": {"a": [math.nan, 1]}},
)


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_garbage_is_refused(broken: dict[str, Any]) -> None:
    """The reader keeps what it had: what is not finite could never be written again."""
    with pytest.raises(ValueError, match=r"together|is no amount"):
        parse_bursts({**raw_bursts(NO_BURSTS), **broken})
