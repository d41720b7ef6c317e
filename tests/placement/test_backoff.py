"""Waits that double."""

from __future__ import annotations

import pytest

from placement.backoff import doubled


@pytest.mark.parametrize(("times", "seconds"), [(0, 300), (3, 2400), (4, 3600), (1024, 3600), (10**9, 3600), (-1, 300)])
def test_a_wait_doubles_up_to_its_limit(times: int, seconds: float) -> None:
    """However often: 2 to the 1,024th is too much for a float."""
    assert doubled(300.0, times, 3600.0) == seconds
