"""The CRD of PodGroups, with the fields that we read and write; a test installs and removes it."""

from __future__ import annotations

from typing import Any

from kube.client import Client
from kube.podgroups import PATH

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME = "podgroups.scheduling.x-k8s.io"
_NUMBER = {"type": "integer", "format": "int32"}
_SPEC = {"minMember": _NUMBER, "scheduleTimeoutSeconds": _NUMBER}
_STATUS = {"phase": {"type": "string"}, **dict.fromkeys(("running", "succeeded", "failed"), _NUMBER)}


def _fields(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def install_crd(client: Client) -> None:
    """Without `scheduled`, as newer versions have it: the API server drops what it does not know."""
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": _fields({"spec": _fields(_SPEC), "status": _fields(_STATUS)})},
    }
    spec = {
        "group": "scheduling.x-k8s.io",
        "scope": "Namespaced",
        "names": {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup", "listKind": "PodGroupList"},
        "versions": [version],
    }
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"}
    client.post(CRDS, {"metadata": {"name": NAME, "annotations": approved}, "spec": spec})


def remove_crd(client: Client) -> None:
    client.remove(f"{CRDS}/{NAME}")


def pod_group(name: str, **spec: int) -> dict[str, Any]:
    kind = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def path_in(namespace: str) -> str:
    group, _, plural = PATH.rpartition("/")
    return f"{group}/namespaces/{namespace}/{plural}"
