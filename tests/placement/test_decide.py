"""Decisions: class, reason and what to inject."""

import zlib
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import names
from placement.classes import PRESETS, Classes
from placement.clusterstate import MOST_SHUNNED, ClusterState, shunned_by_class
from placement.configuration import Configuration, PriorityRoles
from placement.decide import Case, Decision, Reason, allowed_classes, decide
from placement.inject import MILD_SKEW, Injection, Preference
from placement.model import Class, Kind, Node, NodeRequirement, NodeTaint, NodeTerm, Pool, Template, Workload
from placement.policy import Amount, Policy, Spread
from placement.pools import pool_order
from placement.revision import Revision
from tests.builders.model import workload
from tests.placement.invariants import any_slots, few, many

SELECTOR = {"matchLabels": {"app": "web", "pod-template-hash": "abc"}}
DEPLOYMENT = workload()
STATEFUL_SET = replace(DEPLOYMENT, kind=Kind.STATEFUL_SET)
ORDERED = replace(STATEFUL_SET, ordered=True)
SPOT_TERM = (NodeRequirement(names.CAPACITY, "In", ("spot",)),)
ON_DEMAND_TERM = (NodeRequirement(names.CAPACITY, "NotIn", ("spot",)),)
ANYWHERE = ClusterState(Configuration())
OVERFLOW = names.OVERFLOW_PRIORITY
OUT = ClusterState(Configuration(), priority_classes=(OVERFLOW,), out=frozenset({Class.SPOT}))


def revision(workload: Workload = DEPLOYMENT, **changes: Any) -> Revision:
    return replace(Revision("rs", workload, Policy(), workload.replicas, SELECTOR, Template()), **changes)


def soft_spread(key: str, placed: str = "spot") -> dict[str, Any]:
    """Over this topology, among the revision's pods of the class."""
    selector = {"matchLabels": {**SELECTOR["matchLabels"], names.CLASS: placed}}
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}


def soft_spreads(placed: str) -> tuple[dict[str, Any], ...]:
    return (soft_spread(names.HOSTNAME, placed), soft_spread(names.ZONE, placed))


def test_an_on_demand_slot() -> None:
    """Slot 0: required to be off spot, spread within its revision, leaves last."""
    assert decide("id", 0, Case(revision(), (), ANYWHERE)) == Decision(
        "id",
        "rs",
        Reason.SLOT,
        "slot 0 is on-demand (spot-ratio 70%, min-on-demand 1)",
        Class.ON_DEMAND,
        0,
        injection=Injection(required=(ON_DEMAND_TERM,), spread=soft_spreads("on-demand")),
        deletion_cost=0,
    )


def test_a_spot_slot() -> None:
    """Slot 4: required to be on spot, tolerates its taint, leaves before slots 0…3."""
    assert decide("id", 4, Case(revision(), (), ANYWHERE)) == Decision(
        "id",
        "rs",
        Reason.SLOT,
        "slot 4 is spot (spot-ratio 70%, min-on-demand 1)",
        Class.SPOT,
        4,
        injection=Injection(
            required=(SPOT_TERM,),
            tolerations=({"key": names.CAPACITY, "operator": "Equal", "value": "spot"},),
            spread=soft_spreads("spot"),
        ),
        deletion_cost=-4,
    )


def test_spot_is_out() -> None:
    """A spot slot is then preferred and no longer required, so that it may run on on-demand and return."""
    decision = decide("id", 4, Case(revision(), (), ClusterState(Configuration(), out=frozenset({Class.SPOT}))))
    assert (decision.placed, decision.slot, decision.soft, decision.reason) == (Class.SPOT, 4, True, Reason.SPOT_OUT)
    assert (decision.injection.required, decision.injection.preferred) == ((), (Preference(100, SPOT_TERM),))
    assert decision.injection.tolerations == Configuration().classes.tolerations
    assert decision.explanation.endswith("; preferred, not required: spot is out")


