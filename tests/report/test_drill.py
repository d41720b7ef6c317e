"""Drills: what would be lost if these nodes went."""

import pytest

from placement.configuration import Configuration
from report.drill import Loss, drill, nodes_in
from report.exposure import Domain
from tests.builders.snapshots import DRILL_NODES, DRILL_STORE, DRILL_WEB, drill_snapshot

DRILLS: dict[str, tuple[set[str], list[Loss], list[str]]] = {
    "a pool: three of ten, and eight must serve": ({"a1", "a2"}, [Loss(DRILL_WEB, 3, 7, 8, False)], ["web"]),
    "a node: two of ten may go": ({"a1"}, [Loss(DRILL_WEB, 2, 8, 8, False)], []),
    "another pool: the store loses one, which it may": (
        {"b1"},
        [Loss(DRILL_WEB, 4, 6, 8, False), Loss(DRILL_STORE, 1, 1, 1, True)],
        ["web"],
    ),
    "everything": (
        set(DRILL_NODES),
        [Loss(DRILL_WEB, 10, 0, 8, False), Loss(DRILL_STORE, 2, 0, 1, True)],
        ["web", "store"],
    ),
    "nothing": (set(), [], []),
    "a node that is gone already": ({"z9"}, [], []),
}


@pytest.mark.parametrize(("lost", "expected", "below"), DRILLS.values(), ids=DRILLS.keys())
def test_what_each_workload_would_lose(lost: set[str], expected: list[Loss], below: list[str]) -> None:
    """Only who loses something is told of, and who is opted in."""
    found = drill(drill_snapshot(), Configuration(), lost)
    assert list(found) == expected
    assert [each.workload.name for each in found if each.falls_below] == below


def test_replicas_on_leaving_nodes_count_as_lost_already() -> None:
    """Two on a1, which is cordoned: eight are left, and a2 takes the seventh of them below."""
    assert drill(drill_snapshot(leaving="a1"), Configuration(), {"a1", "a2"}) == (Loss(DRILL_WEB, 1, 7, 8, False),)


DOMAINS: dict[str, tuple[Domain, str, set[str]]] = {
    "a node": (Domain.NODE, "a1", {"a1"}),
    "a pool has no on-demand nodes": (Domain.POOL, "zone-a/m5", {"a1", "a2"}),
    "a zone has all": (Domain.ZONE, "zone-a", {"a1", "a2", "d1"}),
    "all spot": (Domain.SPOT, "", {"a1", "a2", "b1"}),
    "what is not there": (Domain.POOL, "zone-z/m5", set()),
    "a pool without a name is none": (Domain.POOL, "", set()),
}


@pytest.mark.parametrize(("domain", "name", "expected"), DOMAINS.values(), ids=DOMAINS.keys())
def test_the_nodes_of_a_domain(domain: Domain, name: str, expected: set[str]) -> None:
    """To drill with."""
    assert nodes_in(drill_snapshot(), Configuration(), domain, name) == expected
