"""Released pods that no workload of ours answers for: how each of them ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement import names
from placement.model import Owner, Pod, Workload
from placement.plan.annotate import LEAVES_FIRST
from placement.plan.release import LeftBehind, ends_of, was_of
from tests.builders.model import DEPLOYMENT, pod
from tests.builders.plan import group
from tests.placement.test_assess import let_go
from tests.report.test_residue import SET

OLD = let_go("old", 1, "o")
ORPHAN = replace(OLD, owner=None)
WEB: Workload = group([], 2).workload
TWO, ALONE = replace(SET, replicas=2), replace(SET, replicas=2, owner=None)
ZERO, NEW, MORE = pod("zero", 0, "o"), pod("new", 1), pod("more", 2, "o")
GONE = replace(SET, replicas=0, owner=None)
ENDS: dict[str, tuple[LeftBehind, list[str]]] = {
    "orphaned, and wanted": (LeftBehind(ORPHAN, ALONE, (ZERO,)), ["undo old"]),
    "orphaned, and its newcomer is there": (LeftBehind(ORPHAN, ALONE, (ZERO, NEW)), ["annotate new", "undo old"]),
    "orphaned, and one too many": (LeftBehind(ORPHAN, ALONE, (ZERO, NEW, MORE)), ["finish old"]),
    "orphaned, and none are wanted": (LeftBehind(ORPHAN, GONE), ["delete old"]),
    "nothing is left of its workload": (LeftBehind(ORPHAN, None), ["delete old"]),
    "the same, where nothing may be touched": (LeftBehind(ORPHAN, None, may_evict=False), []),
    "opted out, and wanted": (LeftBehind(OLD, TWO, (ZERO, NEW), WEB), ["annotate new", "undo old"]),
    "opted out, and scaled to 0": (LeftBehind(OLD, None, workload=replace(WEB, replicas=0)), ["delete old"]),
    "opted out and rolled out, and too few serve": (LeftBehind(OLD, None, workload=WEB, serving=(ZERO,)), []),
    "opted out and rolled out": (LeftBehind(OLD, None, workload=WEB, serving=(ZERO, MORE)), ["finish old"]),
    "its namespace opted out, and rolled out": (
        LeftBehind(OLD, None, workload=WEB, serving=(ZERO, MORE), may_evict=False),
        ["delete old"],
    ),
    "rolled out, and all serve": (
        LeftBehind(OLD, None, workload=WEB, serving=(ZERO, MORE), is_ours=True),
        ["finish old"],
    ),
    "its Deployment let go of its ReplicaSet": (LeftBehind(OLD, ALONE, (ZERO,), WEB, (), is_ours=True), []),
    "the same, and all others serve": (
        LeftBehind(OLD, ALONE, (ZERO,), WEB, (ZERO, MORE), is_ours=True),
        ["finish old"],
    ),
}


@pytest.mark.parametrize(("left", "expected"), ENDS.values(), ids=ENDS.keys())
def test_what_is_left_behind_goes_back_or_goes(left: LeftBehind, expected: list[str]) -> None:
    """In every mode. Nothing goes back to a ReplicaSet that would delete it, and nothing goes before enough serve."""
    actions = list(ends_of(left))
    assert [f"{action.how} {action.pod.name}" for action in actions] == expected
    assert all(action.in_every_mode for action in actions)


def test_what_goes_back_is_its_replica_sets_again_and_the_newcomer_leaves_first() -> None:
    mark, back = ends_of(LeftBehind(ORPHAN, ALONE, (ZERO, NEW)))
    assert mark.annotations == {names.DELETION_COST: LEAVES_FIRST}
    assert back.owner == Owner("ReplicaSet", "web-h", "rs")
    assert (back.labels, back.annotations) == ({names.POD_TEMPLATE_HASH: "h"}, {names.RELEASED: None})


WHOSE: dict[str, tuple[Pod, bool]] = {
    "its Deployment's": (OLD, True),
    "nothing's": (ORPHAN, True),
    "still its ReplicaSet's": (replace(OLD, owner=Owner("ReplicaSet", "web-h", "rs")), True),
    "another Deployment's": (replace(OLD, owner=replace(DEPLOYMENT, uid="e")), False),
    "in another namespace": (replace(OLD, namespace="other"), False),
}


@pytest.mark.parametrize(("old", "expected"), WHOSE.values(), ids=WHOSE.keys())
def test_a_released_pod_was_of_the_replica_set_whose_deployment_owns_it(old: Pod, expected: bool) -> None:
    assert was_of(old, SET) is expected