REASONS: dict[str, tuple[Workload, int, ClusterState, Reason]] = {
    "a Deployment's spot slot": (DEPLOYMENT, 1, ANYWHERE, Reason.SLOT),
    "its on-demand slot while spot is out": (DEPLOYMENT, 0, OUT, Reason.SLOT),
    "its spot slot while spot is out": (DEPLOYMENT, 1, OUT, Reason.SPOT_OUT),
    "a parallel StatefulSet's spot ordinal": (STATEFUL_SET, 1, ANYWHERE, Reason.SLOT),
    "an ordered StatefulSet's spot ordinal would block the later ones": (ORDERED, 1, ANYWHERE, Reason.ORDERED),
    "its on-demand ordinal is required": (ORDERED, 0, ANYWHERE, Reason.SLOT),
    "an outage says more than the order": (ORDERED, 1, OUT, Reason.SPOT_OUT),
}


@pytest.mark.parametrize(("workload", "slot", "cluster", "expected"), REASONS.values(), ids=REASONS.keys())
def test_the_reason_tells_why(workload: Workload, slot: int, cluster: ClusterState, expected: Reason) -> None:
    """Soft, and preferred in place of required, exactly where the reason is another than the slot itself."""
    decision = decide("id", slot, Case(revision(workload), (), cluster))
    assert decision.reason is expected
    assert decision.soft is (expected is not Reason.SLOT)
    assert bool(decision.injection.required) is not decision.soft


def test_a_contradiction_is_left_alone() -> None:
    """The users' own terms are kept; nothing is injected, and the reason is told. It holds its slot all the same."""
    only_spot = ((NodeRequirement(names.CAPACITY, "In", ("spot",)),),)
    assert decide("id", 0, Case(revision(), only_spot, ANYWHERE)) == Decision(
        "id",
        "rs",
        Reason.CONTRADICTION,
        "left alone: slot 0 is on-demand (spot-ratio 70%, min-on-demand 1), "
        "but the pod's own node selector or affinity excludes on-demand nodes",
        slot=0,
    )
    assert decide("id", 1, Case(revision(), only_spot, ANYWHERE)).placed is Class.SPOT


def roles(**names_of: str) -> Configuration:
    return Configuration(priority_roles=PriorityRoles(**names_of))


FIVE = Policy(min_available=Amount(5))
PRIORITIES: dict[str, tuple[int, Revision, ClusterState, str]] = {
    "soft and at min-available: more than the service needs": (5, revision(policy=FIVE), OUT, OVERFLOW),
    "soft and below it": (4, revision(policy=FIVE), OUT, ""),
    "soft and above what is assumed (n=10: 8 serve)": (8, revision(), OUT, OVERFLOW),
    "soft and below what is assumed": (7, revision(), OUT, ""),
    "an on-demand slot above min-available": (6, revision(policy=FIVE), OUT, ""),
    "spot is not out": (5, revision(policy=FIVE), replace(OUT, out=frozenset()), ""),
    "soft for the order's sake alone": (9, revision(ORDERED), replace(OUT, out=frozenset()), ""),
    "the class does not exist: the pod would be refused": (
        5,
        revision(policy=FIVE),
        replace(OUT, priority_classes=("other",)),
        "",
    ),
    "the owner's template has a class of its own": (
        5,
        revision(policy=FIVE, template=Template(priority_class="high")),
        OUT,
        "",
    ),
    "a class that a globalDefault gave the pod is not the template's": (
        5,
        revision(policy=FIVE, template=Template()),
        replace(OUT, priority_classes=(OVERFLOW, "global-default")),
        OVERFLOW,
    ),
    "no overflow class is configured": (
        5,
        revision(policy=FIVE),
        replace(OUT, configuration=roles(overflow=""), priority_classes=("",)),
        "",
    ),
    "a class for spot": (1, revision(), ClusterState(roles(spot="s"), priority_classes=("s",)), "s"),
    "a class for spot says nothing of on-demand": (
        0,
        revision(),
        ClusterState(roles(spot="s"), priority_classes=("s",)),
        "",
    ),
    "a class for on-demand": (0, revision(), ClusterState(roles(on_demand="o"), priority_classes={"o"}), "o"),
    "a class for spot that does not exist": (1, revision(), ClusterState(roles(spot="s")), ""),
    "soft pods that the service needs keep spot's class": (
        1,
        revision(policy=FIVE),
        ClusterState(roles(spot="s"), priority_classes=("s", OVERFLOW), out=frozenset({Class.SPOT})),
        "s",
    ),
}


