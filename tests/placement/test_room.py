"""What fits where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from placement import names
from placement.lack import Lack
from placement.model import (
    Class,
    HardSpread,
    HostPort,
    Needs,
    Node,
    NodeRequirement,
    NodeTaint,
    Pod,
    PodTerm,
    Toleration,
)
from placement.plan.neighbours import Neighbours, tenants_in
from placement.plan.room import Room
from placement.plan.shortage import left_out, shortage
from placement.plan.stock import amounts_of
from tests.builders.model import NEEDS, ON_DEMAND, SPOT, node, pod
from tests.builders.plan import ground

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
        (needing(host_ports=(HostPort(80),)), node("n"), True),
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
    asks, used = needing(host_ports=(HostPort(80),)), {"n": amounts_of([needing(host_ports=(HostPort(80),))])}
    assert room(node("n"), used=used).take(asks, ON_DEMAND) is None
    assert room(node("n"), used={"n": {"host-port/443/TCP": 1, "pods": 1}}).take(asks, ON_DEMAND) == "n"
    places = room(node("n"), node("m"))
    assert {places.take(asks, ON_DEMAND), places.take(asks, ON_DEMAND)} == {"n", "m"}
    assert places.take(asks, ON_DEMAND) is None
    assert places.take(needing(host_ports=(HostPort(81),)), ON_DEMAND) is not None


@pytest.mark.parametrize(
    ("waits", "fits"),
    [
        (pod("w", None, owner="job", needs=BIG), False),
        (pod("w", 1, needs=BIG, annotations={names.SOFT: "true"}), False),
        (pod("w", None, needs=replace(BIG, anti_affinity=(APART,))), False),
        (pod("w", None, needs=replace(BIG, host_ports=(HostPort(80),))), False),
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


COUNTED = (WEB,)


def spread(rule: HardSpread, asks: Pod | None = None) -> Pod:
    """A pod with a hard rule that counts its siblings."""
    asks = asks or needing()
    return replace(asks, needs=replace(asks.needs, hard_spread=(replace(rule, selector=COUNTED),)))


def test_hard_spreading_is_kept() -> None:
    """Two siblings in zone a, none in b, skew 1: one more only in b; where there is no other zone, in a."""
    asks, there = spread(HardSpread(names.ZONE, 1)), [pod("x", 1, "n"), pod("y", 2, "n")]
    in_a = node("n", zone="a", cpu=8000)
    assert shared(in_a, there=there).take(asks, ON_DEMAND) == "n"
    assert shared(in_a, node("m", zone="b"), there=there).take(asks, ON_DEMAND) == "m"


IN_A, IN_B = node("n", zone="a"), node("m", zone="b", cpu=2000)
SPOT_IN_B = node("s", SPOT, "b")
SPREAD: dict[str, tuple[Pod, list[Node], list[Pod], str | None]] = {
    "pods on the other class are not counted": (
        spread(HardSpread(names.ZONE, 1)),
        [IN_A, IN_B, SPOT_IN_B],
        [pod("x", 1, "s"), pod("y", 2, "n")],
        "m",
    ),
    "but where the constraint counts all nodes": (
        spread(HardSpread(names.ZONE, 1, counts_all_nodes=True)),
        [IN_A, IN_B, SPOT_IN_B],
        [pod("x", 1, "s"), pod("z", 3, "s"), pod("y", 2, "n")],
        "n",
    ),
    "zones that the pod may not use are no domains": (
        spread(HardSpread(names.ZONE, 1), asking(NodeRequirement(names.ZONE, "In", ("a",)))),
        [IN_A, node("m", zone="b")],
        [pod("x", 1, "n")],
        "n",
    ),
    "a zone whose nodes are all cordoned is one": (
        spread(HardSpread(names.ZONE, 1)),
        [IN_A, node("m", zone="b", unschedulable=True)],
        [pod("x", 1, "n")],
        None,
    ),
    "a zone whose taints it does not tolerate is one": (
        spread(HardSpread(names.ZONE, 1)),
        [IN_A, node("m", zone="b", taints=(DEDICATED,))],
        [pod("x", 1, "n")],
        None,
    ),
    "but not where the constraint honors taints": (
        spread(HardSpread(names.ZONE, 1, honors_taints=True)),
        [IN_A, node("m", zone="b", taints=(DEDICATED,))],
        [pod("x", 1, "n")],
        "n",
    ),
    "too few domains count as an empty one more": (
        spread(HardSpread(names.ZONE, 1, min_domains=2)),
        [IN_A],
        [pod("x", 1, "n")],
        None,
    ),
    "a node outside of all domains is no place": (spread(HardSpread("rack", 1)), [IN_A], [], None),
    "pods that end are not counted": (
        spread(HardSpread(names.ZONE, 1)),
        [IN_A, node("m", zone="b", unschedulable=True)],
        [pod("x", 1, "n", terminating=True)],
        "n",
    ),
    "nor are those of other namespaces": (
        spread(HardSpread(names.ZONE, 1)),
        [IN_A, node("m", zone="b", unschedulable=True)],
        [replace(pod("x", 1, "n"), namespace="bank")],
        "n",
    ),
    "nor those that the selector does not select": (
        spread(HardSpread(names.ZONE, 1)),
        [IN_A, node("m", zone="b", unschedulable=True)],
        [pod("x", 1, "n", labels={"app": "other"})],
        "n",
    ),
    "nor those of another revision where the rule names the label": (
        spread(HardSpread(names.ZONE, 1, match_label_keys=(names.POD_TEMPLATE_HASH,))),
        [IN_A, node("m", zone="b", unschedulable=True)],
        [pod("x", 1, "n", labels={"app": "web", names.POD_TEMPLATE_HASH: "older"})],
        "n",
    ),
    "a pod that its own rule does not count is no pod too many": (
        spread(HardSpread(names.ZONE, 1), pod("p", 0, labels={"app": "other"})),
        [IN_A, node("m", zone="b", unschedulable=True)],
        [pod("x", 1, "n")],
        "n",
    ),
    "nodes without the keys of all rules do not count": (
        needing(hard_spread=(HardSpread(names.ZONE, 1, COUNTED), HardSpread("rack", 1, COUNTED))),
        [replace(IN_A, labels={**IN_A.labels, "rack": "r"}), node("m", zone="b", unschedulable=True)],
        [],
        "n",
    ),
}


@pytest.mark.parametrize(("asks", "nodes", "there", "where"), SPREAD.values(), ids=SPREAD.keys())
def test_spreading_is_counted_as_the_scheduler_does(
    asks: Pod, nodes: list[Node], there: list[Pod], where: str | None
) -> None:
    """Which domains count, and which pods."""
    assert shared(*nodes, there=there).take(asks, ON_DEMAND) == where


def test_promises_even_out_domains() -> None:
    """Zones a and b with four places each, skew 1: four pods take turns, though b would be emptier throughout."""
    places = shared(node("n", zone="a"), node("m", zone="b", cpu=8000))
    asks = [replace(spread(HardSpread(names.ZONE, 1)), name=name, uid=name) for name in "wxyz"]
    assert [places.take(each, ON_DEMAND) for each in asks] == ["m", "n", "m", "n"]


def of_class(name: str, of: Class, on: str) -> Pod:
    """A pod whose rule counts the siblings of its own class, as admission writes it."""
    rule = HardSpread(names.ZONE, 1, (WEB, NodeRequirement(names.CLASS, "In", (str(of),))))
    labels = {"app": "web", names.CLASS: str(of)}
    return pod(name, 1, on, labels=labels, needs=replace(NEEDS, hard_spread=(rule,)))


def test_a_pod_that_changes_its_class_is_counted_among_that_class() -> None:
    """Spot has a pod in a, which is emptier: the next two go to b and a, though no pod of on-demand is on spot."""
    there = [of_class("x", SPOT, "s"), of_class("y", ON_DEMAND, "n"), of_class("z", ON_DEMAND, "n")]
    places = shared(node("n", zone="b"), node("s", SPOT, "a", 8000), node("t", SPOT, "b", 2000), there=there)
    assert [places.take(each, SPOT) for each in there[1:]] == ["t", "s"]
    assert places.count(there[1], SPOT, 9) == 2  # b has room for one more; then a, then none evens it out
    assert [places.take(each, ON_DEMAND) for each in there[1:]] == ["n", "n"]


def test_a_pod_that_changes_its_class_finds_room_together_with_others() -> None:
    """Two of on-demand and skew 1: one in each zone of spot, and none where a zone has no room."""
    there = [of_class("y", ON_DEMAND, "n"), of_class("z", ON_DEMAND, "n")]
    nodes = node("n", zone="b"), node("s", SPOT, "a", 8000)
    assert set(shared(*nodes, node("t", SPOT, "b"), there=there).together(there, SPOT).places.values()) == {"s", "t"}
    alone = shared(*nodes, node("t", SPOT, "b", 0), there=there).together(there, SPOT)
    assert (list(alone.places.values()), [each.lack for _, each in alone.refused]) == (["s"], [Lack.SPREAD])


def test_a_pod_that_moves_is_not_counted_where_it_was() -> None:
    """It is alone in b, and a has no room. A release takes its revision's label from it, an eviction the pod itself."""
    revision = NodeRequirement(names.POD_TEMPLATE_HASH, "In", ("h",))
    rule = HardSpread(names.ZONE, 1, (WEB, revision), counts_all_nodes=True)
    old = pod("p", 1, "s", needs=replace(NEEDS, hard_spread=(rule,)))
    nodes = node("n", zone="a", cpu=0), node("m", zone="b"), node("s", SPOT, "b", unschedulable=True)
    assert shared(*nodes, there=[old]).take(old, ON_DEMAND) == "m"
    assert shared(*nodes, there=[old]).take(old, ON_DEMAND, goes_first=True) == "m"
    whole = replace(old, needs=replace(NEEDS, hard_spread=(replace(rule, selector=COUNTED),)))
    assert shared(*nodes, there=[whole]).take(whole, ON_DEMAND) is None
    assert shared(*nodes, there=[whole]).take(whole, ON_DEMAND, goes_first=True) == "m"


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
    assert (smallest[0].name, str(smallest[1])) == ("b", "no node has room for cpu")
    assert shortage(lost, room(node("s", SPOT), node("t", SPOT)), SPOT) is None
    assert shortage(lost, room(), SPOT) is not None


