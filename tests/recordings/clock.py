"""A frozen clock. It has to be installed before the product is imported: default arguments keep what they were."""

from __future__ import annotations

import datetime
import time

NOW = 1_760_000_000.0  # Thursday 2025-10-09, 08:53:20 UTC


class _Frozen(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _Frozen:
        return cls.fromtimestamp(NOW, tz)


def freeze() -> None:
    """Stops every clock that the product reads. Locks, sockets and the event loop of `product` keep their own."""
    time.time = lambda: NOW
    time.monotonic = lambda: NOW
    time.perf_counter = lambda: NOW
    datetime.datetime = _Frozen  # type: ignore[misc]


def moment(at: float) -> str:
    """As the API writes it."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(seconds: float) -> str:
    return moment(NOW - seconds)
