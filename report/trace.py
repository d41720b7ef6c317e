"""Traces: when each spot pool was available, read from a table.

    zone,start_s,duration_s,available
    us-east-1a,0,21255,0
    us-east-1a,21255,585,1

Each zone is one pool. `available` is 0 or 1, or how many instances could run. If no value of the table is above 1, an
available pool has room for everything. A pool is unavailable where the table has no line for it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

COLUMNS = ("zone", "start_s", "duration_s", "available")
UNLIMITED = 10**9
LONGEST_SECONDS = 10 * 366 * 86_400.0
MOST_INSTANCES = 10**6
MOST_MISTAKES = 10


class TraceError(ValueError):
    """What is wrong with a trace; each mistake names its line and column."""

    def __init__(self, mistakes: list[str]) -> None:
        more = [f"… and {len(mistakes) - MOST_MISTAKES} more"] if len(mistakes) > MOST_MISTAKES else []
        super().__init__("\n  ".join(["the trace is invalid:", *mistakes[:MOST_MISTAKES], *more]))
        self.mistakes = mistakes


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A time in which a pool has room for so many instances."""

    start: float
    end: float
    room: int
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Trace:
    """All spans of each pool, in order."""

    pools: Mapping[str, tuple[Span, ...]]

    @property
    def start(self) -> float:
        return min(spans[0].start for spans in self.pools.values())

    @property
    def end(self) -> float:
        return max(spans[-1].end for spans in self.pools.values())

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def changes(self, pool: str) -> list[tuple[float, int]]:
        """From when on the pool has which room: only where it differs from before. Every pool begins without room."""
        found = [(self.start, 0)]
        for span in self.pools[pool]:
            _turn(found, span.start, span.room)
            _turn(found, span.end, 0)
        return [each for before, each in zip([(0.0, 0), *found], found, strict=False) if each[1] != before[1]]


def _turn(found: list[tuple[float, int]], at: float, room: int) -> None:
    if found[-1][0] == at:
        found.pop()
    found.append((at, room))


def parse_trace(text: str) -> Trace:
    """Raises TraceError."""
    lines = csv.reader(text.removeprefix("\ufeff").splitlines())
    header = [column.strip() for column in next(lines, [])]
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        expected = ",".join(COLUMNS)
        raise TraceError([f"line 1: column {', '.join(missing)} is missing; the first line must name {expected}"])
    mistakes: list[str] = []
    pools: dict[str, list[Span]] = {}
    for row in lines:
        if row:
            _read(dict(zip(header, row, strict=False)), lines.line_num, pools, mistakes)
    if not pools and not mistakes:
        mistakes.append("line 2: no data; expected a line such as zone-a,0,3600,1")
    ordered = {pool: tuple(sorted(spans)) for pool, spans in sorted(pools.items())}
    mistakes += [mistake for pool, spans in ordered.items() for mistake in _overlaps(pool, spans)]
    if mistakes:
        raise TraceError(mistakes)
    return _with_room(ordered)


def _read(row: Mapping[str, str], line: int, pools: dict[str, list[Span]], mistakes: list[str]) -> None:
    try:
        zone = row.get("zone", "").strip()
        if not zone:
            raise ValueError("column zone: it is empty; expected the name of a pool, such as us-east-1a")
        start = _number(row, "start_s", "seconds from 0, such as 21255", 0.0)
        lasts = _number(row, "duration_s", "seconds above 0, such as 585", math.ulp(0.0))
        pools.setdefault(zone, []).append(Span(start, start + lasts, _count(row), line))
    except ValueError as error:
        mistakes.append(f"line {line}, {error}")


def _number(row: Mapping[str, str], column: str, expected: str, least: float) -> float:
    text = row.get(column, "").strip()
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value <= LONGEST_SECONDS:
        raise ValueError(f"column {column}: expected {expected}, got {text!r}")
    return value


def _count(row: Mapping[str, str]) -> int:
    text = row.get("available", "").strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) > MOST_INSTANCES:
        raise ValueError(f"column available: expected 0, 1 or a count of instances, got {text!r}")
    return int(text)


def _overlaps(pool: str, spans: tuple[Span, ...]) -> Iterator[str]:
    for before, after in pairwise(spans):
        if after.start < before.end:
            yield (
                f"line {after.line}, column start_s: {pool} is covered twice: {after.start:g} is before "
                f"{before.end:g}, the end of line {before.line}"
            )


def _with_room(pools: Mapping[str, tuple[Span, ...]]) -> Trace:
    """Flags stand for room without limit."""
    if any(span.room > 1 for spans in pools.values() for span in spans):
        return Trace(pools)
    return Trace(
        {
            pool: tuple(Span(span.start, span.end, span.room * UNLIMITED, span.line) for span in spans)
            for pool, spans in pools.items()
        }
    )