# --- beside other pods -----------------------------------------------------------------------------------------------

FAR_APART = PodTerm(names.ZONE, (WEB,))
NEAR = PodTerm(names.ZONE, (WEB,))


def shared(*nodes: Node, there: Sequence[Pod] = (), waiting: Sequence[Pod] = ()) -> Room:
    """Room on nodes with these pods, of which it is known who is where."""
    on = ground(*nodes)
    pods_on: dict[str, list[Pod]] = {}
    for each in there:
        pods_on.setdefault(each.node, []).append(each)
    return Room(on, nothing_used, lambda: waiting, Neighbours(on, tenants_in(pods_on, {})))


def apart(name: str, where: str = "", term: PodTerm = APART, **fields: Any) -> Pod:
    return pod(name, 0, where, needs=replace(NEEDS, anti_affinity=(term,)), **fields)


def test_promises_keep_siblings_apart() -> None:
    """Two hosts with four places each, one of them taken: one more, and no third on either."""
    places = shared(node("n"), node("m"), there=[apart("x", "n")])
    assert [places.take(apart(name), ON_DEMAND) for name in "ab"] == ["m", None]
    assert places.take(pod("c", 0), ON_DEMAND) is None  # it has no terms, but theirs are about it
    assert places.take(pod("d", 0, labels={"app": "other"}), ON_DEMAND) is not None


