"""An event loop whose clock jumps over waiting: what takes seconds takes none, and no busy machine makes it late."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
TURN_SECONDS = 50e-6  # that each turn of the loop takes: who goes round and round must come to an end


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for nothing that only time would bring."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(None if timeout is None else 0)
        self.now += TURN_SECONDS if ready or not timeout else timeout
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _JumpingSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run_at_once(scenario: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end; gives what it returns."""
    with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
        return runner.run(scenario)
