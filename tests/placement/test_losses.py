"""Nodes that are gone: what proves it, whom to bury first, and when it is an outage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement import names
from placement.availability import Basis
from placement.leavingtaints import LEAVING_TAINTS
from placement.model import Kind, Needs, Node, NodeRequirement, NodeTaint, Pod, Rollout
from placement.outage import Evidence, Outage, Outages, Shape, noted
from placement.plan.actions import Action, How, Why
from placement.plan.losses import BY, GoneNode, burials, left_behind, outages_of_loss, proof_of
from placement.plan.room import Room
from tests.builders.model import NEEDS, NOW, SPOT, node, pod
from tests.builders.plan import assessed, ground, group


@pytest.mark.parametrize(
    ("last_seen", "said", "is_proven"),
    [
        (node("n"), False, False),
        (node("n"), True, False),
        (node("n", ready=False), False, False),
        (node("n", ready=False), True, True),
        (node("n", unschedulable=True), False, False),
        (node("n", unschedulable=True), True, False),
        (node("n", deleting=True), False, False),
        (node("n", deleting=True, outlives_machine=True), False, True),
        (node("n", outlives_machine=True), False, False),
        (node("n", taints=(NodeTaint(LEAVING_TAINTS[0]),)), False, True),
        (node("n", taints=(NodeTaint("maintenance"),)), False, False),
    ],
    ids=[
        "deleted while ready",
        "an Event alone, which anybody may write",
        "not ready alone: it may come back",
        "not ready, and the cloud deleted it",
        "a mere cordon",
        "a cordon and an Event",
        "held by whatever finalizer",
        "held until its machine was gone",
        "that could have been",
        "with a termination taint",
        "with any other taint",
    ],
)
def test_what_proves_that_a_machine_is_gone(last_seen: Node, said: bool, is_proven: bool) -> None:
    assert bool(proof_of(last_seen, LEAVING_TAINTS, said)) is is_proven


NONE = Outages()
GONE = {"gone": GoneNode(node("gone", SPOT), SPOT, "proof")}
HERE = ground(node("here"))


def buried(**fields: object) -> list[str]:
    pods = [pod("p", 1, "gone"), pod("q", 0, "here")]
    found = assessed(group(pods, **fields), HERE)  # type: ignore[arg-type]
    return [action.pod.name for action in burials([found], GONE)]


@pytest.mark.parametrize(
    ("fields", "names_of"),
    [
        ({}, ["p"]),
        ({"annotations": {names.REPLACE_LOST_PODS: "kubernetes"}}, []),
        ({"annotations": {names.REBALANCE: "plan-only"}}, ["p"]),
        ({"annotations": {names.REBALANCE: "off"}}, []),
        ({"rollout": Rollout(recreate=True)}, ["p"]),
        ({"kind": Kind.STATEFUL_SET}, []),
        ({"kind": Kind.STATEFUL_SET, "annotations": {names.REPLACE_LOST_PODS: "fast"}}, ["p"]),
    ],
    ids=[
        "a Deployment",
        "left to Kubernetes",
        "plan-only",
        "off",
        "Recreate",
        "a StatefulSet",
        "a StatefulSet that asks for it",
    ],
)
def test_who_is_buried(fields: dict[str, object], names_of: list[str]) -> None:
    assert buried(**fields) == names_of


@pytest.mark.parametrize("terminating", [False, True])
def test_who_was_marked_as_failed_by_a_leader_that_died_is_deleted_and_asks_for_no_room(terminating: bool) -> None:
    """Also where the deletion itself was cut off."""
    failed = pod("p", 1, "gone", phase="Failed", ready=False, terminating=terminating)
    actions = burials([assessed(group([failed, pod("q", 0, "here")], replicas=1), HERE)], GONE)
    assert [action.pod.name for action in actions] == ["p"]
    assert list(left_behind(actions, Room(ground(), lambda _name: {}))) == []


def test_without_proof_or_with_volumes_nobody_is() -> None:
    found = assessed(group([pod("p", 1, "gone"), pod("v", 2, "gone", needs=replace(NEEDS, claims=("data",)))]), HERE)
    assert burials([found], {"gone": GoneNode(node("gone", SPOT), SPOT)}) == []
    assert [action.pod.name for action in burials([found], GONE)] == ["p"]


def test_the_neediest_come_first_in_turn() -> None:
    """One workload lacks two, another one: each pod that is buried brings its workload one nearer."""
    needy = group([pod(f"n{k}", k, "gone") for k in range(3)], needed=2, source=Basis.DECLARED)
    other = group([pod(f"o{k}", k, "gone") for k in range(2)], needed=1, source=Basis.DECLARED)
    order = [action.pod.name for action in burials([assessed(other, HERE), assessed(needy, HERE)], GONE)]
    assert order == ["n0", "o0", "n1", "o1", "n2"]


def test_a_loss_that_does_not_fit_is_an_outage_and_noted_once() -> None:
    pods = [pod(f"p{k}", k, "gone") for k in range(3)]
    buried = burials([assessed(group(pods), HERE)], GONE)

    def outages(known: Outages, cpu: int) -> list[Outage]:
        left = Room(ground(node("s", SPOT, cpu=cpu), node("o")), lambda _name: {})
        return list(outages_of_loss(left_behind(buried, left), left, known, NOW))

    evidence = Evidence("shop/p2", "Deployment shop/web")
    expected = Outage(SPOT, 0.0, shape=Shape(1000, 1024), by=BY, evidence=evidence)
    assert outages(Outages(), cpu=3000) == []
    assert outages(Outages(), cpu=2000) == [expected]
    assert outages(noted(Outages(), expected, NOW - 1), cpu=2000) == []


def bound_to(zone: str, name: str, cpu: int = 1000) -> Pod:
    terms = ((NodeRequirement(names.ZONE, "In", (zone,)),),)
    return pod(name, 1, "gone", required_terms=terms, needs=replace(NEEDS, requests={"cpu": cpu}))


def test_where_only_a_zone_is_short_the_outage_is_that_zones() -> None:
    """Room in b is none for pods that are bound to a; those that are bound to nothing find it."""
    lost = [bound_to("a", "large", 2000), bound_to("a", "small"), pod("p", 0, "gone")]
    buried = [Action(How.BURY, Why.LOST, None, each, SPOT) for each in lost]

    def outages(*nodes: Node, known: Outages = NONE) -> set[tuple[frozenset[str], Shape]]:
        left = Room(ground(*nodes, node("o")), lambda _name: {})
        found = outages_of_loss(left_behind(buried, left), left, known, NOW)
        return {(each.zones, each.shape) for each in found}

    in_a, large = (frozenset("a"), Shape(1000)), (frozenset("a"), Shape(2000))
    assert outages(node("s", SPOT, "b")) == {in_a, large}
    noted_in_a = noted(NONE, Outage(SPOT, 0.0, *in_a, by=BY), NOW - 1)
    assert outages(node("s", SPOT, "b"), known=noted_in_a) == set()
    assert outages(node("s", SPOT, "b"), node("t", SPOT, "a")) == set()
    assert outages() == {in_a, large, (frozenset(), Shape(1000, 1024))}


NO_WAY_OUT = {
    "its own selector says spot": (node("o"), replace(NEEDS, node_selector={names.CAPACITY: "spot"})),
    "the other class has no room": (node("o", cpu=500), NEEDS),
    "there is no node of the other class": (node("s", SPOT, cpu=500), NEEDS),
}


@pytest.mark.parametrize(("there", "needs"), NO_WAY_OUT.values(), ids=NO_WAY_OUT.keys())
def test_a_pod_that_would_not_fit_on_the_other_class_is_no_evidence(there: Node, needs: Needs) -> None:
    lost = [Action(How.BURY, Why.LOST, None, pod("p", 0, "gone", needs=needs), SPOT)]
    assert list(left_behind(lost, Room(ground(there), lambda _name: {}))) == []
