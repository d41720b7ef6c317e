"""Generated workloads and their pods: in order, missed by admission, of the wrong class, under way, lost, strange."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from tests.recordings import clusters
from tests.recordings.clock import NOW, ago, moment
from tests.recordings.clusters import ON_DEMAND, PREFIX, SPOT, Raw, RawCluster

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
COST = "controller.kubernetes.io/pod-deletion-cost"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"

# Values that count, and values that do not, of every policy annotation.
POLICY: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "spot-ratio": (("70%", "0.5", "0", "100%", "33.3%", "auto", " 90% "), ("70", "150%", "most", "")),
    "min-on-demand": (("0", "1", "2", "4"), ("-1", "one", "1.5")),
    "min-available": (("1", "2", "80%", "100%", "0"), ("all", "120%", "-2")),
    "availability-target": (("99.9%", "0.95", "99%"), ("100%", "0", "high")),
    "spot-fallback": (("on-demand", "wait"), ("never", "On-Demand")),
    "spot-fallback-after": (("60s", "5m", "1h30m", "0s"), ("soon", "60")),
    "on-demand-fallback": (("spot", "wait"), ("no",)),
    "spread": (("zone", "zone:hard,host", "host:hard", "none", "instance-type:soft"), ("rack", "zone:firm")),
    "rebalance": (("auto", "auto", "plan-only", "off"), ("on", "manual")),
    "rebalance-window": (
        ("0 22 * * 1-5 8h Europe/Berlin", "0 8 * * * 4h", "*/5 * * * * 1m America/New_York"),
        ("always", "0 22 * * 1-5", "0 22 * * 1-5 8h Mars/Base"),
    ),
    "replace-lost-pods": (("fast", "kubernetes"), ("slow",)),
}
MOODS = ("calm", "calm", "wrong", "wrong", "missed", "mixed", "mixed", "lost", "pending", "moving", "fallen", "crowded")


@dataclass(frozen=True)
class RawRevision:
    """What creates pods: a ReplicaSet or a StatefulSet. `mood` says how its pods fare."""

    cluster: RawCluster
    raw: Raw
    kind: str
    workload: Raw
    mood: str

    @property
    def namespace(self) -> str:
        return str(self.raw["metadata"]["namespace"])

    @property
    def name(self) -> str:
        return str(self.raw["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.raw["metadata"]["uid"])

    @property
    def template(self) -> Raw:
        template: Raw = self.raw["spec"]["template"]
        return template


def reference(kind: str, raw: Raw, version: str = "apps/v1") -> Raw:
    name, uid = raw["metadata"]["name"], raw["metadata"]["uid"]
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}
    return {**owner, "blockOwnerDeletion": True}


# --- workloads -------------------------------------------------------------------------------------------------------


def add_workloads(cluster: RawCluster) -> list[RawRevision]:
    revisions: list[RawRevision] = []
    for namespace in (*clusters.OPTED_IN, "lab", "legacy", "kube-system"):
        many = namespace in clusters.OPTED_IN
        for index in range(9 if many else 1):
            revisions += _add_deployment(cluster, namespace, f"web{index}")
        for index in range(2 if many else 0):
            revisions.append(_add_stateful_set(cluster, namespace, f"db{index}"))
    for revision in revisions:
        _add_pods(revision)
    return [*revisions, *(_add_case(cluster, *case) for case in CASES)]


# Workloads without oddities, for what chance brings about rarely: policy, and the states of the pods by slot.
CASES: tuple[tuple[str, dict[str, str], tuple[str, ...]], ...] = (
    ("exposed", {"min-available": "8"}, ("ready", "crowded", "crowded") * 3),
    ("balanced", {}, ("ready", "crowded", "crowded") * 3),
    ("overflow", {}, ("ready", "overflow", "overflow", "ready")),
    ("returning", {"spot-fallback-after": "5m"}, ("ready", "fallen", "fallen", "ready")),
    ("single", {}, ("other-class",)),
    ("risky", {"min-on-demand": "0"}, ("ready", "ready", "other-class", "ready", "ready", "ready")),
    ("adopted", {}, ("missed",) * 6),
    ("bereft", {"min-available": "3"}, ("ready", "lost", "ready", "ready", "lost", "lost")),
    ("strict", {"spot-fallback": "wait"}, ("ready", "unschedulable", "unschedulable")),
    ("scaled", {}, ("released",)),
    ("left", {"placement": "disabled"}, ("ready", "released", "unschedulable")),
)


def _add_case(cluster: RawCluster, name: str, policy: dict[str, str], states: tuple[str, ...]) -> RawRevision:
    container = {"name": "main", "image": "example", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    replicas = 0 if name == "scaled" else len(states)
    raw = cluster.add(
        clusters.DEPLOYMENTS,
        name,
        "shop",
        metadata={"annotations": {PREFIX + key: value for key, value in policy.items()}, "generation": 2},
        spec={"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
        status={"observedGeneration": 2, "replicas": replicas},
    )
    revision = _add_set(cluster, raw, "c0ffee", replicas, "calm")
    for slot, state in enumerate(states):
        _add_pod(revision, f"{revision.name}-{slot:05d}", slot, state)
    return revision


def policy_annotations(cluster: RawCluster) -> dict[str, str]:
    written: dict[str, str] = {}
    for name, (good, bad) in POLICY.items():
        if cluster.often(0.2):
            written[PREFIX + name] = cluster.chance.choice(good if cluster.often(0.85) else bad)
    if cluster.often(0.05):
        written[PREFIX + "spot-rato"] = "50%"
    if cluster.often(0.04):
        written[PREFIX + "placement"] = "disabled"
    return written


def _add_deployment(cluster: RawCluster, namespace: str, name: str) -> list[RawRevision]:
    chance = cluster.chance
    replicas, mood = chance.choice([0, 1, 1, 2, 3, 4, 6, 8, 10, 12]), chance.choice(MOODS)
    template, selector = _template(cluster, name), {"matchLabels": {"app": name}}
    spec: Raw = {"replicas": replicas, "selector": selector, "template": template, "strategy": _strategy(cluster)}
    if cluster.often(0.06):
        spec["paused"] = True
    if cluster.often(0.1):
        spec["minReadySeconds"] = chance.choice([5, 30])
    labels = {PREFIX + "placement": "disabled"} if cluster.often(0.03) else {}
    metadata = {"annotations": policy_annotations(cluster), "labels": labels, "generation": 2}
    status = {"observedGeneration": 1 if cluster.often(0.04) else 2, "replicas": replicas}
    raw = cluster.add(clusters.DEPLOYMENTS, name, namespace, metadata=metadata, spec=spec, status=status)
    _add_budget(cluster, namespace, name, replicas)
    revisions = [_add_set(cluster, raw, f"{name[-1]}c0ffee", replicas, mood)]
    if cluster.often(0.15):  # a rollout
        revisions.append(_add_set(cluster, raw, f"{name[-1]}deca1", chance.randint(1, 4), "mixed"))
    elif cluster.often(0.5):  # an old revision
        _add_set(cluster, raw, f"{name[-1]}0ldo1d", 0, "calm")
    return revisions


def _strategy(cluster: RawCluster) -> Raw:
    amounts: tuple[Raw, ...] = (
        {},
        {},
        {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
        {"rollingUpdate": {"maxUnavailable": "50%", "maxSurge": "25%"}},
    )
    return {"type": "Recreate"} if cluster.often(0.08) else {"type": "RollingUpdate", **cluster.chance.choice(amounts)}


def _add_set(cluster: RawCluster, deployment: Raw, revision: str, replicas: int, mood: str) -> RawRevision:
    namespace, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
    template = copy.deepcopy(deployment["spec"]["template"])
    template["metadata"]["labels"]["pod-template-hash"] = revision
    labels = {"app": name, "pod-template-hash": revision}
    raw = cluster.add(
        clusters.REPLICA_SETS,
        f"{name}-{revision}",
        namespace,
        metadata={"generation": 3, "labels": labels, "ownerReferences": [reference("Deployment", deployment)]},
        spec={"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
        status={"observedGeneration": 2 if cluster.often(0.04) else 3, "replicas": replicas},
    )
    return RawRevision(cluster, raw, "ReplicaSet", deployment, mood)


def _add_stateful_set(cluster: RawCluster, namespace: str, name: str) -> RawRevision:
    chance = cluster.chance
    update: Raw = chance.choice([{}, {"type": "OnDelete"}, {"rollingUpdate": {"partition": 2, "maxUnavailable": 2}}])
    replicas = chance.choice([1, 3, 5])
    spec: Raw = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": _template(cluster, name),
        "updateStrategy": update,
        "podManagementPolicy": chance.choice(["OrderedReady", "Parallel"]),
    }
    if cluster.often(0.2):
        spec["ordinals"] = {"start": 3}
    status = {"observedGeneration": 2, "replicas": replicas, "updateRevision": f"{name}-rev2"}
    metadata = {"annotations": policy_annotations(cluster), "generation": 2}
    raw = cluster.add(clusters.STATEFUL_SETS, name, namespace, metadata=metadata, spec=spec, status=status)
    _add_budget(cluster, namespace, name, replicas)
    return RawRevision(cluster, raw, "StatefulSet", raw, chance.choice(MOODS))


def _add_budget(cluster: RawCluster, namespace: str, app: str, replicas: int) -> None:
    chance = cluster.chance
    for index in range(chance.choices([0, 1, 2], [60, 35, 5])[0]):
        asks: Raw = chance.choice(
            [{"minAvailable": max(0, replicas - 1)}, {"minAvailable": "75%"}, {"maxUnavailable": 1}]
        )
        selector: Raw = chance.choice(
            [
                {"matchLabels": {"app": app}},
                {"matchExpressions": [{"key": "app", "operator": "In", "values": [app, "x"]}]},
            ]
        )
        status = {
            "observedGeneration": 1,
            "disruptionsAllowed": chance.choice([0, 1, 2]),
            "currentHealthy": replicas,
            "desiredHealthy": max(0, replicas - 1),
            "expectedPods": replicas,
        }
        spec = {**asks, "selector": selector}
        cluster.add(clusters.BUDGETS, f"{app}-{index}", namespace, metadata={"generation": 1}, spec=spec, status=status)


# --- templates -------------------------------------------------------------------------------------------------------


def _template(cluster: RawCluster, app: str) -> Raw:
    chance = cluster.chance
    amounts = {"cpu": chance.choice(["100m", "250m", "1", "1500m"]), "memory": chance.choice(["64Mi", "256Mi", "1Gi"])}
    container: Raw = {"name": "main", "image": f"example/{app}:1", "resources": {"requests": amounts}}
    spec: Raw = {"containers": [container], "schedulerName": "default-scheduler"}
    metadata: Raw = {"labels": {"app": app}}
    for share, change in ODDITIES:
        if cluster.often(share):
            change(metadata, spec, app)
    return {"metadata": metadata, "spec": spec}


def _zone(_metadata: Raw, spec: Raw, _app: str) -> None:
    spec["nodeSelector"] = {"topology.kubernetes.io/zone": "zone-b"}


def _apart(_metadata: Raw, spec: Raw, app: str) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    spec.setdefault("affinity", {})["podAntiAffinity"] = {REQUIRED: [term]}


def _spread(_metadata: Raw, spec: Raw, app: str) -> None:
    rule = {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    spec["topologySpreadConstraints"] = [{**rule, "labelSelector": {"matchLabels": {"app": app}}}]


def _wants_class(_metadata: Raw, spec: Raw, _app: str) -> None:
    terms = [{"matchExpressions": [{"key": "node.kubernetes.io/capacity", "operator": "In", "values": ["spot"]}]}]
    spec.setdefault("affinity", {})["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}


def _types(_metadata: Raw, spec: Raw, _app: str) -> None:
    own = {"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": ["m5.large"]}
    zones = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a", "zone-c"]}
    terms = [{"matchExpressions": [own, zones]}, {"matchExpressions": [own]}]
    preferred = [{"weight": 5, "preference": {"matchExpressions": [zones]}}]
    affinity = {REQUIRED: {"nodeSelectorTerms": terms}, PREFERRED: preferred}
    spec.setdefault("affinity", {})["nodeAffinity"] = affinity


def _tolerations(_metadata: Raw, spec: Raw, _app: str) -> None:
    spec["tolerations"] = [
        {"key": "example.com/gpu", "operator": "Exists"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
    ]


def _priority(_metadata: Raw, spec: Raw, _app: str) -> None:
    spec |= {"priorityClassName": "high", "priority": 1000, "preemptionPolicy": "PreemptLowerPriority"}


def _claim(_metadata: Raw, spec: Raw, _app: str) -> None:
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


def _scratch(_metadata: Raw, spec: Raw, _app: str) -> None:
    spec["volumes"] = [{"name": "scratch", "emptyDir": {}}, {"name": "fast", "emptyDir": {"medium": "Memory"}}]


def _port(_metadata: Raw, spec: Raw, _app: str) -> None:
    spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]


def _sidecar(_metadata: Raw, spec: Raw, _app: str) -> None:
    amounts = {"requests": {"cpu": "50m", "memory": "32Mi"}}
    spec["initContainers"] = [{"name": "proxy", "image": "p", "restartPolicy": "Always", "resources": amounts}]
    spec["terminationGracePeriodSeconds"] = 120


def _kept(metadata: Raw, _spec: Raw, _app: str) -> None:
    metadata["annotations"] = {SAFE: "false"}


def _own_cost(metadata: Raw, _spec: Raw, _app: str) -> None:
    metadata["annotations"] = {COST: "7"}


def _copied(metadata: Raw, _spec: Raw, _app: str) -> None:
    metadata["annotations"] = {PREFIX + "decision": "another-uid/id-1", PREFIX + "slot": "1"}


def _other_scheduler(_metadata: Raw, spec: Raw, _app: str) -> None:
    spec["schedulerName"] = "other"


def _opted_out(metadata: Raw, _spec: Raw, _app: str) -> None:
    metadata["labels"][PREFIX + "placement"] = "disabled"


ODDITIES = (
    (0.05, _zone),
    (0.06, _apart),
    (0.06, _spread),
    (0.03, _wants_class),
    (0.07, _types),
    (0.08, _tolerations),
    (0.08, _priority),
    (0.05, _claim),
    (0.06, _scratch),
    (0.03, _port),
    (0.06, _sidecar),
    (0.03, _kept),
    (0.03, _own_cost),
    (0.03, _copied),
    (0.02, _other_scheduler),
    (0.02, _opted_out),
)


# --- pods ------------------------------------------------------------------------------------------------------------

STATES: dict[str, dict[str, int]] = {
    "calm": {"ready": 1},
    "wrong": {"ready": 3, "other-class": 3},
    "missed": {"missed": 4, "ready": 1},
    "lost": {"ready": 3, "lost": 2, "soft": 1},
    "fallen": {"ready": 3, "fallen": 2, "overflow": 1},
    "crowded": {"ready": 1, "crowded": 4},
    "pending": {"ready": 4, "unschedulable": 3, "soft": 1},
    "moving": {"ready": 6, "released": 2, "moved": 1, "undone": 1, "other-class": 1},
    "mixed": {
        "ready": 14,
        "other-class": 2,
        "missed": 2,
        "lost": 1,
        "soft": 2,
        "fallen": 2,
        "unschedulable": 2,
        "gated": 1,
        "nominated": 1,
        "not-ready": 1,
        "young": 1,
        "terminating": 1,
        "evicted": 1,
        "failed": 1,
        "released": 1,
        "orphaned": 1,
        "moved": 1,
        "undone": 1,
        "left-alone": 1,
        "copied": 1,
    },
}
SOFT = ("soft", "fallen", "overflow")
WAITING = ("unschedulable", "gated", "nominated")


def _add_pods(revision: RawRevision) -> None:
    weights = STATES[revision.mood]
    count = revision.raw["spec"]["replicas"] + (1 if revision.mood == "moving" else 0)
    first = (revision.raw["spec"].get("ordinals") or {}).get("start", 0) if revision.kind == "StatefulSet" else 0
    for slot in range(count):
        state = revision.cluster.chance.choices(list(weights), list(weights.values()))[0]
        name = f"{revision.name}-{first + slot}" if revision.kind == "StatefulSet" else f"{revision.name}-{slot:05d}"
        _add_pod(revision, name, slot, state)


def class_of(slot: int) -> str:
    """About the mix of a 70 % workload; what the policy makes of it is the product's business."""
    return SPOT if slot % 3 else ON_DEMAND


