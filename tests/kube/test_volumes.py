"""What is read of claims, volumes and CSINodes."""

from __future__ import annotations

from typing import Any

import pytest

from kube.resources import ATTACH_LIMITS, CLAIMS, PODS_IN_FULL, VOLUMES
from placement import names
from placement.lack import Lack
from placement.model import AttachLimits, Claim, Needs, NodeRequirement, Volume
from tests.builders.api import page

Raw = dict[str, Any]
BOUND = {names.BIND_COMPLETED: "yes"}

CLAIMED: dict[str, tuple[Raw, Raw, Raw, Claim]] = {
    "bound": ({"annotations": BOUND}, {"volumeName": "v"}, {"phase": "Bound"}, Claim("shop", "c", "v")),
    "named, but not bound yet": ({}, {"volumeName": "v"}, {"phase": "Pending"}, Claim("shop", "c")),
    "for one pod": (
        {"annotations": BOUND},
        {"volumeName": "v", "accessModes": ["ReadWriteOncePod"]},
        {},
        Claim("shop", "c", "v", is_for_one_pod=True),
    ),
    "lost": ({"annotations": BOUND}, {"volumeName": "v"}, {"phase": "Lost"}, Claim("shop", "c", "v", is_usable=False)),
    "on its way out": ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}, {}, Claim("shop", "c", is_usable=False)),
}


@pytest.mark.parametrize(("meta", "spec", "status", "expected"), CLAIMED.values(), ids=CLAIMED.keys())
def test_a_claim_names_its_volume_once_it_is_bound(meta: Raw, spec: Raw, status: Raw, expected: Claim) -> None:
    """The scheduler goes by the annotation of the controller, too."""
    raw = {"metadata": {"name": "c", "namespace": "shop", **meta}, "spec": spec, "status": status}
    (read,) = CLAIMS.shape.page(page(raw)).items
    assert read == expected


IN_A = NodeRequirement("zone", "In", ("a",))
REQUIRED = {
    "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
}
STORED: dict[str, tuple[Raw, Raw, Volume]] = {
    "of a driver": ({}, {"csi": {"driver": "d", "volumeHandle": "h"}}, Volume("v", driver="d")),
    "of an older cloud": ({}, {"awsElasticBlockStore": {"volumeID": "x"}}, Volume("v", driver="ebs.csi.aws.com")),
    "for some nodes": ({}, {"nodeAffinity": REQUIRED}, Volume("v", ((IN_A,),))),
    "in a zone": (
        {names.ZONE: "a", "team": "blue"},
        {},
        Volume("v", (), (NodeRequirement(names.ZONE, "In", ("a",)),)),
    ),
    "in two zones": ({names.ZONE: "a__b"}, {}, Volume("v", (), (NodeRequirement(names.ZONE, "In", ("a", "b")),))),
    "anywhere": ({}, {"nfs": {"server": "s"}}, Volume("v")),
}


@pytest.mark.parametrize(("labels", "spec", "expected"), STORED.values(), ids=STORED.keys())
def test_a_volume_says_where_it_can_be_used(labels: Raw, spec: Raw, expected: Volume) -> None:
    """By its node affinity and zone labels, and which driver attaches it."""
    (read,) = VOLUMES.shape.page(page({"metadata": {"name": "v", "labels": labels}, "spec": spec})).items
    assert read == expected


def test_a_node_says_how_many_volumes_of_each_driver_it_attaches() -> None:
    """Drivers without a count have no limit."""
    drivers = [{"name": "a", "allocatable": {"count": 25}}, {"name": "b"}, {"name": "c", "allocatable": {}}]
    (read,) = ATTACH_LIMITS.shape.page(page({"metadata": {"name": "n"}, "spec": {"drivers": drivers}})).items
    assert read == AttachLimits("n", {"a": 25})
    (bare,) = ATTACH_LIMITS.shape.page(page({"metadata": {"name": "n"}})).items
    assert bare == AttachLimits("n")


def needs_of(name: str, *volumes: Raw, **spec: Any) -> Needs:
    (pod,) = PODS_IN_FULL.shape.page(page({"metadata": {"name": name}, "spec": {"volumes": volumes, **spec}})).items
    needs: Needs = pod.needs
    return needs


def claim(name: str) -> Raw:
    return {"name": "data", "persistentVolumeClaim": {"claimName": name}}


ASKED: dict[str, tuple[Needs, tuple[str, ...], tuple[str, ...], Lack | None]] = {
    "a claim of its own": (needs_of("web-x", claim("data")), ("data",), (), None),
    "a StatefulSet's": (needs_of("web-0", claim("data-web-0")), ("data-*",), (), None),
    "one that only ends alike": (needs_of("web-0", claim("dataweb-0")), ("dataweb-0",), (), None),
    "one that is created with the pod": (
        needs_of("p", {"name": "tmp", "ephemeral": {}}),
        ("*-tmp",),
        (),
        Lack.UNKNOWN_EPHEMERAL,
    ),
    "a disk": (
        needs_of("p", {"name": "d", "gcePersistentDisk": {"pdName": "x"}}),
        (),
        ("pd.csi.storage.gke.io",),
        Lack.UNKNOWN_DISKS,
    ),
    "a device": (needs_of("p", resourceClaims=[{"name": "gpu"}]), (), (), Lack.UNKNOWN_CLAIMS),
}


@pytest.mark.parametrize(("needs", "claims", "disks", "unmodelled"), ASKED.values(), ids=ASKED.keys())
def test_a_pod_names_its_claims_and_what_is_not_modelled(
    needs: Needs, claims: tuple[str, ...], disks: tuple[str, ...], unmodelled: Lack | None
) -> None:
    """All of these tie the pod to where it is, or to one pod at a time."""
    assert (needs.claims, needs.disks, needs.unmodelled) == (claims, disks, unmodelled)
    assert needs.has_claims


def test_pods_of_a_stateful_set_share_one_needs() -> None:
    """Else 150,000 pods would not fit into memory."""
    assert needs_of("web-0", claim("data-web-0")) is needs_of("web-1", claim("data-web-1"))
