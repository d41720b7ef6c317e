"""What `auto` has chosen for each workload, and what it rests on. The leader keeps it in `spotweave-state`.

    {"version": 7, "workloads": {"5d41402abc4b": [15, 2, 1750000000, 1750086400, 195, 0, 3, "00012", "3", "012"]}}

Each entry is the chosen step of 5 %, the number of the reason, since when and until when the budget is counted, how
much of it was spent in seconds, when the ratio last went down, how many replicas went up lately, and three histograms
of losses: how long replacements took to serve, how long before the end it was announced, and how long replicas were
missed. Histograms count up to 9 losses in each of eight ranges: below 1 s, 15 s, 30 s, 60 s, 120 s, 240 s, 480 s, and
above. When one is full, all counts are halved.

All programs read the chosen step, so webhooks and rebalancers give a workload the same ratio. A workload is known by
12 digits of a hash of its UID. At most six thousand are kept, because the ConfigMap may have 1 MiB in all, and outages
and the pause are in it, too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2s
from typing import Any, NamedTuple

from placement.promise import LARGEST, AutoStanding, SpotLimit
from placement.risk import RECOVERY_SECONDS

KEY = "auto.json"
MOST_WORKLOADS = 6_000  # of at most 106 bytes each
MOST_BYTES = 640 << 10  # a larger text is not written
RANGES = (1.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 960.0)
MOST_IN_RANGE = 9
CAUTIOUS_PART = 0.9  # of losses are over as soon as assumed
FEWEST = 3  # losses, before they count
LIMITS = tuple(SpotLimit)


class Chosen(NamedTuple):
    """A step of 5 %, and why it is no more."""

    step: int
    limit: SpotLimit


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many losses took how long."""

    counts: tuple[int, ...] = (0,) * len(RANGES)

    @property
    def total(self) -> int:
        return sum(self.counts)

    def with_one(self, seconds: float) -> Histogram:
        number = next((number for number, most in enumerate(RANGES) if seconds < most), len(RANGES) - 1)
        counts = list(self.counts)
        if counts[number] == MOST_IN_RANGE:
            counts = [count // 2 for count in counts]
        counts[number] += 1
        return Histogram(tuple(counts))

    def longest(self) -> float:
        """At most this long in nine of ten cases: the upper end of a range, so it is rounded up."""
        left = self.total * CAUTIOUS_PART
        for most, count in zip(RANGES, self.counts, strict=True):
            left -= count
            if left <= 1e-9:
                return most
        return RANGES[-1]

    @property
    def text(self) -> str:
        return "".join(map(str, self.counts)).rstrip("0")


def parse_histogram(text: str) -> Histogram:
    if len(text) > len(RANGES) or not ((text.isascii() and text.isdigit()) or not text):
        raise ValueError(f"{text!r} is no histogram")
    return Histogram(tuple(map(int, text.ljust(len(RANGES), "0"))))


@dataclass(frozen=True, slots=True)
class WorkloadRecord:
    """What is known of one workload."""

    standing: AutoStanding
    limit: SpotLimit = SpotLimit.RISK
    recoveries: Histogram = Histogram()
    notices: Histogram = Histogram()
    missed: Histogram = Histogram()

    @property
    def missed_seconds(self) -> float:
        """For how long a lost replica is missed. Ten minutes, until enough losses were seen."""
        return RECOVERY_SECONDS if self.missed.total < FEWEST else self.missed.longest()


@dataclass(frozen=True, slots=True)
class AutoState:
    """All workloads on `auto`, by `key_of`."""

    version: int = 0
    workloads: Mapping[str, WorkloadRecord] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()  # entries that were left out, and why


NOTHING_CHOSEN = AutoState()


@lru_cache(maxsize=16384)
def key_of(uid: str) -> str:
    return blake2s(uid.encode(), digest_size=6).hexdigest()


# --- text ------------------------------------------------------------------------------------------------------------


def autostate_text(state: AutoState) -> str:
    workloads = {key: _raw(record) for key, record in sorted(state.workloads.items())}
    return json.dumps({"version": state.version, "workloads": workloads}, separators=(",", ":"))


def _raw(record: WorkloadRecord) -> list[Any]:
    each = record.standing
    fell = round(each.fell) if each.fell > 0 else 0
    spent = [round(each.since), round(each.at), round(each.short_seconds, 1), fell, round(each.rises, 2)]
    histograms = (record.recoveries, record.notices, record.missed)
    return [each.step, LIMITS.index(record.limit), *spent, *(each.text for each in histograms)]


def parse_autostate(text: str) -> AutoState:
    """Without single entries that cannot be read. Raises ValueError if the text as a whole cannot be."""
    raw = _read(text)
    try:
        version, entries = int(raw["version"]), raw["workloads"].items()
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{KEY} is unreadable: {type(error).__name__}: {error}") from error
    workloads: dict[str, WorkloadRecord] = {}
    unreadable: list[str] = []
    for key, each in entries:
        try:
            workloads[key] = _record(each)
        except (ValueError, TypeError, OverflowError) as error:
            unreadable.append(f"{key}: {error}")
    return AutoState(version, workloads, tuple(unreadable))


def parse_chosen(text: str) -> dict[str, Chosen]:
    """The choices alone, which all programs read: of six thousand workloads in a hundredth of a second."""
    raw = _read(text)
    try:
        return {key: _chosen(each[0], each[1]) for key, each in raw["workloads"].items() if each[0] is not None}
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{KEY} is unreadable: {type(error).__name__}: {error}") from error


def _read(text: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"{KEY} is unreadable: {error}") from error
    if not isinstance(raw, dict):
        raise ValueError(f"{KEY} is unreadable: it is no object")
    return raw


def _chosen(step: Any, limit: Any) -> Chosen:
    if step.__class__ is not int or not 0 <= step <= LARGEST:
        raise ValueError(f"{step!r} is no step")
    if limit.__class__ is not int or not 0 <= limit < len(LIMITS):
        raise ValueError(f"{limit!r} is no reason")
    return Chosen(step, LIMITS[limit])


def _record(raw: list[Any]) -> WorkloadRecord:
    step, limit, since, at, short, fell, rises, *histograms = raw
    chosen = _chosen(step or 0, limit)
    times = [float(each) for each in (since, at, short, fell, rises)]
    if not all(map(math.isfinite, times)):
        raise ValueError("a time is not finite")
    known = None if step is None else chosen.step
    standing = AutoStanding(times[0], times[1], times[2], known, times[3] or -math.inf, times[4])
    recoveries, notices, missed = map(parse_histogram, histograms)
    return WorkloadRecord(standing, chosen.limit, recoveries, notices, missed)
