"""What follows from plans: their actions are carried out on the raw objects, and controllers replace what is missing.

A crude stand-in for a cluster. It only has to be deterministic, and to bring workloads into states that plans differ
for: released pods with and without a replacement, slots that were rewritten, replacements that find no node.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import jsonpatch

from tests.recordings import clusters, product
from tests.recordings.clock import NOW, ago
from tests.recordings.clusters import ON_DEMAND, SPOT, Raw, RawCluster
from tests.recordings.reviews import pod_of, raw_review
from tests.recordings.workloads import UNSCHEDULABLE, RawRevision

ENDING = ("finish", "evict", "replace", "bury", "delete")


class PlanRunner:
    """One cluster, over several rounds."""

    def __init__(self, cluster: RawCluster, revisions: Sequence[RawRevision], kubeconfig: Path) -> None:
        self._cluster = cluster
        self._revisions = revisions
        self._kubeconfig = kubeconfig
        self._chance = Random(2000 + cluster.number)
        self._created = 0

    def go_on(self, plan: Raw) -> None:
        """Carries out a plan, then lets the controllers act."""
        self._note(plan["outages"])
        for action in (*plan["actions"], *plan["ends"]):
            self._carry_out(action)
        webhook = product.RecordedWebhook(self._kubeconfig, self._cluster.unled_seconds)
        try:
            for revision in self._revisions:
                self._settle(revision, webhook)
        finally:
            webhook.close()

    @property
    def _pods(self) -> list[Raw]:
        return self._cluster.objects[clusters.PODS]

    def _note(self, outages: Sequence[Raw]) -> None:
        if not outages:
            return
        maps = self._cluster.objects[clusters.CONFIG_MAPS]
        state = next((each for each in maps if each["metadata"]["name"] == "spotweave-state"), None)
        if state is None:
            state = self._cluster.add(clusters.CONFIG_MAPS, "spotweave-state", "spotweave-system", data={})
        noted = {"version": 50, "outages": [{**each, "since": NOW, "until": NOW + 300} for each in outages]}
        state["data"]["outages.json"] = json.dumps(noted)

    def _carry_out(self, action: Raw) -> None:
        pod = next((each for each in self._pods if each["metadata"]["uid"] == action["uid"]), None)
        if pod is None:
            return
        if action["how"] in ENDING:
            self._pods.remove(pod)
            return
        metadata = pod["metadata"]
        for part in ("annotations", "labels"):
            merged = {**metadata.get(part, {}), **action[part]}
            metadata[part] = {key: value for key, value in merged.items() if value is not None}
        if action["owner"] is not None:
            kind, name, uid = action["owner"]
            owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": True}
            metadata["ownerReferences"] = [owner]

    def _settle(self, revision: RawRevision, webhook: product.RecordedWebhook) -> None:
        """As its controller: pods that are missing are created, pods that are too many are deleted."""
        live = [each for each in self._pods if _is_live(each, revision)]
        replicas = revision.raw["spec"]["replicas"]
        for pod in live[replicas:]:
            self._pods.remove(pod)
        if revision.kind == "StatefulSet":
            first = (revision.raw["spec"].get("ordinals") or {}).get("start", 0)
            there = {each["metadata"]["name"] for each in self._pods}
            wanted = [f"{revision.name}-{first + index}" for index in range(replicas)]
            names = [name for name in wanted if name not in there]
        else:
            names = [f"{revision.name}-n{self._created + index}" for index in range(replicas - len(live))]
        for name in names:
            self._create(revision, name, webhook)

    def _create(self, revision: RawRevision, name: str, webhook: product.RecordedWebhook) -> None:
        pod = pod_of(revision, self._chance)
        if revision.kind == "StatefulSet":
            pod["metadata"]["name"] = name
        self._created += 1
        body = json.dumps(raw_review(f"story-{self._created}", pod, revision.namespace)).encode()
        answer = json.loads(webhook.answer(body)[1])
        operations = json.loads(base64.b64decode(answer["response"].get("patch", "W10=")))
        created: Raw = jsonpatch.apply_patch(pod, operations)
        times = {"creationTimestamp": ago(90), "uid": f"story-{self._cluster.number}-{self._created}"}
        created["metadata"] |= {"name": name, "namespace": revision.namespace, **times}
        created["status"] = self._scheduled(created)
        self._pods.append(created)
        webhook.see(clusters.PODS, created)

    def _scheduled(self, pod: Raw) -> Raw:
        """Onto any node of its class that takes pods; one in eight finds none."""
        given = pod["metadata"].get("labels", {}).get("spotweave.dev/class", ON_DEMAND)
        nodes = self._cluster.open_nodes_of(SPOT if given == SPOT else ON_DEMAND)
        if not nodes or self._chance.random() < 0.125:
            return {"phase": "Pending", "conditions": [{**UNSCHEDULABLE, "lastTransitionTime": ago(80)}]}
        pod["spec"]["nodeName"] = self._chance.choice(nodes)["metadata"]["name"]
        ready: dict[str, Any] = {"type": "Ready", "status": "True", "lastTransitionTime": ago(70)}
        return {"phase": "Running", "conditions": [ready]}


def _is_live(pod: Raw, revision: RawRevision) -> bool:
    metadata = pod["metadata"]
    if "deletionTimestamp" in metadata or pod["status"]["phase"] == "Failed":
        return False
    return any(each["uid"] == revision.uid for each in metadata.get("ownerReferences", ()))
