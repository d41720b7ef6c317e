"""Outages: what is noted, and until when it stands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.model import Class
from placement.outage import Outage, Outages, parse_outages
from tests.placement.invariants import many

NOTED = Outages(3, (Outage(Class.SPOT, 100.0),))


def test_an_outage_is_read() -> None:
    """As in the module's example."""
    assert parse_outages('{"version": 3, "outages": [{"class": "spot", "until": 100}]}') == NOTED
    assert parse_outages('{"version": 4, "outages": []}') == Outages(4)


STANDING = {
    "before its end": (Class.SPOT, 99.9, True),
    "at its end": (Class.SPOT, 100.0, False),
    "the other class": (Class.ON_DEMAND, 50.0, False),
}


@pytest.mark.parametrize(("of", "now", "expected"), STANDING.values(), ids=STANDING.keys())
def test_an_outage_stands_until_its_end(of: Class, now: float, expected: bool) -> None:
    """For its class only."""
    assert NOTED.stands(of, now) is expected


GARBLED = {
    "no JSON": "{",
    "no text": "",
    "no mapping": "[]",
    "null": "null",
    "no version": '{"outages": []}',
    "no outages": '{"version": 1}',
    "outages of null": '{"version": 1, "outages": null}',
    "an unknown class": '{"version": 1, "outages": [{"class": "x", "until": 1}]}',
    "no end": '{"version": 1, "outages": [{"class": "spot"}]}',
    "an end of words": '{"version": 1, "outages": [{"class": "spot", "until": "soon"}]}',
    "a version without end": '{"version": Infinity, "outages": []}',
    "nested beyond reason": "[" * 100_000,
}


@pytest.mark.parametrize("text", GARBLED.values(), ids=GARBLED.keys())
def test_a_garbled_note_is_a_value_error(text: str) -> None:
    """The reader keeps what it had; any other exception would end the informer that reads it."""
    with pytest.raises(ValueError):
        parse_outages(text)


@many
@given(st.one_of(st.text(max_size=40), st.text('{}[]",:versionoutages0123456789.e-', max_size=60)))
def test_no_text_does_anything_but_a_value_error(text: str) -> None:
    """Whatever somebody writes into the ConfigMap."""
    try:
        parse_outages(text)
    except ValueError:
        return
