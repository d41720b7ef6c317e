"""`spotweave doctor` on a real installation: it names each breakage, and is silent before it and after its repair."""

from __future__ import annotations

import json
import re
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from certs import publish
from certs.authority import issue, new_authority
from cli.doctor import examined
from kube.client import Client
from kube.errors import Conflict, NotFound
from kube.lease import PATH as LEASE
from placement import names
from report.ailments import ailments
from report.sentences import NO_LEADER, NO_WEBHOOK, NOT_INSTALLED
from tests.builders.api import raw_budget, raw_pod_spec
from tests.cluster.clustersetup import ClusterSetup, cluster_setup
from tests.cluster.killing import kill
from tests.cluster.namespaceuser import wait_for

pytestmark = pytest.mark.cluster

SYSTEM = f"/namespaces/{names.SYSTEM_NAMESPACE}"
RBAC = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
DEPLOYMENT = f"/apis/apps/v1{SYSTEM}/deployments"
POLICIES = f"/apis/networking.k8s.io/v1{SYSTEM}/networkpolicies"
PRIORITY = f"/apis/scheduling.k8s.io/v1/priorityclasses/{names.OVERFLOW_PRIORITY}"
SERVICE = f"/api/v1{SYSTEM}/services/{names.WEBHOOK_SERVICE}"
CONFIG = f"/api/v1{SYSTEM}/configmaps/{names.CONFIG_MAP}"
LOOKS_SECONDS = 4.0  # webhooks renew every three seconds
Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    with cluster_setup(tmp_path_factory.mktemp("config"), webhooks=1, rebalancers=1) as setup:
        setup.serves("db", 1, kind="StatefulSet")
        yield setup


def found(setup: ClusterSetup) -> str:
    """What the doctor says now: what is wrong and how to repair it, one line for each."""
    return "\n".join(f"{each.what} → {each.repair}" for each in ailments(examined(setup.user.client, LOOKS_SECONDS)))


def nothing_is_wrong(setup: ClusterSetup) -> None:
    """Once the programs have put right what is theirs."""
    wait_for("nothing to be found", lambda: not found(setup), 40)


def write(client: Client, path: str, alter: Change) -> None:
    """Over the version that is there; others write nodes, too."""
    while True:
        raw = client.get_json(path)
        alter(raw)
        try:
            client.put(path, raw)
        except Conflict:
            continue
        return


def take(raw: dict[str, Any], content: dict[str, Any]) -> None:
    """All of the content, and the version that the object has now."""
    version = raw["metadata"]["resourceVersion"]
    raw.clear()
    raw.update({**content, "metadata": {**content["metadata"], "resourceVersion": version}})


@contextmanager
def kept(client: Client, path: str) -> Iterator[None]:
    """An object that a test changes or deletes: it is as before afterwards."""
    before: dict[str, Any] = client.get_json(path)
    for key in ("resourceVersion", "uid", "creationTimestamp", "managedFields", "generation"):
        before["metadata"].pop(key, None)
    yield
    try:
        write(client, path, lambda raw: take(raw, before))
    except NotFound:
        client.post(path.rpartition("/")[0], before)


def change(stack: ExitStack, client: Client, path: str, alter: Change) -> None:
    """Until the stack is left."""
    stack.enter_context(kept(client, path))
    write(client, path, alter)


def drop(stack: ExitStack, client: Client, path: str) -> None:
    stack.enter_context(kept(client, path))
    client.delete(path)


def create(stack: ExitStack, client: Client, collection: str, raw: dict[str, Any]) -> None:
    client.post(collection, raw)
    stack.callback(client.remove, f"{collection}/{raw['metadata']['name']}")


