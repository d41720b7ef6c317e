"""Which gangs have to go, so that a gang fits in full; and why none do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from placement import names
from placement.gang.candidate import (
    Allowance,
    Candidate,
    Claimant,
    Rules,
    WhyNot,
    effective_priority,
    is_lower,
    is_preemptible,
)
from placement.gang.choice import MOST_EFFORT
from placement.gang.clearing import Clearing
from placement.gang.victims import NoVictims, Victims, choose
from placement.model import Budget, HardSpread, HostPort, Key, Needs, Node, NodeRequirement, Pod, PodTerm
from placement.plan.ground import sites_of
from placement.plan.neighbours import Neighbours, tenants_in
from placement.plan.room import Room
from placement.plan.stock import amounts_of
from tests.builders.model import CONFIGURATION, NEEDS, NOW, node, pod
from tests.builders.plan import ground

HOUR = 3600.0
MINE = Key("shop", "big")
APP = {"app": "big"}
APART = PodTerm(names.HOSTNAME, (NodeRequirement("app", "In", ("big",)),))


def needs(cpu: int, **fields: Any) -> Needs:
    return replace(NEEDS, requests={"cpu": cpu}, **fields)


def gang(name: str, where: Sequence[str], cpu: int = 1000, **fields: Any) -> Candidate:
    """A gang of `shop` with a pod on each of these nodes. It has run for two hours, and needs all of them."""
    namespace = fields.pop("namespace", "shop")
    asked = fields.pop("needs", needs(cpu))
    made = fields.pop("pod", {})
    priority = fields.pop("priority", 0)
    pods = tuple(
        pod(f"{name}-{index}", None, each, needs=asked, namespace=namespace, labels={"app": name}, **made)
        for index, each in enumerate(where)
    )
    return Candidate(
        **{
            "key": Key(namespace, name),
            "pods": pods,
            "priority": priority,
            "spec_priority": priority,
            "started": NOW - 2 * HOUR,
            "min_member": len(pods),
            **fields,
        }
    )


def claimant(*cpus: int, priority: int = 10, **fields: Any) -> Claimant:
    """The gang `shop/big`; members of the same size are siblings."""
    kinds = {cpu: needs(cpu, **fields) for cpu in cpus}
    pods = tuple(pod(f"big-{index}", None, needs=kinds[cpu], labels=APP) for index, cpu in enumerate(cpus))
    return Claimant(MINE, pods, priority, priority)


def room(nodes: Iterable[Node], there: Iterable[Pod]) -> Room:
    on, pods_on = ground(*nodes), dict[str, list[Pod]]()
    for each in there:
        pods_on.setdefault(each.node, []).append(each)
    used = {name: amounts_of(each for each in pods if each.is_on_node) for name, pods in pods_on.items()}
    return Room(on, lambda name: used.get(name, {}), neighbours=Neighbours(on, tenants_in(pods_on, {})))


def rules(nodes: Iterable[Node], **fields: Any) -> Rules:
    return Rules(
        **{
            "now": NOW,
            "sites": sites_of(nodes, CONFIGURATION),
            "evictions": lambda _namespace: 20,
            "evictions_in_all": 100,
            **fields,
        }
    )


def chosen(
    asking: Claimant, nodes: Sequence[Node], candidates: Sequence[Candidate], *others: Pod, **fields: Any
) -> Victims | NoVictims:
    there = [*chain.from_iterable(each.pods for each in candidates), *others]
    trial = Clearing(room(nodes, there), asking.pods)
    return choose(asking, candidates, trial, rules(nodes, **fields))


def gone(found: Victims | NoVictims) -> list[str]:
    """The names of the pods that go."""
    assert isinstance(found, Victims), found
    return sorted(each.name for each in found.pods)


N, M = node("n"), node("m")  # four CPUs each
OLD, YOUNG = NOW - 5 * HOUR, NOW - HOUR

CHOICES: dict[str, tuple[Claimant, list[Node], list[Candidate], list[str]]] = {
    "nothing goes where there is room": (claimant(1000), [N], [gang("a", ["n"])], []),
    "the lower priority goes": (
        claimant(4000),
        [N, M],
        [gang("a", ["n"] * 4, priority=2), gang("b", ["m"] * 4, priority=1)],
        ["b-0", "b-1", "b-2", "b-3"],
    ),
    "of the same priority, the one that loses less work": (
        claimant(4000),
        [N, M],
        [gang("a", ["n"] * 4, started=OLD), gang("b", ["m"] * 4, started=YOUNG)],
        ["b-0", "b-1", "b-2", "b-3"],
    ),
    "surplus goes before any whole gang, though of higher priority": (
        claimant(1000),
        [N, M],
        [gang("a", ["n"] * 4, priority=1), gang("b", ["m"] * 4, min_member=3, priority=5)],
        ["b-0"],
    ),
    "of the surplus, the member that helps, wherever it is": (
        claimant(3000),
        [N, node("o", cpu=1000)],
        [gang("a", ["o", "n"], 1000, min_member=1), gang("b", ["n"], 1000, priority=20)],
        ["a-1"],
    ),
    "a gang goes whole where its surplus is not enough": (
        claimant(2000),
        [N],
        [gang("a", ["n"] * 4, min_member=3)],
        ["a-0", "a-1", "a-2", "a-3"],
    ),
    "what makes no room that is needed stays": (
        claimant(4000, 4000),
        [N, M, node("o", cpu=1000)],
        [gang("a", ["o"]), gang("b", ["n"] * 4, priority=1), gang("c", ["m"] * 4, priority=2)],
        ["b-0", "b-1", "b-2", "b-3", "c-0", "c-1", "c-2", "c-3"],
    ),
    "as few gangs as will do, if they lose the same": (
        claimant(4000),
        [N, M],
        [gang("a", ["n"] * 2), gang("b", ["n"] * 2), gang("c", ["m"] * 4, started=NOW - HOUR)],
        ["c-0", "c-1", "c-2", "c-3"],
    ),
    "the fit test is asked, not the sum: two halves on two nodes are no place": (
        claimant(2000),
        [N, M],
        [gang("a", ["n"]), gang("b", ["m"]), gang("c", ["n"], 3000, priority=20), gang("d", ["m"], 3000, priority=5)],
        ["d-0"],
    ),
    "a host port is freed": (
        claimant(100, host_ports=(HostPort(80),)),
        [N],
        [gang("a", ["n"], needs=needs(100, host_ports=(HostPort(80),)))],
        ["a-0"],
    ),
    "one that keeps the gang away goes, though it takes no room": (
        claimant(100),
        [N],
        [gang("a", ["n"], needs=needs(0, anti_affinity=(APART,))), gang("b", ["n"], 100)],
        ["a-0"],
    ),
    "one to a host: a node each": (
        claimant(1000, 1000, anti_affinity=(APART,)),
        [N, M],
        [gang("a", ["n"] * 4), gang("b", ["m"] * 4, priority=1)],
        ["a-0", "a-1", "a-2", "a-3", "b-0", "b-1", "b-2", "b-3"],
    ),
    "even over zones: room in the zone that lacks it": (
        claimant(2000, 2000, hard_spread=(HardSpread(names.ZONE, 1, (NodeRequirement("app", "In", ("big",)),)),)),
        [node("n", zone="a"), node("m", zone="b")],
        [gang("a", ["m"] * 4, priority=5)],
        ["a-0", "a-1", "a-2", "a-3"],
    ),
    "members that differ": (
        claimant(3000, 1000, 1000),
        [N, M],
        [gang("a", ["n"], 2000), gang("b", ["m"], 4000, priority=1)],
        ["b-0"],
    ),
}


@pytest.mark.parametrize(("asking", "nodes", "candidates", "names_gone"), CHOICES.values(), ids=CHOICES)
def test_what_goes(asking: Claimant, nodes: list[Node], candidates: list[Candidate], names_gone: list[str]) -> None:
    """As each sentence says. The whole gang has places then."""
    found = chosen(asking, nodes, candidates)
    assert gone(found) == names_gone
    assert isinstance(found, Victims)
    assert len(found.joint.places) == len(asking.pods)


FULL = gang("a", ["n"] * 4)
TIGHT = Budget("shop", "tight", allowed=3)
REASONS: dict[str, tuple[list[Candidate], dict[str, Any], WhyNot, str]] = {
    "nothing is lower": (
        [gang("a", ["n"] * 4, priority=10)],
        {},
        WhyNot.NOTHING_LOWER,
        "shop/big finds no room: nothing of lower priority runs",
    ),
    "it does not fit even then": (
        [gang("a", ["n"] * 3), gang("b", ["n"], priority=10)],
        {},
        WhyNot.NO_ROOM,
        "shop/big does not fit even if everything of lower priority is evicted: 0 of 1 members would find a place, "
        "then no node has room for cpu",
    ),
    "a budget allows too few": (
        [FULL],
        {"budgets": lambda _pod: [TIGHT]},
        WhyNot.BUDGET,
        "shop/big finds no room: the PodDisruptionBudget shop/tight does not allow enough evictions",
    ),
    "a budget that is not up to date allows none": (
        [FULL],
        {"budgets": lambda _pod: [replace(TIGHT, allowed=4, settled=False)]},
        WhyNot.BUDGET,
        "shop/big finds no room: the PodDisruptionBudget shop/tight does not allow enough evictions",
    ),
    "a budget allows either gang, but not both": (
        [gang("a", ["n"] * 2), gang("b", ["n"] * 2)],
        {"budgets": lambda _pod: [TIGHT]},
        WhyNot.BUDGET,
        "shop/big needs 4 evictions under the PodDisruptionBudget shop/tight, which allows 3",
    ),
    "nobody evicts a pod under two budgets": (
        [FULL],
        {"budgets": lambda _pod: [replace(TIGHT, allowed=9), Budget("shop", "wide", allowed=9)]},
        WhyNot.BUDGET,
        "shop/big finds no room: the PodDisruptionBudget shop/tight and shop/wide does not allow enough evictions",
    ),
    "it is too young": (
        [replace(FULL, started=NOW - 299)],
        {},
        WhyNot.TOO_YOUNG,
        "shop/big finds no room: shop/a has not run for the minimum time yet",
    ),
    "it is in another plan": (
        [replace(FULL, plan="p1")],
        {},
        WhyNot.IN_PLAN,
        "shop/big finds no room: shop/a is part of another plan",
    ),
    "it says that it is not preemptible": (
        [replace(FULL, is_preemptible=False)],
        {},
        WhyNot.NOT_PREEMPTIBLE,
        "shop/big finds no room: shop/a is not preemptible",
    ),
    "the namespace has no evictions left": (
        [FULL],
        {"evictions": lambda _namespace: 0},
        WhyNot.EVICTIONS,
        "shop/big finds no room: the evictions of this hour in shop are used up",
    ),
    "the namespace has too few evictions left": (
        [gang("a", ["n"] * 2), gang("b", ["n"] * 2)],
        {"evictions": lambda _namespace: 3},
        WhyNot.EVICTIONS,
        "shop/big needs 4 evictions in shop, and 3 are left this hour",
    ),
    "there are too few evictions left in all": (
        [gang("a", ["n"] * 2), gang("b", ["n"] * 2)],
        {"evictions_in_all": 2},
        WhyNot.EVICTIONS,
        "shop/big needs 4 evictions, and 2 are left this hour",
    ),
    "a service keeps what it needs": (
        [gang(f"web-{each}", ["n"]) for each in range(4)],
        {"spare": lambda _pod: [Allowance(WhyNot.SPARE, "shop/web", 2)]},
        WhyNot.SPARE,
        "shop/big needs 4 evictions in shop/web, which has 2 replicas to spare",
    ),
    "a service has none to spare": (
        [gang(f"web-{each}", ["n"]) for each in range(4)],
        {"spare": lambda _pod: [Allowance(WhyNot.SPARE, "shop/web", 0)]},
        WhyNot.SPARE,
        "shop/big finds no room: shop/web has too few replicas to spare",
    ),
    "several rules together": (
        [gang("a", ["n"] * 2, is_preemptible=False), gang("b", ["n"] * 2, started=NOW)],
        {},
        WhyNot.NOT_PREEMPTIBLE,
        "shop/big finds no room: shop/a is not preemptible",
    ),
    "what is on its option out is there until it has gone": (
        [gang("a", ["n"] * 4, pod={"terminating": True})],
        {},
        WhyNot.NOTHING_LOWER,
        "shop/big finds no room: nothing of lower priority runs",
    ),
}


@pytest.mark.parametrize(("candidates", "fields", "why", "sentence"), REASONS.values(), ids=REASONS)
def test_why_nothing_goes(candidates: list[Candidate], fields: dict[str, Any], why: WhyNot, sentence: str) -> None:
    """A gang of one that needs the whole node evicts nothing, and the reason says what stands in the option."""
    found = chosen(claimant(4000), [N], candidates, **fields)
    assert isinstance(found, NoVictims)
    assert (found.why, found.sentence) == (why, sentence)


def test_a_pod_that_has_not_started_draws_on_no_budget() -> None:
    """The API server asks none when a pod of phase Pending is evicted."""
    pulling = gang("a", ["n"] * 4, pod={"phase": "Pending"})
    assert len(gone(chosen(claimant(4000), [N], [pulling], budgets=lambda _pod: [TIGHT]))) == 4


def test_one_member_that_may_not_be_evicted_keeps_its_gang() -> None:
    """Neither whole nor its surplus: what a gang loses is its own choice, or its lowest members' alone."""
    tied = gang("a", ["n"] * 4, min_member=2)

    def budgets(of: Pod) -> Sequence[Budget]:
        return [replace(TIGHT, allowed=0)] if of.name == "a-3" else ()

    assert isinstance(chosen(claimant(1000), [N], [tied], budgets=budgets), NoVictims)


