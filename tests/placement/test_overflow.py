"""Pods that keep the low priority of an outage, on the class where they belong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from placement import names
from placement.configuration import Configuration, PriorityRoles
from placement.model import Kind, Pod, Rollout, Template
from placement.outage import Outage, Outages, noted
from placement.plan.actions import Blocked, How, Plan, Why
from placement.plan.ground import Ground
from placement.plan.group import Group
from placement.plan.losses import BY
from placement.plan.marks import Moved, Released
from placement.plan.scene import Scene
from placement.plan.select import plan
from tests.builders.model import NEEDS, NOW, SPOT, node, owned_by_deployment, pod
from tests.builders.plan import assessed, ground, group

LOW = replace(NEEDS, priority_class=names.OVERFLOW_PRIORITY, priority=-5)
SOFT = {names.SOFT: "true"}
HERE = ground(node("o", cpu=64_000), node("s", SPOT, cpu=64_000))
FULL = ground(node("o", cpu=64_000), node("s", SPOT, cpu=2000))
ZERO, ONE = pod("zero", 0, "o"), pod("one", 1, "s")


def overflowing(where: str = "s", **fields: Any) -> Pod:
    """Slot 2 of three at 70 % is spot, and was admitted as overflow."""
    annotations = {**SOFT, **fields.pop("annotations", {})}
    return pod("low", 2, where, annotations=annotations, **{"needs": LOW, **fields})


def stateful() -> Group:
    pods = [replace(each, name=f"db-{index}") for index, each in enumerate((ZERO, ONE, overflowing()))]
    return group(pods, kind=Kind.STATEFUL_SET)


def planned(found: Group, on: Ground = HERE, outages: Outages | None = None, used: int = 0) -> Plan:
    taken = {"cpu": used, "memory": 0, "pods": 1}
    return plan(Scene([assessed(found, on)], on, lambda _name: taken, NOW, outages or Outages()))


def test_it_is_replaced_by_an_ordinary_move_within_its_class() -> None:
    """Release first. Nothing is wrong with its place."""
    (action,) = planned(group([ZERO, ONE, overflowing()])).actions
    assert (action.how, action.why, action.pod.name, action.to) == (How.RELEASE, Why.OVERFLOW, "low", SPOT)
    (wish,) = assessed(group([ZERO, ONE, overflowing()], annotations={names.REBALANCE: "plan-only"}), HERE).wishes
    assert wish.explain() == "low should run at its own priority (overflow): rebalance is plan-only"


@pytest.mark.parametrize(
    "found",
    [
        group([ZERO, ONE, pod("low", 2, "s", needs=LOW)]),
        group([ZERO, ONE, overflowing(needs=NEEDS)]),
        group([ZERO, ONE, overflowing(needs=replace(NEEDS, priority_class="team"))]),
        stateful(),
        group([ZERO, ONE, overflowing()], rollout=Rollout(max_surge=0)),
        group([ZERO, ONE, overflowing(needs=replace(LOW, claims=("data",)))]),
    ],
    ids=[
        "it was not admitted soft: the class is everybody's default",
        "soft, at its own priority",
        "soft, with another class",
        "a StatefulSet's",
        "no second pod may run beside it",
        "it has claims",
    ],
)
def test_who_is_left_alone(found: Group) -> None:
    """Nothing is evicted for that, and nothing is reported."""
    assert assessed(found, HERE).wishes == ()


def test_a_class_that_the_owner_names_is_the_owners() -> None:
    found = group([ZERO, ONE, overflowing()])
    template = Template(priority_class=names.OVERFLOW_PRIORITY)
    assert assessed(replace(found, workload=replace(found.workload, template=template)), HERE).wishes == ()


@pytest.mark.parametrize(
    ("roles", "wishes"),
    [
        (PriorityRoles(), 1),
        (PriorityRoles(spot="team"), 1),
        (PriorityRoles(overflow=""), 0),
        (PriorityRoles(overflow="other"), 0),
        (PriorityRoles(spot=names.OVERFLOW_PRIORITY), 0),
    ],
    ids=["built in", "spot has its own", "none", "another", "spot has the same: a replacement would get it, too"],
)
def test_the_class_of_overflow_is_the_configured_one(roles: PriorityRoles, wishes: int) -> None:
    on = replace(HERE, configuration=Configuration(priority_roles=roles))
    assert len(assessed(group([ZERO, ONE, overflowing()]), on).wishes) == wishes


def test_on_the_other_class_it_returns_as_ever() -> None:
    (wish,) = assessed(group([ZERO, ONE, overflowing("o")]), HERE).wishes
    assert wish.why is Why.RETURN


def test_it_waits_for_the_end_of_the_outage_and_for_room() -> None:
    """Without room its replacement would preempt the very pod that it is to replace."""
    found = group([ZERO, ONE, overflowing()])
    out = noted(Outages(), Outage(SPOT, 0.0, by=BY), NOW - 5)
    assert {each.blocked for each in planned(found, outages=out).skipped} == {Blocked.OUTAGE}
    assert {each.blocked for each in planned(found, FULL, used=2000).skipped} == {Blocked.NO_PLACE}
    assert len(planned(found, FULL, used=1000).actions) == 1


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (pod("new", 2, "s"), ["annotate new"]),
        (pod("new", 2, "s", annotations={names.MOVED: Moved("spot", "7of10min1", NOW).text()}), ["finish old"]),
        (pod("new", 2, "s", ready=False), []),
        (pod("new", 2, "o"), ["annotate new", "undo old"]),
        (pod("new", 2, "s", annotations=SOFT, needs=LOW), ["annotate new", "undo old"]),
    ],
    ids=[
        "it serves where the old one was",
        "and is marked",
        "it does not serve yet",
        "it came out on the other class",
        "it is overflow again: spot went out meanwhile",
    ],
)
def test_its_replacement_may_be_where_it_was(new: Pod, expected: list[str]) -> None:
    let_go = {names.RELEASED: Released(NOW + 60, "h").text()}
    old = owned_by_deployment(replace(overflowing(annotations=let_go), name="old", uid="old"))
    found = assessed(group([ZERO, ONE, old, new], 3), HERE)
    assert [f"{action.how} {action.pod.name}" for action in found.sweeps] == expected
