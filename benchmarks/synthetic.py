"""A synthetic cluster, object by object as an API server would write it: any size, the same each time.

Three quarters of the namespaces are opted in and correctly placed by Spotweave, so that there is nothing to do. One
workload in ten is a StatefulSet. Pods have what pods of real services have: two containers, affinity, tolerations,
spread constraints, volumes, conditions, managed fields. A spec has 4.5 KB, a pod 7.5 KB in all. Siblings differ in
name, UID, node, token volume, slot, class, preferred pool, and by some seconds in age. Every object is made from its
number alone.

Tests build small objects with `tests.builders`. These are apart because their aim is scale: objects as large as those
of real services, 150,000 of them, without one being kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import msgspec

from placement import names
from placement.model import Class
from placement.slots import Slots

Raw = dict[str, Any]

ZONES = ("zone-a", "zone-b", "zone-c")
TYPES = ("m5.8xlarge", "c5.8xlarge", "r5.8xlarge")
POOLS = tuple((zone, kind) for kind in TYPES for zone in ZONES)
PODS_PER_WORKLOAD = 15
WORKLOADS_PER_NAMESPACE = 50
CPU_MILLIS = (50, 100, 200, 250, 400, 500, 750, 1000)
MEMORY_MIB = (64, 128, 192, 256, 384, 512, 1024)
SLOTS = Slots(Fraction(7, 10), 1)
EPOCH = "2026-11-16T12:00:00Z"
SPOT_TOLERATION = {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
DRIVER = "disks.csi.example"
SYSTEM_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a cluster. Kubernetes' own limits are 5,000 nodes and 150,000 pods."""

    nodes: int = 5_000
    workloads: int = 10_000
    old_revisions: int = 10  # of each Deployment, scaled to zero, as the default history limit leaves them

    @property
    def pods(self) -> int:
        return self.workloads * PODS_PER_WORKLOAD

    @property
    def namespaces(self) -> int:
        return -(-self.workloads // WORKLOADS_PER_NAMESPACE)

    @property
    def stateful_sets(self) -> int:
        return len(range(9, self.workloads, 10))

    @property
    def deployments(self) -> int:
        return self.workloads - self.stateful_sets

    @property
    def replica_sets(self) -> int:
        return self.deployments * (1 + self.old_revisions)

    @property
    def claims(self) -> int:
        """One for each pod of a StatefulSet."""
        return self.stateful_sets * PODS_PER_WORKLOAD

    def tenth(self) -> Size:
        return Size(self.nodes // 10, self.workloads // 10, self.old_revisions)


@dataclass(frozen=True, slots=True)
class Collection:
    """All objects of one resource: their number, and how to make each."""

    count: int
    raw: Callable[[int], Raw]


def collections(size: Size) -> Mapping[str, Collection]:
    """Everything that the rebalancer reads, by the name of its resource."""
    revisions = 1 + size.old_revisions
    return {
        "namespaces": Collection(size.namespaces, raw_namespace),
        "nodes": Collection(size.nodes, raw_node),
        "deployments": Collection(size.deployments, lambda number: raw_workload(_deployment(number))),
        "statefulsets": Collection(size.stateful_sets, lambda number: raw_workload(number * 10 + 9)),
        "replicasets": Collection(
            size.replica_sets, lambda number: raw_replica_set(_deployment(number // revisions), number % revisions)
        ),
        "poddisruptionbudgets": Collection(size.workloads, raw_budget),
        "resourcequotas": Collection(size.namespaces, raw_quota),
        "pods": Collection(size.pods, lambda number: raw_pod(number, size)),
        "persistentvolumeclaims": Collection(size.claims, lambda number: raw_claim(_claiming(number))),
        "persistentvolumes": Collection(size.claims, lambda number: raw_volume(_claiming(number), size)),
        "csinodes": Collection(size.nodes, raw_csi_node),
    }


def _deployment(number: int) -> int:
    """Which workload that is: every tenth is a StatefulSet."""
    return number // 9 * 10 + number % 9


def is_stateful(workload: int) -> bool:
    return workload % 10 == 9


def is_opted_in(namespace: int) -> bool:
    return namespace % 4 != 3


def uid(kind: int, number: int, part: int = 0) -> str:
    """36 characters, as in Kubernetes."""
    return f"{kind:08x}-{part:04x}-4000-8000-{number:012x}"


# --- nodes and namespaces ---------------------------------------------------------------------------------------------


def node_class(node: int) -> Class:
    """Three in five nodes are spot."""
    return Class.SPOT if node % 5 < 3 else Class.ON_DEMAND


def node_name(node: int) -> str:
    return f"ip-10-{node >> 8}-{node & 255}-1.internal"


def raw_node(node: int) -> Raw:
    zone, kind = POOLS[node // 5 % len(POOLS)]
    capacity = str(node_class(node))
    name = node_name(node)
    labels = {
        names.CAPACITY: capacity,
        names.ZONE: zone,
        names.INSTANCE_TYPE: kind,
        names.HOSTNAME: name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": "region-1",
        "node-pool": f"{capacity}-{kind}",
    }
    taints = [{"key": "spot", "value": "true", "effect": "NoSchedule"}] if capacity == "spot" else None
    amounts = {"cpu": "31850m", "memory": "126393Mi", "pods": "110", "ephemeral-storage": "89Gi", "hugepages-2Mi": "0"}
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure")
    conditions = [_condition(each, "False", "KubeletHasNo" + each) for each in kinds]
    images = [{"names": [f"registry.example/team/app-{each}:1.0"], "sizeBytes": 123456789} for each in range(50)]
    return {
        "metadata": {"name": name, "uid": uid(1, node), "labels": labels, **_meta(node)},
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"cloud:///{zone}/i-{node:017x}", "taints": taints},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [*conditions, _condition("Ready", "True", "KubeletReady")],
            "images": images,
            "addresses": [{"type": "InternalIP", "address": f"10.{node >> 8}.{node & 255}.1"}],
        },
    }


def namespace_name(namespace: int) -> str:
    return f"team-{namespace:04d}"


def raw_namespace(namespace: int) -> Raw:
    labels = {"kubernetes.io/metadata.name": namespace_name(namespace), "team": f"t{namespace}"}
    if is_opted_in(namespace):
        labels[names.PLACEMENT] = names.ENABLED
    metadata = {"name": namespace_name(namespace), "uid": uid(2, namespace), "labels": labels, **_meta(namespace)}
    return {"metadata": metadata, "status": {"phase": "Active"}}


def raw_quota(namespace: int) -> Raw:
    hard = {"pods": "2000", "requests.cpu": "2k", "requests.memory": "4Ti"}
    used = {"pods": "750", "requests.cpu": "400500m", "requests.memory": "307200Mi"}
    metadata = {"name": "limits", "namespace": namespace_name(namespace), "uid": uid(3, namespace), **_meta(namespace)}
    return {"metadata": metadata, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}}


# --- workloads --------------------------------------------------------------------------------------------------------


def workload_name(workload: int) -> str:
    return f"service-{workload:05d}"


def _namespace_of(workload: int) -> str:
    return namespace_name(workload // WORKLOADS_PER_NAMESPACE)


def _selector(workload: int) -> Raw:
    return {"matchLabels": {"app.kubernetes.io/name": workload_name(workload), "app.kubernetes.io/instance": "prod"}}


def _hash(workload: int, age: int) -> str:
    return f"{(workload * 2654435761 + age * 40503) & 0xFFFFFFFF:08x}"


def _template_labels(workload: int) -> dict[str, str]:
    labels: dict[str, str] = _selector(workload)["matchLabels"]
    return {
        **labels,
        "app.kubernetes.io/part-of": "shop",
        "app.kubernetes.io/version": "1.0",
        "team": f"t{workload % 97}",
    }


@lru_cache(100)
def _template_spec(workload: int) -> msgspec.Raw:
    """Encoded once, since all revisions share it."""
    return msgspec.Raw(msgspec.json.encode(pod_spec(workload)))


def raw_workload(workload: int) -> Raw:
    """A Deployment or a StatefulSet, depending on its number."""
    template = {"metadata": {"labels": _template_labels(workload)}, "spec": _template_spec(workload)}
    rolling = {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"}
    spec: Raw = {"replicas": PODS_PER_WORKLOAD, "selector": _selector(workload), "template": template}
    if is_stateful(workload):
        spec |= {"podManagementPolicy": "OrderedReady", "serviceName": workload_name(workload)}
    else:
        spec |= {"strategy": rolling}
    metadata = {
        "name": workload_name(workload),
        "namespace": _namespace_of(workload),
        "uid": uid(4, workload),
        "labels": _selector(workload)["matchLabels"],
        "annotations": {names.SPOT_RATIO: "70%", "deployment.kubernetes.io/revision": "11"},
        **_meta(workload),
    }
    status = {"observedGeneration": 1, "replicas": PODS_PER_WORKLOAD, "readyReplicas": PODS_PER_WORKLOAD}
    return {"metadata": metadata | {"generation": 1}, "spec": spec, "status": status}


def raw_replica_set(workload: int, age: int) -> Raw:
    """The live revision has age 0; older ones are scaled to zero."""
    replicas = 0 if age else PODS_PER_WORKLOAD
    mark = {names.POD_TEMPLATE_HASH: _hash(workload, age)}
    labels = _template_labels(workload) | mark
    selector = {"matchLabels": _selector(workload)["matchLabels"] | mark}
    template = {"metadata": {"labels": labels}, "spec": _template_spec(workload)}
    metadata = {
        "name": f"{workload_name(workload)}-{_hash(workload, age)}",
        "namespace": _namespace_of(workload),
        "uid": uid(5, workload, age),
        "labels": labels,
        "annotations": {names.SPOT_RATIO: "70%", "deployment.kubernetes.io/revision": str(11 - age)},
        "ownerReferences": [_reference("Deployment", workload_name(workload), uid(4, workload))],
        "generation": 1,
        **_meta(workload),
    }
    spec = {"replicas": replicas, "selector": selector, "template": template}
    return {"metadata": metadata, "spec": spec, "status": {"observedGeneration": 1, "replicas": replicas}}


def raw_budget(workload: int) -> Raw:
    metadata = {"name": workload_name(workload), "namespace": _namespace_of(workload), "uid": uid(6, workload)}
    spec = {"minAvailable": "80%", "selector": _selector(workload)}
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": 3,
        "currentHealthy": PODS_PER_WORKLOAD,
        "desiredHealthy": 12,
        "expectedPods": PODS_PER_WORKLOAD,
        "conditions": [_condition("DisruptionAllowed", "True", "SufficientPods")],
    }
    return {"metadata": metadata | {"generation": 1, **_meta(workload)}, "spec": spec, "status": status}


# --- volumes ----------------------------------------------------------------------------------------------------------


def _claiming(number: int) -> int:
    """The pod that has this claim."""
    stateful, slot = divmod(number, PODS_PER_WORKLOAD)
    return (stateful * 10 + 9) * PODS_PER_WORKLOAD + slot


def claim_name(pod: int) -> str:
    return f"data-{pod_name(pod)}"


def raw_claim(pod: int) -> Raw:
    namespace = _namespace_of(pod // PODS_PER_WORKLOAD)
    bound = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
    metadata = {"name": claim_name(pod), "namespace": namespace, "uid": uid(8, pod), "annotations": bound, **_meta(pod)}
    modes, size = ["ReadWriteOnce"], {"storage": "10Gi"}
    spec = {"accessModes": modes, "volumeName": f"pvc-{uid(8, pod)}", "storageClassName": "fast"}
    status = {"phase": "Bound", "accessModes": modes, "capacity": size}
    return {"metadata": metadata, "spec": {**spec, "resources": {"requests": size}}, "status": status}


def raw_volume(pod: int, size: Size) -> Raw:
    zone, _ = POOLS[pod_node(pod, size) // 5 % len(POOLS)]
    expression = {"key": names.ZONE, "operator": "In", "values": [zone]}
    return {
        "metadata": {"name": f"pvc-{uid(8, pod)}", "uid": uid(9, pod), **_meta(pod)},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "10Gi"},
            "csi": {"driver": DRIVER, "volumeHandle": f"vol-{pod:017x}", "fsType": "ext4"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
        "status": {"phase": "Bound"},
    }


def raw_csi_node(node: int) -> Raw:
    name = node_name(node)
    driver = {"name": DRIVER, "nodeID": name, "topologyKeys": [names.ZONE], "allocatable": {"count": 26}}
    return {"metadata": {"name": name, "uid": uid(10, node), **_meta(node)}, "spec": {"drivers": [driver]}}


# --- pods -------------------------------------------------------------------------------------------------------------


def pod_name(pod: int) -> str:
    workload, slot = divmod(pod, PODS_PER_WORKLOAD)
    if is_stateful(workload):
        return f"{workload_name(workload)}-{slot}"
    return f"{workload_name(workload)}-{_hash(workload, 0)}-{_letters(pod)}"


def pod_class(pod: int) -> Class:
    """The class of its slot, if its namespace is opted in."""
    workload, slot = divmod(pod, PODS_PER_WORKLOAD)
    return SLOTS.class_of(slot) if is_opted_in(workload // WORKLOADS_PER_NAMESPACE) else Class.ON_DEMAND


def pod_node(pod: int, size: Size) -> int:
    """Nodes of its class in turn; neighbours are of different pools."""
    is_spot = pod_class(pod) is Class.SPOT
    rank = _spot_before(pod) if is_spot else pod - _spot_before(pod)
    rows = size.nodes // 5  # three spot nodes, then two on-demand
    return rank % rows * 5 + (rank // rows % 3 if is_spot else 3 + rank // rows % 2)


def _spot_before(pod: int) -> int:
    """How many spot pods have a lower number."""
    workload, slot = divmod(pod, PODS_PER_WORKLOAD)
    namespace, within = divmod(workload, WORKLOADS_PER_NAMESPACE)
    opted_in = namespace - namespace // 4  # of those before
    workloads = opted_in * WORKLOADS_PER_NAMESPACE + (within if is_opted_in(namespace) else 0)
    return workloads * SLOTS.spot(PODS_PER_WORKLOAD) + (SLOTS.spot(slot) if is_opted_in(namespace) else 0)


def raw_pod(pod: int, size: Size, version: int = 1, *, ready: bool = True) -> Raw:
    workload, slot = divmod(pod, PODS_PER_WORKLOAD)
    opted_in = is_opted_in(workload // WORKLOADS_PER_NAMESPACE)
    node = pod_node(pod, size)
    spec = pod_spec(workload, f"kube-api-access-{_letters(pod)}", node_name(node), claim_name(pod))
    if opted_in:
        _place(spec, workload, slot)
    return {
        "metadata": _pod_metadata(pod, opted_in, version),
        "spec": spec,
        "status": {
            "phase": "Running",
            "conditions": _pod_conditions(pod, ready),
            "containerStatuses": [_container_status(each, pod, ready) for each in ("app", "proxy")],
            "hostIP": f"10.{node >> 8}.{node & 255}.1",
            "podIP": f"10.{node >> 8}.{node & 255}.{2 + pod % 250}",
            "podIPs": [{"ip": f"10.{node >> 8}.{node & 255}.{2 + pod % 250}"}],
            "qosClass": "Burstable",
            "startTime": pod_moment(pod),
        },
    }


def _pod_metadata(pod: int, opted_in: bool, version: int) -> Raw:
    workload, slot = divmod(pod, PODS_PER_WORKLOAD)
    if is_stateful(workload):
        owner = _reference("StatefulSet", workload_name(workload), uid(4, workload))
        index = {"apps.kubernetes.io/pod-index": str(slot), "statefulset.kubernetes.io/pod-name": pod_name(pod)}
        mark = {names.CONTROLLER_REVISION_HASH: f"{workload_name(workload)}-{_hash(workload, 0)}"} | index
    else:
        owner = _reference("ReplicaSet", f"{workload_name(workload)}-{_hash(workload, 0)}", uid(5, workload))
        mark = {names.POD_TEMPLATE_HASH: _hash(workload, 0)}
    labels = _template_labels(workload) | mark
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"}
    if opted_in:
        labels[names.CLASS] = str(pod_class(pod))
        annotations |= {
            names.SLOT: str(slot),
            names.DECISION: f"{owner['uid']}/{uid(7, pod)}",
            names.REASON: f"slot {slot} of 15 at 70%: {pod_class(pod)}",
            names.DELETION_COST: str(-slot),
        }
    return {
        "name": pod_name(pod),
        "generateName": f"{owner['name']}-",
        "namespace": _namespace_of(workload),
        "uid": uid(8, pod),
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [owner],
        "managedFields": MANAGED_FIELDS,
        "resourceVersion": str(version),
        "creationTimestamp": pod_moment(pod),
    }


def requested(workload: int) -> tuple[int, int]:
    """Requests of its own container: CPU in thousandths, memory in MiB. Neighbours differ without a pattern."""
    scattered = (workload * 2654435761 & 0xFFFFFFFF) >> 12
    return CPU_MILLIS[scattered % len(CPU_MILLIS)], MEMORY_MIB[scattered // 8 % len(MEMORY_MIB)]


def pod_spec(workload: int, token: str = "", node: str = "", claim: str = "") -> Raw:
    """As in the template; a pod also has a node, a volume for its token and, in a StatefulSet, a claim."""
    cpu, memory = requested(workload)
    volumes: list[Raw] = [
        {"name": "config", "configMap": {"name": workload_name(workload), "defaultMode": 420}},
        {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"} if workload % 3 else {}},
    ]
    if is_stateful(workload) and claim:
        volumes.append({"name": "data", "persistentVolumeClaim": {"claimName": claim}})
    mounts = [{"name": each["name"], "mountPath": f"/mnt/{each['name']}"} for each in volumes]
    if token:
        volumes.append({"name": token, "projected": TOKEN})
        mounts.append({"name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True})
    spec: Raw = {
        "containers": [
            _container("app", workload, f"{cpu}m", f"{memory}Mi", mounts),
            _container("proxy", 0, "100m", "128Mi", mounts[-1:]),
        ],
        "volumes": volumes,
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {"runAsNonRoot": True, "fsGroup": 1000},
        "affinity": {"podAntiAffinity": {PREFERRED: [_apart(workload)]}},
        "topologySpreadConstraints": _spread(workload),
        "tolerations": SYSTEM_TOLERATIONS,
    }
    if node:
        spec |= {
            "nodeName": node,
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "enableServiceLinks": True,
        }
    return spec


def _place(spec: Raw, workload: int, slot: int) -> None:
    """What our webhook injects."""
    is_spot = SLOTS.class_of(slot) is Class.SPOT
    operator = "In" if is_spot else "NotIn"
    required = {"key": names.CAPACITY, "operator": operator, "values": ["spot"]}
    affinity: Raw = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [required]}]}}
    if is_spot:
        zone, kind = POOLS[(workload + SLOTS.spot_index(slot)) % len(POOLS)]
        wanted = [
            {"key": names.ZONE, "operator": "In", "values": [zone]},
            {"key": names.INSTANCE_TYPE, "operator": "In", "values": [kind]},
        ]
        affinity[PREFERRED] = [{"weight": 100, "preference": {"matchExpressions": wanted}}]
        spec["tolerations"] = [SPOT_TOLERATION, *SYSTEM_TOLERATIONS]
    spec["affinity"] = spec["affinity"] | {"nodeAffinity": affinity}


PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TOKEN = {
    "defaultMode": 420,
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
        {
            "downwardAPI": {
                "items": [{"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"}]
            }
        },
    ],
}
MANAGED_FIELDS: list[Raw] = [
    {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": EPOCH,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {f'k:{{"type":"{each}"}}': {".": {}, "f:status": {}} for each in range(6)}},
    }
    for manager in ("kube-controller-manager", "kubelet")
]


def _container(name: str, workload: int, cpu: str, memory: str, mounts: list[Raw]) -> Raw:
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1}
    return {
        "name": name,
        "image": f"registry.example/team/{name}-{workload}:1.0",
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": f"SETTING_{each}", "value": f"value-{each}"} for each in range(8)],
        "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}},
        "volumeMounts": mounts,
        "livenessProbe": probe,
        "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _container_status(name: str, pod: int, ready: bool) -> Raw:
    return {
        "name": name,
        "ready": ready,
        "restartCount": 0,
        "containerID": f"containerd://{pod:064x}",
        "image": f"registry.example/team/{name}:1.0",
        "imageID": f"registry.example/team/{name}@sha256:{7:064x}",
        "state": {"running": {"startedAt": pod_moment(pod, 2)}},
    }


def _pod_conditions(pod: int, ready: bool) -> list[Raw]:
    kinds = {"PodReadyToStartContainers": 2, "Initialized": 0, "Ready": 9, "ContainersReady": 9, "PodScheduled": 0}
    return [
        _condition(each, "True" if ready or "Ready" not in each[-5:] else "False", at=pod_moment(pod, later))
        for each, later in kinds.items()
    ]


def pod_moment(pod: int, later: int = 0) -> str:
    """When it was created, plus `later` seconds. A ReplicaSet creates its first pods in bursts: 1, 2, 4, 8."""
    workload, slot = divmod(pod, PODS_PER_WORKLOAD)
    second = workload * 7919 % 86_000 + (slot + 1).bit_length() + later
    return f"2026-11-15T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"


def _condition(kind: str, status: str, reason: str = "", at: str = EPOCH) -> Raw:
    said = {"reason": reason, "message": f"{kind} is {status}"} if reason else {}
    return {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": at, **said}


def _apart(workload: int) -> Raw:
    term = {"labelSelector": _selector(workload), "topologyKey": names.HOSTNAME}
    return {"weight": 50, "podAffinityTerm": term}


def _spread(workload: int) -> list[Raw]:
    """One workload in four has a hard zone constraint."""
    hard = "DoNotSchedule" if workload % 4 == 0 else "ScheduleAnyway"
    return [
        {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": how, "labelSelector": _selector(workload)}
        for key, how in ((names.ZONE, hard), (names.HOSTNAME, "ScheduleAnyway"))
    ]


def _reference(kind: str, name: str, of: str) -> Raw:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": name,
        "uid": of,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _meta(version: int) -> Raw:
    return {"resourceVersion": str(version), "creationTimestamp": EPOCH}


def _letters(number: int) -> str:
    """Five characters that differ between neighbours, as in names of pods."""
    scattered = (number * 2654435761) & 0xFFFFFFFF
    return "".join("bcdfghjklmnpqrstvwxz2456789"[scattered // 27**place % 27] for place in range(5))
