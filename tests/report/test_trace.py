"""Traces of spot pools: what is read, and what is wrong with them."""

from __future__ import annotations

import pytest

from report.trace import MOST_MISTAKES, UNLIMITED, Span, Trace, TraceError, parse_trace
from tests.builders.traces import pool

HEADER = "zone,start_s,duration_s,available\n"


def test_flags_stand_for_room_without_limit() -> None:
    """0 and 1 say whether there is any; lines may come in any order."""
    trace = parse_trace(HEADER + "b,0,60,0\na,60,30,0\na,0,60,1\n\n")
    assert trace == Trace({"a": (Span(0, 60, UNLIMITED), Span(60, 90, 0)), "b": (Span(0, 60, 0),)})
    assert (trace.start, trace.end, trace.seconds) == (0, 90, 90)


def test_counts_are_rooms() -> None:
    """As soon as one value is above 1, all are counts of instances."""
    trace = parse_trace("\ufeffduration_s, zone,available,start_s,note\n60,a,1,0,x\n60,a,4,60,y\n")
    assert trace == Trace({"a": (Span(0, 60, 1), Span(60, 120, 4))})


def test_a_pool_is_unavailable_where_no_line_covers_it() -> None:
    """Before its first line, in gaps, and after its last; lines of the same room are one."""
    trace = Trace({"a": (Span(10, 20, 3), Span(20, 30, 3), Span(40, 50, 2)), "b": pool(60.0, (20, 25), room=1)})
    assert trace.changes("a") == [(10, 3), (30, 0), (40, 2), (50, 0)]
    assert trace.changes("b") == [(0, 1), (20, 0), (25, 1), (60, 0)]


MISTAKES = {
    "no data": ("", "line 1: column zone, start_s, duration_s, available is missing"),
    "another header": ("zone,start,duration_s,available\na,0,1,1\n", "line 1: column start_s is missing"),
    "only a header": (HEADER, "line 2: no data"),
    "a word for a number": (HEADER + "a,soon,60,1\n", "line 2, column start_s: expected seconds from 0"),
    "a time before the start": (HEADER + "a,-5,60,1\n", "line 2, column start_s: .*got '-5'"),
    "no end": (HEADER + "a,0,nan,1\n", "line 2, column duration_s: expected seconds above 0.*got 'nan'"),
    "no duration": (HEADER + "a,0,0,1\n", "line 2, column duration_s: expected seconds above 0"),
    "a line that is too short": (HEADER + "a,0,60\n", "line 2, column available: .*got ''"),
    "a share": (HEADER + "a,0,60,1\na,60,60,0.5\n", "line 3, column available: expected 0, 1 or a count.*got '0.5'"),
    "a digit of another script": (HEADER + "a,0,60,²\n", "line 2, column available"),
    "no name": (HEADER + " ,0,60,1\n", "line 2, column zone: it is empty"),
    "a time twice": (HEADER + "a,0,60,1\na,59,60,0\n", "line 3, column start_s: a is covered twice: 59 is before 60"),
}


@pytest.mark.parametrize(("text", "told"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_names_line_and_column(text: str, told: str) -> None:
    """And what would be right."""
    with pytest.raises(TraceError, match=told):
        parse_trace(text)


def test_all_mistakes_are_listed_at_once() -> None:
    """The first ten of them; a file of another kind must not fill the screen."""
    with pytest.raises(TraceError, match="and 40 more") as caught:
        parse_trace(HEADER + "a,x,60,1\n" * 50)
    assert len(caught.value.mistakes) == 50
    assert len(str(caught.value).splitlines()) == MOST_MISTAKES + 2