def test_large_pods_go_where_only_few_may() -> None:
    """Eight small pods would go first; with four evictions left, the one large pod goes."""
    small = [gang(f"s{each}", ["n"], 500) for each in range(8)]
    large = gang("large", ["m"], 4000, started=OLD)
    assert len(gone(chosen(claimant(4000), [N, M], [*small, large]))) == 8
    assert gone(chosen(claimant(4000), [N, M], [*small, large], evictions=lambda _namespace: 4)) == ["large-0"]


def test_members_of_another_kind_count_for_the_spread_of_all() -> None:
    """Two large ones fit in zone a alone, with skew 1: the small one in zone b makes that even."""
    rule = HardSpread(names.ZONE, 1, (NodeRequirement("app", "In", ("big",)),))
    nodes = [node("n", zone="a"), node("m", zone="b", cpu=1000)]
    asking = claimant(2000, 2000, 1000, hard_spread=(rule,))
    assert gone(chosen(asking, nodes, [gang("a", ["n"]), gang("b", ["m"], 500)])) == ["a-0", "b-0"]


def test_hopeless_searches_end_early() -> None:
    """Five nodes full of small pods, five places missing, three evictions left: not even one pod for each place."""
    nodes = [node(name) for name in "abcde"]
    small = [gang(f"{each.name}{number}", [each.name], 500) for each in nodes for number in range(8)]
    found = chosen(claimant(*[4000] * 5), nodes, small, evictions=lambda _namespace: 99, evictions_in_all=3)
    assert isinstance(found, NoVictims)
    assert found.sentence == "shop/big needs 40 evictions, and 3 are left this hour"