def _add_pod(revision: RawRevision, name: str, slot: int, state: str) -> None:
    cluster = revision.cluster
    given = class_of(slot)
    actual = (ON_DEMAND if given == SPOT else SPOT) if state in ("other-class", "fallen") else given
    template = copy.deepcopy(revision.template)
    spec, labels = template["spec"], template["metadata"]["labels"]
    annotations = template["metadata"].get("annotations", {})
    if state not in ("missed", "left-alone"):
        inject(cluster, spec, given, soft=state in SOFT)
    if state == "overflow":
        spec |= {"priorityClassName": "spotweave-overflow", "priority": -5}
    if state != "missed":
        labels[PREFIX + "class"] = given
        annotations |= _decision(revision, slot, given, state)
    if revision.kind == "StatefulSet":
        labels["controller-revision-hash"] = f"{revision.name}-rev{cluster.chance.choice([1, 2, 2, 2])}"
    owners = [reference(revision.kind, revision.raw)]
    if state in ("released", "orphaned") and revision.kind == "ReplicaSet":
        owners = _release(revision, labels, annotations, state)
    if state not in WAITING:
        spec["nodeName"] = _node(cluster, actual, state, slot)
    metadata: Raw = {"labels": labels, "annotations": annotations, "ownerReferences": owners}
    metadata["creationTimestamp"] = ago(10 if state == "young" else cluster.chance.choice([600, 7200]))
    if state in ("terminating", "evicted"):
        metadata["deletionTimestamp"] = ago(5)
    if not owners:
        del metadata["ownerReferences"]
    is_cut_off = state == "lost" and slot % 4 < 2  # a node that was not ready before it went
    status = _status(cluster, "not-ready" if is_cut_off else state)
    cluster.add(clusters.PODS, name, revision.namespace, metadata=metadata, spec=spec, status=status)


