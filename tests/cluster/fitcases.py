"""Random small clusters for the fit test: nodes, pods that are there, and pods that look for a place. Pure.

Cases share one control plane. Each has nodes, namespaces and topology keys of its own, and its pods may use its nodes
alone, so that no case changes another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

Raw = dict[str, Any]

CASE = "fit.example/case"
ASKED = "fit.example/asked"  # label of pods that look for a place
GATE = "fit.example/wait"
HOLD = "fit.example/hold"  # finalizer that keeps a pod that ends
MOST_NODES = 8
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
TAINTS = (
    {"key": "dedicated", "value": "db", "effect": "NoSchedule"},
    {"key": "flaky", "effect": "NoExecute", "value": ""},
    {"key": "slow", "effect": "PreferNoSchedule", "value": "yes"},
)
DISKS = ("ssd", "hdd")
AMOUNTS = ("cpu", "memory", "pods", "ephemeral-storage", "example.com/gpu")
HARD = "DoNotSchedule"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass
class FitCase:
    """One small cluster. `slot` tells which nodes and namespaces it uses, `serial` is never used again."""

    slot: int
    serial: int
    nodes: dict[str, Raw] = field(default_factory=dict)  # name → labels, taints, allocatable, unschedulable
    there: list[tuple[str, Raw]] = field(default_factory=list)  # namespace, pod
    ending: list[tuple[str, str]] = field(default_factory=list)  # namespace and name of pods that are deleted, and stay
    asked: list[tuple[str, Raw]] = field(default_factory=list)
    volumes: list[Raw] = field(default_factory=list)
    claims: list[tuple[str, Raw]] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)  # by node, of the case's driver

    @property
    def name(self) -> str:
        return f"s{self.serial}"

    @property
    def driver(self) -> str:
        return f"{self.name}.csi.example"


def namespaces_of(slot: int) -> tuple[str, str]:
    return f"fit-{slot}", f"fit-{slot}-other"


def keys_of(slot: int) -> list[str]:
    """Topology keys."""
    return [f"fit.example/{name}-{slot}" for name in ("zone", "rack", "host")]


def labels_of(slot: int) -> list[str]:
    """All labels that nodes of the slot may have from us."""
    return [CASE, ZONE, "disk", "cores", *keys_of(slot)]


def node_name(slot: int, number: int) -> str:
    return f"fit-{slot * MOST_NODES + number}"


class Maker:
    """Draws one case. The same seed gives the same case."""

    def __init__(self, slot: int, serial: int, seed: int) -> None:
        self._chance = Random(f"{seed}/{serial}")
        self._case = FitCase(slot, serial)
        self._home, self._other = namespaces_of(slot)
        self._keys = keys_of(slot)
        self._with_volumes = self._chance.random() < 0.25

    def made(self) -> FitCase:
        for number in range(self._chance.randint(3, MOST_NODES)):
            self._add_node(number)
        for number in range(self._chance.randint(0, 14)):
            self._add_there(number)
        for number in range(self._chance.randint(1, 4)):
            self._add_asked(number)
        return self._case

    def _is(self, likely: float) -> bool:
        return self._chance.random() < likely

    # --- nodes -------------------------------------------------------------------------------------------------------

    def _add_node(self, number: int) -> None:
        chance, name = self._chance, node_name(self._case.slot, number)
        zone = chance.choice("abc")
        labels = {
            CASE: self._case.name,
            ZONE: f"z-{zone}",
            "disk": chance.choice(DISKS),
            "cores": chance.choice("248x"),
        }
        labels |= {self._keys[0]: zone} if self._is(0.9) else {}
        labels |= {self._keys[1]: chance.choice("rs")} if self._is(0.8) else {}
        labels[self._keys[2]] = name
        taints = [each for each in TAINTS if self._is(0.12)]
        allocatable = {"cpu": chance.choice(("1", "2", "3500m")), "memory": chance.choice(("1Gi", "4Gi"))}
        allocatable |= {"pods": chance.choice(("3", "5", "110")), "ephemeral-storage": "10Gi"}
        allocatable |= {"example.com/gpu": "1"} if self._is(0.3) else {}
        self._case.nodes[name] = {"labels": labels, "taints": taints, "allocatable": allocatable}
        if self._with_volumes and self._is(0.7):
            self._case.limits[name] = chance.randint(1, 2)

    # --- pods --------------------------------------------------------------------------------------------------------

    def _add_there(self, number: int) -> None:
        name, namespace = f"{self._case.name}-there-{number}", self._namespace()
        spec = self._spec(busy=0.5)
        if self._is(0.2):
            spec["affinity"] = {"podAntiAffinity": {REQUIRED: [self._pod_term()]}}
        if self._with_volumes and self._is(0.4):
            self._claim(spec, namespace)
        spec["tolerations"] = [{"operator": "Exists"}]  # else they are evicted
        spec["nodeName"] = self._chance.choice(list(self._case.nodes))
        spec.pop("nodeSelector")
        meta: Raw = {"name": name, "labels": self._labels()}
        if self._is(0.05):
            meta["finalizers"] = [HOLD]
            self._case.ending.append((namespace, name))
        self._case.there.append((namespace, {"metadata": meta, "spec": spec}))

    def _add_asked(self, number: int) -> None:
        """Some are siblings of the one before."""
        name = f"{self._case.name}-asked-{number}"
        if self._case.asked and self._is(0.5):
            namespace, before = self._case.asked[-1]
            meta = {**before["metadata"], "name": name}
            self._case.asked.append((namespace, {"metadata": meta, "spec": before["spec"]}))
            return
        namespace, spec = self._namespace(), self._spec(busy=0.35)
        spec["schedulingGates"] = [{"name": GATE}]
        spec["tolerations"] = self._tolerations()
        affinity: Raw = {}
        if self._is(0.3):
            affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": self._node_terms()}}
        if self._is(0.4):
            affinity["podAntiAffinity"] = {REQUIRED: [self._pod_term() for _ in range(self._chance.randint(1, 2))]}
        if self._is(0.2):
            affinity["podAffinity"] = {REQUIRED: [self._pod_term() for _ in range(self._chance.randint(1, 2))]}
        spec["affinity"] = affinity
        if self._is(0.45):
            spec["topologySpreadConstraints"] = self._spread()
        if self._with_volumes and self._is(0.7):
            self._claim(spec, namespace)
        meta = {"name": name, "labels": {**self._labels(), ASKED: self._case.name}}
        self._case.asked.append((namespace, {"metadata": meta, "spec": spec}))

    def _namespace(self) -> str:
        return self._home if self._is(0.8) else self._other

    def _labels(self) -> dict[str, str]:
        return {CASE: self._case.name, "app": self._chance.choice("ab"), "rev": self._chance.choice("12")}

    def _spec(self, busy: float) -> Raw:
        chance = self._chance
        asked = {"cpu": chance.choice(("0", "100m", "400m", "900m")), "memory": chance.choice(("64Mi", "500Mi"))}
        asked |= {"example.com/gpu": "1"} if self._is(0.1) else {}
        limits = {"example.com/gpu": "1"} if "example.com/gpu" in asked else {}
        container: Raw = {"name": "c", "image": "example/app:1", "resources": {"requests": asked, "limits": limits}}
        if self._is(busy * 0.5):
            container["ports"] = [self._port()]
        spec: Raw = {"containers": [container], "nodeSelector": {CASE: self._case.name}}
        if self._is(0.1):
            spec["initContainers"] = [{"name": "i", "image": "x", "resources": {"requests": {"cpu": "1200m"}}}]
        return {**spec, "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0}

    def _port(self) -> Raw:
        port: Raw = {"containerPort": 80, "hostPort": self._chance.choice((80, 81))}
        port |= {"hostIP": self._chance.choice(("10.0.0.1", "10.0.0.2", "0.0.0.0"))} if self._is(0.5) else {}
        return port | ({"protocol": "UDP"} if self._is(0.3) else {})

    def _tolerations(self) -> list[Raw]:
        choices: list[Raw] = [
            {"key": "dedicated", "value": "db", "effect": "NoSchedule"},
            {"key": "dedicated", "value": "web"},
            {"key": "dedicated", "operator": "Exists"},
            {"key": "flaky", "operator": "Exists", "effect": "NoExecute"},
            {"key": "flaky"},
            {"operator": "Exists"},
        ]
        return self._chance.sample(choices, self._chance.choice((0, 0, 1, 2)))

    def _node_terms(self) -> list[Raw]:
        return [self._node_term() for _ in range(self._chance.randint(1, 2))]

    def _node_term(self) -> Raw:
        chance = self._chance
        if self._is(0.05):
            return {}
        if self._is(0.15):
            name = chance.choice(list(self._case.nodes))
            return {
                "matchFields": [{"key": "metadata.name", "operator": chance.choice(("In", "NotIn")), "values": [name]}]
            }
        choices: list[Raw] = [
            {"key": "disk", "operator": "In", "values": ["ssd"]},
            {"key": "disk", "operator": "NotIn", "values": ["hdd", "tape"]},
            {"key": "cores", "operator": "Gt", "values": ["2"]},
            {"key": "cores", "operator": "Lt", "values": ["8"]},
            {"key": self._keys[0], "operator": "Exists"},
            {"key": self._keys[1], "operator": "DoesNotExist"},
            {"key": "tape", "operator": "NotIn", "values": ["x"]},
        ]
        return {"matchExpressions": chance.sample(choices, chance.randint(1, 2))}

    def _selector(self) -> Raw | None:
        choices: list[Raw | None] = [
            {"matchLabels": {"app": "a"}},
            {"matchLabels": {"app": "b"}},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]},
            {"matchExpressions": [{"key": "rev", "operator": "NotIn", "values": ["1"]}]},
            {},
            None,
        ]
        return self._chance.choices(choices, (5, 5, 2, 2, 1, 1))[0]

    def _pod_term(self) -> Raw:
        term: Raw = {"topologyKey": self._chance.choice([*self._keys, HOST])}
        selector = self._selector()
        if selector is not None:
            # Terms that reach other namespaces must not reach other cases.
            expressions = [
                *selector.get("matchExpressions", ()),
                {"key": CASE, "operator": "In", "values": [self._case.name]},
            ]
            term["labelSelector"] = {**selector, "matchExpressions": expressions}
            if "rev" not in str(selector) and self._is(0.15):
                term[self._chance.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["rev"]
        if self._is(0.2):
            term["namespaces"] = self._chance.sample([self._home, self._other], self._chance.randint(1, 2))
        if self._is(0.2):
            term["namespaceSelector"] = self._chance.choice(({}, {"matchLabels": {"fit.example/kind": "other"}}))
        return term

    def _spread(self) -> list[Raw]:
        keys = self._chance.sample(self._keys, self._chance.choice((1, 1, 2)))
        return [self._rule(key) for key in keys]

    def _rule(self, key: str) -> Raw:
        chance = self._chance
        rule: Raw = {"topologyKey": key, "maxSkew": chance.choice((1, 1, 2)), "whenUnsatisfiable": HARD}
        selector = self._selector()
        rule |= {} if selector is None else {"labelSelector": selector}
        rule |= {"minDomains": chance.randint(1, 4)} if self._is(0.2) else {}
        rule |= {"nodeAffinityPolicy": chance.choice(("Honor", "Ignore"))} if self._is(0.4) else {}
        rule |= {"nodeTaintsPolicy": chance.choice(("Honor", "Ignore"))} if self._is(0.4) else {}
        if selector and self._is(0.2) and "rev" not in str(selector):
            rule["matchLabelKeys"] = ["rev"]
        return rule

    # --- volumes -----------------------------------------------------------------------------------------------------

    def _claim(self, spec: Raw, namespace: str) -> None:
        """A new claim, one that others use, or one that is not there."""
        known = [each["metadata"]["name"] for home, each in self._case.claims if home == namespace]
        if known and self._is(0.4):
            name = self._chance.choice(known)
        elif self._is(0.08):
            name = f"{self._case.name}-missing"
        else:
            name = self._add_claim(namespace)
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]

    def _add_claim(self, namespace: str) -> str:
        chance, number = self._chance, len(self._case.claims)
        name, volume = f"{self._case.name}-claim-{number}", f"{self._case.name}-volume-{number}"
        modes = ["ReadWriteOncePod"] if self._is(0.2) else ["ReadWriteMany"]
        size = {"storage": "1Gi"}
        bound: Raw = {"volumeName": volume, "storageClassName": ""}
        self._case.claims.append(
            (
                namespace,
                {
                    "metadata": {"name": name},
                    "spec": {"accessModes": modes, "resources": {"requests": size}, **bound},
                },
            )
        )
        if self._is(0.1):
            return name  # its volume never comes
        spec: Raw = {"capacity": size, "accessModes": modes, "claimRef": {"namespace": namespace, "name": name}}
        spec["csi"] = {"driver": self._case.driver, "volumeHandle": volume}
        if self._is(0.5):
            expression = {"key": "disk", "operator": "In", "values": [chance.choice(DISKS)]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
        zones = {ZONE: chance.choice(("z-a", "z-b", "z-a__z-c"))} if self._is(0.3) else {}
        self._case.volumes.append({"metadata": {"name": volume, "labels": zones}, "spec": spec})
        return name


def drawn(slot: int, serial: int, seed: int) -> FitCase:
    return Maker(slot, serial, seed).made()
