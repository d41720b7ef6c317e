"""What is left of us where nobody wants us any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from placement import names
from placement.configuration import Configuration
from placement.model import Class, Namespace, Owner, Pod, ReplicaSet, Snapshot
from report.residue import left_over, put_back
from tests.placement.plans import pod

CLASSES = Configuration().classes
HERE, THERE = Namespace("shop", {names.PLACEMENT: names.ENABLED}), Namespace("left")


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
SET = ReplicaSet("shop", "web-h", "rs", Owner("Deployment", "web", "d"), 1)


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