def test_what_others_keep_away_is_not_taken_for_a_full_class() -> None:
    """Two pods that ask for the same: that one of them is kept out says nothing about the other."""
    places = shared(node("n"), there=[apart("x", "n")])
    assert places.take(pod("p", 0), ON_DEMAND) is None
    assert places.take(pod("q", 0, labels={"app": "other"}), ON_DEMAND) == "n"


def test_company_is_found_only_in_its_domain() -> None:
    """One of the kind is in zone b: the next goes there, though the node in zone a is emptier."""
    near = pod("p", 0, needs=replace(NEEDS, affinity=(NEAR,)))
    nodes = node("n", zone="a", cpu=8000), node("m", zone="b")
    assert shared(*nodes, there=[pod("x", 0, "m")]).take(near, ON_DEMAND) == "m"
    assert shared(*nodes).take(near, ON_DEMAND) == "n"
    assert room(*nodes).take(near, ON_DEMAND) is None


def test_a_replacement_comes_up_beside_the_old_pod_unless_that_goes_first() -> None:
    """Apart by zone, with one zone: only a pod that leaves first makes room for its successor."""
    old = apart("p", "s", FAR_APART)
    nodes = node("s", SPOT, "a"), node("n", zone="a")
    assert shared(*nodes, there=[old]).take(old, ON_DEMAND) is None
    assert shared(*nodes, there=[old]).take(old, ON_DEMAND, goes_first=True) == "n"
    both = [old, apart("x", "s", FAR_APART)]
    assert shared(*nodes, there=both).take(old, ON_DEMAND, goes_first=True) is None


