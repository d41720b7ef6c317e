"""Windows and durations."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.window import Window, parse_duration, parse_window
from tests.placement.invariants import few, many

MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS = (
    frozenset(range(low, high + 1)) for low, high in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
)
WINDOWS = {
    "the example": (
        "0 22 * * 1-5 8h Europe/Berlin",
        Window(
            (frozenset({0}), frozenset({22}), DAYS, MONTHS, frozenset(range(1, 6))), timedelta(hours=8), "Europe/Berlin"
        ),
    ),
    "UTC if no zone is given": (
        "* * * * * 1m",
        Window((MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS), timedelta(minutes=1), "UTC"),
    ),
    "steps, lists and ranges": (
        "*/20 8-18/5 1,15 * 0,7 30m",
        Window(
            (frozenset({0, 20, 40}), frozenset({8, 13, 18}), frozenset({1, 15}), MONTHS, frozenset({0, 7})),
            timedelta(minutes=30),
        ),
    ),
    "more blanks than needed": (
        "  0  0 1  1 0   1d ",
        Window(tuple(frozenset({number}) for number in (0, 0, 1, 1, 0)), timedelta(days=1)),
    ),
}


@pytest.mark.parametrize(("text", "expected"), WINDOWS.values(), ids=WINDOWS.keys())
def test_a_window_is_read(text: str, expected: Window) -> None:
    """Cron, duration, zone."""
    assert parse_window(text) == expected


BAD_WINDOWS = {
    "nothing": "",
    "no duration": "0 22 * * 1-5",
    "too much": "0 22 * * 1-5 8h Europe/Berlin daily",
    "minute 60": "60 22 * * * 8h",
    "hour 24": "0 24 * * * 8h",
    "day 0": "0 22 0 * * 8h",
    "month 13": "0 22 * 13 * 8h",
    "weekday 8": "0 22 * * 8 8h",
    "a weekday's name": "0 22 * * mon 8h",
    "a range backwards": "0 22-20 * * * 8h",
    "a range that ends outside": "0 20-25 * * * 8h",
    "a range without an end": "0 22- * * * 8h",
    "a range of ranges": "0 1-2-3 * * * 8h",
    "a step of nothing": "0 */ * * * 8h",
    "a step of 0": "*/0 22 * * * 8h",
    "a step backwards": "0 1-5/-1 * * * 8h",
    "an empty part of a list": "0,, 22 * * * 8h",
    "a sign": "+5 22 * * * 8h",
    "an underscore, which Python's int allows": "5_0 22 * * * 8h",
    "another alphabet's digits, which Python's int allows": "٥ 22 * * * 8h",
    "a number that would fill the memory": "0 22 1-99999999999999 * * 8h",
    "no duration's unit": "0 22 * * * 8",
    "an unknown zone": "0 22 * * * 8h Europe/Atlantis",
    "a directory of zones": "0 22 * * * 8h Europe",
    "a path": "0 22 * * * 8h ../../etc/passwd",
    "an absolute path": "0 22 * * * 8h /etc/passwd",
    "a zero byte": "0 22 * * * 8h a\0b",
    "half of a surrogate pair": "0 22 * * * 8h \ud800",
}


@pytest.mark.parametrize("text", BAD_WINDOWS.values(), ids=BAD_WINDOWS.keys())
def test_what_is_no_window_is_refused(text: str) -> None:
    """With a ValueError, which the caller turns into a mistake."""
    with pytest.raises(ValueError):
        parse_window(text)


@many
@given(st.text("0123456789*/,- hmsdEUTC", max_size=40))
def test_no_text_does_anything_but_a_value_error(text: str) -> None:
    """What is read lies within the bounds of each field and is never empty."""
    try:
        window = parse_window(text)
    except ValueError:
        return
    bounds = (MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS)
    assert all(opens and opens <= bound for opens, bound in zip(window.opens, bounds, strict=True))


# --- when it is open -------------------------------------------------------------------------------------------------

NIGHTS = "0 22 * * 1-5 8h Europe/Berlin"  # 16 November 2026 is a Monday, and Berlin is an hour ahead of UTC
OPEN: dict[str, tuple[str, str, bool]] = {
    "before it opens": (NIGHTS, "2026-11-16T20:59:59", False),
    "from the moment on": (NIGHTS, "2026-11-16T21:00:00", True),
    "past midnight": (NIGHTS, "2026-11-17T04:59:59", True),
    "when it closes": (NIGHTS, "2026-11-17T05:00:00", False),
    "from Friday to Saturday": (NIGHTS, "2026-11-21T04:30:00", True),
    "not on Saturday evening": (NIGHTS, "2026-11-21T22:30:00", False),
    "Sunday is 0": ("0 0 * * 0 1h", "2026-11-22T00:30:00", True),
    "Sunday is 7": ("0 0 * * 7 1h", "2026-11-22T00:30:00", True),
    "Monday is neither": ("0 0 * * 0,7 1h", "2026-11-23T00:30:00", False),
    "a month": ("0 0 * 12 * 1h", "2026-11-16T00:30:00", False),
    "the day of month alone": ("0 0 1 * * 1h", "2026-11-16T00:30:00", False),
    "both days are restricted, the day of month fits": ("0 0 16 * 5 1h", "2026-11-16T00:30:00", True),
    "both days are restricted, the day of week fits": ("0 0 1 * 1 1h", "2026-11-16T00:30:00", True),
    "both days are restricted, neither fits": ("0 0 1 * 5 1h", "2026-11-16T00:30:00", False),
    "a step restricts the days": ("0 0 */2 * 1 1h", "2026-11-16T00:30:00", True),
    "all days of the week from 1 to 7 restrict nothing": ("0 0 1 * 1-7 1h", "2026-11-16T00:30:00", False),
    "both days are restricted, another month": ("0 0 16 12 1 1h", "2026-11-16T00:30:00", False),
    "longer than its period: always": ("0 * * * * 90m", "2026-11-16T00:59:59", True),
    "as long as its period: always": ("* * * * * 1m", "2026-11-16T00:00:59", True),
    "shorter than a minute": ("* * * * * 30s", "2026-11-16T00:00:30", False),
    "opened more than a day ago": ("0 0 14 * * 3d", "2026-11-16T23:59:59", True),
    "opened more than a day ago, and closed": ("0 0 14 * * 3d", "2026-11-17T00:00:00", False),
    "opened years ago": ("0 0 29 2 * 9999d", "2026-11-16T00:00:00", True),
    "of no length": ("* * * * * 0s", "2026-11-16T00:00:00", False),
    "longer than time": ("0 0 1 1 * 99999999d", "2026-11-16T00:00:00", True),
    "a day that never comes": ("0 0 30 2 * 99999999d", "2026-11-16T00:00:00", False),
    # 29 March 2026, 01:00 UTC: Berlin's clocks go from 02:00 to 03:00
    "skipped by the clock: not before": ("30 2 * * * 1h Europe/Berlin", "2026-03-29T01:29:59", False),
    "skipped by the clock: an hour later by the clock": ("30 2 * * * 1h Europe/Berlin", "2026-03-29T01:30:00", True),
    "the clock is put forward meanwhile: real time counts": (
        "0 22 * * * 8h Europe/Berlin",
        "2026-03-29T04:59:59",
        True,
    ),
    "on summer time": ("0 22 * * * 8h Europe/Berlin", "2026-03-29T20:00:00", True),
    # 25 October 2026, 01:00 UTC: Berlin's clocks go from 03:00 back to 02:00
    "shown twice: the first time": ("30 2 * * * 15m Europe/Berlin", "2026-10-25T00:30:00", True),
    "shown twice: between": ("30 2 * * * 15m Europe/Berlin", "2026-10-25T00:45:00", False),
    "shown twice, and it began at the first": ("30 2 * * * 1h Europe/Berlin", "2026-10-25T01:10:00", True),
    "shown twice: the second time": ("30 2 * * * 15m Europe/Berlin", "2026-10-25T01:30:00", True),
    # 7 September 2025, 03:00 UTC: Santiago's go from 24:00 to 01:00; 5 April 2026, 03:00 UTC: from 24:00 to 23:00
    "midnight is skipped": ("0 0 * * 0 15m America/Santiago", "2025-09-07T04:00:00", True),
    "the clock is put back past midnight: the first time": (
        "45 23 4 4 * 30m America/Santiago",
        "2026-04-05T02:50:00",
        True,
    ),
    "the clock is put back past midnight: it stays open": (
        "45 23 4 4 * 30m America/Santiago",
        "2026-04-05T03:14:00",
        True,
    ),
    "the clock is put back past midnight: between": (
        "45 23 4 4 * 30m America/Santiago",
        "2026-04-05T03:15:00",
        False,
    ),
    "by half an hour": ("45 1 * * * 1m Australia/Lord_Howe", "2026-04-04T15:15:00", True),
}


def moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(("text", "now", "expected"), OPEN.values(), ids=OPEN.keys())
def test_a_window_is_open_from_its_time_on_for_so_long(text: str, now: str, expected: bool) -> None:
    """Moments are in UTC."""
    assert parse_window(text).is_open(moment(now)) is expected


def test_the_last_opening_is_told() -> None:
    """On Friday night it is that evening's; where there is no such day, none."""
    nights = parse_window(NIGHTS)
    assert nights.last_opening(moment("2026-11-20T22:00:00")) == moment("2026-11-20T21:00:00")
    assert nights.last_opening(moment("2026-11-20T20:59:59")) == moment("2026-11-19T21:00:00")
    assert parse_window("0 0 29 2 * 1h").last_opening(moment("2104-02-28T00:00:00")) == moment("2096-02-29T00:00:00")
    assert parse_window("0 0 30 2 * 1h").last_opening(0) is None


