"""Pauses: what is noted, and until when it stands."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.pause import Pause, parse_pause, pause_text, standing
from tests.placement.invariants import many

HOUR = Pause(1750000000, 1750003600, "alice", "black friday")
STANDING: dict[str, tuple[Pause | None, float, bool]] = {
    "while it lasts": (HOUR, 1750003599.9, True),
    "when it is over": (HOUR, 1750003600, False),
    "without an end": (Pause(1750000000), 1e12, True),
    "none": (None, 0, False),
}


@pytest.mark.parametrize(("pause", "now", "expected"), STANDING.values(), ids=STANDING.keys())
def test_a_pause_stands_until_it_is_over(pause: Pause | None, now: float, expected: bool) -> None:
    """Or until somebody resumes."""
    assert standing(pause, now) == (pause if expected else None)


TEXTS: dict[str, tuple[str, Pause | None]] = {
    "nothing": ("", None),
    "blanks": (" \n", None),
    "null": ("null", None),
    "the example": ('{"since": 1750000000, "until": 1750003600, "by": "alice", "reason": "black friday"}', HOUR),
    "without an end": ('{"since": 1, "until": null}', Pause(1.0)),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.values(), ids=TEXTS.keys())
def test_a_pause_is_read(text: str, expected: Pause | None) -> None:
    """Who and why may be absent; since and until may not."""
    assert parse_pause(text) == expected


GARBLED = {
    "no JSON": "{",
    "no object": "[1]",
    "a number": "1",
    "an empty object": "{}",
    "no end": '{"since": 1}',
    "no beginning": '{"until": 1}',
    "an end that is text": '{"since": 1, "until": "tomorrow"}',
    "an end that is true": '{"since": 1, "until": true}',
    "an end that is no number, and so never after now": '{"since": 1, "until": NaN}',
    "an end that is infinite": '{"since": 1, "until": -Infinity}',
    "an end beyond floats": '{"since": 1, "until": ' + "9" * 400 + "}",
    "deeper than Python reads": "[" * 100_000,
}


@pytest.mark.parametrize("text", GARBLED.values(), ids=GARBLED.keys())
def test_what_is_garbled_counts_as_a_pause_and_says_so(text: str) -> None:
    """Moving pods would be the worse mistake."""
    pause = parse_pause(text)
    assert pause is not None
    assert pause.is_garbled
    assert pause.stands(1e12)
    assert pause.reason.startswith("pause.json is unreadable, which counts as a pause (")
    assert len(pause.reason) <= 200


moments = st.floats(allow_nan=False, allow_infinity=False)


@many
@given(st.builds(Pause, moments, st.none() | moments, st.text(), st.text()))
def test_what_is_written_is_read_again(pause: Pause) -> None:
    """To the letter; scripts get the same."""
    assert parse_pause(pause_text(pause)) == pause
    assert json.loads(pause_text(pause)) == pause.raw


@many
@given(st.text(max_size=40))
def test_no_text_does_any_harm(text: str) -> None:
    """It is a pause, or none."""
    assert isinstance(parse_pause(text), Pause | None)
