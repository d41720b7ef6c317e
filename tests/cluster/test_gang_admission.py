"""Members of gangs get their gate inside the API server, their PriorityClass at the webhook, and are never refused."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import replace
from typing import Any

import pytest

from kube.errors import ApiError
from kube.gates import BINDING, POLICY, gated_pods
from placement import names
from placement.gang.twins import twin_name
from tests.builders.api import raw_template, raw_workload
from tests.cluster.clustersetup import PLAIN, ClusterSetup
from tests.cluster.gangs import FOREIGN, GATE, GROUP, MEMBER, create, is_gated, is_labelled, raw_member
from tests.cluster.namespaceuser import NamespaceUser, wait_for

pytestmark = pytest.mark.cluster

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
LONG = f"team/{'x' * 60}.job-1"  # no label could have that value


def owned_by(kind: str, version: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "name": "owner", "uid": "u-1", "controller": True}


MADE: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], list[dict[str, str]] | None]] = {
    "a member": (GROUP, {}, {}, [GATE]),
    "a pod without a group": ({}, {}, {}, None),
    "a group without a name": ({names.POD_GROUP: ""}, {}, {}, None),
    "a group of blanks": ({names.POD_GROUP: "  "}, {}, {}, None),
    "a name that is longer than a label": ({names.POD_GROUP: LONG}, {}, {}, [GATE]),
    "a name in another script": ({names.POD_GROUP: "訓練 ✓"}, {}, {}, [GATE]),
    "somebody else's gates stay": (GROUP, {}, {"schedulingGates": [FOREIGN]}, [FOREIGN, GATE]),
    "the gate is there already": (GROUP, {}, {"schedulingGates": [GATE, FOREIGN]}, [GATE, FOREIGN]),
    "labels stay": (GROUP, {"labels": {"app": "a", "x/y": ""}}, {}, [GATE]),
    "the label is there already": (GROUP, {"labels": MEMBER}, {}, [GATE]),
    "the label has another value": (GROUP, {"labels": {names.GANG_LABEL: "mine"}}, {}, [GATE]),
    "empty lists": (GROUP, {"labels": {}, "ownerReferences": []}, {"schedulingGates": []}, [GATE]),
    "a Job's": (GROUP, {"ownerReferences": [owned_by("Job", "batch/v1")]}, {}, [GATE]),
    "the default scheduler by name": (GROUP, {}, {"schedulerName": "default-scheduler"}, [GATE]),
    "another scheduler's": (GROUP, {}, {"schedulerName": "other"}, None),
    "a node that is named": (GROUP, {}, {"nodeName": "nowhere"}, None),
    "a DaemonSet's": (GROUP, {"ownerReferences": [owned_by("DaemonSet", "apps/v1")]}, {}, None),
    "opted out": (GROUP, {"labels": {names.PLACEMENT: names.DISABLED}}, {}, None),
}


@pytest.mark.parametrize(("annotations", "metadata", "spec", "gates"), MADE.values(), ids=MADE.keys())
def test_who_gets_the_gate(
    gangs: ClusterSetup,
    annotations: dict[str, Any],
    metadata: dict[str, Any],
    spec: dict[str, Any],
    gates: list[dict[str, str]] | None,
) -> None:
    """Gate and label come together, also in a dry run; without them nothing differs from the same pod elsewhere."""
    raw = raw_member("made", annotations, **spec)
    raw["metadata"].update(metadata)
    for dry in (True, False):
        made = create(gangs.user, raw, dry=dry)
        wanted = spec.get("schedulingGates") if gates is None else gates
        assert sorted(map(str, made["spec"].get("schedulingGates") or [])) == sorted(map(str, wanted or []))
        expected = {**metadata.get("labels", {}), **({} if gates is None else MEMBER)}
        assert made["metadata"].get("labels", {}) == expected
    gangs.user.delete_pod("made")
    elsewhere = create(replace(gangs.user, namespace=PLAIN), raw, dry=True)
    assert not is_gated(elsewhere) or gates == [GATE, FOREIGN]
    assert elsewhere["metadata"].get("labels", {}) == metadata.get("labels", {})


def raw_job(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    template = raw_template(name, restartPolicy="Never")
    template["metadata"]["annotations"] = annotations
    return {"metadata": {"name": name}, "spec": {"parallelism": 3, "completions": 3, "template": template}}


def test_pods_of_every_controller_are_gated(gangs: ClusterSetup) -> None:
    """A Job's, a Deployment's and a StatefulSet's, and none beside them; the webhook gives members no slot."""
    user = gangs.user
    user.client.post(f"/apis/batch/v1/namespaces/{user.namespace}/jobs", raw_job("job", GROUP))
    for kind, name, written in (
        ("Deployment", "web", GROUP),
        ("StatefulSet", "db", GROUP),
        ("Deployment", "plain", {}),
    ):
        raw = raw_workload(kind, name, 2)
        raw["spec"]["template"]["metadata"]["annotations"] = written
        raw["spec"].update({"podManagementPolicy": "Parallel"} if kind == "StatefulSet" else {})
        user.create(raw)
    counts = {"job": 3, "web": 2, "db": 2, "plain": 2}
    wait_for("all pods", lambda: {name: len(user.pods(name)) for name in counts} == counts)
    for name in ("job", "web", "db"):
        assert all(is_gated(pod) and is_labelled(pod) for pod in user.pods(name))
        assert not any(names.SLOT in pod["metadata"]["annotations"] for pod in user.pods(name))
    for pod in user.pods("plain"):
        assert not is_gated(pod)
        assert names.SLOT in pod["metadata"]["annotations"]
    for kind, name in (("Deployment", "web"), ("StatefulSet", "db"), ("Deployment", "plain")):
        user.delete(kind, name)
    orphans = {"propagationPolicy": "Background"}
    user.client.delete(f"/apis/batch/v1/namespaces/{user.namespace}/jobs/job", query=orphans)