def test_a_search_that_would_take_too_long_is_given_up() -> None:
    """Members that stay near others are placed again for each question; thousands of those would hold up the plan."""
    near = PodTerm(names.HOSTNAME, (NodeRequirement("app", "In", ("a",)),))
    asking = claimant(1000, affinity=(near,))
    there, other = gang("a", ["n"]), gang("b", ["n"] * 3, min_member=2)
    trial = Clearing(room([N], [*there.pods, *other.pods]), asking.pods)
    trial.effort = MOST_EFFORT
    found = choose(asking, [other], trial, rules([N]))
    assert isinstance(found, NoVictims)
    assert found.sentence == "shop/big finds no room: too many placements would have to be tried to find who has to go"


def test_the_sentence_names_victims_and_cost() -> None:
    """What people read in Events: who goes, of which priority, and what is lost."""
    found = chosen(
        claimant(4000, 1000),
        [N, M],
        [gang("a", ["n"] * 4, priority=3), gang("b", ["m"] * 4, min_member=3, priority=4)],
    )
    assert isinstance(found, Victims)
    assert found.sentence == (
        "shop/big (priority 10) fits once 5 pods are evicted: shop/b (priority 4, 1 of 4 pods), "
        "shop/a (priority 3, all 4 pods); this loses 2.5 node-hours of work"
    )
    assert (found.cost.gangs, found.cost.pods, found.cost.node_hours) == (2, 5, 2.5)


