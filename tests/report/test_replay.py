"""Replays: what a ratio would have come to on a trace."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.contenders import CappedSpot, FixedSpot, TraceTrial, replayed
from report.fleet import ReplayTerms, changes_of
from report.replay import Replayer, ReplayOutcome
from report.trace import Span, Trace
from tests.builders.traces import DAY, losing, pool
from tests.examples import examples

TEN = ReplayTerms(replicas=10, must_serve=8, floor=1, recovery_seconds=195.0)


def run(trace: Trace, terms: ReplayTerms, chooser: FixedSpot | CappedSpot) -> ReplayOutcome:
    changes = changes_of(trace, terms.notice_seconds)
    return Replayer(changes, len(trace.pools), terms, chooser).run(trace.start, trace.end)


LOSSES: dict[str, tuple[float, float, float]] = {
    "no notice: the whole recovery is missed": (195.0, 0.0, 195.0),
    "notice shorter than the recovery: the rest is missed": (195.0, 120.0, 75.0),
    "notice longer than the recovery: nothing is missed": (60.0, 120.0, 0.0),
}


@pytest.mark.parametrize(("recovery", "notice", "short"), LOSSES.values(), ids=LOSSES.keys())
def test_a_loss_is_short_for_the_recovery_less_the_notice(recovery: float, notice: float, short: float) -> None:
    """All six spot replicas are in the only pool; two may be missed."""
    terms = ReplayTerms(10, 8, recovery_seconds=recovery, notice_seconds=notice)
    found = run(Trace({"a": pool(DAY, (43_200, 46_800))}), terms, FixedSpot(6))
    assert found.short_seconds == short
    assert found.incidents == (1 if short else 0)


def test_headroom_bears_a_loss() -> None:
    """Two pools with two replicas each, headroom 2: one may go, both at once may not."""
    one = Trace({"a": pool(DAY, (43_200, 46_800)), "b": pool(DAY)})
    assert run(one, TEN, FixedSpot(4)).short_seconds == 0
    both = Trace({"a": pool(DAY, (43_200, 46_800)), "b": pool(DAY, (43_200, 46_800))})
    assert run(both, TEN, FixedSpot(4)).short_seconds == 195
    assert run(one, TEN, FixedSpot(6)).short_seconds == 195


def test_share_and_cost_are_of_the_whole_time() -> None:
    """Half of ten replicas are on spot from the first day on, once moved there two at a time."""
    found = run(Trace({"a": pool(100 * DAY), "b": pool(100 * DAY)}), TEN, FixedSpot(5))
    assert found.share == pytest.approx(0.5, abs=0.001)
    assert found.cost == pytest.approx(0.5 + 0.5 * 0.33, abs=0.001)
    assert found.moves == 5
    assert found.availability == 1


def test_moves_are_paid_for() -> None:
    """While a replica is moved, two are paid for: five moves of 195 s to spot, at 0.33."""
    hour = ReplayTerms(10, 8, recovery_seconds=195.0, moves_at_once=5)
    found = run(Trace({"a": pool(3600.0)}), hour, FixedSpot(5))
    spot_seconds = 5 * (3600.0 - 195.0)
    expected = (36_000 - spot_seconds) + 0.33 * (spot_seconds + 5 * 195)
    assert found.cost * 36_000 == pytest.approx(expected)


def test_spot_is_left_alone_while_it_is_taken_for_out() -> None:
    """The only pool goes for a minute: replicas start on on-demand and return after the note of five minutes."""
    found = run(Trace({"a": pool(3600.0, (1800, 1860))}), ReplayTerms(10, 8, moves_at_once=6), FixedSpot(6))
    assert found.moves == 12
    # Until 1800 s but for the first 195 s; from 1800 + 300 + 195 s on.
    assert found.share == pytest.approx((6 * (1800 - 195) + 6 * (3600 - 2295)) / 36_000)


def test_a_count_of_instances_is_a_limit() -> None:
    """A pool with room for three holds three; when it has room for one, it loses two."""
    trace = Trace({"a": (Span(0, 43_200, 3), Span(43_200, DAY, 1))})
    found = run(trace, TEN, FixedSpot(6))
    assert found.short_seconds == 0  # two are missed, and two may be
    assert found.share == pytest.approx((3 + 1) / 2 / 10, abs=0.01)


def test_the_cap_follows_the_pools() -> None:
    """No pool holds more than the headroom, so the loss of one is never short."""
    trace = losing(7, pools=4, losses_per_day=1.0)
    assert run(trace, TEN, FixedSpot(9)).incidents > 10
    assert run(trace, TEN, CappedSpot(2)).incidents < run(trace, TEN, FixedSpot(8)).incidents


@examples(60)
@given(
    st.integers(0, 10_000),
    st.integers(1, 5),
    st.integers(1, 25),
    st.floats(0, 1),
    st.sampled_from([(195.0, 0.0), (195.0, 120.0), (60.0, 120.0), (600.0, 0.0)]),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_figures_are_consistent(
    seed: int, pools: int, replicas: int, part: float, times: tuple[float, float], together: float
) -> None:
    """Whatever the pools do: no more on spot than wanted, cost as the share says, the headroom alone is never short."""
    trace = losing(seed, pools, losses_per_day=3.0, days=3.0, together=together)
    terms = ReplayTerms(replicas, round(part * replicas), 0, recovery_seconds=times[0], notice_seconds=times[1])
    for spot in (0, terms.headroom, replicas):
        found = run(trace, terms, FixedSpot(spot))
        assert 0 <= found.share <= spot / replicas + 1e-9
        assert found.cost >= 1 - found.share * 0.67 - 1e-9
        assert (found.incidents == 0) == (found.short_seconds == 0)
        if spot <= terms.headroom:
            assert found.availability == 1
    assert TraceTrial(trace, terms).omniscient().cost <= run(trace, terms, FixedSpot(replicas)).cost + 1e-9


def test_hindsight_is_the_cheapest_that_meets_the_target() -> None:
    """On two pools that go daily, 99.9 % leaves the headroom; 90 % leaves all but the floor."""
    trace = losing(3, pools=2, losses_per_day=1.0, together=0.3)
    strict = replayed(trace, ReplayTerms(target=0.9999), Fraction(7, 10))
    assert strict.hindsight.policy == "spot-ratio 20%"
    assert not strict.is_met
    assert replayed(trace, ReplayTerms(target=0.9), None).hindsight.policy == "spot-ratio 90%"


def test_what_scripts_read() -> None:
    """The names are promised."""
    found = replayed(losing(1, pools=3, losses_per_day=0.1), ReplayTerms(), Fraction(1, 5))
    assert set(found.raw) == {
        *("policy", "pools", "days", "target", "targetMet", "share", "cost", "availability", "incidentsPer30Days"),
        *("shortfallMinutesPer30Days", "movesPerDay", "omniscient", "hindsight"),
    }
    assert (found.raw["policy"], found.raw["pools"], found.raw["days"]) == ("spot-ratio 20%", 3, 30.0)
    assert set(found.raw["hindsight"]) == {"policy", "share", "cost", "availability"}
    assert [each["policy"] for each in found.compared][:2] == ["auto", "spot-ratio 0%"]
