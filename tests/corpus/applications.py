"""The corpus: one file for each application. Each runs twice, in a namespace of ours and in a control."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from localcluster.nodes import ZONE_LABEL
from localcluster.stages import READY_AFTER_ANNOTATION
from placement.model import Key

Raw = dict[str, Any]

DIRECTORY = Path(__file__).parent
CLUSTER = "cluster"  # what a cluster has by itself
NAMES = tuple(sorted(path.stem for path in DIRECTORY.glob("*.yaml") if path.stem != CLUSTER))
SIZE = "corpus.spotweave.dev/size"  # fixed: its volume, or what it is, allows only the size that it has
CONTROL_PORTS = 10_000  # a control's host ports are so much higher: both run on the same hosts
READY_AFTER = "2s"
KINDS = ("Deployment", "StatefulSet")
CLUSTER_WIDE = ("PriorityClass", "StorageClass")
ZONES = ("zone-a", "zone-b", "zone-c")
DISKS = 10  # of each kind that is claimed, in each zone: as many as the largest size has replicas
NETWORK_DISK, ZONAL_DISK = "corpus-network", "corpus-zonal"


@dataclass(frozen=True)
class CorpusWorkload:
    """A Deployment or StatefulSet of an application."""

    application: str
    raw: Raw
    limits: tuple[int, int]  # its autoscaler's

    @property
    def name(self) -> str:
        return str(self.raw["metadata"]["name"])

    @property
    def full_name(self) -> str:
        return f"{self.application}/{self.name}"

    @property
    def kind(self) -> str:
        return str(self.raw["kind"])

    @property
    def key(self) -> Key:
        return Key(self.application, self.name)

    @property
    def control(self) -> Key:
        return Key(control_of(self.application), self.name)

    @property
    def published(self) -> int:
        return int(self.raw["spec"]["replicas"])

    def size(self, replicas: int) -> int:
        """As many as asked for, as far as its owner and its autoscaler allow."""
        if self.raw["metadata"].get("annotations", {}).get(SIZE) == "fixed":
            return self.published
        least, most = self.limits
        return max(least, min(most, replicas))

    @cached_property
    def runs_beside_itself(self) -> bool:
        """Whether a second pod may run beside the first while it is moved."""
        spec = self.raw["spec"]
        pod, rolling = spec["template"]["spec"], spec.get("strategy", {}).get("rollingUpdate", {})
        is_recreated = spec.get("strategy", {}).get("type") == "Recreate"
        has_claim = any("persistentVolumeClaim" in volume for volume in pod.get("volumes", ()))
        is_tied = has_claim or bool(list(_ports(pod)))
        return self.kind == "Deployment" and not is_recreated and rolling.get("maxSurge") != 0 and not is_tied


@dataclass(frozen=True)
class Application:
    name: str
    objects: tuple[Raw, ...]

    @cached_property
    def workloads(self) -> tuple[CorpusWorkload, ...]:
        limits = {
            each["spec"]["scaleTargetRef"]["name"]: (each["spec"]["minReplicas"], each["spec"]["maxReplicas"])
            for each in self.objects
            if each["kind"] == "HorizontalPodAutoscaler"
        }
        found = [each for each in self.objects if each["kind"] in KINDS]
        return tuple(CorpusWorkload(self.name, each, limits.get(each["metadata"]["name"], (0, 1000))) for each in found)

    def placed(self, namespace: str) -> Iterator[Raw]:
        """Its objects for a namespace, and the disks that they may claim."""
        for each in self.objects:
            raw = copy.deepcopy(each)
            if raw["kind"] not in CLUSTER_WIDE:
                raw["metadata"].setdefault("namespace", namespace)
            if raw["kind"] in KINDS:
                meta = raw["spec"]["template"]["metadata"]
                meta["annotations"] = {READY_AFTER_ANNOTATION: READY_AFTER, **meta.get("annotations", {})}
            if namespace == control_of(self.name):
                for pod in _pod_specs(raw):
                    shift_ports(pod, CONTROL_PORTS)
            yield raw
        text = yaml.safe_dump_all(self.objects)
        for of in (NETWORK_DISK, ZONAL_DISK):
            if f"storageClassName: {of}" in text:
                yield from _disks(of, namespace)


def control_of(name: str) -> str:
    """The namespace of the application's control, which is never opted in."""
    return f"{name}-control"


def load(name: str) -> Application:
    documents = yaml.safe_load_all((DIRECTORY / f"{name}.yaml").read_text())
    return Application(name, tuple(documents))


def shift_ports(pod_spec: Raw, by: int) -> None:
    """Other host ports; on the host's own network the container's are the same."""
    for port in _ports(pod_spec):
        port["hostPort"] += by
        if pod_spec.get("hostNetwork"):
            port["containerPort"] = port["hostPort"]


def _ports(pod_spec: Raw) -> Iterator[Raw]:
    for container in pod_spec["containers"]:
        yield from (port for port in container.get("ports", ()) if "hostPort" in port)


def _pod_specs(raw: Raw) -> Iterator[Raw]:
    if raw["kind"] in (*KINDS, "DaemonSet", "Job"):
        yield raw["spec"]["template"]["spec"]


def _disks(of: str, namespace: str) -> Iterator[Raw]:
    """What a cloud would make on demand: disks of one zone, or such as any node can attach."""
    for number in range(DISKS):
        if of == NETWORK_DISK:
            yield _disk(f"{namespace}-network-{number}", of)
            continue
        for zone in ZONES:
            terms = [{"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": [zone]}]}]
            affinity = {"required": {"nodeSelectorTerms": terms}}
            yield _disk(f"{namespace}-{zone}-{number}", of, nodeAffinity=affinity)


def _disk(name: str, storage_class: str, **more: Any) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": storage_class,
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": "/var/empty"},
            **more,
        },
    }