@pytest.mark.parametrize(("slot", "of", "cluster", "expected"), PRIORITIES.values(), ids=PRIORITIES.keys())
def test_the_priority_class(slot: int, of: Revision, cluster: ClusterState, expected: str) -> None:
    """Pods keep the user's priority, unless their role has a class that exists and the template names none."""
    assert decide("id", slot, Case(of, (), cluster)).injection.priority_class == expected


COSTS: dict[str, tuple[Revision, int | None]] = {
    "a Deployment's pods leave from the top": (revision(), -4),
    "a user's own cost is kept": (revision(template=Template(has_deletion_cost=True)), None),
    "StatefulSets leave by ordinal": (revision(STATEFUL_SET), None),
}


@pytest.mark.parametrize(("of", "expected"), COSTS.values(), ids=COSTS.keys())
def test_the_deletion_cost(of: Revision, expected: int | None) -> None:
    """The highest slot leaves first."""
    assert decide("id", 4, Case(of, (), ANYWHERE)).deletion_cost == expected


SPREADS: dict[str, tuple[Revision, list[dict[str, Any]]]] = {
    "none": (revision(policy=Policy(spread=())), []),
    "hard ones honour taints": (
        revision(policy=Policy(spread=(Spread("zone", True),))),
        [{**soft_spread(names.ZONE), "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor"}],
    ),
    "a StatefulSet's selector does not name the revision, so its label's key does": (
        revision(STATEFUL_SET, policy=Policy(spread=(Spread("instance-type"),))),
        [{**soft_spread(names.INSTANCE_TYPE), "matchLabelKeys": ["controller-revision-hash"]}],
    ),
}


@pytest.mark.parametrize(("of", "expected"), SPREADS.values(), ids=SPREADS.keys())
def test_the_spread_constraints(of: Revision, expected: list[dict[str, Any]]) -> None:
    """One for each rule of the policy."""
    assert list(decide("id", 4, Case(of, (), ANYWHERE)).injection.spread) == expected


def test_a_soft_pod_is_spread_among_those_of_its_slots_class() -> None:
    """It keeps its label on whatever node it runs, so that a return to its class changes no group."""
    spread = decide("id", 4, Case(revision(), (), OUT)).injection.spread
    assert [each["labelSelector"]["matchLabels"][names.CLASS] for each in spread] == ["spot", "spot"]


def test_a_pod_that_prefers_a_pool_is_spread_mildly_unless_the_policy_names_the_topology() -> None:
    """Even pools mean uneven zones where a zone has two of three: who counts zones alone would never be content."""
    cluster = ClusterState(Configuration(), (Pool("a", "m5"), Pool("b", "m5"), Pool("b", "c5")))
    of = revision(policy=Policy(spread=(Spread("host"), Spread("zone", is_asked=True))))

    def skews(slot: int) -> list[int]:
        return [each["maxSkew"] for each in decide("id", slot, Case(of, (), cluster)).injection.spread]

    assert skews(4) == [MILD_SKEW, 1]
    assert skews(0) == [1, 1]  # on-demand prefers no pool


def test_a_selector_by_expressions_is_kept_beside_the_class() -> None:
    """People write either form."""
    expressions = [{"key": "app", "operator": "In", "values": ["web"]}]
    of = revision(selector={"matchExpressions": expressions})
    expected = {"matchExpressions": expressions, "matchLabels": {names.CLASS: "on-demand"}}
    assert [each["labelSelector"] for each in decide("id", 0, Case(of, (), ANYWHERE)).injection.spread] == [
        expected,
        expected,
    ]


def test_a_soft_pod_is_spread_mildly() -> None:
    """So that an empty on-demand node does not outweigh the preference for spot; what is hard stays as strict."""
    of = revision(policy=Policy(spread=(Spread("host"), Spread("zone", True))))
    skews = [constraint["maxSkew"] for constraint in decide("id", 4, Case(of, (), OUT)).injection.spread]
    assert skews == [MILD_SKEW, 1]
    assert [constraint["maxSkew"] for constraint in decide("id", 0, Case(of, (), OUT)).injection.spread] == [1, 1]


