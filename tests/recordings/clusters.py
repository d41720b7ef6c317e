"""Generated clusters, as raw API objects: the same seed always gives the same cluster."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.recordings.clock import NOW, ago

Raw = dict[str, Any]

PREFIX = "spotweave.dev/"
ZONES = ("zone-a", "zone-b", "zone-c")
TYPES = {"m5.large": (4, 16), "c5.xlarge": (8, 16), "r5.2xlarge": (8, 64), "m6g.4xlarge": (16, 64)}
SPOT, ON_DEMAND = "spot", "on-demand"

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
PODS = "/api/v1/pods"
CONFIG_MAPS = "/api/v1/configmaps"
QUOTAS = "/api/v1/resourcequotas"
EVENTS = "/api/v1/events"
DEPLOYMENTS = "/apis/apps/v1/deployments"
REPLICA_SETS = "/apis/apps/v1/replicasets"
STATEFUL_SETS = "/apis/apps/v1/statefulsets"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
LEASES = "/apis/coordination.k8s.io/v1/leases"

# Each cluster's class label, the value that means spot, the value that means on-demand, the taint of its spot nodes.
LABELS: tuple[tuple[str, str, str, tuple[str, str] | None], ...] = (
    ("node.kubernetes.io/capacity", "spot", "on-demand", None),
    ("karpenter.sh/capacity-type", "spot", "on-demand", None),
    ("eks.amazonaws.com/capacityType", "SPOT", "ON_DEMAND", None),
    ("cloud.google.com/gke-spot", "true", "false", ("cloud.google.com/gke-spot", "true")),
    ("kubernetes.azure.com/scalesetpriority", "spot", "regular", ("kubernetes.azure.com/scalesetpriority", "spot")),
    ("example.com/market", "cheap", "dear", ("example.com/cheap", "")),
    ("node.kubernetes.io/capacity", "spot", "on-demand", None),
    ("karpenter.sh/capacity-type", "spot", "reserved", None),
)
CONFIGURATIONS: tuple[str | None, ...] = (
    None,
    "classes: [default, karpenter]\ndefaults: {spot-ratio: 60%, spread: 'zone:hard'}\nmoves: {perWorkload: 2}\n",
    "classes: [eks]\nlimits:\n- {namespaces: {matchLabels: {tier: gold}}, maxSpotRatio: 50%, minOnDemand: 2}\n"
    "- {maxSpotRatio: 0.9}\ncordon: move\n",
    "classes: [gke]\npriorityClasses: {onDemand: high, spot: low}\nlocalStorage: keep\nprices: {ratio: 0.31}\n",
    "classes: [aks]\ndefaults: {min-on-demand: 2, rebalance: plan-only}\nmetrics: {workloads: 5}\n",
    "classes: [{key: example.com/market, spot: [cheap], onDemand: [dear], taints: [example.com/cheap]}]\n"
    "leavingTaints: [example.com/going]\n"
    "moves: {perWorkload: 50%, perNode: 3, perNamespace: 4, atOnce: 6, minAge: 5s, coolDown: 1h, timeout: 2m}\n",
    "defaults: {spot-ratio: auto, availability-target: 99.5%, spot-fallback: wait, replace-lost-pods: fast}\n"
    "limits:\n- {namespaces: {matchExpressions: [{key: tier, operator: Exists}]}, minOnDemand: 3}\n"
    "priorityClasses: {overflow: ''}\n",
    "classes: [karpenter]\ndefaults: {rebalance-window: '0 22 * * 1-5 8h Europe/Berlin', on-demand-fallback: wait}\n",
)
UNLED_SECONDS = (0.0, 0.0, 30.0, 0.0, 120.0, 0.0, 0.0, 45.0)  # for so long no rebalancer has led


@dataclass
class RawCluster:
    """All objects by the path of their collection."""

    number: int
    chance: Random
    objects: dict[str, list[Raw]] = field(default_factory=lambda: defaultdict(list))
    uids: int = 0

    @property
    def label(self) -> tuple[str, str, str, tuple[str, str] | None]:
        return LABELS[self.number % len(LABELS)]

    @property
    def unled_seconds(self) -> float:
        return UNLED_SECONDS[self.number % len(UNLED_SECONDS)]

    def uid(self) -> str:
        self.uids += 1
        return f"00000000-0000-4000-8{self.number:03d}-{self.uids:012d}"

    def add(self, collection: str, name: str, namespace: str = "", /, **rest: Any) -> Raw:
        """Adds an object. `metadata` among the rest completes the usual one."""
        metadata = {"name": name, "uid": self.uid(), "resourceVersion": "1", "creationTimestamp": ago(86_400)}
        where = {"namespace": namespace} if namespace else {}
        raw = {**rest, "metadata": {**metadata, **where, **rest.get("metadata", {})}}
        self.objects[collection].append(raw)
        return raw

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    def nodes_of(self, of: str) -> list[Raw]:
        key, spot = self.label[:2]
        return [each for each in self.objects[NODES] if (each["metadata"]["labels"].get(key) == spot) is (of == SPOT)]

    def open_nodes_of(self, of: str) -> list[Raw]:
        """Those that take pods."""
        return [each for each in self.nodes_of(of) if _is_open(each)]


def _is_open(node: Raw) -> bool:
    ready = node["status"]["conditions"][0]["status"] == "True"
    is_leaving = any(taint in node["spec"]["taints"] for taints in TAINTS.values() for taint in taints)
    return (
        ready and not is_leaving and not node["spec"]["unschedulable"] and "deletionTimestamp" not in node["metadata"]
    )


# --- nodes -----------------------------------------------------------------------------------------------------------


def add_nodes(cluster: RawCluster) -> None:
    for of in (SPOT, ON_DEMAND):
        for zone in ZONES:
            for kind in cluster.chance.sample(sorted(TYPES), 2):
                for index in range(cluster.chance.randint(1, 3)):
                    _add_node(cluster, of, zone, kind, index)


def _add_node(cluster: RawCluster, of: str, zone: str, kind: str, index: int) -> None:
    chance = cluster.chance
    key, spot, on_demand, taint = cluster.label
    name = f"{of}-{zone[-1]}-{kind.replace('.', '-')}-{index}"
    cpu, memory = TYPES[kind]
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": "region-1",
        "node.kubernetes.io/instance-type": kind,
        key: spot if of == SPOT else on_demand,
    }
    if of == ON_DEMAND and cluster.often(0.1):
        del labels[key]
    state = chance.choices(NODE_STATES, NODE_WEIGHTS)[0]
    taints = [{"key": taint[0], "value": taint[1], "effect": "NoSchedule"}] if taint and of == SPOT else []
    taints += TAINTS.get(state, [])
    annotations = {PREFIX + "price-ratio": chance.choice(["0.31", "28%", "much"])} if cluster.often(0.3) else {}
    metadata: Raw = {"labels": labels, "annotations": annotations}
    if state == "deleting":
        metadata |= {"deletionTimestamp": ago(20), "finalizers": ["karpenter.sh/termination"]}
    ready = "False" if state == "not-ready" else "Unknown" if state == "silent" else "True"
    cluster.add(
        NODES,
        name,
        metadata=metadata,
        spec={
            "taints": taints,
            "unschedulable": state in ("cordoned", "drained"),
            "providerID": f"aws:///{zone}/i-{name}",
        },
        status={
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": ago(600)}],
            "allocatable": {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "40", "ephemeral-storage": "100Gi"},
        },
    )


NODE_STATES = ("fine", "cordoned", "drained", "ending", "not-ready", "silent", "deleting", "scaled-down", "own-taint")
NODE_WEIGHTS = (75, 6, 3, 5, 3, 1, 2, 2, 3)
TAINTS: dict[str, list[Raw]] = {
    "ending": [
        {"key": "aws-node-termination-handler/spot-itn", "value": "", "effect": "NoSchedule"},
        {"key": "example.com/going", "value": "", "effect": "NoSchedule"},
    ],
    "scaled-down": [{"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}],
    "own-taint": [{"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}],
}


# --- namespaces ------------------------------------------------------------------------------------------------------

OPTED_IN = ("shop", "pay", "gold")
OTHERS = ("lab", "legacy", "kube-system", "spotweave-system")


def add_namespaces(cluster: RawCluster) -> None:
    pay = {PREFIX + "spot-ratio": cluster.chance.choice(["50%", "0.8", "70", "auto"]), PREFIX + "min-on-demand": "2"}
    gold = {PREFIX + "spread": cluster.chance.choice(["zone:hard", "none", "rack"]), "owner": "team-gold"}
    labels: dict[str, Raw] = {
        "shop": {PREFIX + "placement": "enabled"},
        "pay": {PREFIX + "placement": "enabled", "tier": "silver"},
        "gold": {PREFIX + "placement": "enabled", "tier": "gold"},
        "legacy": {PREFIX + "placement": "disabled"},
        "kube-system": {PREFIX + "placement": "enabled"},
    }
    annotations: dict[str, Raw] = {"pay": pay, "gold": gold}
    for name in (*OPTED_IN, *OTHERS):
        written = {"labels": labels.get(name, {}), "annotations": annotations.get(name, {})}
        cluster.add(NAMESPACES, name, metadata=written)


def add_priority_classes(cluster: RawCluster) -> None:
    values = {"high": 1000, "low": -2, "system-cluster-critical": 2_000_000_000}
    if cluster.number % 3 != 1:
        values["spotweave-overflow"] = -5
    for name, value in values.items():
        cluster.add(PRIORITY_CLASSES, name, value=value)


def add_quotas(cluster: RawCluster) -> None:
    for namespace in OPTED_IN:
        if cluster.often(0.5):
            hard = {"pods": str(cluster.chance.choice([30, 60, 200])), "requests.cpu": "40"}
            used = {"pods": str(cluster.chance.choice([10, 30, 60])), "requests.cpu": "12500m"}
            scope = {"scopes": ["BestEffort"]} if cluster.often(0.2) else {}
            cluster.add(QUOTAS, "all", namespace, spec={"hard": hard, **scope}, status={"used": used})


# --- what Spotweave itself keeps -------------------------------------------------------------------------------------


def add_state(cluster: RawCluster) -> None:
    system = "spotweave-system"
    configuration = CONFIGURATIONS[cluster.number % len(CONFIGURATIONS)]
    if configuration is not None:
        cluster.add(CONFIG_MAPS, "spotweave-config", system, data={"config.yaml": configuration})
    data = {"outages.json": _outages(cluster), "pause.json": _pause(cluster), "interruptions.json": _observed(cluster)}
    kept = {key: text for key, text in data.items() if text}
    if kept:
        cluster.add(CONFIG_MAPS, "spotweave-state", system, data=kept)
    for name, component in (("spotweave-rebalancer", "rebalancer"), ("spotweave-webhook-1", "webhook")):
        spec = {"holderIdentity": "10.0.0.1:8443", "leaseDurationSeconds": 15, "renewTime": ago(3)}
        cluster.add(LEASES, name, system, metadata={"labels": {"app.kubernetes.io/component": component}}, spec=spec)


def _outages(cluster: RawCluster) -> str:
    terms = [[{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]}]]
    evidence = {"pod": "shop/web-4", "workload": "Deployment shop/web"}
    notes: tuple[list[Raw], ...] = (
        [],
        [{"class": "spot", "zones": ["zone-a"], "until": NOW + 200, "since": NOW - 100, "by": "rebalancer"}],
        [{"class": "spot", "until": NOW + 60, "since": NOW - 240, "strikes": 2}],
        [{"class": "spot", "until": NOW - 60, "since": NOW - 360}, {"class": "on-demand", "until": NOW + 100}],
        [{"class": "spot", "namespace": "shop", "until": NOW + 90, "shape": {"cpuMillis": 500, "memoryMiB": 256}}],
        [{"class": "spot", "namespace": "pay", "terms": terms, "until": NOW + 90, "evidence": evidence}],
        [{"class": "spot", "zones": list(ZONES), "until": NOW + 30}],
    )
    if cluster.number % 8 == 7:
        return '{"version": "many"'
    noted = notes[cluster.number % 8]
    return json.dumps({"version": 3 + cluster.number, "outages": noted}) if noted else ""


def _pause(cluster: RawCluster) -> str:
    pause: Raw = {"since": NOW - 500, "by": "alice", "reason": "black friday"}
    texts = {3: json.dumps({**pause, "until": NOW + 900}), 5: json.dumps({**pause, "until": NOW - 9}), 7: "{broken"}
    return texts.get(cluster.number % 8, "")


def _observed(cluster: RawCluster) -> str:
    if cluster.number % 4 == 0:
        return ""
    pools: Raw = {}
    for zone in ZONES:
        for kind in sorted(TYPES)[: 2 + cluster.number % 3]:
            hours = float(cluster.chance.choice([30, 720, 2000]))
            pools[f"{zone}/{kind}"] = {
                "hours": hours,
                "nodeHours": hours * 3,
                "losses": float(cluster.chance.randint(0, 4)),
                "nodeLosses": float(cluster.chance.randint(0, 6)),
                "seen": NOW - 40,
                "episode": [NOW - 90_000, 4, cluster.chance.randint(0, 4)],
            }
    rates = {pool: cluster.chance.choice([0.25, 1.0, 4.0, 16.0]) for pool in pools}
    return json.dumps({"version": 2, "at": NOW - 3600, "rates": rates, "pools": pools})