WAITING: dict[str, tuple[list[Pod], list[str | None]]] = {
    "none": ([], ["n", "m", "l"]),
    "one takes a host": ([apart("w")], ["m", "l", None]),
    "as many as there are hosts take all": ([apart(f"w{k}") for k in range(3)], [None, None, None]),
    "more than there are hosts, too": ([apart(f"w{k}") for k in range(30)], [None, None, None]),
    "so do others that want a host for themselves": (
        [apart(f"w{k}", labels={"app": "other"}, term=PodTerm(names.HOSTNAME, ())) for k in range(2)],
        ["l", None, None],
    ),
    "those that fit nowhere take none": ([apart("w", labels={"app": "shy"})], ["n", "m", "l"]),
    "nor do those without terms that others keep out": (
        [pod("w", None, labels={"app": "shy"}), pod("v", None, labels={"app": "shy"})],
        ["n", "m", "l"],
    ),
}


@pytest.mark.parametrize(("waiting", "left"), WAITING.values(), ids=WAITING.keys())
def test_pods_that_wait_keep_apart_as_well(waiting: list[Pod], left: list[str | None]) -> None:
    """Three hosts of sixteen, eight and four places. On each is a pod that keeps those away that are shy."""
    nodes = node("n", cpu=16_000), node("m", cpu=8000), node("l")
    shy = PodTerm(names.HOSTNAME, (NodeRequirement("app", "In", ("shy",)),), ("shop",))
    there = [replace(apart(f"x{each.name}", each.name, shy), namespace="yard") for each in nodes]
    places = shared(*nodes, there=there, waiting=waiting)
    assert [places.take(apart(name), ON_DEMAND) for name in "abc"] == left


def test_many_that_wait_and_are_refused_cost_little() -> None:
    """Of 2,000 siblings that are to be apart, 200 get the hosts; the others are not tried on every host."""
    nodes = [node(f"n{k}") for k in range(200)]
    labels = {"app": "web"}
    waiting = [apart(f"w{k}", labels=labels) for k in range(2000)]
    asked = []

    class Counted(Neighbours):
        def has_any(self, *args: Any) -> bool:
            asked.append(args)
            return super().has_any(*args)

    on = ground(*nodes)
    places = Room(on, nothing_used, lambda: waiting, Counted(on, tenants_in({}, {})))
    assert places.take(apart("p", labels=labels), ON_DEMAND) is None
    assert len(asked) < 1000


