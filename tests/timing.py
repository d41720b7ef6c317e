"""Times are printed always, and judged by `make soak` alone: a busy machine is no defect of ours."""

from __future__ import annotations

import os

import pytest

JUDGES = bool(os.environ.get("SPOTWEAVE_SOAK"))
timed = pytest.mark.timed  # on tests that call `within`


def within(what: str, seconds: float, limit_seconds: float) -> None:
    """How long it took, and how long it may take."""
    print(f"{what}: {seconds:.2f} s, limit {limit_seconds:.2f} s")
    assert seconds <= limit_seconds or not JUDGES, what