def inject(cluster: RawCluster, spec: Raw, given: str, *, soft: bool) -> None:
    """About what admission writes."""
    key, spot = cluster.label[:2]
    ours = {"key": key, "operator": "In" if given == SPOT else "NotIn", "values": [spot]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    if soft:
        affinity.setdefault(PREFERRED, []).append({"weight": 100, "preference": {"matchExpressions": [ours]}})
        return
    terms = affinity.setdefault(REQUIRED, {}).setdefault("nodeSelectorTerms", [{"matchExpressions": []}])
    for term in terms:
        term["matchExpressions"].append(ours)


def _decision(revision: RawRevision, slot: int, given: str, state: str) -> dict[str, str]:
    owner = "another-uid" if state == "copied" else revision.uid
    written = {PREFIX + "decision": f"{owner}/id-{slot}", PREFIX + "slot": str(slot)}
    written[PREFIX + "reason"] = f"slot {slot} is {given}"
    if revision.kind == "ReplicaSet":
        written[COST] = str(-slot)
    if state in SOFT:
        written[PREFIX + "soft"] = "true"
    if state == "left-alone":
        written[PREFIX + "left-alone"] = "true"
    if state == "moved":
        written[PREFIX + "moved"] = f"{given}/7of10min1/{ago(200)}"
    if state == "undone":
        written[PREFIX + "undone"] = f"2/{moment(NOW + 100)}"
    return written


def _release(revision: RawRevision, labels: Raw, annotations: Raw, state: str) -> list[Raw]:
    chance, before = revision.cluster.chance, labels["pod-template-hash"]
    until = moment(NOW + chance.choice([-30, 120]))
    mark = chance.choice(["", "/safe-to-evict"])
    annotations[PREFIX + "released"] = f"{until}/{before}/{revision.raw['spec']['replicas']}{mark}"
    if mark:
        annotations[SAFE] = "true"
    labels["pod-template-hash"] = f"released-{before}"
    return [] if state == "orphaned" else [reference("Deployment", revision.workload)]


def _node(cluster: RawCluster, of: str, state: str, slot: int) -> str:
    if state == "lost":
        return f"gone-{of}-{slot % 4}"
    nodes = cluster.nodes_of(of) or cluster.objects[clusters.NODES]
    if state == "crowded":
        nodes = cluster.open_nodes_of(of)[:1] or nodes
    return str(cluster.chance.choice(nodes)["metadata"]["name"])


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/9 nodes fit"}
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gated by a team"}
EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}


