"""What one tenant writes neither softens, blocks nor slows another; what helps nobody is not tried for ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from placement import names
from placement.model import HostPort, Needs, NodeRequirement, PodTerm
from placement.outage import (
    LONGEST_TERMS,
    MOST_NOTED,
    MOST_OF_NAMESPACE,
    Demand,
    Outage,
    Outages,
    Shape,
    noted,
    outages_text,
    without_zones,
)
from placement.plan.actions import Blocked, How, Plan, Why
from placement.plan.assess import stranded
from placement.plan.group import Group
from placement.plan.losses import BY, outages_of_loss
from placement.plan.room import Room
from placement.plan.scene import Scene
from placement.plan.select import plan
from placement.plan.stuck import MOST_TESTS
from tests.builders.model import NEEDS, NOW, ON_DEMAND, SPOT, node, pod, workload
from tests.builders.plan import assessed, ground, group

NODES = (node("o", ON_DEMAND, cpu=64_000), node("s", SPOT, cpu=64_000))


def stuck(name: str = "stuck", namespace: str = "shop", waited: float = 600, **fields: Any) -> Group:
    """A workload of which one pod waits for spot."""
    terms = ground().configuration.classes.terms(SPOT)
    told = {"unschedulable": "no room", "created": NOW - waited, "changed": NOW - waited, **fields}
    waits = pod(name, 2, **{"required_terms": terms, **told})
    found = group([pod("x", 0, "o"), pod("y", 1, "s"), waits])
    pods = tuple(replace(each, namespace=namespace) for each in found.cohorts[0].pods)
    workload = replace(found.workload, namespace=namespace, uid=f"{namespace}/{name}")
    return replace(found, workload=workload, cohorts=(replace(found.cohorts[0], pods=pods),))


def planned(*groups: Group, nodes: Any = NODES, now: float = NOW, **scene: Any) -> Plan:
    on = ground(*nodes)
    return plan(Scene([assessed(each, on, now) for each in groups], on, lambda _name: {}, now, **scene))


def requirement(index: int) -> NodeRequirement:
    return NodeRequirement(f"example.com/{'k' * 40}-{index}", "NotIn", ("v" * 60,))


def test_notes_of_one_namespace_stay_few_and_push_no_other_out() -> None:
    """Ten are kept apart; the next stands for all pods of the namespace. Notes for all namespaces stay."""
    known = noted(Outages(), Outage(SPOT, 0.0, frozenset("a")), NOW)
    for index in range(1000):
        terms = without_zones(((requirement(index),),))
        known = noted(known, Outage(SPOT, 0.0, shape=Shape(index), by=BY, namespace="evil", terms=terms), NOW)
    own = [each for each in known.noted if each.namespace]
    assert len(own) == MOST_OF_NAMESPACE + 1
    assert own[-1].is_whole
    for index in range(2 * MOST_NOTED):
        known = noted(known, Outage(SPOT, 0.0, by=BY, namespace=f"n{index}"), NOW)
    assert len([each for each in known.noted if each.namespace]) == MOST_NOTED
    assert [each.by for each in known.noted if not each.namespace] == ["operator"]
    assert len(outages_text(known)) < 2**20 // 2


def test_terms_that_are_too_long_to_note_count_as_none() -> None:
    assert without_zones((tuple(requirement(index) for index in range(LONGEST_TERMS // 60)),)) == ()
    assert without_zones(((requirement(0),),)) == ((requirement(0),),)


SHORT: dict[str, tuple[Needs, str]] = {
    "CPU alone: for all": (replace(NEEDS, requests={"cpu": 8000}), ""),
    "a device: for its namespace": (replace(NEEDS, requests={"cpu": 10, "example.com/gpu": 1}), "shop"),
    "distance: for its namespace": (
        replace(NEEDS, anti_affinity=(PodTerm(names.HOSTNAME, (NodeRequirement("app", "In", ("web",)),)),)),
        "shop",
    ),
    "a port: for its namespace": (replace(NEEDS, host_ports=(HostPort(80),), requests={"cpu": 8000}), "shop"),
}


@pytest.mark.parametrize(("needs", "namespace"), SHORT.values(), ids=SHORT.keys())
def test_a_lost_pod_speaks_for_others_only_by_how_much_it_asks_for(needs: Needs, namespace: str) -> None:
    room = Room(ground(*NODES), lambda _name: {})
    (found,) = outages_of_loss([(SPOT, pod("p", 0, "gone", needs=needs), None)], room, Outages(), NOW)
    assert found.namespace == namespace


def test_a_pod_that_no_note_helps_is_not_evicted_for_ever() -> None:
    """A webhook after ours adds a node selector: first the note is widened to all of the namespace, then it is left."""
    selector = replace(NEEDS, node_selector={names.ZONE: "a"})
    out = noted(Outages(), Outage(SPOT, 0.0, frozenset("a"), by=BY, namespace="shop"), NOW - 60)
    (wider,) = planned(stuck(waited=20, needs=selector), outages=out).outages
    assert (wider.namespace, wider.is_whole) == ("shop", True)
    out = noted(out, wider, NOW - 30)
    made = planned(stuck(waited=20, needs=selector), outages=out)
    assert (made.actions, made.outages) == ((), ())
    assert Blocked.REFUSED in {each.blocked for each in made.skipped}


def test_hopeless_pods_of_one_namespace_cost_few_fit_tests_and_delay_no_other() -> None:
    """Each of its thousand kinds would be looked for on every node; all of them have their turn in time."""
    evil = [
        stuck(f"e{n}", "evil", needs=replace(NEEDS, node_selector={"disk": f"typo-{n}"})) for n in range(3 * MOST_TESTS)
    ]
    made = planned(*evil, stuck())
    assert [each.namespace for each in made.outages] == ["shop"]
    hidden = [*evil, stuck("good", "evil")]
    noted_at = [second for second in range(40) if planned(*hidden, now=NOW + second).outages]
    assert noted_at


def test_an_opted_out_workloads_pods_are_freed_and_nothing_else_is_done() -> None:
    """They require a class, though the workload is none of ours any more."""
    on = ground(*NODES)
    found = stranded(stuck(), on, NOW)
    assert found is not None
    made = plan(Scene([found], on, lambda _name: {}, NOW))
    assert [(action.how, action.pod.name) for action in made.actions] == [(How.REPLACE, "stuck")]
    assert stranded(group([pod("x", 0, "o"), pod("y", 1, "o")]), on, NOW) is None


def test_a_pod_whose_decision_names_a_former_owner_is_freed_too() -> None:
    """`--cascade=orphan` and a new owner of the same name."""
    made = planned(stuck(decision="gone/d-1"))
    assert [each.namespace for each in made.outages] == ["shop"]


def test_pods_that_never_finish_terminating_count_for_their_workload_alone() -> None:
    slow = [pod(f"t{n}", n, "o", terminating=True) for n in range(100)]
    evil = replace(group(slow), workload=replace(group(slow).workload, namespace="evil", uid="evil"))
    below = group([pod(f"p{slot}", slot, "s") for slot in range(10)], annotations={names.MIN_ON_DEMAND: "3"})
    assert {action.why for action in planned(evil, below).actions} == {Why.FLOOR}


def test_a_forged_back_off_counts_for_no_breaker() -> None:
    forged = {names.UNDONE: "1/9999-01-01T00:00:00Z"}
    pods = [pod(f"p{slot}", slot, "o", annotations=forged if slot == 0 else {}) for slot in range(10)]
    many = [replace(group(pods), workload=workload(uid=f"w{n}")) for n in range(9)]
    made = planned(*many)
    assert Blocked.BREAKER not in {each.blocked for each in made.skipped}


def test_an_outage_for_arm_does_not_end_by_room_on_others() -> None:
    """Its pods run on on-demand meanwhile."""
    arm = ((NodeRequirement("arch", "In", ("arm64",)),),)
    out = noted(Outages(), Outage(SPOT, 0.0, by=BY, namespace="shop", terms=arm), NOW - 60)
    soft: dict[str, Any] = {"labels": {names.CLASS: "spot"}, "annotations": {names.SOFT: "true"}}
    needs = replace(NEEDS, node_selector={"arch": "arm64"})
    web = group([pod("x", 0, "o"), pod("y", 1, "o", needs=needs, **soft)])
    assert planned(web, outages=out).ended == ()
    there = replace(node("t", SPOT), labels={**node("t", SPOT).labels, "arch": "arm64"})
    assert planned(web, outages=out, nodes=(*NODES, there)).ended == out.noted


def test_a_demand_of_another_namespace_is_not_covered() -> None:
    outage = Outage(SPOT, 0.0, namespace="shop")
    assert [outage.covers(Demand(name)) for name in ("shop", "bank")] == [True, False]
