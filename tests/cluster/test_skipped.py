"""What is not placed in an opted-in namespace is counted with its reason: in status, in metrics and on the page."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from placement import names
from placement.skipped import SkipReason
from tests.builders.api import raw_pod_spec, raw_template, raw_workload
from tests.cluster.clustersetup import ClusterSetup, cluster_setup
from tests.cluster.namespaceuser import wait_for
from tests.cluster.tenant import answer, tenant

pytestmark = pytest.mark.cluster

OWN = {"app": "other"}
EXPECTED = {
    SkipReason.BARE_POD: 1,
    SkipReason.BARE_REPLICA_SET: 2,
    SkipReason.JOB: 1,
    SkipReason.OPTED_OUT: 3,
    SkipReason.OTHER_SCHEDULER: 1,
    SkipReason.ARGO_ROLLOUT: 2,
    SkipReason.CLONE_SET: 1,
}


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    with cluster_setup(tmp_path_factory.mktemp("skipped"), rebalancers=1, webhooks=1) as setup:
        yield setup


def owner(kind: str, version: str) -> dict[str, Any]:
    """A controller whose kind this cluster does not even know, as its pods and ReplicaSets name it."""
    return {"apiVersion": version, "kind": kind, "name": "other", "uid": f"uid-{kind.lower()}", "controller": True}


def populate(own: ClusterSetup) -> None:
    user, client = own.user, own.user.client
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare", "labels": OWN}, "spec": raw_pod_spec()}
    client.post(user.pods_path, bare)
    cloned = {"name": "cloned", "ownerReferences": [owner("CloneSet", "apps.kruise.io/v1alpha1")]}
    client.post(user.pods_path, {**bare, "metadata": cloned})
    user.create(raw_workload("ReplicaSet", "alone", 2))
    rolled = raw_workload("ReplicaSet", "rolled", 2)
    rolled["metadata"]["ownerReferences"] = [owner("Rollout", "argoproj.io/v1alpha1")]
    user.create(rolled)
    user.create(raw_workload("Deployment", "out", 3, {names.PLACEMENT: names.DISABLED}))
    user.create(raw_workload("Deployment", "foreign", 1, template=raw_template("foreign", schedulerName="another")))
    user.create(raw_workload("Deployment", "web", 3))
    waiting = raw_pod_spec(
        nodeSelector={"there": "is-none"}, restartPolicy="Never"
    )  # a node here would complete it at once
    job = {"template": {"spec": waiting}}
    raw = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": job}
    client.post(f"/apis/batch/v1/namespaces/{user.namespace}/jobs", raw)


def agrees(look: Callable[[], dict[str, int]], expected: dict[str, int]) -> bool:
    return look() == expected


def test_what_is_not_placed_is_counted(setup: ClusterSetup, capsys: pytest.CaptureFixture[str]) -> None:
    """`status -o json`, the metric and the page's API count the same pods; `status` has one line for them."""
    own = tenant(setup, "mixed")
    populate(own)

    def in_status() -> dict[str, int]:
        found = json.loads(answer(own, capsys, "status", "-n", "mixed", "-o", "json"))["skipped"]
        return {each["reason"]: each["pods"] for each in found}

    def in_metrics() -> dict[str, int]:
        told = {
            reason: own.told(names.METRIC_SKIPPED, 'namespace="mixed"', f'reason="{reason}"') for reason in EXPECTED
        }
        return {str(reason): pods for reason, pods in told.items() if pods}

    def on_the_page() -> dict[str, int]:
        with urllib.request.urlopen(
            f"{(own.installed.dashboard or '').rstrip('/')}/api/v1/overview", timeout=10
        ) as reply:
            reasons = json.load(reply)["skipped"]["reasons"]
        return {each["reason"]: each["pods"] for each in reasons if each["namespace"] == "mixed"}

    expected = {str(reason): pods for reason, pods in EXPECTED.items()}
    for look in (in_status, in_metrics, on_the_page):
        with suppress(AssertionError):  # the comparison says more
            wait_for("all to be counted", partial(agrees, look, expected))
        assert look() == expected
    line = " ".join(answer(own, capsys, "status", "-n", "mixed").split())
    assert "Not placed: 11 pods in mixed (" in line
    assert "2 owned by an Argo Rollout" in line
