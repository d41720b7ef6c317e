"""`auto`: how many replicas the availability target pays for, and when that changes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.promise import (
    BORROWED_DAYS,
    DAY_SECONDS,
    LARGEST,
    RISE_SECONDS,
    SAVED_DAYS,
    SPENT,
    AutoStanding,
    Hazard,
    Service,
    SpotLimit,
    bearable,
    breaking,
    decided,
    expected_short,
    passed,
)
from tests.placement.invariants import many

TEN = Service(10, 8, 1, 0.999, 195.0)
FOUR = Hazard(4, 0.4, (0.9, 0.1))
CALM = Hazard(4, 0.001, (0.9, 0.1))
ROUGH = Hazard(4, 400.0, (0.0, 0.0, 0.0, 1.0))
HOUR = 3600.0


def test_the_example_of_the_module() -> None:
    """Four pools with a loss in ten days each; one loss in ten takes two pools."""
    assert pytest.approx(0.3636, abs=1e-4) == FOUR.events
    assert expected_short(8, TEN, FOUR) == pytest.approx(7.09, abs=0.01)
    assert expected_short(9, TEN, FOUR) == pytest.approx(70.9, abs=0.1)
    left = AutoStanding(0.0, 0.0).left(TEN)
    assert left == pytest.approx(820.8)
    assert [TEN.spot(bearable(TEN, FOUR, each)[0]) for each in (left, 300.0, 190.0)] == [9, 8, 2]


BREAKS: dict[str, tuple[tuple[int, int, int, int], float]] = {
    "3 3 2 2, two pools, 4 may go": ((2, 10, 4, 4), 5 / 6),
    "2 2 2 2, one pool, 2 may go": ((1, 8, 4, 2), 0.0),
    "2 2 2 2, two pools, 2 may go": ((2, 8, 4, 2), 1.0),
    "1 1 1 0, two pools, 2 may go": ((2, 3, 4, 2), 0.0),
    "more in each pool than may go": ((1, 9, 4, 2), 1.0),
    "more pools than there are": ((6, 2, 1, 2), 0.0),
}


@pytest.mark.parametrize(("asked", "expected"), BREAKS.values(), ids=BREAKS.keys())
def test_how_likely_a_loss_is_too_large(asked: tuple[int, int, int, int], expected: float) -> None:
    """Pools lost, replicas, pools, headroom."""
    assert breaking(*asked) == pytest.approx(expected)


def test_nothing_left_leaves_what_can_be_lost_at_once() -> None:
    """Two of ten, however calm the pools are; and none, where all must serve."""
    assert bearable(TEN, CALM, 194.0) == (TEN.safe, SpotLimit.BUDGET)
    assert TEN.spot(TEN.safe) == 2
    strict = replace(TEN, must_serve=10)
    assert strict.spot(bearable(strict, CALM, 194.0)[0]) == 0


def test_a_target_may_be_too_strict_for_one_loss() -> None:
    """99.99 % allows 246 s a month, so ten minutes are never there; 195 s are, after a while."""
    strict = replace(TEN, target=0.9999)
    assert bearable(replace(strict, missed_seconds=600.0), CALM, 246.0) == (TEN.safe, SpotLimit.STRICT)
    assert bearable(strict, CALM, 82.0) == (TEN.safe, SpotLimit.BUDGET)
    assert bearable(strict, CALM, 246.0) == (LARGEST, SpotLimit.LARGEST)


def test_what_is_always_outrun_is_no_risk() -> None:
    """Replacements serve before the announced loss: as much spot as there may be, on the roughest pools."""
    assert bearable(replace(TEN, missed_seconds=0.0), ROUGH, 1.0) == (LARGEST, SpotLimit.LARGEST)
    assert (
        bearable(replace(TEN, missed_seconds=0.0), ROUGH, 0.0)[1] is SpotLimit.BUDGET
    )  # but it was short all the same


def test_a_budget_accrues_and_is_spent() -> None:
    """Ten days' worth at first; the loan is paid back; never more than thirty days' worth."""
    daily = 86.4 * SPENT
    start = AutoStanding(0.0, 0.0)
    assert start.left(TEN) == pytest.approx(BORROWED_DAYS * daily)
    ten = passed(start, TEN, BORROWED_DAYS * DAY_SECONDS, was_short=False)
    assert ten.left(TEN) == pytest.approx(BORROWED_DAYS * daily)
    short = passed(ten, TEN, ten.at + 195.0, was_short=True)
    assert short.left(TEN) == pytest.approx(BORROWED_DAYS * daily - 195.0, abs=1.0)
    old = passed(short, TEN, 400 * DAY_SECONDS, was_short=False)
    assert old.left(TEN) == pytest.approx(SAVED_DAYS * daily)


@pytest.mark.parametrize("before", [0.99, 0.9, 0.999])
def test_another_target_finds_what_was_saved(before: float) -> None:
    """After a hundred quiet days there are thirty days' worth of it, whatever the target was until then."""
    old = replace(TEN, target=before)
    standing = AutoStanding(0.0, 0.0)
    standing = passed(standing, old, 195.0, was_short=True)
    for day in range(1, 101):
        standing = passed(standing, old, day * DAY_SECONDS, was_short=False)
    standing = passed(standing, TEN, standing.at + 60, was_short=False)
    assert standing.left(TEN) == pytest.approx(SAVED_DAYS * TEN.daily_seconds)
    assert bearable(TEN, CALM, standing.left(TEN)) == (LARGEST, SpotLimit.LARGEST)


