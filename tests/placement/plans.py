"""Small pieces that plans are made from, for tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from placement import names
from placement.availability import Availability, Basis
from placement.configuration import Configuration
from placement.model import Class, Kind, Needs, Node, NodeTaint, Owner, Pod, Template, Workload
from placement.plan.assess import Assessment, assess
from placement.plan.group import Cohort, Ground, Group, Member, ground_of, site_of
from placement.policy import Policy, resolve

NOW = 1_750_000_000.0
SPOT, ON_DEMAND = Class.SPOT, Class.ON_DEMAND
CONFIGURATION = Configuration()
DEPLOYMENT = Owner("Deployment", "web", "d")  # the owner of pods that are released
NEEDS = Needs(requests={"cpu": 1000, "memory": 1024**3})


def node(name: str, of: Class = ON_DEMAND, zone: str = "a", cpu: int = 4000, **fields: Any) -> Node:
    labels = {names.CAPACITY: str(of), names.ZONE: zone, names.INSTANCE_TYPE: "m", names.HOSTNAME: name}
    taints = (NodeTaint(names.CAPACITY, "spot"),) if of is SPOT else ()
    allocatable = {"cpu": cpu, "memory": 64 * 1024**3, "pods": 110}
    return Node(name, labels, **{"taints": taints, "allocatable": allocatable, **fields})


def pod(name: str, slot: int | None, where: str = "", owner: str = "rs", **fields: Any) -> Pod:
    """A ready pod of the ReplicaSet `rs` that has been there for long; with a slot, one that was admitted."""
    written = {} if slot is None else {names.SLOT: str(slot)}
    return Pod(
        "shop",
        name,
        **{
            "uid": name,
            "owner": Owner("ReplicaSet", "web-h", owner),
            "labels": {"app": "web", names.POD_TEMPLATE_HASH: "h"},
            "annotations": {**written, **fields.pop("annotations", {})},
            "node": where,
            "phase": "Running" if where else "Pending",
            "ready": bool(where),
            "needs": NEEDS,
            "created": NOW - 3600,
            "decision": "" if slot is None else f"{owner}/d-{name}",
            **fields,
        },
    )


def owned_by_deployment(old: Pod) -> Pod:
    """As it is once it was released."""
    return replace(old, owner=DEPLOYMENT, labels={**old.labels, names.POD_TEMPLATE_HASH: "released-h"})


def member(name: str, slot: int | None, of: Class | None, pool: str = "a", **fields: Any) -> Member:
    """On a node of its class in this zone; "" is none."""
    site = site_of(node(f"{of}-{pool}", of, pool), CONFIGURATION) if pool and of is not None else None
    return Member(pod(name, slot, site.node.name if site else "", **fields), slot, of, site, slot)


def group(
    pods: Sequence[Pod],
    replicas: int | None = None,
    annotations: Mapping[str, str] | None = None,
    *,
    kind: Kind = Kind.DEPLOYMENT,
    needed: int = 0,
    source: Basis = Basis.ASSUMED,
    **fields: Any,
) -> Group:
    n = len(pods) if replicas is None else replicas
    template = Template(labels={"app": "web", names.POD_TEMPLATE_HASH: "h"})
    workload = Workload(kind, "shop", "web", "d", n, template=template, **fields)
    policy: Policy = resolve(annotations or {})[0]
    own = tuple(each for each in pods if names.RELEASED not in each.annotations)
    let_go = tuple(each for each in pods if names.RELEASED in each.annotations)
    cohort = Cohort("rs", n, True, template, own, let_go)
    return Group(workload, policy, Availability(needed, source), cohorts=(cohort,))


def ground(*nodes: Node) -> Ground:
    return ground_of(nodes, CONFIGURATION)


def assessed(found: Group, on: Ground, now: float = NOW) -> Assessment:
    return assess(found, on, now)