def _status(cluster: RawCluster, state: str) -> Raw:
    since = ago(cluster.chance.choice([5, 40, 200, 4000]))
    if state in WAITING:
        why = GATED if state == "gated" else UNSCHEDULABLE
        nominated = {"nominatedNodeName": "on-demand-x"} if state == "nominated" else {}
        return {"phase": "Pending", "conditions": [{**why, "lastTransitionTime": since}], **nominated}
    if state == "failed":
        return {"phase": "Failed", "conditions": []}
    ready = {"type": "Ready", "status": "False" if state == "not-ready" else "True", "lastTransitionTime": since}
    return {"phase": "Running", "conditions": [ready, *([EVICTED] if state == "evicted" else [])]}


# --- strangers -------------------------------------------------------------------------------------------------------


def add_strangers(cluster: RawCluster) -> None:
    """Pods that no Deployment or StatefulSet owns; they take room, and nothing may move them."""
    for index, node in enumerate(cluster.objects[clusters.NODES]):
        name = node["metadata"]["name"]
        daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "ds-1", "controller": True}
        _add_stranger(cluster, "kube-system", f"agent-{index}", name, [daemon])
        if cluster.often(0.3):
            job = {"apiVersion": "batch/v1", "kind": "Job", "name": "sum", "uid": "job-1", "controller": True}
            _add_stranger(cluster, "shop", f"sum-{index}", name, [job])
        if cluster.often(0.2):
            _add_stranger(cluster, "lab", f"bare-{index}", name, [])