def test_a_good_installation_has_no_findings(own: ClusterSetup, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0, for people and for scripts; the webhook answers the API server, and a rebalancer leads."""
    nothing_is_wrong(own)
    assert own.spotweave("doctor", "-o", "json") == 0
    raw = json.loads(capsys.readouterr().out)
    assert (raw["fine"], raw["findings"], raw["unchecked"]) == (True, [], [])
    known = raw["facts"]
    assert (known["webhooks"], known["webhookAnswers"]) == (1, "answered")
    assert (known["optedIn"], bool(known["leader"])) == ([own.user.namespace], True)


def without_verb(verb: str, resource: str) -> Change:
    def alter(raw: dict[str, Any]) -> None:
        for rule in [each for each in raw["rules"] if resource in each["resources"] and verb in each["verbs"]]:
            rule["verbs"].remove(verb)
            if not rule["verbs"]:
                raw["rules"].remove(rule)

    return alter


def taint(raw: dict[str, Any]) -> None:
    raw["spec"].setdefault("taints", []).append({"key": "team", "value": "x", "effect": "NoSchedule"})


def one_version_each(stack: ExitStack, client: Client) -> None:
    """Pods as the two Deployments would have them, in the middle of an upgrade that does not end."""
    for number in (1, 2):
        spec = raw_pod_spec(
            securityContext={"runAsNonRoot": True, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}}
        )
        (container,) = spec["containers"]
        container |= {
            "name": "webhook",
            "image": f"spotweave:0.{number}.0",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        metadata = {"name": f"version-{number}", "labels": {names.COMPONENT: names.WEBHOOK_COMPONENT}}
        raw = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        create(stack, client, f"/api/v1{SYSTEM}/pods", raw)


@pytest.mark.soak
def test_what_breaks_while_the_programs_run_is_named_and_gone_once_it_is_repaired(own: ClusterSetup) -> None:
    """All at once: settings, rights, nodes, policies, budgets and versions."""
    client, user = own.user.client, own.user
    nodes = {
        each["metadata"]["name"]: each["metadata"]["labels"][names.CAPACITY]
        for each in client.get_json("/api/v1/nodes")["items"]
    }
    spot = [name for name, of in nodes.items() if of == "spot"]
    plain = next(name for name, of in nodes.items() if of != "spot")
    with ExitStack() as stack:
        change(
            stack,
            client,
            publish.CONFIGURATION,
            lambda raw: raw["webhooks"][0]["namespaceSelector"]["matchExpressions"][0].update(values=["on"]),
        )
        drop(stack, client, f"{RBAC}/spotweave-webhook-publish")
        time.sleep(1)  # until RBAC has heard of it: else the webhook would repair the next one
        change(
            stack,
            client,
            publish.EVICTION_CONFIGURATION,
            lambda raw: raw["webhooks"][0]["clientConfig"].update(caBundle=other_authority()),
        )
        change(stack, client, f"{RBAC}/spotweave-webhook", without_verb("patch", "events"))
        change(stack, client, f"{RBAC}/spotweave-rebalancer", without_verb("create", "pods/eviction"))
        change(stack, client, f"/api/v1/nodes/{plain}", lambda raw: raw["metadata"]["labels"].pop(names.CAPACITY))
        for name in spot:
            change(stack, client, f"/api/v1/nodes/{name}", taint)
        drop(stack, client, PRIORITY)
        change(stack, client, CONFIG, lambda raw: raw["data"].update({names.CONFIG_KEY: "cordon: maybe\n"}))
        policy = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": []}
        for each in client.get_json(POLICIES)["items"]:
            drop(stack, client, f"{POLICIES}/{each['metadata']['name']}")
        create(
            stack,
            client,
            POLICIES,
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": {"name": "deny-all"},
                "spec": policy,
            },
        )
        budgets = f"/apis/policy/v1/namespaces/{user.namespace}/poddisruptionbudgets"
        create(stack, client, budgets, raw_budget("db", minAvailable="100%"))
        one_version_each(stack, client)
        expected = (
            "namespaceSelector of place.spotweave.dev differ",
            "a caBundle of ValidatingWebhookConfiguration spotweave is not the authority",
            "patch events.events.k8s.io",
            "ServiceAccount spotweave-rebalancer may not create pods/eviction",
            f"node {plain}: no label {names.CAPACITY}",
            "a taint that nothing tolerates, such as team=x",
            "PriorityClass spotweave-overflow of the role overflow does not exist",
            "ConfigMap spotweave-config: cordon: 'maybe' is invalid",
            "network policies close port 8443 of spotweave-webhook (admission)",
            f"PodDisruptionBudget {user.namespace}/db never allows a disruption of 1 pod",
            "pods of several versions run: spotweave:0.1.0 (1 pod), spotweave:0.2.0 (1 pod)",
        )
        told = ""

        def all_named() -> bool:
            nonlocal told
            told = found(own)
            return all(each in told for each in expected)

        wait_for("all to be named", all_named, 30)
    nothing_is_wrong(own)


def other_authority() -> str:
    """Whose caBundle the API server takes: of a text that is no certificate it would complain."""
    return b64encode(new_authority(datetime.now(UTC)).certificate).decode()


@contextmanager
def wrong_clock(client: Client, seconds: float) -> Iterator[None]:
    """A leader whose node's clock is wrong."""
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(0.5):
            at = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="microseconds")
            spec = {"holderIdentity": "elsewhere", "renewTime": at.replace("+00:00", "Z")}
            client.patch(LEASE, {"spec": spec})

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.soak
def test_what_breaks_with_the_programs_gone_is_named(own: ClusterSetup, capsys: pytest.CaptureFixture[str]) -> None:
    """No leader, a wrong clock, no webhook, its Service, its certificate; and in the end nothing installed at all."""
    client = own.user.client
    own.stop_all()
    assert "no rebalancer leads" in found(own)
    capsys.readouterr()
    own.spotweave("status")
    assert capsys.readouterr().out.startswith(NO_LEADER)
    with wrong_clock(client, 60):
        assert re.search("the clock of elsewhere is (59|60|61) s ahead", found(own))
    kill([each for each in own.installed.processes if each.process.poll() is None])
    told = found(own)
    assert "Deployment spotweave-webhook is scaled to 0 → `kubectl -n spotweave-system scale" in told

    def status_says_so() -> bool:
        capsys.readouterr()
        own.spotweave("status")
        return capsys.readouterr().out.startswith(NO_WEBHOOK)

    wait_for("status to say so", status_says_so, 60)
    with ExitStack() as stack:
        drop(stack, client, publish.CONFIGURATION)
        change(stack, client, publish.SECRET, lambda raw: raw["data"].update({"tls.crt": "Z2FyYmxlZA=="}))
        told = found(own)
    assert "MutatingWebhookConfiguration spotweave does not exist" in told
    assert "Secret spotweave-webhook-tls holds no usable certificate" in told
    past = datetime.now(UTC) - timedelta(days=400)
    authority = new_authority(past)
    leaf = issue(authority, publish.HOSTS, past)
    with ExitStack() as stack:
        data = {"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": authority.certificate}
        encoded = {key: b64encode(each).decode() for key, each in data.items()}
        change(stack, client, publish.SECRET, lambda raw: raw["data"].update(encoded))
        change(stack, client, SERVICE, lambda raw: raw["spec"].update(selector={"app": "other"}))
        client.patch(f"{DEPLOYMENT}/{names.WEBHOOK_ACCOUNT}", {"spec": {"replicas": 1}})
        wait_for("the pod to be ready", lambda: "is ready" not in (said := found(own)) and "has no endpoints" in said)
        told = found(own)
    assert "Service spotweave-webhook has no endpoints" in told
    assert "the certificate in Secret spotweave-webhook-tls expired" in told
    for path in (DEPLOYMENT, f"/api/v1{SYSTEM}/services", POLICIES):
        for each in client.get_json(path)["items"]:
            client.delete(f"{path}/{each['metadata']['name']}")
    capsys.readouterr()
    assert own.spotweave("doctor") == 1
    assert "Deployment spotweave-webhook does not exist" in capsys.readouterr().out
    assert own.spotweave("status") == 1
    assert capsys.readouterr().out.startswith(NOT_INSTALLED)
