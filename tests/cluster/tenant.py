"""Namespaces beside `shop`, what new pods there are required to, and which outages stand for whom."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kube.configmaps import PATH as CONFIG_MAPS
from kube.errors import NotFound
from kube.membership import PATH as LEASES
from placement import names
from placement.outage import KEY as OUTAGES
from tests.builders.api import raw_namespace
from tests.cluster.clustersetup import ClusterSetup
from tests.cluster.namespaceuser import NamespaceUser, label, wait_for


def tenant(setup: ClusterSetup, name: str, settings: Mapping[str, str] | None = None) -> ClusterSetup:
    """The same cluster, seen from a new namespace that is opted in, with these settings as its defaults."""
    setup.user.client.post("/api/v1/namespaces", raw_namespace(name, annotations=dict(settings or {})))
    label(setup.user.client, name)
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    wait_for("the namespace to take pods", lambda: setup.user.exists(account))
    return replace(setup, user=replace(setup.user, namespace=name))


def empty(user: NamespaceUser) -> None:
    """No Deployment and no pod is left in a namespace."""
    user.client.delete(user.path("Deployment"))
    user.client.delete(user.pods_path)
    wait_for("the pods to go", lambda: not user.client.get_json(user.pods_path)["items"])


def requires_spot(raw_pod: dict[str, Any]) -> bool:
    """Whether a pod may run nowhere but on spot, by a term of ours."""
    affinity = raw_pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
    asked = [each for term in required for each in term.get("matchExpressions", ())]
    return any(each["key"] == names.CAPACITY and each["operator"] == "In" for each in asked)


def required(user: NamespaceUser, name: str) -> int:
    """How many of a workload's pods may run nowhere but on spot."""
    return sum(map(requires_spot, user.pods(name)))


def on_spot(user: NamespaceUser, name: str) -> int:
    """How many of a workload's pods are given spot, preferred or required."""
    return sum(of == "spot" for of in user.classes(name).values())


def next_pod(user: NamespaceUser, name: str) -> dict[str, Any]:
    """The pod that a Deployment would get now: admitted in a dry run."""
    query = {"labelSelector": f"app={name}"}
    (owner,) = user.client.get_json(user.path("ReplicaSet"), query)["items"]
    meta, template = owner["metadata"], owner["spec"]["template"]
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": meta["name"], "uid": meta["uid"]}
    metadata = {
        "generateName": f"{meta['name']}-",
        "labels": template["metadata"]["labels"],
        "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    pod: dict[str, Any] = user.client.post(user.pods_path, body, {"dryRun": "All"})
    return pod


def noted(setup: ClusterSetup) -> tuple[int, list[dict[str, Any]]]:
    """The version of what is noted, and the outages that stand, as they are in the shared state."""
    try:
        data = setup.user.client.get_json(f"{CONFIG_MAPS}/{names.STATE_MAP}").get("data") or {}
    except NotFound:
        return 0, []
    state = json.loads(data.get(OUTAGES, "") or '{"version": 0, "outages": []}')
    return state["version"], [each for each in state["outages"] if time.time() < each["until"]]


def clear_outages(setup: ClusterSetup) -> None:
    """As an operator does it; returns when every webhook has read that."""
    setup.spotweave("outage", "clear")
    version, _ = noted(setup)

    def shown() -> set[int]:
        leases = setup.user.client.get_json(LEASES)["items"]
        found = (each["metadata"].get("annotations", {}).get(names.OUTAGE_VERSION) for each in leases)
        return {int(each) for each in found if each is not None}

    wait_for("every webhook to know", lambda: min(shown()) >= version)


def answer(setup: ClusterSetup, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints."""
    capsys.readouterr()
    setup.spotweave(*arguments)
    return capsys.readouterr().out