def test_siblings_that_fit_nowhere_are_not_tried_again() -> None:
    """A hundred that are to be apart, and no host left: one of them is tried on every host, for each question."""
    nodes = [node(f"n{k}") for k in range(50)]
    labels = {"app": "web"}
    needs = replace(NEEDS, anti_affinity=(APART,))
    there = [pod(f"x{k}", 0, f"n{k}", labels=labels, needs=needs) for k in range(50)]
    looked: list[str] = []

    def used(name: str) -> Mapping[str, int]:
        looked.append(name)
        return {}

    on = ground(*nodes)
    places = Room(on, used, neighbours=Neighbours(on, tenants_in({each.node: [each] for each in there}, {})))
    asks = [pod(f"p{k}", 0, labels=labels, needs=needs) for k in range(100)]
    assert not any(places.take(each, ON_DEMAND) for each in asks)
    assert not any(places.fits(each, ON_DEMAND) for each in asks)
    assert len(looked) <= 6 * len(nodes)


def test_company_that_was_promised_is_found_by_those_that_were_refused_before() -> None:
    """None is there; then one of them is promised a place, and another may follow."""
    cache = PodTerm(names.ZONE, (NodeRequirement("app", "In", ("cache",)),))
    near, places = needing(affinity=(cache,)), shared(node("n"))
    assert not places.fits(near, ON_DEMAND)
    assert places.take(near, ON_DEMAND) is None
    assert places.take(pod("c", 0, labels={"app": "cache"}), ON_DEMAND) == "n"
    assert places.fits(near, ON_DEMAND)
    assert places.take(near, ON_DEMAND) == "n"


def test_as_many_are_counted_as_may_be_beside_each_other() -> None:
    """Four hosts, one taken: three more, however much room they have. One keeps out even those without terms."""
    nodes = [node(f"n{k}") for k in range(4)]
    assert shared(*nodes, there=[apart("x", "n0")]).count(apart("p"), ON_DEMAND, 10) == 3
    assert shared(*nodes, there=[apart("x", "n0")]).count(apart("p"), ON_DEMAND, 2) == 2
    assert shared(*nodes, there=[apart("x", "n0")]).count(pod("p", 0), ON_DEMAND, 100) == 12
    assert shared(*nodes).count(pod("p", 0), ON_DEMAND, 100) == 16
    assert room(*nodes).count(apart("p"), ON_DEMAND, 100) == 16  # where nothing is known, by resources alone


OURS_IS_SPOT = ((NodeRequirement(names.CAPACITY, "In", ("spot",)),),)
OWN_ZONE = ((NodeRequirement(names.CAPACITY, "In", ("spot",)), NodeRequirement(names.ZONE, "In", ("b",))),)


def stuck(**needs: Any) -> Pod:
    return pod("p", 0, needs=replace(NEEDS, **needs), required_terms=OURS_IS_SPOT, unschedulable="0/9 nodes")


FITS: dict[str, tuple[Pod, Room, bool]] = {
    "without our term": (stuck(), room(node("n")), True),
    "not without its owner's": (pod("p", 0, required_terms=OWN_ZONE), room(node("n", zone="a")), False),
    "nor without room": (stuck(requests={"cpu": 9000}), room(node("n")), False),
    "nor on a taint that it does not tolerate": (stuck(), room(node("n", taints=(DEDICATED,))), False),
    "nor where its port is taken": (
        stuck(host_ports=(HostPort(80),)),
        room(node("n"), used={"n": {"host-port/80/TCP": 1, "pods": 1}}),
        False,
    ),
    "nor where pods are as many as may be": (stuck(), room(node("n"), used={"n": {"pods": 110}}), False),
    "with claims, of which only the scheduler knows": (stuck(claims=("data",)), room(node("n")), True),
    "with what is not modelled": (stuck(unmodelled=Lack.UNKNOWN_CLAIMS), room(node("n")), True),
    "apart from its siblings": (
        stuck(anti_affinity=(APART,)),
        shared(node("n"), node("m"), there=[apart("x", "m")]),
        True,
    ),
    "not beside one of them": (stuck(anti_affinity=(APART,)), shared(node("n"), there=[apart("x", "n")]), False),
    "not near those that are not there": (
        stuck(affinity=(PodTerm(names.ZONE, (NodeRequirement("app", "In", ("cache",)),)),)),
        shared(node("n")),
        False,
    ),
    "also where nothing is known of others": (stuck(anti_affinity=(APART,)), room(node("n")), True),
    "whatever else waits": (stuck(requests={"cpu": 4000}), room(node("n"), waiting=[pod("w", None)]), True),
    "however many kinds wait": (
        stuck(),
        room(node("n"), waiting=[pod(f"w{k}", None, needs=Needs(requests={"cpu": k + 1})) for k in range(200)]),
        True,
    ),
}


