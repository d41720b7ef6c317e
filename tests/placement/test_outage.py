"""Outages: what is noted, and until when it stands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import names
from placement.model import Class, NodeRequirement
from placement.outage import (
    Demand,
    Outage,
    Outages,
    Shape,
    cleared,
    cleared_in,
    named_zones,
    noted,
    outages_text,
    parse_outages,
    reachable,
)
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
    assert NOTED.stands(of, frozenset("a"), Demand(), now) is expected


ZONES = {
    "one of two zones": ((Outage(Class.SPOT, 100, frozenset("a")),), "ab", False, "b"),
    "both zones, by two notes": (
        (Outage(Class.SPOT, 100, frozenset("a")), Outage(Class.SPOT, 100, frozenset("b"))),
        "ab",
        True,
        "",
    ),
    "a zone that has no nodes": ((Outage(Class.SPOT, 100, frozenset("c")),), "ab", False, "ab"),
    "everywhere": ((Outage(Class.SPOT, 100),), "ab", True, ""),
    "everywhere, and no node at all": ((Outage(Class.SPOT, 100),), "", True, ""),
    "a zone, and no node at all": ((Outage(Class.SPOT, 100, frozenset("a")),), "", True, ""),
    "nothing, and no node at all": ((), "", False, ""),
    "for larger pods": ((Outage(Class.SPOT, 100, shape=Shape(4000, 0)),), "ab", False, "ab"),
    "for pods of this size": ((Outage(Class.SPOT, 100, shape=Shape(1000, 512)),), "ab", True, ""),
}


@pytest.mark.parametrize(("noted_ones", "zones", "out", "left"), ZONES.values(), ids=ZONES.keys())
def test_a_class_is_out_where_it_is_noted_out_in_every_zone(
    noted_ones: tuple[Outage, ...], zones: str, out: bool, left: str
) -> None:
    """For a pod that asks for 1 CPU and 512 MiB."""
    outages, asked = Outages(1, noted_ones), Shape(1000, 512)
    assert outages.stands(Class.SPOT, frozenset(zones), Demand(shape=asked), 50.0) is out
    assert outages.zones_left(Class.SPOT, frozenset(zones), Demand(shape=asked), 50.0) == frozenset(left)


BOUND = {
    "its zone is noted, and has nodes": ("abc", "a", True),
    "its zone is noted, and its nodes are gone": ("bc", "a", True),
    "another zone is noted": ("abc", "c", False),
    "another zone is noted, and all nodes are gone": ("", "c", False),
    "one of its zones is noted": ("bc", "ac", False),
}


@pytest.mark.parametrize(("zones", "bound_to", "out"), BOUND.values(), ids=BOUND.keys())
def test_for_a_pod_that_is_bound_to_zones_the_class_is_out_where_these_are(
    zones: str, bound_to: str, out: bool
) -> None:
    """While a and b are noted; whether they have nodes left or not."""
    outages = Outages(1, (Outage(Class.SPOT, 100, frozenset("ab")),))
    terms = ((NodeRequirement(names.ZONE, "In", tuple(bound_to)),),)
    assert outages.stands(Class.SPOT, frozenset(zones), Demand(own_terms=terms), 50.0) is out


def test_terms_name_zones_where_each_of_them_does() -> None:
    """Zone a, or zone b and c (none); with a term that says nothing of zones, all are open."""
    in_a = NodeRequirement(names.ZONE, "In", ("a",))
    in_b, in_c = NodeRequirement(names.ZONE, "In", ("b",)), NodeRequirement(names.ZONE, "In", ("c",))
    assert named_zones(((in_a,), (in_b, in_c))) == frozenset("a")
    assert named_zones(((in_a,), (NodeRequirement("other", "Exists"),))) == frozenset()
    assert named_zones(()) == frozenset()


def test_an_outage_that_is_noted_again_lasts_twice_as_long() -> None:
    """Five minutes, ten, twenty, an hour at most; after a long enough quiet it starts anew."""
    outages, now, lasted = Outages(), 1000.0, []
    for _ in range(6):
        outages = noted(outages, Outage(Class.SPOT, 0), now)
        (standing,) = outages.standing(now)
        lasted.append(standing.until - now)
        now = standing.until + 1
    assert lasted == [300, 600, 1200, 2400, 3600, 3600]
    assert outages.version == 6
    late = noted(outages, Outage(Class.SPOT, 0), now + 10_000)
    assert late.standing(now + 10_000)[0].until == now + 10_300


def test_an_outage_of_a_given_length_is_as_long() -> None:
    """And others, of other zones or classes, stay."""
    first = noted(Outages(), Outage(Class.ON_DEMAND, 0), 0.0, 60)
    both = noted(first, Outage(Class.SPOT, 0, frozenset("a")), 10.0, 30)
    assert [(each.of, each.until) for each in both.standing(20.0)] == [(Class.ON_DEMAND, 60), (Class.SPOT, 40)]
    assert cleared(both, [Outage(Class.ON_DEMAND, 0)], 20.0).standing(20.0) == both.standing(20.0)[1:]


def test_a_zone_is_cleared_and_others_are_not() -> None:
    """Of a note of a and b, b goes on; one of everywhere does, too."""
    both = Outage(Class.SPOT, 100, frozenset("ab"))
    everywhere, other = Outage(Class.SPOT, 100, shape=Shape(500)), Outage(Class.ON_DEMAND, 100, frozenset("a"))
    left = cleared_in(Outages(1, (both, everywhere, other)), Class.SPOT, frozenset("a"), 50.0)
    assert left == Outages(2, (everywhere, other, Outage(Class.SPOT, 100, frozenset("b"))))
    assert cleared_in(left, Class.SPOT, frozenset("b"), 50.0).noted == (everywhere, other)


def test_what_is_written_is_what_is_read() -> None:
    """Nothing is lost between two programs."""
    outage = Outage(Class.SPOT, 100, frozenset("ab"), Shape(500, 64), 10, 2, "rebalancer")
    assert parse_outages(outages_text(Outages(7, (outage,)))) == Outages(7, (outage,))


def test_zones_that_a_pods_own_terms_exclude_do_not_count() -> None:
    """Zone a or (zone b and not zone b): a is left."""
    only_a = (NodeRequirement(names.ZONE, "In", ("a",)),)
    never = (NodeRequirement(names.ZONE, "In", ("b",)), NodeRequirement(names.ZONE, "NotIn", ("b",)))
    assert reachable(frozenset("abc"), (only_a, never)) == frozenset("a")
    assert reachable(frozenset("abc"), ()) == frozenset("abc")
    assert reachable(frozenset("abc"), ((NodeRequirement("other", "Exists"),),)) == frozenset("abc")


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


def test_an_outage_that_was_noted_ever_so_often_lasts_an_hour() -> None:
    """Two to so many strikes is no number that a float holds."""
    before = Outages(1, (Outage(Class.SPOT, 100.0, since=0.0, strikes=5000),))
    (now_noted,) = noted(before, Outage(Class.SPOT, 0.0), 150.0).noted
    assert (now_noted.strikes, now_noted.until) == (5001, 150.0 + 3600.0)