# --- a twin of its class ---------------------------------------------------------------------------------------------


def priority_class(name: str, value: int, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "value": value, **fields}


def asked(user: NamespaceUser, priority: str = "", annotations: dict[str, str] = GROUP) -> tuple[str, int, str]:
    """What a new member has for its PriorityClass, its priority, and whom it preempts."""
    more = {"priorityClassName": priority} if priority else {}
    spec = create(user, raw_member("asks", annotations, **more), dry=True)["spec"]
    return spec.get("priorityClassName", ""), spec["priority"], spec["preemptionPolicy"]


def test_a_member_gets_the_twin_that_the_rebalancer_makes(gangs: ClusterSetup) -> None:
    """Once a member has asked for the class. A quota by class, a system class and other pods get none."""
    user, client = gangs.user, gangs.user.client
    client.post(CLASSES, priority_class("high", 1000))
    client.post(CLASSES, priority_class("calm", 7, preemptionPolicy="Never"))
    assert asked(user, "high") == ("high", 1000, "PreemptLowerPriority")
    create(user, raw_member("first", GROUP, priorityClassName="high"))
    rebalancer = gangs.start()
    wait_for("the twin to be given", lambda: asked(user, "high") == (twin_name("high"), 1000, "Never"))
    wait_for("the twin of no class", lambda: asked(user) == (twin_name(""), 0, "Never"))
    assert asked(user, "calm") == ("calm", 7, "Never")
    assert asked(user, "high", {}) == ("high", 1000, "PreemptLowerPriority")
    assert asked(user, twin_name("high")) == (twin_name("high"), 1000, "Never")
    twin = client.get_json(f"{CLASSES}/{twin_name('high')}")
    assert twin["metadata"]["labels"] == {names.TWIN_OF: "high"}
    rebalancer.process.terminate()
    rebalancer.process.wait(15)
    _is_not_given_where_a_quota_counts_by_class(user)
    user.delete_pod("first")


def _is_not_given_where_a_quota_counts_by_class(user: NamespaceUser) -> None:
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    quota = {"hard": {"pods": "5"}, "scopeSelector": {"matchExpressions": [scope]}}
    path = f"/api/v1/namespaces/{user.namespace}/resourcequotas"
    user.client.post(path, {"metadata": {"name": "by-class"}, "spec": quota})
    wait_for("the quota to be seen", lambda: asked(user, "high") == ("high", 1000, "PreemptLowerPriority"))
    user.client.delete(f"{path}/by-class")
    wait_for("its end to be seen", lambda: asked(user, "high") == (twin_name("high"), 1000, "Never"))


# --- whatever they look like -----------------------------------------------------------------------------------------

TEXTS = ["", "a", "spark/driver.1", LONG, "ü" * 90, "a b", " ", "true", "0", "x" * 3000]
KEYS = [names.POD_GROUP, names.POD_GROUP_MIN_MEMBER, names.PRIORITY, names.SLOT, names.GANG_PLAN, "example.com/a"]
PODS = 300