fields = st.tuples(
    *(
        st.one_of(st.just("*"), st.just("*"), st.integers(low, high).map(str))
        for low, high in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    )
)


@few
@given(
    fields,
    st.sampled_from(["UTC", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Asia/Kolkata"]),
    st.integers(0, 3 * 366 * 24 * 60),
    st.integers(1, 300),
)
def test_a_window_is_open_if_the_clock_showed_a_time_of_its(
    written: tuple[str, ...], zone: str, minutes: int, lasts: int
) -> None:
    """Against a clock that is watched minute by minute. Times that clocks skip are another matter: no such day here."""
    now = moment("2025-01-01T00:00:00") + 60 * minutes
    window = parse_window(f"{' '.join(written)} {lasts}m {zone}")
    clock = [datetime.fromtimestamp(now - 60 * ago, ZoneInfo(zone)) for ago in range(1500)]
    if any(later.utcoffset() != earlier.utcoffset() for later, earlier in pairwise(clock)):
        return
    assert window.is_open(now) is any(is_named(window, shown) for shown in clock[:lasts])


def is_named(window: Window, shown: datetime) -> bool:
    minutes, hours, days, months, weekdays = window.opens
    by_day, by_weekday = shown.day in days, bool({shown.isoweekday(), shown.isoweekday() % 7} & weekdays)
    both = days != DAYS and weekdays != WEEKDAYS
    named = by_day or by_weekday if both else by_day and by_weekday
    return named and shown.minute in minutes and shown.hour in hours and shown.month in months


DURATIONS = {
    "seconds": ("90s", timedelta(seconds=90)),
    "minutes": ("5m", timedelta(minutes=5)),
    "hours and minutes": ("1h30m", timedelta(minutes=90)),
    "days": ("2d", timedelta(days=2)),
    "none": ("0s", timedelta(0)),
    "a unit twice": ("1m1m", timedelta(minutes=2)),
}


@pytest.mark.parametrize(("text", "expected"), DURATIONS.values(), ids=DURATIONS.keys())
def test_a_duration_is_read(text: str, expected: timedelta) -> None:
    """Numbers, each with its unit, added up."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text", ["", "5", "m", "1.5h", "-1m", "1 m", "1w", "1M", "٣s", "9" * 40 + "d", "9" * 5000 + "s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Also one that is too long for Python to hold."""
    with pytest.raises(ValueError):
        parse_duration(text)


@few
@given(st.integers(0, 400), st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
def test_a_duration_is_the_sum_of_its_parts(days: int, hours: int, minutes: int, seconds: int) -> None:
    """Whatever the units."""
    expected = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    assert parse_duration(f"{days}d{hours}h{minutes}m{seconds}s") == expected
