"""Windows of time in which moves are allowed: `0 22 * * 1-5 8h Europe/Berlin` (cron, duration, time zone)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from zoneinfo import ZoneInfo

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?:\d+[smhd])+", re.ASCII)
_CRON = re.compile(r"(?:\*|\d{1,2}(?:-\d{1,2})?)(?:/\d{1,2})?", re.ASCII)
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7))


def parse_duration(text: str) -> timedelta:
    """`90s`, `5m`, `1h30m`, `2d`."""
    if not _DURATION.fullmatch(text):
        raise ValueError(text)
    parts = re.findall(r"(\d+)([smhd])", text)
    try:
        return timedelta(seconds=sum(int(number) * _UNITS[unit] for number, unit in parts))
    except OverflowError as error:
        raise ValueError(text) from error


@dataclass(frozen=True, slots=True)
class Window:
    """When it opens (one set of numbers for each cron field), and for how long."""

    opens: tuple[frozenset[int], ...]
    lasts: timedelta
    zone: str = "UTC"


def parse_window(text: str) -> Window:
    fields = text.split()
    if len(fields) not in (6, 7):
        raise ValueError(text)
    opens = tuple(_cron_field(field, low, high) for field, (_, low, high) in zip(fields, _FIELDS, strict=False))
    return Window(opens, parse_duration(fields[5]), _time_zone(fields[6]) if len(fields) == 7 else "UTC")


def _time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, OSError) as error:  # unknown, or a directory of zones such as "Europe"
        raise ValueError(name) from error
    return name


def _cron_field(text: str, low: int, high: int) -> frozenset[int]:
    return frozenset(number for part in text.split(",") for number in _cron_range(part, low, high))


def _cron_range(text: str, low: int, high: int) -> range:
    """`*`, `5`, `1-5`, each with an optional `/step`."""
    if not _CRON.fullmatch(text):
        raise ValueError(text)
    span, _, step = text.partition("/")
    first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
    numbers = range(int(first), int(last or first) + 1, int(step or 1))
    if not numbers or numbers[0] < low or numbers[-1] > high:
        raise ValueError(text)
    return numbers