# --- pools -----------------------------------------------------------------------------------------------------------


def test_pools_are_walked_zone_by_zone() -> None:
    """Pools a/m, a/r, b/m, c/m come out as a/m, b/m, c/m, a/r."""
    pools = [Pool("a", "r"), Pool("c", "m"), Pool("a", "m"), Pool("b", "m")]
    assert [str(pool) for pool in pool_order(pools)] == ["a/m", "b/m", "c/m", "a/r"]


pools = st.sets(st.builds(Pool, st.sampled_from("abcd"), st.sampled_from("mrx")), max_size=9)


@many
@given(pools)
def test_every_pool_is_walked_once_and_neighbours_differ_in_zone(some: set[Pool]) -> None:
    """As long as more than one zone has pools left."""
    order = pool_order(some)
    left = Counter(pool.zone for pool in some)
    assert (set(order), len(order)) == (some, len(some))
    for pool, following in pairwise(order):
        left[pool.zone] -= 1
        if len([zone for zone, count in left.items() if count]) > 1:
            assert pool.zone != following.zone


def zone_and_type(preference: Preference) -> tuple[str, ...]:
    return tuple(
        each.values[0] for each in preference.term if each.key in (names.ZONE, names.INSTANCE_TYPE)
    )  # in this order


FOUR = tuple(Pool(zone, "m") for zone in "abcd")


def preferred_pool(slot: int, of: Revision, order: tuple[Pool, ...]) -> Pool:
    (preference,) = decide("id", slot, Case(of, (), ClusterState(Configuration(), order))).injection.preferred
    assert preference.weight == 100
    assert preference.term[0] == SPOT_TERM[0]
    return Pool(*zone_and_type(preference))


@few
@given(any_slots, st.integers(1, 7))
def test_spot_slots_are_dealt_out_evenly(slots: Any, count: int) -> None:
    """The j-th spot slot prefers pool (start + j) mod P, so at every size no two pools differ by more than one."""
    of = revision(policy=Policy(slots.ratio, slots.floor))
    order = tuple(Pool(f"z{number}", "m") for number in range(count))
    held: Counter[Pool] = Counter(dict.fromkeys(order, 0))
    start = zlib.crc32(b"Deployment/shop/web")
    for slot in range(30):
        if slots.class_of(slot) is Class.SPOT:
            pool = preferred_pool(slot, of, order)
            assert pool == order[(start + held.total()) % count]
            held[pool] += 1
            assert max(held.values()) - min(held.values()) <= 1


def test_workloads_start_elsewhere() -> None:
    """Or the first pool would hold the first spot pod of every small workload."""
    policy = Policy(Fraction(1), 0)
    firsts = Counter(
        preferred_pool(0, revision(replace(DEPLOYMENT, name=f"web-{number}"), policy=policy), FOUR)
        for number in range(200)
    )
    assert len(firsts) == 4
    assert max(firsts.values()) < 80
    namesake = revision(STATEFUL_SET, policy=policy)
    assert preferred_pool(0, namesake, FOUR) != preferred_pool(0, revision(policy=policy), FOUR)


def term_of(preset: str, *pool: NodeRequirement) -> NodeTerm:
    return (NodeRequirement(PRESETS[preset].key, "In", PRESETS[preset].spot), *pool)


IN_A = (NodeRequirement(names.ZONE, "In", ("a",)), NodeRequirement(names.INSTANCE_TYPE, "In", ("m",)))


def test_preferences_of_a_soft_pod() -> None:
    """The class outweighs the pool; with several presets each is said for each."""
    both = Configuration(Classes((PRESETS["default"], PRESETS["eks"])))
    cluster = ClusterState(both, (Pool("a", "m"),), out=frozenset({Class.SPOT}))
    assert decide("id", 1, Case(revision(), (), cluster)).injection.preferred == (
        Preference(100, term_of("default")),
        Preference(100, term_of("eks")),
        Preference(10, term_of("default", *IN_A)),
        Preference(10, term_of("eks", *IN_A)),
    )


