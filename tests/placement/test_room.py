"""What fits where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from placement import names
from placement.model import HardSpread, Needs, Node, NodeRequirement, NodeTaint, Pod, Toleration
from placement.plan.room import Room, shortage
from tests.placement.plans import NEEDS, ON_DEMAND, SPOT, ground, member, node, pod

BIG = replace(NEEDS, requests={"cpu": 3000})


def nothing_used(_name: str) -> Mapping[str, int]:
    return {}


def room(*nodes: Node, used: Mapping[str, Mapping[str, int]] | None = None) -> Room:
    return Room(ground(*nodes), lambda name: (used or {}).get(name, {}))


def needing(**needs: Any) -> Pod:
    return pod("p", 0, needs=replace(NEEDS, **needs))


IN_ZONE_B = ((NodeRequirement(names.ZONE, "In", ("b",)),),)
DEDICATED = NodeTaint("dedicated", "db")


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
        (needing(has_pod_affinity=True), node("n"), False),
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


def test_a_shortage_is_told_by_the_smallest_pod_that_is_left_out() -> None:
    """Four places: one large and one small pod fit, another large one does not."""
    lost = [pod("a", 0, needs=BIG), pod("b", 1, needs=BIG), pod("c", 2, needs=Needs(requests={"cpu": 1000}))]
    left_out = shortage(lost, room(node("s", SPOT)), SPOT)
    assert left_out is not None
    assert left_out.name == "b"
    assert shortage(lost, room(node("s", SPOT), node("t", SPOT)), SPOT) is None
    assert shortage(lost, room(), SPOT) is not None
