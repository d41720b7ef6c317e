"""Risk: how often a workload is expected to fall below what must serve."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.risk import NODE_PRIOR, POOL_PRIOR, Peril, Risk, bearable, monthly, risk, unavailability
from tests.placement.invariants import many

DAY = 24.0
RATES: dict[str, tuple[float, float, float, float]] = {
    "never watched: the prior": (0, 0, POOL_PRIOR, 1.0),
    "a node that was never watched": (0, 0, NODE_PRIOR, 0.1),
    "30 days without a loss": (0, 30 * DAY, POOL_PRIOR, 0.25),
    "30 days with three": (3, 30 * DAY, POOL_PRIOR, 2.5),
    "a day with one says little": (1, DAY, POOL_PRIOR, 30 * (4 / 3) / 11),
}


@pytest.mark.parametrize(("losses", "hours", "prior", "expected"), RATES.values(), ids=RATES.keys())
def test_a_rate_rests_on_what_was_watched(losses: float, hours: float, prior: float, expected: float) -> None:
    """And on the prior, as if it were ten days more."""
    assert monthly(losses, hours, prior) == pytest.approx(expected)


PERILS = [Peril(1.0, 3), Peril(1.0, 3), Peril(1.0, 1), Peril(0.1, 3), Peril(0.1, 2)]
RISKS: dict[str, tuple[int, float, float]] = {
    "two may go: the pools of three and the node of three are too much": (2, 2.1, 2.1 * 600 / 2_592_000),
    "three may go": (3, 0.0, 0.0),
    "none may go": (0, 3.2, 3.2 / 4320),
    "too few are there already": (-1, 3.2, 1.0),
}


@pytest.mark.parametrize(("headroom", "incidents", "share"), RISKS.values(), ids=RISKS.keys())
def test_losses_that_leave_too_few_are_incidents(headroom: int, incidents: float, share: float) -> None:
    """Each at its rate, and each for the time that recovery takes."""
    found = risk(PERILS, headroom)
    assert found.incidents == pytest.approx(incidents)
    assert found.unavailability == pytest.approx(share)


def test_what_holds_nothing_is_no_peril() -> None:
    """Even where too few are there already."""
    assert risk([Peril(9.0, 0)], -3).incidents == 0.0


@pytest.mark.parametrize(
    ("hours", "expected"),
    [(0.0, "assumed"), (23.9, "assumed"), (24.0, "observed 1 day"), (300.0, "observed 12 days")],
)
def test_it_tells_what_it_rests_on(hours: float, expected: str) -> None:
    """A day, at least."""
    assert Risk(hours=hours).rests_on == expected


def test_a_risk_explains_itself() -> None:
    """In one line."""
    assert risk(PERILS, 2).explain() == (
        "2.1 incidents expected in 30 days, below min-available for 0.0486% of the time (assumed)"
    )
    assert risk(PERILS, -1).explain() == "3.2 incidents expected in 30 days, below min-available now (assumed)"


def test_a_target_bears_some_incidents() -> None:
    """99.9 % of 30 days leave 43 minutes, which are 4.32 times ten."""
    assert bearable(0.999) == pytest.approx(4.32)
    assert unavailability(bearable(0.999)) == pytest.approx(0.001)


perils = st.lists(st.builds(Peril, st.floats(0, 50), st.integers(0, 20)), max_size=12)


@many
@given(perils, st.integers(-5, 25), perils)
def test_more_headroom_never_means_more_risk_and_more_perils_never_less(
    some: list[Peril], headroom: int, more: list[Peril]
) -> None:
    """And a share of time is one."""
    here = risk(some, headroom)
    assert 0 <= here.unavailability <= 1
    assert risk(some, headroom + 1).incidents <= here.incidents <= risk([*some, *more], headroom).incidents + 1e-9


@many
@given(st.floats(0, 100), st.floats(0, 10_000), st.floats(0.01, 10))
def test_a_rate_is_never_nothing_and_falls_while_nothing_happens(losses: float, hours: float, prior: float) -> None:
    """Every loss raises it; with time, it forgets the prior."""
    rate = monthly(losses, hours, prior)
    assert 0 < monthly(losses, hours + 24, prior) < rate < monthly(losses + 1, hours, prior)
