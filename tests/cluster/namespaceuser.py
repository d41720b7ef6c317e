"""A cluster as a user sees it: apply, scale, roll out, delete, look. For tests on the real control plane."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kube.client import Client
from kube.configmaps import read_configuration, read_observed
from kube.errors import NotFound
from kube.snapshot import read_snapshot
from placement import names
from placement.slots import Mix
from report.status import WorkloadStatus, statuses
from tests.timing import within

PATIENCE_SECONDS = 120.0  # a bound for what never comes, no measure
# Walks with a rest after each, and steps of a walk: two minutes of each kind in a soak, else a quarter of a minute.
WALKS = pytest.mark.parametrize(
    ("walks", "steps"),
    [
        (1, 15),
        *(pytest.param(*size, marks=[pytest.mark.soak, pytest.mark.timeout(900)]) for size in ((1, 120), (8, 15))),
    ],
    ids=lambda number: str(number),
)
_COLLECTIONS = {
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "ReplicaSet": "replicasets",
    "DaemonSet": "daemonsets",
}


def label(client: Client, namespace: str) -> None:
    client.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"spotweave.dev/placement": "enabled"}}})


def wait_for(what: str, condition: Callable[[], object], timeout_seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_seconds:.0f} s in vain for {what}"
        time.sleep(0.05)


def wait_within(
    what: str, condition: Callable[[], object], limit_seconds: float, patience_seconds: float = PATIENCE_SECONDS
) -> None:
    """Waits for what comes in the end. How long it took is printed, and judged by `make soak` alone (`timed`)."""
    began = time.monotonic()
    wait_for(what, condition, patience_seconds)
    within(what, time.monotonic() - began, limit_seconds)


@dataclass(frozen=True)
class NamespaceUser:
    """A user of one namespace of a cluster that Spotweave runs on."""

    client: Client
    kubeconfig: Path
    namespace: str

    def path(self, kind: str, name: str = "") -> str:
        collection = f"/apis/apps/v1/namespaces/{self.namespace}/{_COLLECTIONS[kind]}"
        return f"{collection}/{name}" if name else collection

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def create(self, raw: dict[str, Any]) -> dict[str, Any]:
        created: dict[str, Any] = self.client.post(self.path(raw["kind"]), raw)
        return created

    def scale(self, name: str, replicas: int, kind: str = "Deployment") -> None:
        self.client.patch(self.path(kind, name), {"spec": {"replicas": replicas}})

    def roll_out(self, name: str, kind: str = "Deployment") -> None:
        """A new revision, as `kubectl rollout restart` makes it."""
        stamp = {"metadata": {"annotations": {"restarted": str(time.monotonic_ns())}}}
        self.client.patch(self.path(kind, name), {"spec": {"template": stamp}})

    def delete(self, kind: str, name: str) -> None:
        self.client.delete(self.path(kind, name))

    def delete_pod(self, name: str) -> None:
        """That somebody else was faster is as good."""
        with suppress(NotFound):
            self.client.delete(f"{self.pods_path}/{name}", query={"gracePeriodSeconds": 0})

    def evict(self, name: str) -> None:
        """Asks for a pod's eviction once, as drainers do."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        self.client.post(f"{self.pods_path}/{name}/eviction", body)

    def pods(self, app: str) -> list[dict[str, Any]]:
        """The workload's pods that are not on their way out."""
        found = self.client.get_json(self.pods_path, {"labelSelector": f"app={app}"})["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def classes(self, app: str) -> dict[str, str]:
        """Pod name → the class that its label tells."""
        return {pod["metadata"]["name"]: pod["metadata"]["labels"]["spotweave.dev/class"] for pod in self.pods(app)}

    def status(self, name: str) -> WorkloadStatus:
        found = statuses(read_snapshot(self.client), read_configuration(self.client), read_observed(self.client))
        return next(each for each in found if each.workload.namespace == self.namespace and each.workload.name == name)

    def rest(self, name: str, kind: str = "Deployment") -> WorkloadStatus:
        """Waits until the controller has done what the spec asks for, and all pods serve; then tells how it stands."""
        found: list[WorkloadStatus] = []

        def at_rest() -> bool:
            if not self._is_at_rest(name, kind):
                return False
            found.append(self.status(name))
            pods = found[-1].pods
            return len(pods) == found[-1].workload.replicas and all(pod.serves for pod in pods)

        wait_for(f"{kind} {self.namespace}/{name} to come to rest", at_rest)
        return found[-1]

    def rest_without_holes(self, name: str) -> WorkloadStatus:
        """As `rest`; where slots below the highest are free, it scales up by as many first: the next pods take them.

        A ReplicaSet that scales down deletes pods that are not ready first, whatever their slot. So a walk on a slow
        machine leaves holes, which the rebalancer closes; here none runs. Worked example: eleven pods hold the slots
        0–2, 4–11, because the pod in slot 3 (on-demand) was pending: 8 spot + 3 on-demand, where 7 + 4 are wanted.
        With twelve replicas slot 3 is taken again, and the mix is 8 + 4, as the formula says.
        """
        status = self.rest(name)
        slots = {each.pod.slot for each in status.pods if each.pod.slot is not None}
        holes = sorted(set(range(max(slots, default=-1) + 1)) - slots)
        if not holes:
            return status
        print(f"{name}: {status.actual}, wanted {status.wanted}, free slots {holes}")
        self.scale(name, status.workload.replicas + len(holes))
        return self.rest(name)

    def _is_at_rest(self, name: str, kind: str) -> bool:
        raw = self.client.get_json(self.path(kind, name))
        wanted, status = raw["spec"]["replicas"], raw["status"]
        counts = [status.get(key, 0) for key in ("replicas", "readyReplicas", "updatedReplicas")]
        seen = status.get("observedGeneration") == raw["metadata"]["generation"]
        settled = status.get("currentRevision") == status.get("updateRevision")
        return seen and settled and counts == [wanted] * 3 and len(self.pods(name)) == wanted

    def walk(self, name: str, steps: int, chance: random.Random) -> None:
        """As an autoscaler does on a bad day: every second another size, up to 60, while pods are lost.

        Half-way a new revision is rolled out.
        """
        size = self.client.get_json(self.path("Deployment", name))["spec"]["replicas"]
        for step in range(steps):
            size = max(1, min(60, size + chance.randint(-20, 20)))
            self.scale(name, size)
            if step == steps // 2:
                self.roll_out(name)
            for pod in chance.sample(pods := self.pods(name), min(2, len(pods))):
                self.delete_pod(pod["metadata"]["name"])
            time.sleep(1.0)  # the pace of the walk, not a wait

    def exists(self, path: str) -> bool:
        try:
            self.client.get(path)
        except NotFound:
            return False
        return True

    def events(self, reason: str) -> list[dict[str, Any]]:
        query = {"fieldSelector": f"reason={reason}"}
        found: list[dict[str, Any]] = self.client.get_json(f"/api/v1/namespaces/{self.namespace}/events", query)[
            "items"
        ]
        return found


def failed_open(client: Client, entry: str = names.WEBHOOK_ENTRY) -> int:
    """The API server's own count of calls to us that failed, and of those that it could not make."""
    text = client.get("/metrics").decode()
    pattern = rf'^apiserver_admission_webhook_fail_open_count{{.*"{re.escape(entry)}".*}} (\d+)$'
    return sum(int(count) for count in re.findall(pattern, text, re.MULTILINE))


def is_exact(status: WorkloadStatus, spot: int, on_demand: int) -> bool:
    """The mix is this, and every pod was placed by admission on a node of its class."""
    return (
        status.actual == status.wanted == Mix(spot, on_demand)
        and not status.missed
        and all(each.given is each.node_class for each in status.pods if each.pod.is_live)
    )
