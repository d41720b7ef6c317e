"""The Node objects of a profile; KWOK simulates their kubelets."""

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from localcluster.api import AdminApi, CallFailed, Raw
from localcluster.profile import NodePool, Profile

CAPACITY_LABEL = "node.kubernetes.io/capacity"  # on-demand or spot; what Spotweave reads by default
POOL_LABEL = "localcluster.spotweave.dev/pool"  # the profile's pool, to find its nodes again
ZONE_LABEL = "topology.kubernetes.io/zone"
REGION_LABEL = "topology.kubernetes.io/region"
INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"  # the kubelets' heartbeats, one per node
NOT_READY_TAINT_PREFIX = "node.kubernetes.io/"

Await = Callable[
    [str, Callable[[], bool]], None
]  # (what for, condition): returns when the condition holds, raises if it never does


def raw_nodes(profile: Profile) -> list[Raw]:
    """All Nodes of a profile, as they are created."""
    return [raw_node(pool, name, profile.region) for pool in profile.pools for name in pool.node_names]


def raw_node(pool: NodePool, name: str, region: str) -> Raw:
    room = {"cpu": pool.cpu, "memory": pool.memory, "pods": str(pool.pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**_labels(pool, name, region), **pool.labels},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in pool.taints]},
        "status": {"capacity": room, "allocatable": room},
    }


def _labels(pool: NodePool, name: str, region: str) -> dict[str, str]:
    capacity = {CAPACITY_LABEL: pool.capacity_class} if pool.capacity_class else {}
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        ZONE_LABEL: pool.zone,
        REGION_LABEL: region,
        INSTANCE_TYPE_LABEL: pool.instance_type,
        POOL_LABEL: pool.name,
        **capacity,
    }


def create_nodes(api: AdminApi, nodes: Iterable[Mapping[str, Any]]) -> None:
    """Create the Nodes; one that exists already stays as it is."""
    with api.batch() as batch:
        for node in nodes:
            _create(batch, node)


def _create(api: AdminApi, node: Mapping[str, Any]) -> None:
    try:
        api.create("/api/v1/nodes", node)
    except CallFailed as error:
        if error.status != HTTPStatus.CONFLICT:
            raise


def list_nodes(api: AdminApi) -> list[Raw]:
    return list(api.get("/api/v1/nodes")["items"])


def await_ready(api: AdminApi, names: Iterable[str], wait: Await) -> None:
    """Wait until the nodes accept pods: they are Ready, and the taint of every new node is gone."""
    wanted = set(names)
    wait(
        f"{len(wanted)} nodes to become Ready",
        lambda: wanted <= {node["metadata"]["name"] for node in list_nodes(api) if takes_pods(node)},
    )


def is_ready(raw: Mapping[str, Any]) -> bool:
    conditions = raw.get("status", {}).get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def takes_pods(raw: Mapping[str, Any]) -> bool:
    taints = raw.get("spec", {}).get("taints", ())
    return is_ready(raw) and not any(taint["key"].startswith(NOT_READY_TAINT_PREFIX) for taint in taints)
