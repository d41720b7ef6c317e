"""What is left of us where nobody wants us any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from placement import names
from placement.configuration import Configuration
from placement.model import Class, Namespace, Owner, Pod, ReplicaSet, Snapshot, Template
from report.residue import has_our_affinity, left_over, put_back, remnants
from tests.builders.model import namespace, pod, replica_set

CLASSES = Configuration().classes
HERE, THERE = namespace(), Namespace("left")


def found(*pods: Pod) -> dict[str, Class | None]:
    snapshot = Snapshot({each.name: each for each in (HERE, THERE)}, pods=pods)
    return {each.pod.name: each.requires for each in left_over(snapshot, CLASSES)}


def test_pods_where_the_label_is_gone_are_told_with_the_class_that_they_still_require() -> None:
    placed = replace(pod("placed", 1), namespace="left", required_terms=CLASSES.terms(Class.SPOT))
    assert found(placed, replace(placed, name="wanted", namespace="shop")) == {"placed": Class.SPOT}


def test_whose_namespace_is_not_known_is_told() -> None:
    assert found(replace(pod("stray", 1), namespace="gone")) == {"stray": None}


def test_what_people_wrote_themselves_is_theirs() -> None:
    theirs = Pod("left", "theirs", "u", labels={names.PLACEMENT: "disabled"}, required_terms=CLASSES.terms(Class.SPOT))
    assert found(theirs) == {}


def test_a_label_or_a_released_pod_is_told() -> None:
    labelled = Pod("left", "labelled", "u", labels={names.CLASS: "spot"})
    released = replace(pod("released", 1, annotations={names.RELEASED: "2026-11-16T00:00:00Z/h"}), namespace="left")
    snapshot = Snapshot({"left": THERE}, pods=(released, labelled))
    first, second = left_over(snapshot, CLASSES)
    assert first.raw == {
        "namespace": "left",
        "pod": "labelled",
        "uid": "u",
        "node": None,
        "requires": None,
        "released": False,
        "labels": [names.CLASS],
        "annotations": [],
    }
    assert second.is_released


UNTIL = {names.RELEASED: "2026-11-16T00:00:00Z/h"}
LET_GO = {"app": "web", names.POD_TEMPLATE_HASH: "released-h"}
SET = replica_set("web-h", replicas=1)


@pytest.mark.parametrize(
    ("fields", "sets", "expected"),
    [
        ({}, (SET,), ["h"]),
        ({}, (), [""]),
        ({}, (replace(SET, namespace="other"),), [""]),
        ({}, (replace(SET, replicas=0),), [""]),
        ({"owner": Owner("Deployment", "web", "d")}, (SET,), ["h"]),
        ({"owner": Owner("Deployment", "other", "e")}, (SET,), [""]),
        ({"owner": Owner("Job", "j", "j")}, (SET,), []),
        ({"labels": {"app": "web", names.POD_TEMPLATE_HASH: "h"}}, (SET,), []),
        ({"annotations": {names.RELEASED: "some day"}}, (SET,), []),
        ({"terminating": True}, (SET,), []),
    ],
    ids=[
        "released: put back",
        "its ReplicaSet is gone",
        "another namespace's ReplicaSet is not its own",
        "its ReplicaSet would delete it",
        "its Deployment's: put back",
        "another Deployment's ReplicaSet is not its own",
        "a copy that something else owns",
        "a copy that was never let go",
        "nobody can tell what its label was",
        "on its way out",
    ],
)
def test_what_uninstalling_puts_back(fields: dict[str, Any], sets: tuple[ReplicaSet, ...], expected: list[str]) -> None:
    let_go = replace(pod("p", 1, "n"), **{"annotations": UNTIL, "labels": LET_GO, "owner": None} | fields)
    found = put_back(Snapshot(pods=(let_go, pod("other", 2, "n")), replica_sets=sets))
    assert [each.undo.labels[names.POD_TEMPLATE_HASH] if each.undo else "" for each in found] == expected
    assert {each.undo.owner for each in found if each.undo} <= {Owner("ReplicaSet", "web-h", "rs")}


def test_uninstalling_puts_nothing_back_that_its_replica_set_would_delete() -> None:
    """It has two and wants one: another one more would go at once."""
    old = replace(pod("p", 1, "n"), annotations=UNTIL, labels=LET_GO, owner=Owner("Deployment", "web", "d"))
    (found,) = put_back(Snapshot(pods=(old, pod("a", 1, "n"), pod("b", 2, "n")), replica_sets=(SET,)))
    assert found.undo is None


def taken_off(of: Pod, replica_set: ReplicaSet = SET) -> tuple[set[str], set[str]]:
    """Annotations and labels."""
    found = remnants(Snapshot(pods=(of,), replica_sets=(replica_set,)))
    return {key for each in found for key in each.annotations}, {key for each in found for key in each.labels}


def test_uninstalling_takes_off_what_we_wrote_and_nothing_else() -> None:
    """With the deletion cost, which is the slot's; a user's own annotations and labels stay."""
    owner = Owner("ReplicaSet", "web-h", "rs")
    written = {names.SLOT: "1", names.REASON: "because", names.DELETION_COST: "-1", names.SAFE_TO_EVICT: "false"}
    labels = {"app": "web", names.CLASS: "spot"}
    placed = Pod("shop", "p", "p", owner, labels, written, "n", decision="rs/id")
    ours = {names.DECISION, names.SLOT, names.REASON}
    assert taken_off(placed) == ({*ours, names.DELETION_COST}, {names.CLASS})
    assert taken_off(replace(placed, annotations={**written, names.DELETION_COST: "7"})) == (ours, {names.CLASS})
    own = replace(SET, template=Template(has_deletion_cost=True))
    assert taken_off(placed, own) == (ours, {names.CLASS})
    assert taken_off(replace(placed, annotations={}, labels={"app": "web"}, decision="")) == (set(), set())


def test_a_released_pod_keeps_what_tells_whose_it_was() -> None:
    """Until it is put back."""
    let_go = replace(pod("p", 1, "n"), annotations=UNTIL, labels=LET_GO, owner=Owner("Deployment", "web", "d"))
    assert let_go.is_released
    assert taken_off(let_go) == (set(), set())


def test_only_what_admission_placed_carries_our_affinity() -> None:
    """Not what was adopted later, was left alone, or carries the annotations of a template."""
    placed = pod("p", 1, "n")
    assert placed.owner is not None
    assert has_our_affinity(placed)
    assert not has_our_affinity(replace(placed, decision=f"{placed.owner.uid}/adopted-p"))
    assert not has_our_affinity(replace(placed, annotations={**placed.annotations, names.LEFT_ALONE: "true"}))
    assert not has_our_affinity(replace(placed, decision="another/id"))
