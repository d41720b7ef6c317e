"""Windows of time in which moves are allowed: `0 22 * * 1-5 8h Europe/Berlin` (cron, duration, time zone).

It opens whenever the zone's clock shows a time that the cron line names, and stays open that long in real time; so
from Monday 22:00 to Tuesday 06:00, and so on, last from Friday 22:00 to Saturday 06:00. A day counts if its month is
named, and so are its day of month and its day of week; where both of these are restricted, one of them is enough.

When the clock is put back, a time that it shows twice opens it twice. A time that it skips opens it as late as if
the clock had not been changed: 02:30 at 03:30.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?:\d+[smhd])+", re.ASCII)
_CRON = re.compile(r"(?:\*|\d{1,2}(?:-\d{1,2})?)(?:/\d{1,2})?", re.ASCII)
LONGEST_GAP_DAYS = 8 * 366  # from 29 February 2096 to the next
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
    text: str = field(default="", compare=False)  # as it was written

    def __str__(self) -> str:
        return self.text

    def is_open(self, now: float) -> bool:
        opened = self.last_opening(now)
        return opened is not None and now < opened + self.lasts.total_seconds()

    def last_opening(self, now: float) -> float | None:
        """When it opened last, at `now` at the latest; None if no day in years is one (30 February)."""
        for day in self._days(now):
            openings = _openings(self.opens, self.zone, day)
            if count := bisect_right(openings, now):
                return openings[count - 1]
        return None

    def _days(self, now: float) -> Iterator[date]:
        """The days on which it opens, back from now; a day more, since a clock may be put back past midnight."""
        today = datetime.fromtimestamp(now, ZoneInfo(self.zone)).date()
        days = (today - timedelta(distance) for distance in range(-1, LONGEST_GAP_DAYS))
        return (day for day in days if _is_named(self.opens, day))


def parse_window(text: str) -> Window:
    fields = text.split()
    if len(fields) not in (6, 7):
        raise ValueError(text)
    opens = tuple(_cron_field(each, low, high) for each, (_, low, high) in zip(fields, _FIELDS, strict=False))
    zone = _time_zone(fields[6]) if len(fields) == 7 else "UTC"
    return Window(opens, parse_duration(fields[5]), zone, " ".join(fields))


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


def _is_named(opens: tuple[frozenset[int], ...], day: date) -> bool:
    """Whether a cron line names this day. Sunday is 0 and 7."""
    _, _, days, months, weekdays = opens
    if day.month not in months:
        return False
    by_day, by_weekday = day.day in days, bool({day.isoweekday(), day.isoweekday() % 7} & weekdays)
    if len(days) == 31 or len({number % 7 for number in weekdays}) == 7:
        return by_day and by_weekday
    return by_day or by_weekday


@lru_cache(maxsize=256)
def _openings(opens: tuple[frozenset[int], ...], zone: str, day: date) -> tuple[float, ...]:
    """The moments of one of its days, in order."""
    minutes, hours, *_ = opens
    midnight = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone))
    first = [midnight.replace(hour=hour, minute=minute) for hour in hours for minute in minutes]
    moments = {moment.timestamp() for moment in first}
    second = (moment.replace(fold=1).timestamp() for moment in first)
    # later where the clock shows it twice, earlier where it skips it
    moments |= {again for moment, again in zip(first, second, strict=True) if again > moment.timestamp()}
    return tuple(sorted(moments))