PRIORITIES = {
    "lower by annotation, equal in spec": (Candidate(Key("shop", "a"), (), 0, 0, 0), (100, 0), True),
    "lower by annotation, higher in spec": (Candidate(Key("shop", "a"), (), 0, 10, 0), (100, 0), False),
    "equal": (Candidate(Key("shop", "a"), (), 5, 0, 0), (5, 0), False),
    "of another namespace, lower by annotation alone": (Candidate(Key("bank", "a"), (), 0, 0, 0), (100, 0), False),
    "of another namespace, lower in spec": (Candidate(Key("bank", "a"), (), 0, 0, 0), (5, 5), True),
    "of another namespace, lower in spec and higher by annotation": (
        Candidate(Key("bank", "a"), (), 99, 0, 0),
        (5, 5),
        True,
    ),
}


@pytest.mark.parametrize(("other", "mine", "lower"), PRIORITIES.values(), ids=PRIORITIES)
def test_annotations_order_within_a_namespace_alone(other: Candidate, mine: tuple[int, int], lower: bool) -> None:
    """And never against the spec, by which nominations hold."""
    assert is_lower(other, Claimant(MINE, (), *mine)) is lower


@pytest.mark.parametrize(
    ("written", "spec", "priority"),
    [(None, 7, 7), ("12", 7, 12), ("-3", 7, -3), (" 4 ", 7, 4), ("high", 7, 7), ("1_0", 7, 7), ("9" * 40, 7, 7)],
)
def test_the_priority_annotation_counts_where_it_is_a_number(written: str | None, spec: int, priority: int) -> None:
    """Else the spec's does, which is 0 for a pod without a class."""
    annotations = {} if written is None else {names.PRIORITY: written}
    assert effective_priority(pod("p", annotations=annotations, needs=needs(1, priority=spec))) == priority


def test_one_member_that_is_not_preemptible_speaks_for_its_gang() -> None:
    """Only `false` says so."""
    yes, no = pod("p", annotations={names.PREEMPTIBLE: "true"}), pod("q", annotations={names.PREEMPTIBLE: "false"})
    assert (is_preemptible([yes]), is_preemptible([yes, no])) == (True, False)
