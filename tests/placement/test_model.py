"""Facts: what a pod's annotations, a node's labels and a workload's opt-outs come to."""

import pytest

from placement import names
from placement.model import Key, Kind, Namespace, Node, Owner, Pod, Pool, Template, Workload

OWNER = Owner("ReplicaSet", "web-abc", "rs")
SLOTS: dict[str, tuple[Owner | None, str, dict[str, str], str | None, int | None]] = {
    "a decision of ours": (OWNER, "rs/id", {names.SLOT: "3"}, "id", 3),
    "left alone: a decision without a slot": (OWNER, "rs/id", {}, "id", None),
    "copied from another controller's pod": (OWNER, "other/id", {names.SLOT: "3"}, None, None),
    "no controller": (None, "rs/id", {names.SLOT: "3"}, None, None),
    "a slot without a decision": (OWNER, "", {names.SLOT: "3"}, None, None),
    "a decision without an id": (OWNER, "rs/", {names.SLOT: "3"}, None, None),
    "a decision without a slash": (OWNER, "rs", {names.SLOT: "3"}, None, None),
    "a negative slot": (OWNER, "rs/id", {names.SLOT: "-3"}, "id", None),
    "words": (OWNER, "rs/id", {names.SLOT: "three"}, "id", None),
    "another alphabet's digit": (OWNER, "rs/id", {names.SLOT: "٣"}, "id", None),
    "digits that Python refuses to read": (OWNER, "rs/id", {names.SLOT: "9" * 5000}, "id", None),
    "nothing": (OWNER, "", {}, None, None),
    "a Deployment's, but never released": (Owner("Deployment", "web", "d"), "rs/id", {names.SLOT: "3"}, None, None),
}


@pytest.mark.parametrize(("owner", "decision", "annotations", "decision_id", "slot"), SLOTS.values(), ids=SLOTS.keys())
def test_a_slot_counts_only_with_a_decision_for_this_controller(
    owner: Owner | None, decision: str, annotations: dict[str, str], decision_id: str | None, slot: int | None
) -> None:
    """Anybody may write any text there; it never raises, since informers read it."""
    pod = Pod("shop", "a", owner=owner, annotations=annotations, decision=decision)
    assert (pod.decision_id, pod.slot) == (decision_id, slot)


LET_GO = {names.POD_TEMPLATE_HASH: "released-h"}
LIVE: dict[str, tuple[Pod, bool]] = {
    "pending": (Pod("shop", "a"), True),
    "running": (Pod("shop", "a", phase="Running"), True),
    "on its way out": (Pod("shop", "a", phase="Running", terminating=True), False),
    "failed": (Pod("shop", "a", phase="Failed"), False),
    "finished": (Pod("shop", "a", phase="Succeeded"), False),
    "released": (Pod("shop", "a", phase="Running", labels=LET_GO, annotations={names.RELEASED: "…"}), False),
    "a copy of a released one": (Pod("shop", "a", phase="Running", annotations={names.RELEASED: "…"}), True),
}


@pytest.mark.parametrize(("pod", "expected"), LIVE.values(), ids=LIVE.keys())
def test_a_slot_is_free_when_its_pod_does_not_count_any_more(pod: Pod, expected: bool) -> None:
    """Gone, leaving, released, failed or finished."""
    assert pod.is_live is expected


RELEASES: dict[str, tuple[Owner | None, bool]] = {
    "its Deployment's": (Owner("Deployment", "web", "d"), True),
    "its ReplicaSet's still, as the version before left it": (OWNER, True),
    "nothing's, as the version before left it": (None, True),
    "another ReplicaSet's": (Owner("ReplicaSet", "web-abc", "rs2"), False),
    "a Job's": (Owner("Job", "web", "d"), False),
    "what another API calls a Deployment's": (Owner("Deployment", "web", "d", "example.com"), False),
}


@pytest.mark.parametrize(("owner", "expected"), RELEASES.values(), ids=RELEASES.keys())
def test_a_released_pod_is_its_deployments(owner: Owner | None, expected: bool) -> None:
    """Its decision was made for its ReplicaSet, and counts still. What anything else owns is a copy."""
    notes = {names.RELEASED: "…", names.SLOT: "3"}
    pod = Pod("shop", "a", owner=owner, labels=LET_GO, annotations=notes, decision="rs/id")
    assert pod.is_released is expected
    assert (pod.slot == 3) is (expected and owner is not None)


OFF, ON = {names.PLACEMENT: "disabled"}, {names.PLACEMENT: "enabled"}
OPTED_OUT: dict[str, tuple[Workload, bool]] = {
    "says nothing": (Workload(Kind.DEPLOYMENT, "shop", "a", "u", 1), False),
    "by label": (Workload(Kind.DEPLOYMENT, "shop", "a", "u", 1, labels=OFF), True),
    "by annotation": (Workload(Kind.DEPLOYMENT, "shop", "a", "u", 1, annotations=OFF), True),
    "by its template's label": (Workload(Kind.DEPLOYMENT, "shop", "a", "u", 1, template=Template(OFF)), True),
    "enabled is no opt-out": (Workload(Kind.DEPLOYMENT, "shop", "a", "u", 1, labels=ON), False),
}


@pytest.mark.parametrize(("workload", "expected"), OPTED_OUT.values(), ids=OPTED_OUT.keys())
def test_a_workload_opts_out_in_three_places(workload: Workload, expected: bool) -> None:
    """`disabled` as label or annotation of the workload, or as label of its pod template."""
    assert workload.is_opted_out is expected


def test_a_namespace_opts_in_by_label_alone() -> None:
    """Nothing else is ever touched."""
    assert Namespace("shop", ON).is_opted_in
    assert not Namespace("shop", annotations=ON).is_opted_in
    assert not Namespace("shop", {names.PLACEMENT: "true"}).is_opted_in


def test_a_nodes_pool() -> None:
    """Zone × instance type; a missing label is an empty name."""
    assert Node("n", {names.ZONE: "a", names.INSTANCE_TYPE: "m"}).pool == Pool("a", "m")
    assert Node("n").pool == Pool("", "")
    assert (str(Key("shop", "web")), str(Key("", "n"))) == ("shop/web", "n")
