"""What is none of ours stays as it is, to the byte."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kube.client import Client
from kube.errors import NotFound
from placement import names
from tests.builders.api import raw_namespace, raw_pod_spec, raw_template, raw_workload
from tests.cluster.namespaceuser import NamespaceUser, wait_for

pytestmark = pytest.mark.cluster

ROLLOUT = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Rollout",
    "name": "canary",
    "uid": "c0ffee",
    "controller": True,
}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "app"},
    "spec": {"parallelism": 3, "completions": 3, "template": raw_template("app", restartPolicy="Never")},
}
CREATED: dict[str, tuple[str, dict[str, Any]]] = {
    "a DaemonSet": (
        "/apis/apps/v1/namespaces/{}/daemonsets",
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "app"},
            "spec": {"selector": {"matchLabels": {"app": "app"}}, "template": raw_template("app")},
        },
    ),
    "a Job": ("/apis/batch/v1/namespaces/{}/jobs", JOB),
    "a bare pod": (
        "/api/v1/namespaces/{}/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "app", "labels": {"app": "app"}},
            "spec": raw_pod_spec(),
        },
    ),
    "a bare ReplicaSet": ("/apis/apps/v1/namespaces/{}/replicasets", raw_workload("ReplicaSet", "app", 3)),
    "a ReplicaSet of an Argo Rollout": (
        "/apis/apps/v1/namespaces/{}/replicasets",
        {**raw_workload("ReplicaSet", "app", 3), "metadata": {"name": "app", "ownerReferences": [ROLLOUT]}},
    ),
    "a Deployment whose pods name their node": (
        "/apis/apps/v1/namespaces/{}/deployments",
        raw_workload("Deployment", "app", 3, template=raw_template("app", nodeName="spot-a-m5-0")),
    ),
    "a Deployment for another scheduler": (
        "/apis/apps/v1/namespaces/{}/deployments",
        raw_workload("Deployment", "app", 3, template=raw_template("app", schedulerName="volcano")),
    ),
    "a Deployment that opts out by annotation": (
        "/apis/apps/v1/namespaces/{}/deployments",
        raw_workload("Deployment", "app", 3, {names.PLACEMENT: names.DISABLED}),
    ),
    "a Deployment that opts out by label": (
        "/apis/apps/v1/namespaces/{}/deployments",
        {
            **raw_workload("Deployment", "app", 3),
            "metadata": {"name": "app", "labels": {names.PLACEMENT: names.DISABLED}},
        },
    ),
    "a Deployment whose template opts out": (
        "/apis/apps/v1/namespaces/{}/deployments",
        raw_workload(
            "Deployment",
            "app",
            3,
            template={
                "metadata": {"labels": {"app": "app", names.PLACEMENT: names.DISABLED}},
                "spec": raw_pod_spec(),
            },
        ),
    ),
}


def as_created(raw_pod: dict[str, Any]) -> dict[str, Any]:
    """A pod without what the API server, the scheduler and a kubelet make different from pod to pod."""
    pod = copy.deepcopy(raw_pod)
    for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
        pod["metadata"].pop(key, None)
    for reference in pod["metadata"].get("ownerReferences", []):
        reference.pop("uid")
    labels = pod["metadata"]["labels"]
    for key in [key for key in labels if key.startswith(("topology.", "batch.", "controller-uid"))]:
        labels.pop(key)
    pod.pop("status")
    pod["spec"].pop("nodeName", None)
    terms = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms.pop("requiredDuringSchedulingIgnoredDuringExecution", None) if _is_daemon(pod) else None
    return pod


def _is_daemon(pod: dict[str, Any]) -> bool:
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", []))


def pods_of(client: Client, namespace: str, path: str, raw: dict[str, Any], count: int) -> list[dict[str, Any]]:
    client.post(path.format(namespace), raw)
    listing = f"/api/v1/namespaces/{namespace}/pods"
    wait_for("its pods", lambda: len(client.get_json(listing)["items"]) >= count)
    found: list[dict[str, Any]] = client.get_json(listing)["items"]
    return found


@pytest.mark.parametrize("what", CREATED)
def test_pods_that_are_none_of_ours_are_untouched(what: str, user: NamespaceUser) -> None:
    """Each pod in an opted-in namespace equals its twin in a namespace without the label."""
    path, raw = CREATED[what]
    twins = f"{user.namespace}-twin"
    user.client.post("/api/v1/namespaces", raw_namespace(twins))
    wait_for("the twin's account", lambda: user.exists(f"/api/v1/namespaces/{twins}/serviceaccounts/default"))
    try:
        count = 1 if what == "a bare pod" else 3
        ours = pods_of(user.client, user.namespace, path, raw, count)
        others = pods_of(user.client, twins, path, raw, count)
        (twin,) = unique(others)
        assert unique(ours) == [twin]
        assert "spotweave" not in str({**twin, "metadata": {**twin["metadata"], "labels": {}}})
    finally:
        user.client.delete(f"/api/v1/namespaces/{twins}")


def unique(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    for pod in map(as_created, pods):
        if pod not in seen:
            seen.append(pod)
    return seen


def test_a_namespace_without_the_label_is_untouched(outsider: NamespaceUser) -> None:
    """Not a label, not an annotation, not a constraint."""
    outsider.create(raw_workload("Deployment", "web", 5))
    wait_for("the pods", lambda: len(outsider.pods("web")) == 5)
    assert "spotweave" not in str(outsider.pods("web"))


def test_our_own_namespace_is_untouched_even_if_somebody_labels_it(user: NamespaceUser) -> None:
    """The webhook never stands in front of its own pods."""
    system = NamespaceUser(user.client, user.kubeconfig, names.SYSTEM_NAMESPACE)
    path = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}"
    secure = {
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "app",
                "image": "example/app:1.0",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    }
    user.client.patch(path, {"metadata": {"labels": {names.PLACEMENT: names.ENABLED}}})
    try:
        system.create(raw_workload("Deployment", "guest", 3, template=raw_template("guest", **secure)))
        wait_for("the pods", lambda: len(system.pods("guest")) == 3)
        assert [key for pod in system.pods("guest") for key in pod["metadata"].get("annotations", {})] == []
        assert all("affinity" not in pod["spec"] for pod in system.pods("guest"))
    finally:
        user.client.patch(path, {"metadata": {"labels": {names.PLACEMENT: None}}})
        system.delete("Deployment", "guest")


def test_the_accounts_may_do_no_more_than_they_need(user: NamespaceUser) -> None:
    """The webhook's ServiceAccount cannot create or evict pods, or read other Secrets. The fence limits its patches."""
    account = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{names.WEBHOOK_ACCOUNT}"

    def may(verb: str, group: str, resource: str, namespace: str, name: str = "", subresource: str = "") -> bool:
        attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": account, "resourceAttributes": {**attributes, "subresource": subresource}},
        }
        answer = user.client.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    system = names.SYSTEM_NAMESPACE
    assert may("list", "", "pods", user.namespace)
    assert may("get", "", "secrets", system, names.TLS_SECRET)
    assert not may("create", "", "pods", user.namespace, subresource="eviction")
    assert not any(may(verb, "", "pods", user.namespace) for verb in ("create", "update", "delete"))
    assert not may("get", "", "secrets", user.namespace)
    assert not may("get", "", "secrets", system, "other")
    assert not may("patch", "apps", "deployments", user.namespace)
    group = "admissionregistration.k8s.io"
    for configurations in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        assert may("patch", group, configurations, "", names.WEBHOOK_CONFIGURATION)
        assert not any(
            may(verb, group, configurations, "", other)
            for verb in ("get", "list", "watch", "patch")
            for other in ("other", "")
        )


def test_a_namespace_that_opts_out_again_is_untouched(user: NamespaceUser) -> None:
    """With the label gone, new pods come as if Spotweave were not there."""
    user.create(raw_workload("Deployment", "web", 2))
    user.rest("web")
    user.client.patch(f"/api/v1/namespaces/{user.namespace}", {"metadata": {"labels": {names.PLACEMENT: None}}})
    wait_for("untouched pods", lambda: _untouched_pod(user))
    with pytest.raises(StopIteration):
        user.status("web")


def _untouched_pod(user: NamespaceUser) -> bool:
    """The API server needs a moment to see the label gone: a pod is deleted until one comes back untouched."""
    for pod in user.pods("web"):
        if "spotweave" not in str(pod):
            return True
    try:
        user.delete_pod(user.pods("web")[0]["metadata"]["name"])
    except (NotFound, IndexError):
        return False
    return False