def test_on_demand_slots_prefer_no_pool() -> None:
    """Pools are what the cloud takes away; on-demand is spread by zone and host."""
    assert decide("id", 0, Case(revision(), (), ClusterState(Configuration(), FOUR))).injection.preferred == ()


def test_a_pool_is_named_by_what_is_known_of_it() -> None:
    """Nodes without a zone or type label still form a pool."""
    (preference,) = decide(
        "id", 1, Case(revision(), (), ClusterState(Configuration(), (Pool("", "m"),)))
    ).injection.preferred
    assert preference.term == (*SPOT_TERM, NodeRequirement(names.INSTANCE_TYPE, "In", ("m",)))


@many
@given(any_slots, st.integers(0, 60), st.booleans(), st.sampled_from([DEPLOYMENT, STATEFUL_SET, ORDERED]))
def test_a_slot_always_gets_its_class(slots: Any, slot: int, out: bool, workload: Workload) -> None:
    """Whatever the surroundings; on-demand is required while it is there, spot is never required while it is out."""
    of = revision(workload, policy=Policy(slots.ratio, slots.floor))
    decision = decide(
        "id",
        slot,
        Case(of, (), ClusterState(Configuration(), FOUR, (OVERFLOW,), frozenset({Class.SPOT} if out else ()))),
    )
    assert (decision.placed, decision.slot) == (slots.class_of(slot), slot)
    assert not (out and decision.placed is Class.SPOT and decision.injection.required)
    assert decision.placed is Class.SPOT or decision.injection.required == (ON_DEMAND_TERM,)
    assert bool(decision.injection.tolerations) is (decision.placed is Class.SPOT)


BOTH_OUT = ClusterState(Configuration(), out=frozenset(Class))
LONE = replace(DEPLOYMENT, replicas=1)
FALLBACKS = {
    "on-demand falls back to spot": (DEPLOYMENT, Policy(), 0, Reason.ON_DEMAND_OUT),
    "a single replica waits": (LONE, Policy(), 0, Reason.SLOT),
    "unless it says otherwise": (LONE, Policy(on_demand_fallback="spot"), 0, Reason.ON_DEMAND_OUT),
    "who says so waits": (DEPLOYMENT, Policy(on_demand_fallback="wait"), 0, Reason.SLOT),
    "spot falls back to on-demand": (DEPLOYMENT, Policy(), 1, Reason.SPOT_OUT),
    "also here who says so waits": (DEPLOYMENT, Policy(spot_fallback="wait"), 1, Reason.SLOT),
}


@pytest.mark.parametrize(("workload", "policy", "slot", "reason"), FALLBACKS.values(), ids=FALLBACKS.keys())
def test_the_policy_says_who_falls_back(workload: Workload, policy: Policy, slot: int, reason: Reason) -> None:
    """A pod that falls back is soft, prefers its class and tolerates spot; one that waits requires its class."""
    decision = decide("id", slot, Case(revision(workload, policy=policy), (), BOTH_OUT))
    assert decision.reason is reason
    assert decision.soft == (reason is not Reason.SLOT) == (decision.injection.required == ())
    if decision.soft:
        assert decision.injection.tolerations == Configuration().classes.tolerations


