"""Whole clusters as the rebalancer, the CLI and the page see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from placement.model import Kind, Namespace, Node, Owner, Pod, ReplicaSet, Snapshot, Template, Workload
from tests.builders.model import (
    NOW,
    ON_DEMAND,
    SPOT,
    budget,
    namespace,
    node,
    own_annotations,
    pod,
    replica_set,
    workload,
)

Deployment = tuple[Workload, ReplicaSet, list[Pod]]

NODES = (
    node("od-a", ON_DEMAND, "a", created=NOW - 7200),
    node("od-b", ON_DEMAND, "b"),
    node("spot-a", SPOT, "a", cpu=8000),
    node("spot-b", SPOT, "b"),
)
# Ten replicas of which eight must serve: six on spot, four of them in one zone.
WEB_NODES = ("od-a", "spot-a", "spot-a", "od-b", "spot-a", "spot-b", "od-a", "spot-a", "spot-b", "od-b")


def deployment(name: str, where: Iterable[str], **annotations: str) -> Deployment:
    """A Deployment whose pods are on these nodes, slot by slot."""
    on = list(where)
    template = Template(labels={"app": name})
    owner, revision = Owner("Deployment", name, name), f"{name}-1"
    made = workload(name, len(on), uid=name, annotations=own_annotations(annotations), template=template)
    sized = replica_set(revision, revision, len(on), owner=owner, template=template, observed=len(on))
    return made, sized, [pod(f"{name}-{slot}", slot, each, owner=revision) for slot, each in enumerate(on)]


def snapshot(*deployments: Deployment, nodes: Iterable[Node] = NODES, **fields: Any) -> Snapshot:
    return Snapshot(
        {"shop": namespace()},
        {each.name: each for each in nodes},
        tuple(made for made, *_ in deployments),
        tuple(revision for _, revision, _ in deployments),
        tuple(each for *_, pods in deployments for each in pods),
        **fields,
    )


SHOP = snapshot(deployment("web", WEB_NODES, spot_ratio="60%", min_available="8"), deployment("one", ["od-a"]))

# --- three workloads in two namespaces, for drills -------------------------------------------------------------------

DRILL_WEB = workload("web", 10, template=Template({"app": "web"}))
DRILL_STORE = workload("store", 2, Kind.STATEFUL_SET, uid="s")
DRILL_OUTSIDER = workload("outsider", 1, Kind.STATEFUL_SET, uid="x", namespace="bank")
DRILL_NODES = {
    "a1": (SPOT, "zone-a"),
    "a2": (SPOT, "zone-a"),
    "b1": (SPOT, "zone-b"),
    "d1": (ON_DEMAND, "zone-a"),
    "d2": (ON_DEMAND, "zone-b"),
}


def drill_pods(owner: Owner, namespace: str, *nodes: str) -> list[Pod]:
    """Pods without a slot on these nodes."""
    return [
        pod(f"{owner.name}-{index}", None, each, owner=owner, namespace=namespace, labels={})
        for index, each in enumerate(nodes)
    ]


def drill_snapshot(leaving: str = "") -> Snapshot:
    """Ten of which eight must serve: three in pool zone-a/m5, four in zone-b/m5, three on demand. Two of a store.

    Nodes have no size: what is lost finds no room.
    """
    web = Owner("ReplicaSet", "web-1", "r")
    nodes = (
        node(name, *where, kind="m5", allocatable={}, drained=name == leaving) for name, where in DRILL_NODES.items()
    )
    return Snapshot(
        {"shop": namespace(), "bank": Namespace("bank")},
        {each.name: each for each in nodes},
        (DRILL_WEB, DRILL_STORE, DRILL_OUTSIDER),
        (replica_set("web-1", "r", 10),),
        (
            *drill_pods(web, "shop", "a1", "a1", "a2", "b1", "b1", "b1", "b1", "d1", "d1", "d2"),
            *drill_pods(Owner("StatefulSet", "store", "s"), "shop", "d1", "b1"),
            *drill_pods(Owner("StatefulSet", "outsider", "x"), "bank", "a1"),
        ),
        (budget("web", selector={"matchLabels": {"app": "web"}}, min_available=8),),
    )