def random_pod(chance: random.Random, number: int) -> dict[str, Any]:
    """A pod as nobody would write it; many are refused anywhere, and some of the others are members."""
    annotations = {key: chance.choice(TEXTS) for key in chance.sample(KEYS, chance.randint(0, 4))}
    annotations |= GROUP if chance.random() < 0.5 else {}
    spec: dict[str, Any] = {}
    choices: dict[str, list[Any]] = {
        "schedulingGates": [None, [], [FOREIGN], [GATE], [FOREIGN, GATE], [{"name": "a/b"}, FOREIGN], [{"name": ""}]],
        "schedulerName": ["", "default-scheduler", "other", None],
        "nodeName": ["", "nowhere", None],
        "priorityClassName": ["", "low", "system-node-critical", "none-such"],
        "preemptionPolicy": ["Never", "PreemptLowerPriority", None],
        "priority": [0, 1, None],
        "affinity": [{}, {"nodeAffinity": {}}, None],
        "nodeSelector": [{}, {"a": "b"}, None],
        "tolerations": [[], [{"operator": "Exists"}], None],
        "restartPolicy": ["Never", "OnFailure", ""],
        "initContainers": [[], None, [{"name": "i", "image": "i"}]],
    }
    for field in chance.sample(sorted(choices), chance.randint(0, 5)):
        spec[field] = chance.choice(choices[field])
    raw = raw_member(f"p{number}", annotations, **spec)
    metadata: dict[str, list[Any]] = {
        "annotations": [None, {}],
        "labels": [None, {}, {"a": "b"}, MEMBER, {names.GANG_LABEL: ""}, {names.PLACEMENT: names.DISABLED}],
        "ownerReferences": [None, [], [owned_by("Job", "batch/v1")], [owned_by("DaemonSet", "apps/v1")]],
        "finalizers": [None, [], ["example.com/f"]],
    }
    for field in metadata:
        if chance.random() < 0.25:
            raw["metadata"][field] = chance.choice(metadata[field])
    return raw


def outcome(user: NamespaceUser, raw: dict[str, Any]) -> tuple[str, float, bool]:
    """Why it is refused, or nothing; how long that took; and whether it is a member."""
    began = time.monotonic()
    try:
        made = create(user, raw, dry=True)
    except ApiError as error:
        text = error.message.replace(user.namespace, "")
        return f"{error.status} {text}", time.monotonic() - began, False
    return "", time.monotonic() - began, is_gated(made) and is_labelled(made)


def test_no_pod_is_refused_because_of_us(gangs: ClusterSetup) -> None:
    """Each of 300 odd pods fares as it does in a namespace that is not opted in, and takes milliseconds."""
    chance = random.Random(14)
    elsewhere = replace(gangs.user, namespace=PLAIN)
    gangs.user.client.post(CLASSES, priority_class("low", 1))
    members, seconds, plain = 0, [], []
    for number in range(PODS):
        raw = random_pod(chance, number)
        there, there_seconds, _ = outcome(elsewhere, raw)
        here, here_seconds, is_member = outcome(gangs.user, raw)
        assert bool(here) is bool(there), f"{raw}: {here or there}"
        members += is_member
        if not here:
            seconds.append(here_seconds)
            plain.append(there_seconds)
    slow = sorted(seconds)[int(len(seconds) * 0.95)]
    print(
        f"{len(seconds)} of {PODS} pods created, {members} of them members: median {statistics.median(seconds):.4f} s"
    )
    print(f"95 % within {slow:.4f} s; median where nobody opted in {statistics.median(plain):.4f} s")
    assert members > PODS / 10
    assert len(seconds) > PODS / 4
    assert statistics.median(seconds) < 0.1


def test_members_are_gated_without_a_webhook(gangs: ClusterSetup) -> None:
    """Its process is killed: members are created all the same, with gate and label."""
    for each in gangs.installed.processes:
        each.process.kill()
        each.process.wait()
    began = time.monotonic()
    for number in range(20):
        assert is_gated(create(gangs.user, raw_member(f"alone-{number}", GROUP)))
    print(f"20 members without a webhook: {time.monotonic() - began:.2f} s")


def test_uninstalling_leaves_no_gate_behind(gangs: ClusterSetup, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor a policy that would give one, nor a twin; other people's gates stay. It comes last: it takes all away."""
    user, client = gangs.user, gangs.user.client
    create(user, raw_member("held", GROUP, schedulingGates=[FOREIGN]))
    waiting = len(list(gated_pods(client)))
    assert waiting > 1
    assert gangs.spotweave("uninstall") == 0
    assert f"Took the gate off {waiting} pods" in capsys.readouterr().out
    assert list(gated_pods(client)) == []
    assert client.get_json(f"{user.pods_path}/held")["spec"]["schedulingGates"] == [FOREIGN]
    assert not user.exists(POLICY)
    assert not user.exists(BINDING)
    found = [each["metadata"]["name"] for each in client.get_json(CLASSES)["items"]]
    assert not [name for name in found if name.startswith(names.TWIN_PREFIX)]
    pods = client.get_json(user.pods_path)["items"]
    assert not any(map(is_labelled, pods))
    wait_for("new pods to get none", lambda: not is_gated(create(user, raw_member("later", GROUP), dry=True)))
