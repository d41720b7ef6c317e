"""Drills: what would be lost if these nodes went."""

from collections.abc import Iterator

import pytest

from placement import names
from placement.configuration import Configuration
from placement.model import Budget, Kind, Namespace, Node, Owner, Pod, ReplicaSet, Snapshot, Template, Workload
from report.drill import Loss, drill, nodes_in
from report.exposure import Domain

WEB = Workload(Kind.DEPLOYMENT, "shop", "web", "d", 10, template=Template({"app": "web"}))
STORE = Workload(Kind.STATEFUL_SET, "shop", "store", "s", 2)
ALIEN = Workload(Kind.STATEFUL_SET, "bank", "alien", "x", 1)
NODES = {
    "a1": ("spot", "zone-a"),
    "a2": ("spot", "zone-a"),
    "b1": ("spot", "zone-b"),
    "d1": ("on-demand", "zone-a"),
    "d2": ("on-demand", "zone-b"),
}


def pods(owner: Owner, namespace: str, *nodes: str) -> Iterator[Pod]:
    for index, node in enumerate(nodes):
        name = f"{owner.name}-{index}"
        yield Pod(namespace, name, name, owner=owner, node=node, phase="Running", ready=True)


def cluster(leaving: str = "") -> Snapshot:
    """Ten of which eight must serve: three in pool zone-a/m5, four in zone-b/m5, three on demand. Two of a store."""
    labels = {
        name: {names.CAPACITY: of, names.ZONE: zone, names.INSTANCE_TYPE: "m5"} for name, (of, zone) in NODES.items()
    }
    web = Owner("ReplicaSet", "web-1", "r")
    return Snapshot(
        {"shop": Namespace("shop", {names.PLACEMENT: names.ENABLED}), "bank": Namespace("bank")},
        {name: Node(name, labels[name], drained=name == leaving) for name in NODES},
        (WEB, STORE, ALIEN),
        (ReplicaSet("shop", "web-1", "r", Owner("Deployment", "web", "d"), 10),),
        (
            *pods(web, "shop", "a1", "a1", "a2", "b1", "b1", "b1", "b1", "d1", "d1", "d2"),
            *pods(Owner("StatefulSet", "store", "s"), "shop", "d1", "b1"),
            *pods(Owner("StatefulSet", "alien", "x"), "bank", "a1"),
        ),
        (Budget("shop", "web", {"matchLabels": {"app": "web"}}, min_available=8),),
    )


DRILLS: dict[str, tuple[set[str], list[Loss], list[str]]] = {
    "a pool: three of ten, and eight must serve": ({"a1", "a2"}, [Loss(WEB, 3, 7, 8, False)], ["web"]),
    "a node: two of ten may go": ({"a1"}, [Loss(WEB, 2, 8, 8, False)], []),
    "another pool: the store loses one, which it may": (
        {"b1"},
        [Loss(WEB, 4, 6, 8, False), Loss(STORE, 1, 1, 1, True)],
        ["web"],
    ),
    "everything": (set(NODES), [Loss(WEB, 10, 0, 8, False), Loss(STORE, 2, 0, 1, True)], ["web", "store"]),
    "nothing": (set(), [], []),
    "a node that is gone already": ({"z9"}, [], []),
}


@pytest.mark.parametrize(("lost", "expected", "below"), DRILLS.values(), ids=DRILLS.keys())
def test_what_each_workload_would_lose(lost: set[str], expected: list[Loss], below: list[str]) -> None:
    """Only who loses something is told of, and who is opted in."""
    found = drill(cluster(), Configuration(), lost)
    assert list(found) == expected
    assert [each.workload.name for each in found if each.falls_below] == below


def test_replicas_on_leaving_nodes_count_as_lost_already() -> None:
    """Two on a1, which is cordoned: eight are left, and a2 takes the seventh of them below."""
    assert drill(cluster(leaving="a1"), Configuration(), {"a1", "a2"}) == (Loss(WEB, 1, 7, 8, False),)


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
    assert nodes_in(cluster(), Configuration(), domain, name) == expected
