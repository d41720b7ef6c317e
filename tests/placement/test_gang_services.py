"""Services make room for gangs, as far as they can spare replicas; held to brute force on small clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, combinations
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from placement import names
from placement.gang.candidate import Allowance, WhyNot
from placement.gang.clearing import Clearing
from placement.gang.services import of_services, spare
from placement.gang.victims import NoVictims, Victims, choose
from placement.model import Class, Kind, Pod
from placement.plan.assess import Assessment
from tests.builders.model import NOW, node, pod
from tests.builders.plan import assessed, ground, group
from tests.examples import examples
from tests.placement.test_victims import claimant, needs, room, rules

NODES = tuple(
    replace(node(name, of, "a", cpu=8000), taints=()) for name, of in (("s", Class.SPOT), ("o", Class.ON_DEMAND))
)
OF = {"s": Class.SPOT, "o": Class.ON_DEMAND}
ASKED = needs(1000)


def replica(number: int, where: str, *, ready: bool = True, **fields: Any) -> Pod:
    made = pod(f"web-{number}", number, where, needs=ASKED, ready=ready)
    return replace(made, **{"created": NOW - 3600, **fields})


def service(
    spot: int, on_demand: int, needed: int, floor: int = 0, unready: int = 0, **more: Any
) -> tuple[Assessment, list[Pod]]:
    """A workload with so many replicas that serve; of the unready ones, each has a node."""
    where = ["s"] * spot + ["o"] * on_demand + ["s"] * unready
    pods = [replica(number, each, ready=number < spot + on_demand) for number, each in enumerate(where)]
    written = {names.MIN_ON_DEMAND: str(floor), **more.pop("annotations", {})}
    return assessed(group(pods, annotations=written, needed=needed, **more), ground(*NODES)), pods


def left(found: Assessment, of: Class) -> list[int]:
    return [each.left for each in spare(found, of)]


def test_what_can_be_spared_is_above_min_available_and_the_floor() -> None:
    """The example of the module: 6 + 4 serve, 8 must, 3 of them on on-demand."""
    found, _ = service(6, 4, 8, 3)
    name = "Deployment shop/web"
    assert spare(found, Class.SPOT) == (Allowance(WhyNot.SPARE, name, 2),)
    assert spare(found, Class.ON_DEMAND) == (
        Allowance(WhyNot.SPARE, name, 2),
        Allowance(WhyNot.SPARE, f"{name} on on-demand", 1),
    )
    assert left(service(5, 4, 8, 3, unready=1)[0], Class.SPOT) == [1]


@pytest.mark.parametrize(
    "change",
    [
        {"settled": False},
        {"replicas": 11},
    ],
    ids=["its controller is behind", "it wants more pods"],
)
def test_a_workload_that_is_not_at_rest_spares_none(change: dict[str, Any]) -> None:
    """Unless that is because its own victims go."""
    found, _ = service(6, 4, 8, 3)
    cohort = replace(found.group.cohorts[0], settled=False)
    web = replace(found.group.workload, **change)
    moving = replace(found, group=replace(found.group, workload=web, cohorts=(cohort,)))
    assert left(moving, Class.SPOT) == [0]
    assert [each.left for each in spare(moving, Class.SPOT, has_begun=True)] == [2]


@pytest.mark.parametrize(
    ("more", "is_preemptible"),
    [
        ({}, True),
        ({"annotations": {names.REBALANCE: "off"}}, False),
        ({"annotations": {names.REBALANCE: "plan-only"}}, False),
        ({"kind": Kind.STATEFUL_SET}, True),
        ({"kind": Kind.STATEFUL_SET, "ordered": True}, False),
    ],
)
def test_whose_pods_may_go_at_all(more: dict[str, Any], is_preemptible: bool) -> None:
    """Not where the policy forbids moves, nor where one pod that waits holds up all others."""
    found, pods = service(2, 0, 1, **more)
    assert [each.is_preemptible for each in of_services([found], claimant(1000))] == [is_preemptible] * len(pods)


def test_an_injected_priority_does_not_make_a_pod_prey() -> None:
    """One pod got the class for what is more than needed (-5). What its siblings have counts: 7."""
    _found, pods = service(2, 0, 1)
    low, usual = replace(ASKED, priority=-5), replace(ASKED, priority=7)
    made = [replace(pods[0], needs=low), replace(pods[1], needs=usual)]
    again = assessed(group(made, needed=1), ground(*NODES))
    assert {(each.priority, each.spec_priority) for each in of_services([again], claimant(1000))} == {(7, 7)}


@examples(150)
@given(
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 2),
    st.integers(0, 8),
    st.integers(0, 4),
    st.integers(1, 5),
    st.integers(0, 9),
)
def test_no_service_is_taken_below_what_must_serve(
    spot: int, on_demand: int, unready: int, needed: int, floor: int, members: int, evictions: int
) -> None:
    """Enough serve afterwards, in all and on on-demand; where nothing goes, no allowed set would do."""
    found, pods = service(spot, on_demand, needed, floor, unready)
    nodes = [replace(each, allocatable={**each.allocatable, "cpu": 1000 * _on(pods, each.name)}) for each in NODES]
    asking = claimant(*[1000] * members)
    said = rules(
        nodes,
        spare=lambda each: spare(found, OF[each.node]),
        evictions=lambda _namespace: evictions,
        evictions_in_all=evictions,
    )
    chosen = choose(asking, list(of_services([found], asking)), Clearing(room(nodes, pods), asking.pods), said)
    serving = [each for each in pods if each.ready]
    allowed = [
        gone
        for gone in chain.from_iterable(combinations(serving, count) for count in range(len(serving) + 1))
        if len(gone) <= evictions and _enough(serving, gone, needed, floor)
    ]
    if isinstance(chosen, NoVictims):
        event(f"none: {chosen.why.name}")
        assert not any(len(gone) >= members for gone in allowed)
        return
    assert isinstance(chosen, Victims)
    event(f"{len(chosen.pods)} go")
    assert len(chosen.pods) == members
    assert _enough(serving, chosen.pods, needed, floor)


def _on(pods: Sequence[Pod], name: str) -> int:
    return sum(each.node == name for each in pods)


def _enough(serving: Sequence[Pod], gone: Sequence[Pod], needed: int, floor: int) -> bool:
    stays = [each for each in serving if each not in gone]
    gone_on_demand = _on(gone, "o")
    return (not gone or len(stays) >= needed) and (not gone_on_demand or _on(stays, "o") >= floor)
