"""Which of several pods find a place together, and why the others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from placement import names
from placement.lack import Lack
from placement.model import HardSpread, HostPort, Node, NodeRequirement, NodeTaint, Pod, PodTerm, Toleration
from placement.plan.neighbours import Neighbours, tenants_in
from placement.plan.room import Joint, Room
from tests.builders.model import NEEDS, SPOT, node, pod
from tests.builders.plan import ground

WEB = (NodeRequirement("app", "In", ("web",)),)
CACHE = (NodeRequirement("app", "In", ("cache",)),)
TOLERATION = Toleration(names.CAPACITY, "Exists")


def room(*nodes: Node, there: Sequence[Pod] = (), used: Mapping[str, Mapping[str, int]] | None = None) -> Room:
    on, pods_on = ground(*nodes), dict[str, list[Pod]]()
    for each in there:
        pods_on.setdefault(each.node, []).append(each)
    return Room(on, lambda name: (used or {}).get(name, {}), neighbours=Neighbours(on, tenants_in(pods_on, {})))


def pods(number: int, prefix: str = "p", **fields: Any) -> list[Pod]:
    needs = replace(NEEDS, **fields.pop("needs", {}))
    return [pod(f"{prefix}{each}", None, needs=needs, **fields) for each in range(number)]


def counts(joint: Joint) -> tuple[dict[str, int], list[str]]:
    return dict(Counter(joint.places.values())), [str(refusal) for _, refusal in joint.refused]


TABLE: dict[str, tuple[list[Node], list[Pod], dict[str, int], list[str]]] = {
    "as many as there is room for": (
        [node("n"), node("m", cpu=2000)],
        pods(7),
        {"n": 4, "m": 2},
        ["no node has room for cpu"],
    ),
    "on nodes of either class, as they are": (
        [node("n", cpu=1000), node("s", SPOT, cpu=1000)],
        pods(2, needs={"tolerations": (TOLERATION,)}),
        {"n": 1, "s": 1},
        [],
    ),
    "not where a taint is": (
        [node("s", SPOT)],
        pods(1),
        {},
        ["no node is left whose taints it tolerates"],
    ),
    "not where its own terms are not met": (
        [node("n")],
        pods(1, needs={"node_selector": {"disk": "ssd"}}),
        {},
        ["no node matches its node selector and node affinity"],
    ),
    "nowhere without nodes": ([], pods(1), {}, ["there is no node"]),
    "one to a host": (
        [node("n"), node("m")],
        pods(3, needs={"anti_affinity": (PodTerm(names.HOSTNAME, WEB),)}),
        {"n": 1, "m": 1},
        ["pod anti-affinity leaves no node"],
    ),
    "one to a host by its port": (
        [node("n"), node("m")],
        pods(3, needs={"host_ports": (HostPort(80),)}),
        {"n": 1, "m": 1},
        ["no node has host port 80 free"],
    ),
    "even over zones, as far as the fuller one goes": (
        [node("n", zone="a"), node("m", zone="b", cpu=1000)],
        pods(4, needs={"hard_spread": (HardSpread(names.ZONE, 1, WEB),)}),
        {"n": 2, "m": 1},
        ["its topology spread leaves no node"],
    ),
    "near each other, all in the zone of the first": (
        [node("n", zone="a", cpu=2000), node("m", zone="b", cpu=1000)],
        pods(3, needs={"affinity": (PodTerm(names.ZONE, WEB),)}),
        {"n": 2},
        ["no node has the pods that its affinity requires"],
    ),
    "no more pods than the node takes": (
        [node("n", allocatable={"cpu": 4000, "memory": 2**40, "pods": 2})],
        pods(3),
        {"n": 2},
        ["no node takes more pods"],
    ),
    "none on a node that says not how many it takes": (
        [node("n", allocatable={"cpu": 4000, "memory": 2**40})],
        pods(1),
        {},
        ["no node takes more pods"],
    ),
}


@pytest.mark.parametrize(("nodes", "asks", "places", "refused"), TABLE.values(), ids=TABLE.keys())
def test_pods_are_placed_beside_each_other(
    nodes: list[Node], asks: list[Pod], places: dict[str, int], refused: list[str]
) -> None:
    """How many on which node, and why the rest finds none. Asked twice: nothing is promised."""
    there = room(*nodes)
    assert counts(there.together(asks)) == (places, refused)
    assert counts(there.together(asks)) == (places, refused)


def test_who_waits_for_company_is_tried_again_once_it_has_come() -> None:
    """A large pod must be near a small one, and is put first: it finds its place in the second turn."""
    large = pods(1, "large", needs={"requests": {"cpu": 2000}, "affinity": (PodTerm(names.ZONE, CACHE),)})
    small = pods(1, "small", labels={"app": "cache"})
    joint = room(node("n", zone="a"), node("m", zone="b", cpu=1000)).together([*large, *small])
    assert joint.places == {"large0": "n", "small0": "n"}
    assert joint.refused == ()


@pytest.mark.parametrize(
    ("taken", "port", "is_free"),
    [
        (HostPort(80), HostPort(80), False),
        (HostPort(80), HostPort(81), True),
        (HostPort(80), HostPort(80, "UDP"), True),
        (HostPort(80, ip="10.0.0.1"), HostPort(80, ip="10.0.0.2"), True),
        (HostPort(80, ip="10.0.0.1"), HostPort(80, ip="10.0.0.1"), False),
        (HostPort(80, ip="10.0.0.1"), HostPort(80), False),
        (HostPort(80), HostPort(80, ip="10.0.0.1"), False),
        (HostPort(80, "UDP", "10.0.0.1"), HostPort(80, ip="10.0.0.1"), True),
    ],
)
def test_ports_clash_by_number_protocol_and_address(taken: HostPort, port: HostPort, is_free: bool) -> None:
    """The address 0.0.0.0 stands for all of them."""
    one, other = (pods(1, name, needs={"host_ports": (each,)})[0] for name, each in (("a", taken), ("b", port)))
    assert len(room(node("n")).together([one, other]).places) == 1 + is_free


def test_a_term_that_is_empty_matches_no_node() -> None:
    """Beside another it adds nothing; alone, or with only a node selector, the pod fits nowhere."""
    zone = (NodeRequirement(names.ZONE, "In", ("a",)),)
    asks = pods(1)[0]
    for terms, fits in ((((),), False), (((), zone), True), ((zone,), True)):
        joint = room(node("n", zone="a")).together([replace(asks, required_terms=terms)])
        assert bool(joint.places) is fits
    ((_, refusal),) = room(node("n")).together([replace(asks, required_terms=((),))]).refused
    assert refusal.lack is Lack.TERMS


def test_a_toleration_with_an_operator_that_is_not_known_tolerates_nothing() -> None:
    """Newer ones compare numbers; to take them for Equal would promise too much."""
    tainted = node("n", taints=(NodeTaint("age", "5"),))
    for operator, fits in (("Equal", True), ("Exists", True), ("Lt", False)):
        asks = pods(1, needs={"tolerations": (Toleration("age", operator, "5"),)})
        assert bool(room(tainted).together(asks).places) is fits


@pytest.mark.parametrize(("there", "fits"), [("9", True), ("8", False), ("1_000", False), ("x", False)])
def test_labels_are_compared_as_numbers_that_kubernetes_knows(there: str, fits: bool) -> None:
    """`1_000` is a number to Python alone."""
    numbered = replace(node("n"), labels={**node("n").labels, "cores": there})
    asks = replace(pods(1)[0], required_terms=((NodeRequirement("cores", "Gt", ("8",)),),))
    assert bool(room(numbered).together([asks]).places) is fits
