"""What fits where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from placement import names
from placement.model import HardSpread, Needs, Node, NodeRequirement, NodeTaint, Pod, PodTerm, Toleration
from placement.plan.group import Member
from placement.plan.room import Room, left_out, shortage
from tests.placement.plans import NEEDS, ON_DEMAND, SPOT, ground, member, node, pod

BIG = replace(NEEDS, requests={"cpu": 3000})


def nothing_used(_name: str) -> Mapping[str, int]:
    return {}


def room(*nodes: Node, used: Mapping[str, Mapping[str, int]] | None = None, waiting: Sequence[Pod] = ()) -> Room:
    return Room(ground(*nodes), lambda name: (used or {}).get(name, {}), lambda: waiting)


def needing(**needs: Any) -> Pod:
    return pod("p", 0, needs=replace(NEEDS, **needs))


def asking(*requirements: NodeRequirement) -> Pod:
    return pod("p", 0, required_terms=(requirements,))


def numbered(value: str) -> Node:
    return replace(node("n"), labels={**node("n").labels, "cores": value})


IN_ZONE_B = ((NodeRequirement(names.ZONE, "In", ("b",)),),)
MORE_THAN_8, LESS_THAN_8 = NodeRequirement("cores", "Gt", ("8",)), NodeRequirement("cores", "Lt", ("8",))
DEDICATED = NodeTaint("dedicated", "db")
WEB = NodeRequirement("app", "In", ("web",))
APART = PodTerm(names.HOSTNAME, (WEB,))


@pytest.mark.parametrize(
    ("asks", "there", "fits"),
    [
        (pod("p", 0, needs=NEEDS), node("n"), True),
        (pod("p", 0, needs=replace(NEEDS, requests={"cpu": 4001})), node("n"), False),
        (pod("p", 0, needs=replace(NEEDS, requests={"gpu": 1})), node("n"), False),
        (pod("p", 0, needs=NEEDS), node("n", allocatable={"cpu": 4000, "memory": 1024**4, "pods": 0}), False),
        (pod("p", 0, needs=NEEDS), node("n", ready=False), False),
        (pod("p", 0, needs=NEEDS), node("n", unschedulable=True), False),
        (pod("p", 0, needs=NEEDS), node("n", taints=(DEDICATED,)), False),
        (needing(tolerations=(Toleration("dedicated", "Exists"),)), node("n", taints=(DEDICATED,)), True),
        (pod("p", 0, needs=NEEDS), node("n", taints=(NodeTaint("soft", effect="PreferNoSchedule"),)), True),
        (pod("p", 0, needs=NEEDS, required_terms=IN_ZONE_B), node("n", zone="a"), False),
        (pod("p", 0, needs=NEEDS, required_terms=IN_ZONE_B), node("n", zone="b"), True),
        (needing(node_selector={names.ZONE: "b"}), node("n", zone="a"), False),
        (needing(anti_affinity=(APART,)), node("n"), False),
        (asking(MORE_THAN_8), numbered("16"), True),
        (asking(MORE_THAN_8), numbered("8"), False),
        (asking(LESS_THAN_8), numbered("4"), True),
        (asking(LESS_THAN_8), numbered("16"), False),
        (asking(MORE_THAN_8), numbered("many"), False),
        (asking(MORE_THAN_8), node("n"), False),
        (asking(NodeRequirement(names.NODE_NAME, "In", ("n",))), node("n"), True),
        (asking(NodeRequirement(names.NODE_NAME, "In", ("other",))), node("n"), False),
        (asking(NodeRequirement(names.NODE_NAME, "NotIn", ("n",))), node("n"), False),
        (asking(NodeRequirement(names.ZONE, "IsLike", ("a",))), node("n"), False),
        (needing(host_ports=(80,)), node("n"), True),
        (needing(requests={}), node("n"), True),
    ],
    ids=[
        "an empty node takes a pod that fits",
        "too much cpu does not fit",
        "a resource that the node does not have does not fit",
        "a node that is full of pods takes none",
        "a node that is not ready is no place",
        "a cordoned node is no place",
        "a taint that is not tolerated repels",
        "a taint that is tolerated does not",
        "a soft taint does not repel",
        "the pod's own affinity excludes the zone",
        "the pod's own affinity names the zone",
        "the pod's own selector excludes the zone",
        "what cannot be judged does not fit",
        "greater than",
        "not greater than",
        "less than",
        "not less than",
        "what is no number is not greater",
        "nor is what is not there",
        "a field names the node",
        "a field names another",
        "a field excludes the node",
        "an operator that nobody knows does not fit",
        "a port of the host that is free",
        "a pod that asks for nothing fits",
    ],
)
def test_a_place_is_proven_or_not(asks: Pod, there: Node, fits: bool) -> None:
    assert (room(there).take(asks, ON_DEMAND) == "n") is fits


def test_spot_pods_tolerate_what_admission_adds() -> None:
    assert room(node("s", SPOT)).take(pod("p", 0), SPOT) == "s"
    assert room(node("s", SPOT)).take(pod("p", 0), ON_DEMAND) is None


def test_a_promised_place_is_not_given_twice() -> None:
    """Four places of which two are used: two more, and no third."""
    places = room(node("n"), used={"n": {"cpu": 2000, "pods": 2}})
    assert [places.take(pod(name, 0), ON_DEMAND) for name in "abc"] == ["n", "n", None]


def test_a_port_of_the_host_is_there_once() -> None:
    """Not where another pod has it, nor where it was promised."""
    asks, used = needing(host_ports=(80,)), {"n": {"host-port/80": 1, "pods": 1}}
    assert room(node("n"), used=used).take(asks, ON_DEMAND) is None
    assert room(node("n"), used={"n": {"host-port/443": 1, "pods": 1}}).take(asks, ON_DEMAND) == "n"
    places = room(node("n"), node("m"))
    assert {places.take(asks, ON_DEMAND), places.take(asks, ON_DEMAND)} == {"n", "m"}
    assert places.take(asks, ON_DEMAND) is None
    assert places.take(needing(host_ports=(81,)), ON_DEMAND) is not None


@pytest.mark.parametrize(
    ("waits", "fits"),
    [
        (pod("w", None, owner="job", needs=BIG), False),
        (pod("w", 1, needs=BIG, annotations={names.SOFT: "true"}), False),
        (pod("w", None, needs=replace(BIG, anti_affinity=(APART,))), False),
        (pod("w", None, needs=replace(BIG, host_ports=(80,))), False),
        (pod("w", 1, needs=BIG, required_terms=((NodeRequirement(names.CAPACITY, "In", ("spot",)),),)), True),
        (pod("w", None, needs=BIG, required_terms=IN_ZONE_B), True),
        (pod("w", None, needs=replace(BIG, node_selector={names.ZONE: "b"})), True),
        (pod("w", None, needs=replace(BIG, requests={"cpu": 5000})), True),
    ],
    ids=[
        "a stranger's pod will take the room",
        "so will a soft one",
        "so may one that cannot be judged",
        "so will one with a port of the host",
        "one that waits for the other class will not",
        "nor one that waits for another zone",
        "nor one whose selector does",
        "nor one that does not fit",
    ],
)
def test_pods_that_wait_for_a_node_come_first(waits: Pod, fits: bool) -> None:
    """3000 of 4000 will be theirs: 2000 more are not proven."""
    asks = needing(requests={"cpu": 2000})
    assert (room(node("n"), waiting=[waits]).take(asks, ON_DEMAND) == "n") is fits


def test_as_many_wait_as_there_is_room_for_and_the_rest_takes_none() -> None:
    """Two nodes with four places each; six wait, then two more places are left. Ten of them leave nothing."""
    waiting = [pod(f"w{k}", None) for k in range(10)]
    some = room(node("n"), node("m"), waiting=waiting[:6])
    assert [some.take(pod(name, 0), ON_DEMAND) is not None for name in "abc"] == [True, True, False]
    assert room(node("n"), node("m"), waiting=waiting).take(pod("a", 0), ON_DEMAND) is None


def test_where_too_many_kinds_wait_nothing_is_proven() -> None:
    waiting = [pod(f"w{k}", None, needs=Needs(requests={"cpu": k + 1})) for k in range(101)]
    huge = node("n", cpu=1_000_000, allocatable={"cpu": 1_000_000, "memory": 2**50, "pods": 10_000})
    assert room(huge, waiting=waiting[:100]).take(pod("a", 0), ON_DEMAND) == "n"
    assert room(huge, waiting=waiting).take(pod("a", 0), ON_DEMAND) is None


def test_volumes_stay_in_their_zone() -> None:
    old = pod("p", 0, "old", needs=replace(NEEDS, has_claims=True))
    nodes = node("old", SPOT, "a"), node("there", ON_DEMAND, "a", cpu=1000), node("far", ON_DEMAND, "b")
    assert room(*nodes).take(old, ON_DEMAND) == "there"


def test_hard_spreading_is_kept() -> None:
    """Two siblings in zone a, none in b, skew 1: one more only in b."""
    rule = HardSpread(names.ZONE, 1)
    siblings = [member("x", 1, ON_DEMAND, "a"), member("y", 2, ON_DEMAND, "a")]
    asks = needing(hard_spread=(rule,))
    assert room(node("n", zone="a")).take(asks, ON_DEMAND, siblings) == "n"
    assert room(node("n", zone="a", cpu=8000), node("m", zone="b")).take(asks, ON_DEMAND, siblings) == "m"


SPREAD: dict[str, tuple[HardSpread, Pod, list[Node], list[Member], str | None]] = {
    "pods on the other class are not counted": (
        HardSpread(names.ZONE, 1),
        needing(),
        [node("n", zone="a"), node("m", zone="b", cpu=2000)],
        [member("x", 1, SPOT, "b"), member("y", 2, ON_DEMAND, "a")],
        "m",
    ),
    "but where the constraint counts all nodes": (
        HardSpread(names.ZONE, 1, counts_all_nodes=True),
        needing(),
        [node("n", zone="a"), node("m", zone="b", cpu=2000)],
        [member("x", 1, SPOT, "b"), member("z", 3, SPOT, "b"), member("y", 2, ON_DEMAND, "a")],
        "n",
    ),
    "zones that the pod may not use are no domains": (
        HardSpread(names.ZONE, 1),
        asking(NodeRequirement(names.ZONE, "In", ("a",))),
        [node("n", zone="a"), node("m", zone="b")],
        [member("x", 1, ON_DEMAND, "a")],
        "n",
    ),
    "a zone whose nodes are all cordoned is one": (
        HardSpread(names.ZONE, 1),
        needing(),
        [node("n", zone="a"), node("m", zone="b", unschedulable=True)],
        [member("x", 1, ON_DEMAND, "a")],
        None,
    ),
    "too few domains count as an empty one more": (
        HardSpread(names.ZONE, 1, min_domains=2),
        needing(),
        [node("n", zone="a")],
        [member("x", 1, ON_DEMAND, "a")],
        None,
    ),
    "a node outside of all domains is no place": (
        HardSpread("rack", 1),
        needing(),
        [node("n", zone="a")],
        [],
        None,
    ),
}


@pytest.mark.parametrize(("rule", "asks", "nodes", "siblings", "where"), SPREAD.values(), ids=SPREAD.keys())
def test_spreading_is_counted_as_the_scheduler_does(
    rule: HardSpread, asks: Pod, nodes: list[Node], siblings: list[Member], where: str | None
) -> None:
    asks = replace(asks, needs=replace(asks.needs, hard_spread=(rule,)))
    assert room(*nodes).take(asks, ON_DEMAND, siblings) == where


def test_who_was_lost_is_put_only_where_it_may_go() -> None:
    """Room in zone b helps nobody who is bound to a, and a tainted node nobody who does not tolerate it."""
    bound, free = pod("bound", 0, required_terms=((NodeRequirement(names.ZONE, "In", ("a",)),),)), pod("free", 1)
    in_b, tainted = node("s", SPOT, "b"), node("t", SPOT, "a", taints=(DEDICATED,))
    assert list(left_out([bound, free], room(in_b), SPOT)) == [bound]
    assert list(left_out([bound, free], room(in_b, tainted), SPOT)) == [bound]
    assert list(left_out([bound, free], room(in_b, node("u", SPOT, "a", cpu=1000)), SPOT)) == []
    assert list(left_out([bound, bound, free], room(node("u", SPOT, "a", cpu=2000)), SPOT)) == [free]


def test_a_shortage_is_told_by_the_smallest_pod_that_is_left_out() -> None:
    """Four places: one large and one small pod fit, another large one does not."""
    lost = [pod("a", 0, needs=BIG), pod("b", 1, needs=BIG), pod("c", 2, needs=Needs(requests={"cpu": 1000}))]
    smallest = shortage(lost, room(node("s", SPOT)), SPOT)
    assert smallest is not None
    assert smallest.name == "b"
    assert shortage(lost, room(node("s", SPOT), node("t", SPOT)), SPOT) is None
    assert shortage(lost, room(), SPOT) is not None