def _add_stranger(cluster: RawCluster, namespace: str, name: str, node: str, owners: list[Raw]) -> None:
    amounts = {"requests": {"cpu": cluster.chance.choice(["50m", "500m"]), "memory": "128Mi"}}
    spec: dict[str, Any] = {"nodeName": node, "containers": [{"name": "main", "resources": amounts}]}
    metadata: Raw = {"labels": {"app": name.partition("-")[0]}, **({"ownerReferences": owners} if owners else {})}
    cluster.add(clusters.PODS, name, namespace, metadata=metadata, spec=spec, status=_status(cluster, "ready"))


def add_events(cluster: RawCluster) -> None:
    """What the cloud and autoscalers say."""
    for name in (f"gone-{of}-{index}" for of in (SPOT, ON_DEMAND) for index in range(2)):
        about = {"kind": "Node", "name": name, "uid": name}
        _add_event(cluster, "default", f"deleted-{name}", "DeletingNode", about, 10)
    waiting = [each for each in cluster.objects[clusters.PODS] if each["status"]["phase"] == "Pending"]
    for index, pod in enumerate(waiting):
        if cluster.often(0.3):
            metadata = pod["metadata"]
            about = {"kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
            reason = cluster.chance.choice(["TriggeredScaleUp", "Nominated"])
            age = cluster.chance.choice([10, 300, 2000])
            _add_event(cluster, metadata["namespace"], f"scale-{index}", reason, about, age)


def _add_event(cluster: RawCluster, namespace: str, name: str, reason: str, about: Raw, age: float) -> None:
    cluster.add(clusters.EVENTS, name, namespace, reason=reason, involvedObject=about, lastTimestamp=ago(age))