OFF, PLAN_ONLY = Policy(rebalance="off"), Policy(rebalance="plan-only")
UNLED = ClusterState(Configuration(), priority_classes=(OVERFLOW,), unled=frozenset(Class))
MODES: dict[str, tuple[Workload, Policy, int, ClusterState, Reason]] = {
    "a leader is there: spot is required": (DEPLOYMENT, Policy(), 1, ANYWHERE, Reason.SLOT),
    "off: spot is preferred": (DEPLOYMENT, OFF, 1, ANYWHERE, Reason.REBALANCE_OFF),
    "off: on-demand is required": (DEPLOYMENT, OFF, 0, ANYWHERE, Reason.SLOT),
    "off: on-demand is preferred while nobody leads": (DEPLOYMENT, OFF, 0, UNLED, Reason.NO_LEADER),
    "off: a single replica waits for on-demand": (LONE, OFF, 0, ANYWHERE, Reason.SLOT),
    "off: on-demand waits if it is to": (DEPLOYMENT, replace(OFF, on_demand_fallback="wait"), 0, UNLED, Reason.SLOT),
    "off: spot waits if it is to": (DEPLOYMENT, replace(OFF, spot_fallback="wait"), 1, ANYWHERE, Reason.SLOT),
    "plan-only: spot is preferred": (DEPLOYMENT, PLAN_ONLY, 1, ANYWHERE, Reason.PLAN_ONLY),
    "plan-only: on-demand is required": (DEPLOYMENT, PLAN_ONLY, 0, ANYWHERE, Reason.SLOT),
    "plan-only: a single replica waits for on-demand": (LONE, PLAN_ONLY, 0, UNLED, Reason.SLOT),
    "plan-only: spot waits if it is to": (
        DEPLOYMENT,
        replace(PLAN_ONLY, spot_fallback="wait"),
        1,
        UNLED,
        Reason.SLOT,
    ),
    "nobody leads: spot is preferred": (DEPLOYMENT, Policy(), 1, UNLED, Reason.NO_LEADER),
    "nobody leads: so is on-demand": (DEPLOYMENT, Policy(), 0, UNLED, Reason.NO_LEADER),
    "nobody leads: a single replica waits": (LONE, Policy(), 0, UNLED, Reason.SLOT),
    "nobody leads: unless it says otherwise": (LONE, Policy(on_demand_fallback="spot"), 0, UNLED, Reason.NO_LEADER),
    "nobody leads: who says so waits": (DEPLOYMENT, Policy(on_demand_fallback="wait"), 0, UNLED, Reason.SLOT),
    "nobody leads, and spot is gone: on-demand is required": (
        DEPLOYMENT,
        Policy(),
        0,
        replace(UNLED, unled=frozenset({Class.SPOT})),
        Reason.SLOT,
    ),
    "a mode says more than a missing leader": (DEPLOYMENT, PLAN_ONLY, 1, UNLED, Reason.PLAN_ONLY),
    "an outage says more than a mode": (DEPLOYMENT, OFF, 1, OUT, Reason.SPOT_OUT),
    "so does the order": (ORDERED, OFF, 1, UNLED, Reason.ORDERED),
}


@pytest.mark.parametrize(("workload", "policy", "slot", "cluster", "reason"), MODES.values(), ids=MODES.keys())
def test_a_class_is_required_only_where_somebody_would_let_it_fall_back(
    workload: Workload, policy: Policy, slot: int, cluster: ClusterState, reason: Reason
) -> None:
    """Whoever is soft prefers the class of its slot with weight 100, and keeps slot, class and deletion cost."""
    decision = decide("id", slot, Case(revision(workload, policy=policy), (), cluster))
    placed = policy.slots.class_of(slot)
    assert (decision.reason, decision.placed, decision.slot) == (reason, placed, slot)
    assert decision.soft == (reason is not Reason.SLOT) == (decision.injection.required == ())
    terms = Configuration().classes.terms(placed)
    assert decision.injection.preferred == (tuple(Preference(100, term) for term in terms) if decision.soft else ())


TOLD = {
    "off": (OFF, ANYWHERE, "; preferred, not required: rebalance is off"),
    "plan-only": (PLAN_ONLY, ANYWHERE, "; preferred, not required: rebalance is plan-only"),
    "nobody leads": (Policy(), UNLED, "; preferred, not required: no rebalancer leads"),
}


@pytest.mark.parametrize(("policy", "cluster", "told"), TOLD.values(), ids=TOLD.keys())
def test_the_explanation_says_why_a_class_is_not_required(policy: Policy, cluster: ClusterState, told: str) -> None:
    """On the pod itself, where people look."""
    explanation = decide("id", 1, Case(revision(policy=policy), (), cluster)).explanation
    assert explanation == f"slot 1 is spot ({policy.explain()}){told}"


