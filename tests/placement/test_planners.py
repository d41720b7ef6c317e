"""The planners: they share one room and one set of limits, in order; and one more of them is one more entry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from placement import names
from placement.configuration import Configuration, parse_configuration
from placement.model import Class, Node, NodeTaint, Owner, Pod
from placement.plan import select
from placement.plan.actions import Action, Blocked, How, Why
from placement.plan.assess import Assessment
from placement.plan.begin import spared_seconds
from placement.plan.draft import Draft
from placement.plan.ground import Ground, site_of
from placement.plan.interruption import is_announced, is_interruption, is_taken
from placement.plan.limits import MoveLimits
from placement.plan.scene import Scene
from tests.builders.model import NOW, ON_DEMAND, SPOT, node, pod
from tests.builders.plan import assessed, ground, group

# Slot 1 is spot, and its pod is on on-demand: it is to be moved. There is room for one pod on spot.
HERE = ground(node("o", ON_DEMAND, cpu=8000), node("s", SPOT, cpu=1000))
MISPLACED = [pod("zero", 0, "o"), pod("one", 1, "o")]


def found(on: Ground = HERE) -> Assessment:
    return assessed(group(MISPLACED, 2, {names.SPOT_RATIO: "50%"}), on)


def scene_of(*assessments: Assessment, on: Ground = HERE) -> Scene:
    return Scene(assessments, on, lambda _node: {}, NOW)


def test_a_move_takes_the_room_that_is_there() -> None:
    made = select.plan(scene_of(found()))
    assert [(each.how, each.pod.name, each.to) for each in made.actions] == [(How.RELEASE, "one", SPOT)]


def test_a_planner_before_it_takes_the_room_and_its_actions_come_first() -> None:
    """As gangs will: one more entry in the tuple. What it has taken, no planner after it gets."""
    first, second = pod("first", None), pod("second", None)

    def plan_first(draft: Draft) -> Iterator[Action]:
        assert draft.room.take(first, SPOT) == "s"
        yield Action(How.REPLACE, Why.STUCK, None, first)

    def plan_second(draft: Draft) -> Iterator[Action]:
        assert draft.room.take(second, SPOT) is None
        yield from ()

    made = select.plan(scene_of(found()), (plan_first, plan_second, *select.PLANNERS))
    assert [each.pod.name for each in made.actions] == ["first", "one"]  # a release proves its place itself


KARPENTERS = replace(node("s", SPOT), deleting=True, outlives_machine=True, taints=(NodeTaint(names.DISRUPTED),))


@pytest.mark.parametrize(
    ("there", "written", "ready", "grace", "expected"),
    [
        pytest.param(KARPENTERS, {}, True, 20, 190, id="ready since 100 s, 90 s from now on"),
        pytest.param(KARPENTERS, {}, True, 60, 160, id="its node ends in 120 s, and the pod takes 60 s to end"),
        pytest.param(KARPENTERS, {}, True, 150, 0, id="its node ends too soon"),
        pytest.param(KARPENTERS, {names.EVICTION_HOLD: "off"}, True, 20, 0, id="nothing is held"),
        pytest.param(KARPENTERS, {}, False, 20, 0, id="it does not serve"),
        pytest.param(replace(KARPENTERS, outlives_machine=False), {}, True, 20, 0, id="not Karpenter's node"),
        pytest.param(replace(KARPENTERS, deleting=False), {}, True, 20, 0, id="Karpenter waits for the new node"),
    ],
)
def test_karpenter_spares_what_is_released_for_no_longer_than_it_may_be_held(
    there: Node, written: dict[str, str], ready: bool, grace: int, expected: int
) -> None:
    """It counts from the start of the pod, which was before it became ready."""
    old = pod("old", 1, "s", ready=ready, changed=NOW - 100, created=NOW - 120)
    old = replace(old, needs=replace(old.needs, grace_seconds=grace))
    policy = group([old], 1, written).policy
    assert spared_seconds(old, site_of(there, Configuration()), policy, Configuration(), NOW) == expected


@pytest.mark.parametrize(("changed", "expected"), [(0.0, 0), (NOW - 1e9, 210), (NOW + 1000, 0)])
def test_karpenter_spares_no_pod_for_ever(changed: float, expected: int) -> None:
    """When it became ready is unknown, or forged: before it was created, or in the future."""
    old = pod("old", 1, "s", ready=True, changed=changed, created=NOW - 120)
    old = replace(old, needs=replace(old.needs, grace_seconds=20))
    found = spared_seconds(old, site_of(KARPENTERS, Configuration()), group([old], 1).policy, Configuration(), NOW)
    assert max(found, 0) == expected


def test_planners_that_are_mixed_act_in_the_order_of_reasons() -> None:
    slot = Action(How.ANNOTATE, Why.SLOT, None, pod("a", 0))
    floor = Action(How.RELEASE, Why.FLOOR, None, pod("b", 1))
    mixed = select.by_reason(lambda _draft: [slot], lambda _draft: [floor])
    assert list(mixed(Draft(scene_of()))) == [floor, slot]


def test_what_is_promised_counts_at_once() -> None:
    """One move of a workload at a time: the second is refused, whichever planner asks."""
    (wish,) = found().wishes
    limits = MoveLimits(scene_of(found()))
    assert limits.refusal(wish) is None
    assert not limits.is_moving(wish.group.workload.uid)
    limits.promise(wish)
    assert limits.refusal(wish) is Blocked.PER_WORKLOAD
    assert limits.is_moving(wish.group.workload.uid)
    assert limits.is_trying("shop")
    assert not limits.is_trying("elsewhere")


TAINTS = ("cloud.google.com/impending-node-termination", "ToBeDeletedByClusterAutoscaler")


@pytest.mark.parametrize(
    ("there", "proof", "expected"),
    [
        (Node("n"), "proof", True),
        (Node("n"), "", False),
        (Node("n", unschedulable=True), "proof", False),
        (Node("n", deleting=True), "proof", False),
        (Node("n", taints=(NodeTaint(TAINTS[1]),)), "proof", False),
    ],
    ids=["gone, with proof", "without", "it was cordoned", "it was deleted by hand", "it was scaled down"],
)
def test_a_node_is_taken_without_a_notice(there: Node, proof: str, expected: bool) -> None:
    assert is_taken(there, TAINTS, proof) is expected


def test_a_scale_down_announces_no_interruption() -> None:
    assert is_announced(Node("n", taints=(NodeTaint(TAINTS[0]),)), Configuration())
    assert not is_announced(Node("n", taints=(NodeTaint(TAINTS[1]),)), Configuration())


@pytest.mark.parametrize("when", ["tainted", "deleting"])
def test_karpenters_taint_alone_announces_no_interruption(when: str) -> None:
    """Whatever pods are to do when they see it: consolidation begins with it, too."""
    configuration = parse_configuration({"leavingTaints": [{"key": names.DISRUPTED, "when": when}]})
    there = node("s", SPOT, taints=(NodeTaint(names.DISRUPTED),))
    assert not is_announced(there, configuration)
    assert is_announced(replace(there, deleting=True), configuration)
    assert configuration.notice_seconds(there) is None
    assert configuration.is_leaving(there) is (when == "tainted")
    assert site_of(there, configuration).is_leaving is (when == "tainted")


@pytest.mark.parametrize(
    ("of", "pods", "expected"),
    [
        (SPOT, [pod("p", 0, "n")], True),
        (SPOT, [], False),
        (SPOT, [pod("p", 0, "n", phase="Succeeded")], False),
        (SPOT, [Pod("kube-system", "agent", owner=Owner("DaemonSet", "agent", "u"), node="n", phase="Running")], False),
        (ON_DEMAND, [pod("p", 0, "n")], False),
    ],
    ids=["in use", "empty", "all finished", "only what every node has", "on-demand"],
)
def test_only_spot_nodes_that_are_in_use_are_interrupted(of: Class, pods: list[Pod], expected: bool) -> None:
    assert is_interruption(node("n", of), pods, Configuration().classes) is expected
