"""API objects and answers as they go over the wire. A test names what matters to it, the rest is as usual."""

from __future__ import annotations

import json
from typing import Any

from placement.model import Owner
from tests.builders.model import REPLICA_SET

Raw = dict[str, Any]

# --- objects that people and controllers create ----------------------------------------------------------------------


def raw_namespace(name: str, **metadata: Any) -> Raw:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}


def raw_workload(kind: str, name: str, replicas: int, annotations: dict[str, str] | None = None, **spec: Any) -> Raw:
    """A Deployment, StatefulSet or ReplicaSet; `spec` replaces fields of its spec."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": raw_template(name),
            **({"serviceName": name} if kind == "StatefulSet" else {}),
            **spec,
        },
    }


def raw_template(app: str, **spec: Any) -> Raw:
    return {"metadata": {"labels": {"app": app}}, "spec": raw_pod_spec(**spec)}


def raw_object(metadata: Raw | None = None, **spec: Any) -> Raw:
    """No more than what a test writes."""
    return {"metadata": metadata or {}, "spec": spec}


def raw_bare_pod(name: str, app: str = "web", **spec: Any) -> Raw:
    """One without a controller, to be created."""
    return {"metadata": {"name": name, "labels": {"app": app}}, "spec": raw_pod_spec(**spec)}


def raw_pod_spec(**spec: Any) -> Raw:
    """A pod that asks for next to nothing and mounts no token, so that no part of it is random."""
    container = {"name": "app", "image": "example/app:1.0", "resources": {"requests": {"cpu": "10m"}}}
    return {
        "containers": [container],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        **spec,
    }


def raw_budget(name: str, app: str = "", **spec: Any) -> Raw:
    """Over the pods of an app, by default of its own name: `minAvailable=8`."""
    selector = {"matchLabels": {"app": app or name}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": selector, **spec},
    }


# --- objects that the server has stored ------------------------------------------------------------------------------


def raw_pod(name: str, *, namespace: str = "shop", version: int = 1, node: str = "", **metadata: Any) -> Raw:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": str(version)}
        | metadata,
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": "Running" if node else "Pending"},
    }


def raw_node(name: str, labels: dict[str, str] | None = None, *taints: str, cordoned: bool = False) -> Raw:
    """With these taints, each of effect NoSchedule."""
    spec = {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints], "unschedulable": cordoned}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels or {}}, "spec": spec}


# --- calls to the webhook --------------------------------------------------------------------------------------------


def raw_owner(owner: Owner) -> Raw:
    """An owner reference of a controller."""
    version = f"{owner.api_group}/v1" if owner.api_group else "v1"
    return {"apiVersion": version, "kind": owner.kind, "name": owner.name, "uid": owner.uid, "controller": True}


def raw_new_pod(owner: Owner | None = REPLICA_SET, name: str = "", **metadata: Any) -> Raw:
    """A pod as its controller asks for it. `spec` may be given among the metadata."""
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "schedulerName": "default-scheduler",
        **metadata.pop("spec", {}),
    }
    return {
        "metadata": {
            **({"name": name} if name else {"generateName": "web-abc-"}),
            **({"ownerReferences": [raw_owner(owner)]} if owner else {}),
            **metadata,
        },
        "spec": spec,
    }


def review(pod: Any, **request: Any) -> bytes:
    """The call that the API server makes, with the fields that we read."""
    written = {"uid": "u1", "operation": "CREATE", "namespace": "shop", "object": pod, **request}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": written}).encode()


def raw_review(pod: Any, uid: str = "705ab4f5-6393-11e8-b7cc-42010a800002") -> Raw:
    """The same with all fields that the API server sends; a dry run."""
    request = {
        "uid": uid,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "shop",
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller", "groups": ["a", "b"]},
        "object": pod,
        "oldObject": None,
        "dryRun": True,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


# --- answers of the server -------------------------------------------------------------------------------------------


def page(*items: Raw, version: int = 10, token: str = "", kind: str = "PodList") -> bytes:
    metadata = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
    return json.dumps({"kind": kind, "metadata": metadata, "items": items}).encode()


def event(kind: str, raw: Raw) -> bytes:
    return json.dumps({"type": kind, "object": raw}).encode()


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})


def status(code: int, reason: str, message: str = "", **details: Any) -> bytes:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return json.dumps(body | ({"details": details} if details else {})).encode()
