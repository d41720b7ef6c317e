"""How thorough hypothesis is: a count for every change, and many times that in `make soak`."""

from __future__ import annotations

import os

from hypothesis import settings

TIMES = 20 if os.environ.get("SPOTWEAVE_SOAK") else 1


def examples(count: int) -> settings:
    """So many examples with every change; the rest is as `tests/conftest.py` has it."""
    return settings(max_examples=count * TIMES)
