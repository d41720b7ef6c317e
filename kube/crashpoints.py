"""Deaths on purpose, for tests: `SPOTWEAVE_FAULT=after:evict:2` kills the process right after its second eviction.

Right before a call, or right after its answer, are the two places where a crash leaves a different cluster behind.
The process kills itself with SIGKILL, so nothing of ours can tidy up.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock

from placement.configuration import ConfigurationError

VARIABLE = "SPOTWEAVE_FAULT"


class Call(StrEnum):
    """The writes that can be died at."""

    ANNOTATE = "annotate"
    EVICT = "evict"
    DELETE = "delete"
    FAIL = "fail"
    RESERVE = "reserve"
    UNRESERVE = "unreserve"
    START = "start"
    UNGATE = "ungate"
    SUSPEND = "suspend"
    OUTAGE = "outage"
    LEASE = "lease"


ANY = "any"


class Moment(StrEnum):
    """On which side of the call."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Fault:
    """One death: at the n-th call of a kind, or of any kind."""

    moment: Moment
    call: str
    number: int


def parse_fault(text: str) -> Fault:
    moment, _, rest = text.partition(":")
    call, _, number = rest.partition(":")
    is_number = number.isascii() and number.isdigit() and int(number[:9]) >= 1 and len(number) < 10
    if moment not in tuple(Moment) or call not in (ANY, *Call) or not is_number:
        calls = "|".join((*Call, ANY))
        raise ConfigurationError([f"{VARIABLE}: expected before|after:{calls}:N with N from 1, got {text!r}"])
    return Fault(Moment(moment), call, int(number))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Faults:
    """Counts the calls, from all threads together, and dies when it is time."""

    def __init__(self, fault: Fault | None = None, die: Callable[[], None] = _die) -> None:
        self._fault = fault
        self._die = die
        self._lock = Lock()
        self._calls = 0

    @classmethod
    def told_by(cls, environment: Mapping[str, str]) -> Faults:
        """No fault without the variable; ConfigurationError if it makes no sense, so that no test passes by mistake."""
        text = environment.get(VARIABLE, "")
        return cls(parse_fault(text) if text else None)

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        """For one request. An answer that is an error is an answer, too."""
        dies_at = self._moment_of(call)
        if dies_at is Moment.BEFORE:
            self._die()
        try:
            yield
        finally:
            if dies_at is Moment.AFTER:
                self._die()

    def _moment_of(self, call: Call) -> Moment | None:
        """When to die at this call, which is counted by asking."""
        fault = self._fault
        if fault is None or fault.call not in (ANY, call):
            return None
        with self._lock:
            self._calls += 1
            return fault.moment if self._calls == fault.number else None


NO_FAULTS = Faults()