@pytest.mark.parametrize(("asks", "places", "fits"), FITS.values(), ids=FITS.keys())
def test_a_pod_that_never_had_a_node_fits_or_not(asks: Pod, places: Room, fits: bool) -> None:
    """By what its owner asks for; asked twice, since nothing is promised."""
    assert [places.fits(asks, ON_DEMAND), places.fits(asks, ON_DEMAND)] == [fits, fits]


def test_what_was_promised_is_not_there_for_another() -> None:
    """But pods that wait have been promised nothing, also when they were given seats in between."""
    waits, asks = pod("w", None, needs=replace(NEEDS, requests={"cpu": 2000})), needing(requests={"cpu": 3000})
    places = room(node("n"), waiting=[waits])
    assert places.take(needing(requests={"cpu": 1000}), ON_DEMAND) == "n"
    assert places.fits(asks, ON_DEMAND)
    assert places.take(needing(requests={"cpu": 1000}), ON_DEMAND) == "n"
    assert not places.fits(asks, ON_DEMAND)
    beside = shared(node("n"))
    assert beside.take(apart("a"), ON_DEMAND) == "n"
    assert not beside.fits(apart("b"), ON_DEMAND)


def test_a_pod_that_may_use_either_class_is_spread_over_both() -> None:
    """Two siblings on spot in b, one on on-demand in a: one more in a keeps within the skew, but not by class."""
    there = [pod("x", 1, "s"), pod("z", 3, "s"), pod("y", 2, "n")]
    nodes = node("n", zone="a"), node("m", zone="b", unschedulable=True), node("s", SPOT, "b")
    asks = spread(HardSpread(names.ZONE, 1), stuck())
    assert shared(*nodes, there=there).fits(asks, ON_DEMAND)
    assert shared(*nodes, there=there).take(asks, ON_DEMAND) is None


def test_what_is_lost_is_put_beside_what_is_left() -> None:
    """Three siblings that are to be apart, and two hosts: one is left out."""
    lost = [apart(name, "gone") for name in "abc"]
    hosts = node("s", SPOT), node("t", SPOT)
    assert [each.name for each in left_out(lost, shared(*hosts), SPOT)] == ["c"]
    left = shortage(lost, shared(*hosts), SPOT)
    assert left is not None
    assert (left[0].name, str(left[1])) == ("c", "pod anti-affinity leaves no node")
    assert shortage(lost, shared(*hosts, node("u", SPOT)), SPOT) is None
    assert shortage(lost[:2], shared(*hosts, there=[apart("x", "t")]), SPOT) is not None
    assert shortage([pod("p", 0)], shared(*hosts, there=[apart("x", "t"), apart("y", "s")]), SPOT) is not None


def test_what_is_lost_keeps_no_pod_away_where_it_was() -> None:
    """Its node may still be there, and leave later."""
    leaving = apart("a", "s", FAR_APART)
    places = shared(node("s", SPOT, "a", unschedulable=True), node("t", SPOT, "a"), there=[leaving])
    assert shortage([leaving], places, SPOT) is None
