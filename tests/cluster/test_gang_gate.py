"""Members that get their gate from the webhook, as before Kubernetes 1.36: the policy of the API server is removed."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import yaml

from demo.gangs import OVERLAY_WITHOUT_POLICY, rendered
from kube.errors import ApiError
from kube.gates import has_gate, remove_gate
from localcluster import kubectl
from placement import names
from tests.cluster.clustersetup import PLAIN, ClusterSetup
from tests.cluster.gangs import GATE, GROUP, MEMBER, create, is_gated, is_labelled, raw_member
from tests.cluster.namespaceuser import wait_for
from tests.cluster.test_gang_admission import MADE, outcome, random_pod, raw_job

pytestmark = pytest.mark.cluster
PODS = 100


@pytest.fixture(scope="module")
def gated(gangs: ClusterSetup) -> ClusterSetup:
    """What is installed otherwise, with the entry for the gate in place of the policy."""
    assert remove_gate(gangs.user.client)
    (entries,) = (each for each in rendered(OVERLAY_WITHOUT_POLICY) if each["kind"] == "MutatingWebhookConfiguration")
    apply = ("apply", "--server-side", "--force-conflicts", "--field-manager=spotweave", "-f", "-")
    kubectl.call(*apply, kubeconfig=gangs.user.kubeconfig, stdin=yaml.safe_dump(entries))
    wait_for("the entry to be asked", lambda: _is_gated_now(gangs))
    return gangs


def _is_gated_now(gangs: ClusterSetup) -> bool:
    """It refuses members until its certificate is trusted."""
    try:
        return is_gated(create(gangs.user, raw_member("probe", GROUP), dry=True))
    except ApiError:
        return False


@pytest.mark.parametrize(("annotations", "metadata", "spec", "gates"), MADE.values(), ids=MADE.keys())
def test_the_same_pods_are_gated_as_by_the_policy(
    gated: ClusterSetup,
    annotations: dict[str, Any],
    metadata: dict[str, Any],
    spec: dict[str, Any],
    gates: list[dict[str, str]] | None,
) -> None:
    assert not has_gate(gated.user.client)
    raw = raw_member("made", annotations, **spec)
    raw["metadata"].update(metadata)
    made = create(gated.user, raw, dry=True)
    wanted = spec.get("schedulingGates") if gates is None else gates
    assert sorted(map(str, made["spec"].get("schedulingGates") or [])) == sorted(map(str, wanted or []))
    assert made["metadata"].get("labels", {}) == {**metadata.get("labels", {}), **({} if gates is None else MEMBER)}


def test_a_gang_starts_whole(gated: ClusterSetup) -> None:
    """A Job's members get gate and label, and the rebalancer starts them together."""
    user = gated.user
    user.client.post(f"/apis/batch/v1/namespaces/{user.namespace}/jobs", raw_job("train", GROUP))
    wait_for("all members", lambda: len(user.pods("train")) == 3)
    assert all(is_gated(each) and is_labelled(each) for each in user.pods("train"))
    rebalancer = gated.start()
    wait_for("all to have nodes", lambda: all(each["spec"].get("nodeName") for each in user.pods("train")))
    rebalancer.process.terminate()
    rebalancer.process.wait(15)
    gone = {"propagationPolicy": "Background"}
    user.client.delete(f"/apis/batch/v1/namespaces/{user.namespace}/jobs/train", query=gone)


def test_no_other_pod_is_refused_because_of_us(gated: ClusterSetup) -> None:
    """Each of 100 odd pods fares as it does where nobody opted in."""
    chance, members = random.Random(136), 0
    elsewhere = replace(gated.user, namespace=PLAIN)
    for number in range(PODS):
        raw = random_pod(chance, number)
        here, _, is_member = outcome(gated.user, raw)
        assert bool(here) is bool(outcome(elsewhere, raw)[0]), f"{raw}: {here}"
        members += is_member
    assert members > PODS / 10


def test_without_a_webhook_members_alone_are_refused(gated: ClusterSetup) -> None:
    """Their controllers try again; all other pods are created. It comes last: the webhook is killed."""
    for each in gated.installed.processes:
        each.process.kill()
        each.process.wait()
    with pytest.raises(ApiError, match=r"gate\.spotweave\.dev"):
        create(gated.user, raw_member("refused", GROUP))
    made = create(gated.user, raw_member("plain", {}))
    assert GATE not in made["spec"].get("schedulingGates", [])
    assert names.GANG_LABEL not in made["metadata"].get("labels", {})
