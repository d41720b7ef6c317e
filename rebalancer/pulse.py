"""Whether the loop goes on: its thread says so, and the Lease and the liveness probe ask.

A pass takes a second at 150,000 pods, and as long as its writes take. Each write counts, so that a pass with thousands
of them is not taken for a hang: the longest call takes some seconds, and the loop waits 15 s at most after a failure.

A pass that fails has ended: the loop does not hang, and a restart would rarely help. But a loop whose every pass fails
does no work, and is no better a leader than one that hangs. So the Lease asks for passes that succeed, health only for
passes that end. A pass that may conclude nothing, because not all is read yet or the API server is away, succeeds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT_SECONDS = 60.0


class Pulse:
    """When the loop last worked, and when its last pass ended. Begins with the program."""

    def __init__(self, timer: Callable[[], float] = time.monotonic, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._timer = timer
        self._limit_seconds = limit_seconds
        self._worked_at = self._ended_at = timer()

    def work(self) -> None:
        """A pass has succeeded, or one of its writes is over."""
        self._worked_at = self._ended_at = self._timer()

    def fail(self) -> None:
        """A pass has failed."""
        self._ended_at = self._timer()

    def is_fit(self) -> bool:
        """Whether it may lead."""
        return self._timer() - self._worked_at < self._limit_seconds

    def hang(self) -> str | None:
        """What is wrong, if no pass has ended for long."""
        seconds = self._timer() - self._ended_at
        return None if seconds < self._limit_seconds else f"no pass has ended for {seconds:.0f} s"
