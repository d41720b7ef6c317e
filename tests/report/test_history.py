"""What is remembered, how much of it, and what of that is told."""

from __future__ import annotations

from dataclasses import replace

from placement import names
from placement.plan.actions import Plan
from report.history import CHANGE_SECONDS, MOST_POINTS, MOST_SAMPLES, SAMPLE_SECONDS, thinned
from tests.builders.snapshots import deployment, snapshot
from tests.dashboard.dashboardharness import dashboard_of

DAY = 86_400


def test_a_short_dip_is_still_seen_after_a_day() -> None:
    """A day of samples at 70 %, and four and a half minutes without spot somewhere among them."""
    for began in range(0, DAY, 7 * 997):
        points = [(at, 0.0 if began <= at < began + 270 else 0.7) for at in range(0, DAY, 15)]
        told = thinned(points)
        assert len(told) <= MOST_POINTS
        assert min(share for _, share in told) == 0.0
        assert max(share for _, share in told) == 0.7
        assert told[-1] == points[-1]
        assert told == sorted(told)
    assert thinned(points[:MOST_POINTS]) == points[:MOST_POINTS]


def test_samples_are_bounded() -> None:
    """More than a day at rest: the oldest go."""
    page = dashboard_of()
    for _ in range(MOST_SAMPLES + 10):
        page.now += SAMPLE_SECONDS
        page.history.note(page.viewer.take(Plan(), page.now), (), page.now)
    assert len(page.get("overview")["spotShare"]["history"]) <= MOST_POINTS
    assert page.get("overview")["spotShare"]["history"][0][0] > page.now - SAMPLE_SECONDS * (MOST_SAMPLES + 1)


def test_a_clock_that_is_set_back_stops_nothing() -> None:
    """By an hour: what comes then is shown at once, and remembered."""
    page = dashboard_of(snapshot(deployment("web", ["spot-a"] * 2, min_on_demand="0")))
    assert page.get("overview")["spotShare"]["wanted"]["spot"] == 1
    page.now -= 3600
    workload = next(iter(page.index.assessments.values())).group.workload
    page.index.observe(workload, replace(workload, annotations={names.SPOT_RATIO: "0%"}))
    page.passes()
    answer = page.get("overview")
    assert (answer["ageSeconds"], answer["spotShare"]["wanted"]["spot"]) == (0.0, 0)
    page.now += CHANGE_SECONDS
    page.passes()
    assert len(page.get("overview")["spotShare"]["history"]) == 2