@pytest.mark.parametrize("policy", [OFF, PLAN_ONLY, Policy()], ids=["off", "plan-only", "nobody leads"])
def test_who_is_soft_without_an_outage_is_no_overflow(policy: Policy) -> None:
    """Most of them run on spot as they should, and must not be preempted by any stranger."""
    of = revision(policy=replace(policy, min_available=Amount(1)))
    assert all(decide("id", slot, Case(of, (), UNLED)).injection.priority_class == "" for slot in range(10))
    out = replace(UNLED, out=frozenset({Class.SPOT}))
    assert decide("id", 9, Case(of, (), out)).injection.priority_class == OVERFLOW


# --- taints that the scheduler would rather avoid --------------------------------------------------------------------


def shy(key: str, value: str = "", effect: str = "PreferNoSchedule") -> Node:
    return Node("n", taints=(NodeTaint(key, value, effect),))


def tolerated(key: str, **value: str) -> dict[str, str]:
    return {"key": key, "operator": "Equal" if value else "Exists", **value, "effect": "PreferNoSchedule"}


SHUNNED: dict[str, tuple[list[Node], list[Node], list[dict[str, str]]]] = {
    "nobody": ([Node("n")], [Node("n")], []),
    "spot nodes": ([shy("x", "1")], [Node("n")], [tolerated("x")]),
    "some of the spot nodes": ([Node("n"), shy("x")], [Node("n")], [tolerated("x")]),
    "spot nodes, each for a reason of its own": ([shy("x", "1"), shy("x", "2")], [], [tolerated("x")]),
    "the nodes of both classes": ([shy("x")], [shy("x")], []),
    "the nodes of both classes, for different reasons": (
        [shy("x", "spot"), shy("x", "old")],
        [shy("x", "dear"), shy("x", "old")],
        [tolerated("x", value="spot")],
    ),
    "spot nodes, by the same key without a value": (
        [shy("x")],
        [shy("x", "dear")],
        [{"key": "x", "operator": "Equal", "effect": "PreferNoSchedule"}],
    ),
    "on-demand nodes": ([Node("n")], [shy("x")], []),
    "those that it must not go to": ([shy("x", effect="NoSchedule"), shy("y", effect="NoExecute")], [], []),
    "those that are about to go": ([shy("leaving"), shy(names.DELETION_CANDIDATE, "1700000000")], [], []),
    "spot nodes by more than a pod can tolerate": (
        [shy(f"x{number:02}") for number in range(MOST_SHUNNED + 1)],
        [],
        [tolerated(f"x{number:02}") for number in range(MOST_SHUNNED)],
    ),
}


@pytest.mark.parametrize(("spot", "on_demand", "expected"), SHUNNED.values(), ids=SHUNNED.keys())
def test_soft_pods_tolerate_what_would_send_them_to_the_other_class(
    spot: list[Node], on_demand: list[Node], expected: list[dict[str, str]]
) -> None:
    """One untolerated PreferNoSchedule counts for more than any preference. The same the other way round."""
    there = shunned_by_class({Class.SPOT: spot, Class.ON_DEMAND: on_demand}, ("leaving",))
    assert list(there[Class.SPOT]) == expected
    back = shunned_by_class({Class.SPOT: on_demand, Class.ON_DEMAND: spot}, ("leaving",))
    assert list(back[Class.ON_DEMAND]) == expected


def test_only_soft_pods_need_such_tolerations() -> None:
    """Who requires a class goes there anyway, and rather to nodes that nobody shuns."""
    shunned = {Class.SPOT: (tolerated("s"),), Class.ON_DEMAND: (tolerated("o"),)}
    spot = Configuration().classes.tolerations
    led, unled = replace(ANYWHERE, shunned=shunned), replace(UNLED, shunned=shunned)
    given = [
        decide("id", slot, Case(revision(), (), cluster)).injection.tolerations
        for cluster in (led, unled)
        for slot in (0, 1)
    ]
    assert given == [(), spot, (*spot, tolerated("o")), (*spot, tolerated("s"))]


