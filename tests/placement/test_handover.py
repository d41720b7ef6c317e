"""A pod changes hands: the JSON patch of a release, and of its undo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from placement import names
from placement.handover import Patch, patches
from placement.model import Class, Owner, Pod
from placement.plan.actions import Why
from placement.plan.marks import Released
from placement.plan.release import has_way_back, put_back_to, release
from tests.builders.model import NOW, pod
from tests.builders.plan import group
from tests.report.test_residue import SET

OLD = pod("old", 2, "o")
DEPLOYMENT, REPLICA_SET = Owner("Deployment", "web", "d"), Owner("ReplicaSet", "web-h", "rs")
RAW_SET: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-h", "uid": "rs"}
RAW_SET |= {"controller": True, "blockOwnerDeletion": True}
RAW_DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}
OTHER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c"}


def raw(of: Pod, *owners: Mapping[str, Any]) -> dict[str, Any]:
    """As the API server has it."""
    annotations = {**of.annotations, names.DECISION: of.decision, "theirs": "1"}
    return {"uid": of.uid, "labels": dict(of.labels), "annotations": annotations, "ownerReferences": [*owners]}


class PatchRefused(Exception):
    """The patch does not apply."""


def applied(metadata: dict[str, Any], patch: Patch) -> dict[str, Any]:
    """As the API server applies it: all of it or nothing; a test for null says that something is not there."""
    made: dict[str, Any] = {
        "metadata": {key: value.copy() if hasattr(value, "copy") else value for key, value in metadata.items()}
    }
    for operation in patch:
        *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"][1:].split("/"))
        _apply(_found(made, parents), last, operation)
    changed: dict[str, Any] = made["metadata"]
    return changed


def _found(within: Any, path: list[str]) -> Any:
    for part in path:
        try:
            within = within[int(part)] if isinstance(within, list) else within[part]
        except (KeyError, IndexError) as missing:
            raise PatchRefused(part) from missing
    return within


def _apply(parent: Any, key: str, operation: Mapping[str, Any]) -> None:
    if isinstance(parent, list):
        if key == "-":
            parent.append(operation["value"])
            return
        assert operation["op"] == "replace"
        parent[int(key)] = operation["value"]
        return
    match operation["op"]:
        case "test":
            if parent.get(key) != operation["value"]:
                raise PatchRefused(operation["path"])
        case "remove":
            del parent[key]
        case _:
            parent[key] = operation["value"]


def released_pod(before: Pod = OLD) -> Pod:
    """What the model shows after a release."""
    action = release(group([before], 3), before, NOW + 60, Why.RATIO, None, Class.SPOT)
    written = {**before.annotations, **{key: value for key, value in action.annotations.items() if value is not None}}
    labels = {**before.labels, names.POD_TEMPLATE_HASH: "released-h"}
    assert before.owner is not None
    assert action.owner is not None
    owner = replace(action.owner, index=before.owner.index)
    return replace(before, owner=owner, annotations=written, labels=labels)


def handed_over(before: Pod, metadata: dict[str, Any]) -> dict[str, Any]:
    action = release(group([before], 3), before, NOW + 60, Why.RATIO, None, Class.SPOT)
    assert action.owner is not None
    (patch,) = patches(before, action.owner, action.annotations, action.labels)
    return applied(metadata, patch)


def test_a_release_changes_label_owner_and_notes_in_one() -> None:
    """The Deployment becomes its controller, and blocks nothing; Cluster Autoscaler is told that it may go."""
    after = handed_over(OLD, raw(OLD, RAW_SET))
    assert after["ownerReferences"] == [RAW_DEPLOYMENT]
    assert after["labels"] == {"app": "web", names.POD_TEMPLATE_HASH: "released-h"}
    assert after["annotations"] == {
        names.SLOT: "2",
        names.DECISION: "rs/d-old",
        "theirs": "1",
        names.RELEASED: Released(NOW + 60, "h", 3, True).text(),
        names.SAFE_TO_EVICT: "true",
    }


@pytest.mark.parametrize("own", ["true", "false"])
def test_the_pods_own_word_on_eviction_is_kept(own: str) -> None:
    before = replace(OLD, annotations={**OLD.annotations, names.SAFE_TO_EVICT: own})
    after = handed_over(before, raw(before, RAW_SET))
    assert after["annotations"][names.SAFE_TO_EVICT] == own
    assert after["annotations"][names.RELEASED] == Released(NOW + 60, "h", 3).text()


def test_karpenter_leaves_a_pod_alone_that_is_released_from_its_node() -> None:
    """It would buy a node for it, and one for its replacement. A word of the pod's own stays; an undo is exact."""
    metadata = raw(OLD, RAW_SET)
    action = release(group([OLD], 3), OLD, NOW + 60, Why.LEAVING, None, Class.SPOT, spared_seconds=190)
    assert action.annotations[names.RELEASED] == Released(NOW + 60, "h", 3, True, True).text()
    assert action.annotations[names.DO_NOT_DISRUPT] == "190s"
    assert action.owner is not None
    (patch,) = patches(OLD, action.owner, action.annotations, action.labels)
    after = applied(metadata, patch)
    assert undone(replace(released_pod(), annotations=after["annotations"]), after) == metadata
    kept = replace(OLD, annotations={**OLD.annotations, names.DO_NOT_DISRUPT: "true"})
    again = release(group([kept], 3), kept, NOW + 60, Why.LEAVING, None, Class.SPOT, spared_seconds=190)
    assert names.DO_NOT_DISRUPT not in again.annotations
    assert again.annotations[names.RELEASED] == Released(NOW + 60, "h", 3, True).text()


