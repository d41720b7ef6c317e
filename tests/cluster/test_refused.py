"""Another policy or a quota refuses what we patch: pods are created all the same, unpatched, and people learn why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from kube.errors import ApiError
from placement import names
from placement.decide import Reason
from placement.plan.actions import Blocked
from placement.refusal import UNPATCHED
from tests.builders.api import raw_workload
from tests.cluster.clustersetup import ClusterSetup, cluster_setup
from tests.cluster.namespaceuser import NamespaceUser, wait_for
from tests.cluster.tenant import answer, tenant

pytestmark = pytest.mark.cluster

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
NO_SPOT = "no-spot-tolerations"
PROMISED_SECONDS = 30.0  # on a machine with nothing else to do; here conditions are waited for


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    """Two webhooks and a rebalancer, which moves what it can at once."""
    with cluster_setup(tmp_path_factory.mktemp("refused"), rebalancers=1) as setup:
        yield setup


@contextmanager
def denying(setup: ClusterSetup, name: str, expression: str, message: str) -> Iterator[None]:
    """A policy of the platform team, for the scene's namespace alone; in force when a dry run is refused."""
    meta = {"name": name}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": setup.user.namespace}},
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ],
        },
        "validations": [{"expression": expression, "message": message}],
    }
    kind, version = "ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1"
    client = setup.user.client
    client.post(POLICIES, {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec})
    bound = {"policyName": name, "validationActions": ["Deny"]}
    client.post(BINDINGS, {"apiVersion": version, "kind": f"{kind}Binding", "metadata": meta, "spec": bound})
    try:
        yield
    finally:
        client.delete(f"{BINDINGS}/{name}")
        client.delete(f"{POLICIES}/{name}")


@contextmanager
def no_tolerations(setup: ClusterSetup) -> Iterator[None]:
    """Pods must not tolerate the taint of spot nodes, which is what our patch of spot slots does."""
    expression = f"!has(object.spec.tolerations) || object.spec.tolerations.all(each, each.key != '{names.CAPACITY}')"
    with denying(setup, NO_SPOT, expression, "spot nodes are not for everybody"):
        probe = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "probe"},
            "spec": {
                "containers": [{"name": "app", "image": "example/app:1.0"}],
                "tolerations": [{"key": names.CAPACITY, "operator": "Exists"}],
            },
        }
        wait_for("the policy to be in force", lambda: is_refused(setup.user, probe))
        yield


def is_refused(user: NamespaceUser, raw: dict[str, Any]) -> bool:
    try:
        user.client.post(user.pods_path, raw, {"dryRun": "All"})
    except ApiError as error:
        return NO_SPOT in str(error)
    return False


def is_patched(raw_pod: dict[str, Any]) -> bool:
    """By admission: what the rebalancer writes later changes no spec."""
    return "affinity" in raw_pod["spec"] or "topologySpreadConstraints" in raw_pod["spec"]


def refusals(setup: ClusterSetup) -> list[dict[str, Any]]:
    return setup.user.events(names.EVENT_REFUSED)


