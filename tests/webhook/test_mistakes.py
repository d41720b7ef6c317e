"""Mistakes, reported on the workload."""

from __future__ import annotations

from placement import names
from placement.model import Workload
from placement.policy import Mistake
from tests.builders.model import workload
from webhook.mistakes import Mistakes

WEB = workload()
RATIO = Mistake("workload", names.SPOT_RATIO, "70", "a percentage")
FLOOR = Mistake("namespace", names.MIN_ON_DEMAND, "two", "a whole number")


def reported(*mistakes: Mistake, dry_run: bool = False) -> list[tuple[Workload, str, str]]:
    events: list[tuple[Workload, str, str]] = []
    mistakes_of = Mistakes(lambda workload, reason, text: events.append((workload, reason, text)))
    mistakes_of.report(WEB, mistakes, dry_run=dry_run)
    return events


def test_all_mistakes_are_reported_in_one_event() -> None:
    """On the workload, also those that its namespace has made."""
    assert reported(RATIO, FLOOR) == [(WEB, names.EVENT_MISTAKE, f"{RATIO}; {FLOOR}")]


def test_no_mistakes_are_no_event() -> None:
    """Most workloads have none."""
    assert reported() == []


def test_a_dry_run_writes_no_event() -> None:
    """Dry runs change nothing."""
    assert reported(RATIO, dry_run=True) == []