def test_what_somebody_says_later_about_disruption_stays() -> None:
    old = released_pod()
    written = {
        **old.annotations,
        names.RELEASED: Released(NOW, "h", 3, True, True).text(),
        names.DO_NOT_DISRUPT: "true",
    }
    assert names.DO_NOT_DISRUPT not in put_back_to(replace(old, annotations=written), SET, "").annotations


def undone(old: Pod, metadata: dict[str, Any]) -> dict[str, Any]:
    """The first patch that applies."""
    action = put_back_to(old, SET, "")
    assert action.owner == REPLICA_SET
    for patch in patches(old, action.owner, action.annotations, action.labels):
        try:
            return applied(metadata, patch)
        except PatchRefused:
            continue
    raise PatchRefused("all of them")


@pytest.mark.parametrize("own", [None, "true", "false"], ids=["no word", "may go", "asks to stay"])
@pytest.mark.parametrize("others", [(), (OTHER,)], ids=["alone", "with another owner"])
def test_an_undo_is_exact(own: str | None, others: tuple[Mapping[str, Any], ...]) -> None:
    """The pod is what it was, with its owners in their order."""
    assert OLD.owner is not None
    written = {**OLD.annotations, **({names.SAFE_TO_EVICT: own} if own else {})}
    before = replace(OLD, annotations=written, owner=replace(OLD.owner, index=len(others)))
    metadata = raw(before, *others, RAW_SET)
    after = handed_over(before, metadata)
    assert after["ownerReferences"] == [*others, RAW_DEPLOYMENT]
    assert undone(released_pod(before), after) == metadata


@pytest.mark.parametrize("others", [(), (OTHER,)], ids=["alone", "with another owner"])
def test_a_pod_without_a_controller_gets_its_replica_set_back(others: tuple[Mapping[str, Any], ...]) -> None:
    """Orphaned, or released by the version before."""
    orphan = replace(released_pod(), owner=None)
    metadata = raw(orphan, *others)
    if not others:
        del metadata["ownerReferences"]
    assert undone(orphan, metadata)["ownerReferences"] == [*others, RAW_SET]


CHANGES: dict[str, dict[str, Any]] = {
    "another pod": {"uid": "another"},
    "its label": {"labels": {names.POD_TEMPLATE_HASH: "other"}},
    "no label": {"labels": {}},
    "its owner": {"ownerReferences": [{**RAW_SET, "uid": "rs2"}]},
    "no owner": {"ownerReferences": []},
    "its decision": {"annotations": {names.DECISION: "rs2/d-old"}},
    "its word on eviction": {"annotations": {names.DECISION: "rs/d-old", names.SAFE_TO_EVICT: "false"}},
    "no annotations": {"annotations": {}},
}


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_a_pod_that_changed_meanwhile_is_not_released(changed: dict[str, Any]) -> None:
    with pytest.raises(PatchRefused):
        handed_over(OLD, {**raw(OLD, RAW_SET), **changed})


def test_a_pod_that_was_put_back_is_not_put_back_again() -> None:
    with pytest.raises(PatchRefused):
        undone(released_pod(), raw(OLD, RAW_SET))


def test_where_the_exact_undo_is_refused_deletion_is_not_blocked() -> None:
    """OwnerReferencesPermissionEnforcement, without the right to a ReplicaSet's finalizers."""
    first, second = patches(released_pod(), REPLICA_SET, {}, {})
    plain = {key: value for key, value in RAW_SET.items() if key != "blockOwnerDeletion"}
    assert [each["value"] for patch in (first, second) for each in patch if each["op"] == "replace"] == [RAW_SET, plain]


def test_only_what_can_be_put_back_is_released() -> None:
    """A ReplicaSet that a Deployment adopted may have any name, and its pods no hash."""
    workload = group([OLD], 1).workload
    assert has_way_back(workload, OLD)
    assert not has_way_back(workload, replace(OLD, owner=Owner("ReplicaSet", "mine", "rs")))
    assert not has_way_back(workload, replace(OLD, labels={"app": "web"}, owner=Owner("ReplicaSet", "web-", "rs")))
