"""Removes nodes as a cloud does, and restores them.

When a machine goes, its kubelet falls silent (Node NotReady). The cloud controller notices that the machine is gone (a
`DeletingNode` Event) and deletes the Node. Its pods stay as orphans until Kubernetes collects them. With a notice, a
drainer like the AWS node termination handler acts first: it cordons, taints, and evicts until the notice expires.

Nothing has to be remembered: `restore` creates the nodes of the profile that are missing, and repairs the rest.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from http import HTTPStatus
from typing import Any

from localcluster.api import AdminApi, CallFailed, Raw, node_path, pod_path
from localcluster.errors import BAD_INPUT, ClusterError
from localcluster.nodes import (
    CAPACITY_LABEL,
    LEASES,
    POOL_LABEL,
    ZONE_LABEL,
    Await,
    await_ready,
    create_nodes,
    list_nodes,
    raw_nodes,
)
from localcluster.parts import DEAD_KUBELET_LABEL
from localcluster.profile import NodePool, Profile

TERMINATION_TAINT = "aws-node-termination-handler/spot-itn"  # the drainer's taint on a node with a notice
EVICTION_RETRY_SECONDS = 5.0  # as kubectl drain and the drainers built on it
CLOUD_CONTROLLER = "cloud-node-lifecycle-controller"


class Way(Enum):
    """How machines go."""

    CLOUD = "as on a cloud: NotReady, DeletingNode Event, Node deleted"
    BARE = "the Node is deleted, without any sign before"
    NOT_READY = "the kubelet falls silent, the Node stays"


@dataclass(frozen=True)
class Choice:
    """Which nodes: of a pool, of a zone, or all spot; with none of them, all."""

    pool: str | None = None
    zone: str | None = None
    all_spot: bool = False

    def has_node(self, raw: Mapping[str, Any]) -> bool:
        labels = raw["metadata"].get("labels", {})
        return (
            (self.pool is None or labels.get(POOL_LABEL) == self.pool)
            and (self.zone is None or labels.get(ZONE_LABEL) == self.zone)
            and (not self.all_spot or labels.get(CAPACITY_LABEL) == "spot")
        )

    def has_pool(self, pool: NodePool) -> bool:
        return (
            (self.pool is None or pool.name == self.pool)
            and (self.zone is None or pool.zone == self.zone)
            and (not self.all_spot or pool.capacity_class == "spot")
        )

    def __str__(self) -> str:
        named = [f"pool {self.pool}" if self.pool else "", f"zone {self.zone}" if self.zone else ""]
        return ", ".join(filter(None, [*named, "all spot" if self.all_spot else ""])) or "all nodes"


@dataclass(frozen=True)
class Reclaimed:
    """What a reclaim did: nodes removed, pods evicted before, and pods still there when the machines went."""

    nodes: tuple[str, ...]
    evicted: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class Restored:
    created: tuple[str, ...]
    revived: tuple[str, ...]


def reclaim(
    api: AdminApi,
    choice: Choice,
    way: Way = Way.CLOUD,
    notice_seconds: float = 0.0,
    taint_key: str = TERMINATION_TAINT,
    retry_seconds: float = EVICTION_RETRY_SECONDS,
) -> Reclaimed:
    """Remove the chosen nodes. With a notice they are drained first, and go when empty or when the notice is over."""
    nodes = [node for node in list_nodes(api) if choice.has_node(node)]
    if not nodes:
        raise ClusterError(
            f"no node to reclaim: {choice}", "`kubectl get nodes -L " + POOL_LABEL + "` shows them.", BAD_INPUT
        )
    names = [node["metadata"]["name"] for node in nodes]
    evicted: set[str] = set()
    if notice_seconds > 0:
        for name in names:
            _give_notice(api, name, taint_key)
        with api.batch() as batch:
            evicted = _drain(batch, names, time.monotonic() + notice_seconds, retry_seconds)
    left = tuple(_pod_name(pod) for pod in _pods_to_drain(api, names))
    _take(api, nodes, way)
    return Reclaimed(tuple(names), tuple(sorted(evicted)), left)


def restore(
    api: AdminApi, profile: Profile, wait: Await, choice: Choice | None = None, taint_key: str = TERMINATION_TAINT
) -> Restored:
    """Restore missing or broken nodes; returns when they accept pods again."""
    chosen = choice or Choice()
    present = {node["metadata"]["name"]: node for node in list_nodes(api)}
    wanted = Profile(tuple(pool for pool in profile.pools if chosen.has_pool(pool)), profile.region)
    missing = [node for node in raw_nodes(wanted) if node["metadata"]["name"] not in present]
    broken = [name for name, node in present.items() if chosen.has_node(node) and is_taken(node, taint_key)]
    for (
        node
    ) in missing:  # the last Node's heartbeat: collected while KWOK holds it, the new Node would stand still for 10 s
        api.delete(f"{LEASES}/{node['metadata']['name']}")
    create_nodes(api, missing)
    for name in broken:
        _revive(api, name, taint_key)
    created = tuple(node["metadata"]["name"] for node in missing)
    await_ready(api, [*created, *broken], wait)
    _report_pods(api, [*created, *broken], ready=True)  # a new machine, too, starts the pods that still name it
    return Restored(created, tuple(broken))


def is_taken(raw: Mapping[str, Any], taint_key: str = TERMINATION_TAINT) -> bool:
    """Whether an existing node has the marks of a reclaim. A node that a person cordoned does not."""
    taints = raw.get("spec", {}).get("taints", ())
    return DEAD_KUBELET_LABEL in raw["metadata"].get("labels", {}) or any(taint["key"] == taint_key for taint in taints)


def _give_notice(api: AdminApi, name: str, taint_key: str) -> None:
    """Cordon and taint in one write, so that no reader sees one without the other."""
    taint = {"key": taint_key, "value": "spot-interruption", "effect": "NoSchedule"}

    def noticed(taints: list[Raw]) -> Raw:
        return {"spec": {"unschedulable": True, "taints": [*_without(taints, taint_key), taint]}}

    _patch_by_taints(api, name, noticed)


def _patch_by_taints(api: AdminApi, name: str, change: Callable[[list[Raw]], Raw]) -> None:
    """Taints can only be written all at once: write on the version that was read, and retry if it has changed."""
    while True:
        node = api.get(node_path(name))
        version = {"resourceVersion": node["metadata"]["resourceVersion"]}
        patch = change(node["spec"].get("taints", []))
        patch["metadata"] = {**patch.get("metadata", {}), **version}
        try:
            api.patch(node_path(name), patch)
        except CallFailed as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
        else:
            return


def _without(taints: list[Raw], key: str) -> list[Raw]:
    return [taint for taint in taints if taint["key"] != key]


def _drain(api: AdminApi, names: list[str], deadline: float, retry_seconds: float) -> set[str]:
    """Evict pod by pod; a refused one (429: its budget is used up) is tried again until the notice is over."""
    evicted: set[str] = set()
    next_round = 0.0
    while (now := time.monotonic()) < deadline and (pods := _pods_to_drain(api, names)):
        if now >= next_round:
            evicted |= {
                _pod_name(pod) for pod in pods if "deletionTimestamp" not in pod["metadata"] and _evict(api, pod)
            }
            next_round = time.monotonic() + retry_seconds
        time.sleep(min(0.1, max(0.0, deadline - time.monotonic())))
    return evicted


def _pods_to_drain(api: AdminApi, names: Iterable[str]) -> list[Raw]:
    """The pods that a drainer evicts: neither those of DaemonSets nor finished ones."""
    wanted = set(names)
    pods = api.get("/api/v1/pods", fieldSelector="status.phase!=Succeeded,status.phase!=Failed")["items"]
    return [pod for pod in pods if pod["spec"].get("nodeName") in wanted and not _is_daemon(pod)]


def _is_daemon(raw: Mapping[str, Any]) -> bool:
    return any(owner["kind"] == "DaemonSet" for owner in raw["metadata"].get("ownerReferences", ()))


def _evict(api: AdminApi, pod: Raw) -> bool:
    """Whether the eviction was accepted. 429 means that a budget refuses, 500 that the pod has two budgets."""
    metadata = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    try:
        api.create(f"{pod_path(pod)}/eviction", body)
    except CallFailed as error:
        refusals = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.NOT_FOUND, HTTPStatus.INTERNAL_SERVER_ERROR)
        if error.status not in refusals:
            raise
        return False
    return True


def _take(api: AdminApi, nodes: list[Raw], way: Way) -> None:
    """All machines fall silent together, then the cloud controller goes through them."""
    with api.batch() as batch:
        if way is not Way.BARE:
            _silence_all(batch, [node["metadata"]["name"] for node in nodes])
        if way is not Way.NOT_READY:
            for node in nodes:
                _delete(batch, node, way)


def _delete(api: AdminApi, node: Raw, way: Way) -> None:
    if way is Way.CLOUD:
        api.create("/api/v1/namespaces/default/events", deleting_node_event(node, datetime.now(UTC)))
    api.delete(node_path(node["metadata"]["name"]))


def _silence_all(api: AdminApi, names: list[str]) -> None:
    """When Kubernetes finds a node silent, it marks its pods as not ready in the same pass. So do we."""
    for name in names:
        _silence(api, name)
    _report_pods(api, names, ready=False)


def _silence(api: AdminApi, name: str) -> None:
    """The kubelet stops: KWOK releases the node first, then the status shows what Kubernetes would find after 50 s."""
    api.patch(node_path(name), {"metadata": {"labels": {DEAD_KUBELET_LABEL: "true"}}})
    condition = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": _timestamp(datetime.now(UTC)),
    }
    api.patch(f"{node_path(name)}/status", {"status": {"conditions": [condition]}})


def deleting_node_event(raw_node: Mapping[str, Any], now: datetime) -> Raw:
    """The Event of Kubernetes' cloud-node-lifecycle-controller, field by field."""
    name = raw_node["metadata"]["name"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{int(now.timestamp() * 1e9):x}", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": name, "uid": raw_node["metadata"]["uid"]},
        "type": "Normal",
        "reason": "DeletingNode",
        "message": f"Deleting node {name} because it does not exist in the cloud provider",
        "source": {"component": CLOUD_CONTROLLER},
        "reportingComponent": CLOUD_CONTROLLER,
        "firstTimestamp": _timestamp(now),
        "lastTimestamp": _timestamp(now),
        "count": 1,
    }


def _revive(api: AdminApi, name: str, taint_key: str) -> None:
    """Undo the notice and return the node to KWOK, which makes it Ready as a returning kubelet does."""

    def revived(taints: list[Raw]) -> Raw:
        spec = {"unschedulable": None, "taints": _without(taints, taint_key)}
        return {"metadata": {"labels": {DEAD_KUBELET_LABEL: None}}, "spec": spec}

    _patch_by_taints(api, name, revived)


def _report_pods(api: AdminApi, names: Iterable[str], ready: bool) -> None:
    """Set whether the nodes' running pods are ready; KWOK does so only once in a pod's life."""
    wanted = set(names)
    for pod in api.get("/api/v1/pods", fieldSelector="status.phase=Running")["items"]:
        if pod["spec"].get("nodeName") in wanted and "deletionTimestamp" not in pod["metadata"]:
            _report_pod(api, pod, ready)


def _report_pod(api: AdminApi, pod: Raw, ready: bool) -> None:
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": _timestamp(datetime.now(UTC))}
    try:
        api.patch(f"{pod_path(pod)}/status", {"status": {"conditions": [condition]}})
    except CallFailed as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise


def _pod_name(raw: Mapping[str, Any]) -> str:
    return f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"


def _timestamp(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