NODES = {"spot-1": Class.SPOT, "demand-1": Class.ON_DEMAND}
NAMING = {
    "a spot node by its name": ((NodeRequirement(names.NODE_NAME, "In", ("spot-1",)),), {Class.SPOT}),
    "an on-demand node by its host name": ((NodeRequirement(names.HOSTNAME, "In", ("demand-1",)),), {Class.ON_DEMAND}),
    "all but one": ((NodeRequirement(names.HOSTNAME, "NotIn", ("demand-1",)),), {Class.SPOT}),
    "one that is not there": ((NodeRequirement(names.HOSTNAME, "In", ("gone-1",)),), set(Class)),
    "none at all": ((NodeRequirement("arch", "In", ("arm64",)),), set(Class)),
}


@pytest.mark.parametrize(("term", "allowed"), NAMING.values(), ids=NAMING.keys())
def test_terms_that_name_nodes_leave_the_classes_of_those_nodes(term: NodeTerm, allowed: set[Class]) -> None:
    """A pod that may run on one node only must not be asked to run on the other class."""
    cluster = ClusterState(Configuration(), node_classes=NODES)
    assert allowed_classes((term,), cluster) == allowed
    other = (NodeRequirement("arch", "Exists"),)
    assert allowed_classes((term, other), cluster) == set(Class)
    for slot, placed in ((0, Class.ON_DEMAND), (1, Class.SPOT)):
        decision = decide("id", slot, Case(revision(), (term,), cluster))
        assert decision.placed == (placed if placed in allowed else None)


def test_a_selector_by_revision_is_not_said_twice() -> None:
    """The API server refuses a key that is in both the selector and matchLabelKeys."""
    selector = {"matchExpressions": [{"key": names.CONTROLLER_REVISION_HASH, "operator": "Exists"}]}
    decision = decide(
        "id", 0, Case(replace(revision(STATEFUL_SET), selector=selector), (), ClusterState(Configuration()))
    )
    assert all("matchLabelKeys" not in each for each in decision.injection.spread)


KARPENTER = Configuration(Classes((PRESETS["karpenter"],)))


def test_with_karpenter_no_pool_is_preferred() -> None:
    """It buys nodes by preferences: one in each zone that is preferred, and none in zones where spot was lost."""
    cluster = ClusterState(KARPENTER, (Pool("a", "m5"),))
    assert decide("id", 1, Case(revision(), (), cluster)).injection.preferred == ()
    out = decide("id", 1, Case(revision(), (), replace(cluster, out=frozenset({Class.SPOT})))).injection.preferred
    assert [(each.weight, [one.key for one in each.term]) for each in out] == [(100, ["karpenter.sh/capacity-type"])]


ASKED = (Spread("host", is_asked=True), Spread("zone", is_asked=True))
SKEWS: dict[str, tuple[Revision, ClusterState, list[int]]] = {
    "so many that they never bind": (revision(), ClusterState(KARPENTER), [20, 20]),
    "as many as there are replicas": (revision(workload(replicas=40)), ClusterState(KARPENTER), [40, 40]),
    "asked for: as many on a host as can be spared": (
        revision(policy=Policy(spread=ASKED)),
        ClusterState(KARPENTER),
        [2, 1],
    ),
    "asked for: one, where nobody can be spared": (
        revision(policy=Policy(spread=ASKED, min_available=Amount(10))),
        ClusterState(KARPENTER),
        [1, 1],
    ),
    "only one of them is asked for": (
        revision(policy=Policy(spread=(Spread("host"), Spread("zone", is_asked=True)))),
        ClusterState(KARPENTER),
        [20, 1],
    ),
    "hard ones are as strict as ever": (
        revision(policy=Policy(spread=(Spread("host", hard=True, is_asked=True),))),
        ClusterState(KARPENTER),
        [1],
    ),
    "one, where nobody buys nodes": (revision(), ANYWHERE, [1, 1]),
}


@pytest.mark.parametrize(("of", "cluster", "expected"), SKEWS.values(), ids=SKEWS.keys())
def test_with_karpenter_the_built_in_spread_buys_no_nodes(
    of: Revision, cluster: ClusterState, expected: list[int]
) -> None:
    """It takes soft rules for hard ones, and would buy a node in each zone. Host, then zone."""
    assert [each["maxSkew"] for each in decide("id", 1, Case(of, (), cluster)).injection.spread] == expected