def said(setup: ClusterSetup, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints, however its lines are broken."""
    return " ".join(answer(setup, capsys, *arguments).split())


def measured(what: str, began: float) -> None:
    print(f"{what}: {time.monotonic() - began:.1f} s (promised: {PROMISED_SECONDS:.0f} s on an idle machine)")


def webhook_series(setup: ClusterSetup, metric: str) -> list[str]:
    texts = [setup.installed.metrics(each.name) for each in setup.installed.processes if "webhook" in each.name]
    return [line for text in texts for line in text.splitlines() if line.startswith(metric)]


def test_a_policy_that_denies_our_tolerations_blocks_no_deploy(
    setup: ClusterSetup, capsys: pytest.CaptureFixture[str]
) -> None:
    """All ten pods are created, those of spot slots unpatched. Event, metric, status and explain say why.

    The rebalancer leaves them where they are: a replacement would be refused, too.
    """
    own = tenant(setup, "denied")
    with no_tolerations(own):
        began = time.monotonic()
        own.create("web", 10)
        wait_for("all pods to be created", lambda: len(own.user.pods("web")) == 10)
        measured("ten pods beside a policy that denies our tolerations", began)
        assert any(map(is_patched, own.user.pods("web")))  # of on-demand slots
        assert not all(map(is_patched, own.user.pods("web")))
        wait_for("the Event", lambda: refusals(own))
        (event,) = refusals(own)
        assert f'ValidatingAdmissionPolicy "{NO_SPOT}"' in event["message"]
        assert "spot nodes are not for everybody" in event["message"]
        assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Deployment", "web")
        expected = f'{names.METRIC_REFUSED}{{by="policy",name="{NO_SPOT}"}} 1.0'
        wait_for("the metric", lambda: expected in webhook_series(own, names.METRIC_REFUSED))
        wait_for("status to say so", lambda: UNPATCHED in said(own, capsys, "status", "-n", "denied"))
        wait_for("explain to say so", lambda: str(Blocked.UNPATCHED) in said(own, capsys, "explain", "denied/web"))
        own.falls_silent()
        uids = own.uids("web")
        assert own.released("web") == []
        passes = own.passes()
        wait_for("the rebalancer to think it over", lambda: own.passes() >= passes + 10)
        assert own.uids("web") == uids
        own.user.delete("Deployment", "web")


def test_a_stateful_sets_pods_are_created_too(setup: ClusterSetup) -> None:
    """It has no condition that tells: the webhook finds the reason in the StatefulSet's Events."""
    own = tenant(setup, "denied-set")
    with no_tolerations(own):
        began = time.monotonic()
        own.user.create(raw_workload("StatefulSet", "db", 3, podManagementPolicy="Parallel"))
        wait_for("all pods to be created", lambda: len(own.user.pods("db")) == 3, 2 * 60.0)
        measured("three pods of a StatefulSet", began)
        wait_for("the Event", lambda: refusals(own))
        (event,) = refusals(own)
        assert f'ValidatingAdmissionPolicy "{NO_SPOT}"' in event["message"]
        assert event["involvedObject"]["kind"] == "StatefulSet"
        own.user.delete("StatefulSet", "db")


def test_a_quota_that_refuses_our_priority_class_blocks_no_deploy(setup: ClusterSetup) -> None:
    """Spot is out, and the surplus would get `spotweave-overflow`, of which the namespace may have none."""
    own = tenant(setup, "quota")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "no-overflow"},
        "spec": {
            "hard": {"pods": "0"},
            "scopeSelector": {
                "matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": "In", "values": [names.OVERFLOW_PRIORITY]}
                ]
            },
        },
    }
    path = "/api/v1/namespaces/quota/resourcequotas"
    own.user.client.post(path, quota)
    wait_for("the quota to count", lambda: own.user.client.get_json(f"{path}/no-overflow")["status"].get("hard"))
    own.spotweave("outage", "set", "--class", "spot", "--for", "10m")
    try:
        began = time.monotonic()
        own.create("web", 10, {names.MIN_AVAILABLE: "2"})
        wait_for("all pods to be created", lambda: len(own.user.pods("web")) == 10)
        measured("ten pods beside a quota for our priority class", began)
        assert not any(pod["spec"].get("priorityClassName") for pod in own.user.pods("web"))
        wait_for("the Event", lambda: refusals(own))
        (event,) = refusals(own)
        assert 'ResourceQuota "no-overflow"' in event["message"]
        assert any('by="quota",name="no-overflow"' in line for line in webhook_series(own, names.METRIC_REFUSED))
    finally:
        own.user.delete("Deployment", "web")
        own.spotweave("outage", "clear")


def test_a_full_quota_changes_nothing_about_the_patch(setup: ClusterSetup) -> None:
    """Three pods fit. The others are refused with or without the patch; once there is room, all are placed."""
    own = tenant(setup, "full")
    path = "/api/v1/namespaces/full/resourcequotas"
    raw = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "3"}}}
    own.user.client.post(path, raw)
    wait_for("the quota to count", lambda: own.user.client.get_json(f"{path}/few")["status"].get("hard"))
    own.create("web", 10)
    wait_for("three pods", lambda: len(own.user.pods("web")) == 3)
    told = own.user.events
    wait_for("several refusals", lambda: sum(each.get("count", 1) for each in told("FailedCreate")) > 8)
    own.user.client.patch(f"{path}/few", {"spec": {"hard": {"pods": "20"}}})
    wait_for("all pods", lambda: len(own.user.pods("web")) == 10, 120)
    assert all(map(is_patched, own.user.pods("web")))
    assert refusals(own) == []
    own.user.delete("Deployment", "web")


def test_a_burst_of_300_replicas_is_no_refusal(setup: ClusterSetup) -> None:
    """Twice: of a new ReplicaSet, and of one that was scaled to 0. No pod is left unpatched for this reason."""
    own = tenant(setup, "burst")
    before = refused_decisions(own)
    own.user.create(raw_workload("Deployment", "web", 0))
    for replicas in (300, 0, 300):
        own.user.scale("web", replicas)
        wait_for(f"{replicas} pods", partial(has_pods, own.user, replicas), 300)
    assert refusals(own) == []
    assert refused_decisions(own) == before
    own.user.delete("Deployment", "web")


def has_pods(user: NamespaceUser, count: int) -> bool:
    return len(user.pods("web")) == count


def refused_decisions(setup: ClusterSetup) -> float:
    """How many pods the webhooks have left unpatched because somebody would refuse the patch."""
    series = webhook_series(setup, f"{names.METRIC_DECISIONS}_total")
    told = [line for line in series if f'reason="{Reason.REFUSED}"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in told)
