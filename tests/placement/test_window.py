"""Windows and durations."""

from datetime import timedelta

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
