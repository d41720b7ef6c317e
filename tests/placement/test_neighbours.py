"""Whether a pod may join others: required affinity and anti-affinity, as the scheduler judges them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import names
from placement.model import Namespace, Node, NodeRequirement, Pod, PodTerm
from placement.plan.neighbours import FEW_NODES, Averse, Crowd, Neighbours, tenants_in
from tests.builders.model import NEEDS, SPOT, node, pod
from tests.builders.plan import ground
from tests.placement.plainaffinity import may_join

HOST, ZONE = names.HOSTNAME, names.ZONE
WEB, CACHE = NodeRequirement("app", "In", ("web",)), NodeRequirement("app", "In", ("cache",))
GOLD = NodeRequirement("team", "In", ("gold",))
NODES = node("a1", zone="a"), node("a2", zone="a"), node("b1", SPOT, zone="b"), node("c1", zone="c")
NAMESPACES = {
    "shop": Namespace("shop", {"team": "gold"}),
    "bank": Namespace("bank", {"team": "gold"}),
    "yard": Namespace("yard"),
}


def app(name: str, label: str = "web", where: str = "", namespace: str = "shop", **needs: Any) -> Pod:
    made = pod(name, None, where, labels={"app": label}, needs=replace(NEEDS, **needs))
    return replace(made, namespace=namespace)


def by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {}
    for each in pods:
        found.setdefault(each.node, []).append(each)
    return found


def neighbours(pods: Sequence[Pod], nodes: Sequence[Node] = NODES) -> Neighbours:
    return Neighbours(ground(*nodes), tenants_in(by_node(pods), NAMESPACES))


def open_to(asks: Pod, beside: Neighbours, crowd: Crowd | None = None) -> str:
    """The nodes that it may join."""
    joins = beside.judge(asks, crowd or Crowd())
    sites = beside.ground.sites.values()
    return " ".join(site.node.name for site in sites if joins is None or joins.joins(site))


APART = PodTerm(HOST, (WEB,))
FAR_APART = PodTerm(ZONE, (WEB,))
TABLE: dict[str, tuple[Pod, list[Pod], str]] = {
    "without terms anywhere": (app("p"), [app("x", where="a1")], "a1 a2 b1 c1"),
    "apart from its siblings by host": (
        app("p", anti_affinity=(APART,)),
        [app("x", where="a1"), app("y", where="c1")],
        "a2 b1",
    ),
    "apart from its siblings by zone": (app("p", anti_affinity=(FAR_APART,)), [app("x", where="a1")], "b1 c1"),
    "not apart from others": (app("p", anti_affinity=(APART,)), [app("x", "cache", "a1")], "a1 a2 b1 c1"),
    "every term keeps it apart": (
        app("p", anti_affinity=(APART, PodTerm(ZONE, (CACHE,)))),
        [app("x", where="c1"), app("y", "cache", "a1")],
        "b1",
    ),
    "kept away by a pod that it does not know of": (
        app("p"),
        [app("x", "cache", "a1", anti_affinity=(FAR_APART,))],
        "b1 c1",
    ),
    "kept away by any of a pod's terms": (
        app("p"),
        [app("x", "cache", "a1", anti_affinity=(PodTerm(HOST, (CACHE,)), APART))],
        "a2 b1 c1",
    ),
    "not kept away by what is about others": (
        app("p"),
        [app("x", "cache", "a1", anti_affinity=(PodTerm(ZONE, (CACHE,)),))],
        "a1 a2 b1 c1",
    ),
    "a term without a selector is about no pod": (
        app("p", anti_affinity=(PodTerm(HOST),)),
        [app("x", where="a1")],
        "a1 a2 b1 c1",
    ),
    "an empty selector is about everybody in the namespace": (
        app("p", anti_affinity=(PodTerm(HOST, ()),)),
        [app("x", "cache", "a1"), app("y", "cache", "a2", "bank")],
        "a2 b1 c1",
    ),
    "other namespaces do not count": (
        app("p", anti_affinity=(APART,)),
        [app("x", where="a1", namespace="bank")],
        "a1 a2 b1 c1",
    ),
    "but those that are named": (
        app("p", anti_affinity=(PodTerm(HOST, (WEB,), ("bank",)),)),
        [app("x", where="a1", namespace="bank"), app("y", where="a2")],
        "a2 b1 c1",
    ),
    "or selected by their labels": (
        app("p", anti_affinity=(PodTerm(HOST, (WEB,), (), (GOLD,)),)),
        [app("x", where="a1", namespace="bank"), app("y", where="a2", namespace="yard"), app("z", where="c1")],
        "a2 b1",
    ),
    "or named and selected": (
        app("p", anti_affinity=(PodTerm(HOST, (WEB,), ("yard",), (GOLD,)),)),
        [app("x", where="a1", namespace="bank"), app("y", where="a2", namespace="yard")],
        "b1 c1",
    ),
    "or all of them": (
        app("p", anti_affinity=(PodTerm(HOST, (WEB,), (), ()),)),
        [app("x", where="a1", namespace="bank"), app("y", where="a2", namespace="yard")],
        "b1 c1",
    ),
    "another namespace keeps it away": (
        app("p"),
        [
            app("x", where="a1", namespace="bank", anti_affinity=(PodTerm(HOST, (WEB,), ("shop",)),)),
            app("y", where="b1", namespace="bank", anti_affinity=(PodTerm(HOST, (WEB,), (), (GOLD,)),)),
            app("z", where="c1", namespace="bank", anti_affinity=(APART,)),
        ],
        "a2 c1",
    ),
    "a node outside of all domains is open": (
        app("p", anti_affinity=(PodTerm("rack", (WEB,)),)),
        [app("x", where="a1", anti_affinity=(PodTerm("rack", (WEB,)),))],
        "a1 a2 b1 c1",
    ),
    "pods that have finished do not count": (
        app("p", anti_affinity=(APART,)),
        [
            replace(app("x", where="a1", anti_affinity=(APART,)), phase="Succeeded"),
            replace(app("y", where="a2"), phase="Failed"),
        ],
        "a1 a2 b1 c1",
    ),
    "pods that are on their way out do": (
        app("p", anti_affinity=(APART,)),
        [replace(app("x", where="a1"), terminating=True)],
        "a2 b1 c1",
    ),
    "pods on nodes that are gone do not": (
        app("p", anti_affinity=(FAR_APART,)),
        [app("x", where="gone", anti_affinity=(FAR_APART,))],
        "a1 a2 b1 c1",
    ),
    "near others by host": (app("p", affinity=(PodTerm(HOST, (CACHE,)),)), [app("x", "cache", "a2")], "a2"),
    "near others by zone": (app("p", affinity=(PodTerm(ZONE, (CACHE,)),)), [app("x", "cache", "a2")], "a1 a2"),
    "near pods that are not there is nowhere": (
        app("p", affinity=(PodTerm(ZONE, (CACHE,)),)),
        [app("x", where="a2")],
        "",
    ),
    "near others of another namespace": (
        app("p", affinity=(PodTerm(ZONE, (CACHE,), ("bank",)),)),
        [app("x", "cache", "a2"), app("y", "cache", "c1", "bank")],
        "c1",
    ),
    "every term of affinity must hold": (
        app("p", affinity=(PodTerm(HOST, (CACHE,)), PodTerm(ZONE, ()))),
        [app("x", "cache", "a2"), app("y", "cache", "c1")],
        "a2 c1",
    ),
    "by pods that all terms select": (
        app("p", affinity=(PodTerm(HOST, (CACHE,)), PodTerm(ZONE, (WEB,)))),
        [app("x", "cache", "a2"), app("y", where="a1")],
        "",
    ),
    "the first of its kind is let in everywhere": (
        app("p", affinity=(PodTerm(ZONE, (WEB,)),)),
        [app("x", "cache", "a2")],
        "a1 a2 b1 c1",
    ),
    "the second is not": (app("p", affinity=(PodTerm(ZONE, (WEB,)),)), [app("x", where="a1")], "a1 a2"),
    "the first that its own terms are not all about is let in nowhere": (
        app("p", affinity=(PodTerm(ZONE, (WEB,)), PodTerm(ZONE, (CACHE,)))),
        [],
        "",
    ),
    "nor the first where a node is outside of all domains": (
        app("p", affinity=(PodTerm("rack", (WEB,)),)),
        [],
        "",
    ),
    "near some and apart from others": (
        app("p", affinity=(PodTerm(ZONE, (CACHE,)),), anti_affinity=(APART,)),
        [app("x", "cache", "a1"), app("y", where="a2")],
        "a1",
    ),
}


@pytest.mark.parametrize(("asks", "there", "expected"), TABLE.values(), ids=TABLE.keys())
def test_a_pod_joins_the_nodes_that_the_scheduler_would_let_it_join(asks: Pod, there: list[Pod], expected: str) -> None:
    """As by the plainest reading, too."""
    assert open_to(asks, neighbours(there)) == expected
    every = {each.name: each for each in NODES}
    plain = [name for name, each in every.items() if may_join(asks, each, every, there, NAMESPACES)]
    assert " ".join(plain) == expected


def test_most_pods_are_judged_without_a_look_at_nodes() -> None:
    """No terms of their own, and none that are about them."""
    beside = neighbours([app("x", "cache", "a1", anti_affinity=(PodTerm(HOST, (CACHE,)),))])
    assert beside.judge(app("p"), Crowd()) is None
    assert beside.judge(app("p", "cache"), Crowd()) is not None


def test_promised_pods_count_as_if_they_were_there() -> None:
    """Two siblings never get one host; who asks for company finds it; the first of a kind is not first twice."""
    beside, crowd = neighbours([]), Crowd()
    for name, where in (("x", "a1"), ("y", "c1")):
        crowd.add(app(name, anti_affinity=(APART,)), where)
    assert open_to(app("p", anti_affinity=(APART,)), beside, crowd) == "a2 b1"
    assert open_to(app("p"), beside, crowd) == "a2 b1"
    assert open_to(app("p", "cache", affinity=(PodTerm(ZONE, (WEB,)),)), beside, crowd) == "a1 a2 c1"
    assert open_to(app("p", affinity=(PodTerm(HOST, (WEB,)),)), beside) == "a1 a2 b1 c1"
    near = Crowd()
    near.add(app("x"), "a1")
    assert open_to(app("p", affinity=(PodTerm(HOST, (WEB,)),)), beside, near) == "a1"


def test_a_copy_of_a_crowd_is_one_of_its_own() -> None:
    crowd, beside, asks = Crowd(), neighbours([]), app("p", anti_affinity=(APART,))
    crowd.add(app("x"), "a1")
    copied = crowd.copy()
    copied.add(app("y", anti_affinity=(APART,)), "a2")
    assert open_to(asks, beside, crowd) == "a2 b1 c1"
    assert open_to(asks, beside, copied) == "b1 c1"


def test_what_goes_first_makes_room() -> None:
    """An evicted pod is gone when its replacement looks for a node; but it may itself be promised a place."""
    old = app("old", where="a1", anti_affinity=(FAR_APART,))
    beside, crowd = neighbours([old, app("x", where="c1")]), Crowd()
    assert open_to(old, beside) == "b1"
    assert open_to(old, beside.without([old.uid])) == "a1 a2 b1"
    crowd.add(old, "b1")
    assert open_to(old, beside.without([old.uid]), crowd) == "a1 a2"


def test_averse_pods_are_forgotten_without_a_trace() -> None:
    """Of two siblings on one node, one is left; then nothing."""
    averse, term = Averse(), PodTerm(HOST, (WEB,), ("shop", "bank"), ())
    pods = [app(name, where="a1", anti_affinity=(APART, term)) for name in "xy"]
    for each in pods:
        averse.add(each, "a1")
    averse.remove(pods[0], "a1")
    assert [where for _, where in averse.facing("bank")] == [{"a1": {"y"}}] * 2
    assert [where for _, where in averse.facing("yard")] == [{"a1": {"y"}}]
    averse.remove(pods[1], "a1")
    assert not list(averse.facing("shop"))


def test_domains_of_many_nodes_are_searched_by_namespace() -> None:
    """A zone of a hundred hosts: the pods of other namespaces are not looked at."""
    nodes = [node(f"n{k}", zone="a") for k in range(100)] + [node("far", zone="b")]
    there = [app(f"s{k}", where=f"n{k}", namespace="yard") for k in range(100)] + [app("x", where="n7")]
    asks = app("p", anti_affinity=(FAR_APART,))
    tenants, asked = tenants_in(by_node(there), NAMESPACES), []

    def within(namespace: str) -> Iterable[Pod]:
        asked.append(namespace)
        return tenants.within(namespace)

    beside = Neighbours(ground(*nodes), replace(tenants, within=within))
    assert open_to(asks, beside) == "far"
    assert asked == ["shop"]
    everywhere = app("p", anti_affinity=(PodTerm(ZONE, (WEB,), (), ()),))
    assert open_to(everywhere, neighbours(there[:100], nodes)) == "far"


# --- against the plainest reading ------------------------------------------------------------------------------------

LABELS = st.sampled_from([{"app": "web"}, {"app": "cache"}, {"app": "web", "tier": "1"}, {}])
REQUIREMENTS = st.sampled_from(
    [WEB, CACHE, NodeRequirement("tier", "Exists"), NodeRequirement("app", "NotIn", ("web",))]
)
SELECTORS = st.none() | st.lists(REQUIREMENTS, max_size=2).map(tuple)
TERMS = st.builds(
    PodTerm,
    st.sampled_from([HOST, ZONE, "rack"]),
    SELECTORS,
    st.lists(st.sampled_from(sorted(NAMESPACES)), max_size=2).map(tuple),
    st.none() | st.sampled_from([(), (GOLD,)]),
)
SOME_TERMS = st.lists(TERMS, max_size=2).map(tuple)
FILLERS = tuple(node(f"f{k}", zone="a") for k in range(FEW_NODES))  # zone a is a large domain
RACKED = FILLERS + tuple(
    replace(each, labels={**each.labels, "rack": "r"}) if "1" in each.name else each for each in NODES
)


def pods_with(name: str, where: st.SearchStrategy[str]) -> st.SearchStrategy[Pod]:
    return st.builds(
        lambda namespace, node_, phase, labels, near, apart: replace(
            app(name, where=node_, namespace=namespace, affinity=near, anti_affinity=apart), phase=phase, labels=labels
        ),
        st.sampled_from(sorted(NAMESPACES)),
        where,
        st.sampled_from(["Running", "Running", "Running", "Failed"]),
        LABELS,
        SOME_TERMS,
        SOME_TERMS,
    )


NAMES = [each.name for each in NODES]
THERE = st.integers(0, 6).flatmap(
    lambda count: st.tuples(*(pods_with(f"x{k}", st.sampled_from([*NAMES, "gone"])) for k in range(count)))
)


@settings(max_examples=400, deadline=None)
@given(pods_with("p", st.just("")), THERE, st.integers(0, 3), st.booleans())
def test_any_pod_joins_where_the_plainest_reading_lets_it(
    asks: Pod, there: tuple[Pod, ...], promised: int, is_first_gone: bool
) -> None:
    """Whatever the terms; the last few pods are promised, and one may have gone."""
    crowd, bound = Crowd(), there[: len(there) - promised]
    for each in there[len(bound) :]:
        if each.node != "gone":
            crowd.add(replace(each, phase="Running", node=""), each.node)
    gone = {each.uid for each in bound[:1] if is_first_gone}
    nodes = {each.name: each for each in RACKED}
    counted = [each for each in bound if each.uid not in gone]
    counted += [replace(each, phase="Running") for each in there[len(bound) :]]
    expected = [name for name, each in nodes.items() if may_join(asks, each, nodes, counted, NAMESPACES)]
    assert open_to(asks, neighbours(bound, RACKED).without(gone), crowd) == " ".join(expected)


@settings(max_examples=50, deadline=None)
@given(st.lists(pods_with("x", st.sampled_from(NAMES)), max_size=8))
def test_averse_pods_that_come_and_go_leave_nothing(pods: list[Pod]) -> None:
    """However many terms they have, and whatever namespaces those are about."""
    averse, there = Averse(), [replace(each, uid=f"x{k}") for k, each in enumerate(pods) if each.needs.anti_affinity]
    for each in there:
        averse.add(each, each.node)
    for each in reversed(there):
        averse.remove(each, each.node)
    assert [list(averse.facing(name)) for name in NAMESPACES] == [[], [], []]


def test_the_mapping_of_namespaces_may_lag() -> None:
    """A namespace that is not known has no labels."""
    stranger = replace(app("x", where="a1"), namespace="new")
    both: Mapping[str, PodTerm] = {
        "a2 b1 c1": PodTerm(HOST, (WEB,), (), ()),
        "a1 a2 b1 c1": PodTerm(HOST, (WEB,), (), (GOLD,)),
    }
    for expected, term in both.items():
        assert open_to(app("p", anti_affinity=(term,)), neighbours([stranger])) == expected
