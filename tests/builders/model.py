"""Facts of the model: the Deployment `web` in the namespace `shop`, its ReplicaSet, its pods, and their nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from placement import names
from placement.configuration import Configuration
from placement.model import (
    Budget,
    Class,
    Kind,
    Namespace,
    Needs,
    Node,
    NodeTaint,
    Owner,
    Pod,
    ReplicaSet,
    Workload,
)

NOW = 1_750_000_000.0
SPOT, ON_DEMAND = Class.SPOT, Class.ON_DEMAND
CONFIGURATION = Configuration()
NEEDS = Needs(requests={"cpu": 1000, "memory": 1024**3})
ALLOCATABLE = {"cpu": 4000, "memory": 64 * 1024**3, "pods": 110}
OPTED_IN = {names.PLACEMENT: names.ENABLED}  # the label of a namespace

# Owners: of the ReplicaSet, and of pods that are released; of the pods that admission is asked about.
DEPLOYMENT = Owner("Deployment", "web", "d")
REPLICA_SET = Owner("ReplicaSet", "web-abc", "rs")
STATEFUL_SET = Owner("StatefulSet", "db", "ss")


def namespace(name: str = "shop", **annotations: str) -> Namespace:
    """One that is opted in, with these annotations of our prefix: `spot_ratio="30%"`."""
    return Namespace(name, OPTED_IN, own_annotations(annotations))


def own_annotations(settings: dict[str, str]) -> dict[str, str]:
    """`spot_ratio` → `spotweave.dev/spot-ratio`."""
    return {names.PREFIX + key.replace("_", "-"): value for key, value in settings.items()}


def node(
    name: str, of: Class = ON_DEMAND, zone: str = "a", cpu: int = ALLOCATABLE["cpu"], kind: str = "m", **fields: Any
) -> Node:
    """A node of the instance type `kind`. Spot nodes have their usual taint."""
    labels = {names.CAPACITY: str(of), names.ZONE: zone, names.INSTANCE_TYPE: kind, names.HOSTNAME: name}
    taints = (NodeTaint(names.CAPACITY, "spot"),) if of is SPOT else ()
    return Node(name, labels, **{"taints": taints, "allocatable": {**ALLOCATABLE, "cpu": cpu}, **fields})


def workload(name: str = "web", replicas: int = 10, kind: Kind = Kind.DEPLOYMENT, **fields: Any) -> Workload:
    return Workload(kind, **{"namespace": "shop", "name": name, "uid": "d", "replicas": replicas, **fields})


def replica_set(name: str = "web-abc", uid: str = "rs", replicas: int = 10, **fields: Any) -> ReplicaSet:
    """A revision of `web`."""
    return ReplicaSet("shop", name, uid, **{"owner": DEPLOYMENT, "replicas": replicas, **fields})


def pod(name: str, slot: int | None = None, where: str = "", owner: str | Owner = "rs", **fields: Any) -> Pod:
    """A pod of `web` that has been there for long, ready if it has a node; with a slot, one that was admitted.

    The owner is a ReplicaSet's UID, or any owner.
    """
    controller = Owner("ReplicaSet", "web-h", owner) if isinstance(owner, str) else owner
    written = {} if slot is None else {names.SLOT: str(slot)}
    return Pod(
        **{
            "namespace": "shop",
            "name": name,
            "uid": name,
            "owner": controller,
            "labels": {"app": "web", names.POD_TEMPLATE_HASH: "h"},
            "annotations": {**written, **fields.pop("annotations", {})},
            "node": where,
            "phase": "Running" if where else "Pending",
            "ready": bool(where),
            "needs": NEEDS,
            "created": NOW - 3600,
            "decision": "" if slot is None else f"{controller.uid}/d-{name}",
            **fields,
        },
    )


def owned_by_deployment(old: Pod) -> Pod:
    """As it is once it was released."""
    return replace(old, owner=DEPLOYMENT, labels={**old.labels, names.POD_TEMPLATE_HASH: "released-h"})


def budget(name: str = "web", **fields: Any) -> Budget:
    """`min_available=8` or `max_unavailable="20%"`; without a selector it selects every pod of the namespace."""
    return Budget(**{"namespace": "shop", "name": name, **fields})
