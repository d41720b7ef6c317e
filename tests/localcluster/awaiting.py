"""Waiting for a condition, for tests: never a fixed sleep, always an end."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], what: str, timeout_seconds: float = 20.0) -> None:
    """Poll until the condition holds; fail with `what` when it does not in time."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.01)