def test_it_falls_at_once_and_rises_slowly() -> None:
    """Six hours after a fall, and in a day by no more replicas than there are."""
    high, _ = decided(AutoStanding(0.0, 0.0), TEN, CALM)
    assert high.step == LARGEST
    low, limit = decided(passed(high, TEN, HOUR, was_short=False), TEN, ROUGH)
    assert (TEN.spot(low.step or 0), limit) == (2, SpotLimit.RISK)
    waits, limit = decided(passed(low, TEN, HOUR + RISE_SECONDS - 1, was_short=False), TEN, CALM)
    assert (waits.step, limit) == (low.step, SpotLimit.RISING)
    again, _ = decided(passed(low, TEN, HOUR + RISE_SECONDS, was_short=False), TEN, CALM)
    assert again.step == LARGEST
    assert again.rises == 7
    fallen, _ = decided(passed(again, TEN, again.at + 60, was_short=False), TEN, ROUGH)
    third, limit = decided(passed(fallen, TEN, fallen.at + RISE_SECONDS, was_short=False), TEN, CALM)
    assert (TEN.spot(third.step or 0), limit) == (7, SpotLimit.RISING)  # 7 − 2.5 are taken off: 5 more may rise


def test_what_makes_no_difference_is_not_chosen() -> None:
    """A workload that is scaled to nothing, or has one replica, keeps its ratio for when it grows."""
    known = AutoStanding(0.0, 0.0, step=6)
    for replicas in (0, 1):
        small = replace(TEN, replicas=replicas, must_serve=0)
        assert decided(known, small, CALM) == (known, SpotLimit.LARGEST)


def test_without_pools_nothing_changes() -> None:
    """They come back, and the ratio with them; what is lost is replaced on on-demand meanwhile."""
    known = AutoStanding(0.0, 0.0, step=12)
    assert decided(known, TEN, Hazard()) == (known, SpotLimit.POOLS)


@many
@given(
    st.integers(1, 60),
    st.floats(0, 1),
    st.integers(0, 3),
    st.sampled_from([0.9, 0.99, 0.999, 0.9999]),
    st.lists(st.tuples(st.floats(1, 50_000), st.integers(0, 6), st.floats(0, 100), st.booleans()), max_size=40),
)
def test_the_promise_holds_whatever_happens(
    replicas: int, part: float, floor: int, target: float, events: list[tuple[float, int, float, bool]]
) -> None:
    """With nothing left only the headroom is on spot; ratios are steps; rises are bounded; records stay finite."""
    service = Service(replicas, round(part * replicas), floor, target, 195.0)
    standing, risen = AutoStanding(0.0, 0.0), 0
    for seconds, pools, losses, is_short in events:
        before = standing
        standing = passed(standing, service, standing.at + seconds, was_short=is_short)
        standing, limit = decided(standing, service, Hazard(pools, losses, (0.7, 0.2, 0.1)))
        assert math.isfinite(standing.left(service))
        assert standing.left(service) <= SAVED_DAYS * service.daily_seconds + 1e-6
        if standing.step is None:
            assert limit is SpotLimit.POOLS
            continue
        assert 0 <= standing.step <= LARGEST
        if pools and standing.left(service) <= 195.0:
            assert service.spot(standing.step) <= max(service.headroom, 0)
        if before.step is not None:
            risen += max(0, service.spot(standing.step) - service.spot(before.step))
    assert risen <= replicas * (1 + standing.at / DAY_SECONDS)
