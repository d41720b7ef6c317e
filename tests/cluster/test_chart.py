"""The Helm chart and the overlays on a real control plane: valid to the letter, installed, upgraded and removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from certs import publish
from cli.main import main
from demo.supervisor import access_for
from generators.build import MANIFESTS, built
from kube.client import Client, connect
from kube.errors import NotFound
from localcluster import LocalCluster, demo_profile, kubectl
from placement import names
from tests.cluster.namespaceuser import wait_for
from tests.helm import CHART, helm, rendered
from tests.test_chart import COMBINATIONS, OWN_KINDS

pytestmark = pytest.mark.cluster

NAMESPACE = names.SYSTEM_NAMESPACE
# What other parts of the control plane write all the time.
RESTLESS = ("events", "events.events.k8s.io", "leases.coordination.k8s.io", "nodes", "controllerrevisions.apps")


@pytest.fixture(scope="module")
def own() -> Iterator[LocalCluster]:
    """Without Spotweave: these tests install it."""
    with LocalCluster.start(demo_profile()) as running:
        yield running


@pytest.fixture(scope="module")
def client(own: LocalCluster) -> Iterator[Client]:
    connected = connect(Path(own.kubeconfig), user_agent="spotweave-tests")
    yield connected
    connected.close()


def on(cluster: LocalCluster, *arguments: str) -> str:
    done = helm(*arguments, "--namespace", NAMESPACE, kubeconfig=Path(cluster.kubeconfig))
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects_of(cluster: LocalCluster) -> set[str]:
    """Every object by kind and name, but for what changes by itself."""
    call = partial(kubectl.call, kubeconfig=Path(cluster.kubeconfig))
    kinds = sorted(set(call("api-resources", "--verbs=list", "-o", "name").split()).difference(RESTLESS))
    text = call("get", ",".join(kinds), "-A", "-o", "jsonpath={range .items[*]}{.kind} {.metadata.name}{'\\n'}{end}")
    return set(text.splitlines())


@pytest.mark.soak
def test_the_api_server_takes_every_object_of_every_combination_to_the_letter(
    own: LocalCluster, client: Client
) -> None:
    """Of the chart, the overlays and the examples, with strict validation and all admission of a dry run."""
    objects: list[dict[str, Any]] = []
    for _, values, kubernetes in COMBINATIONS.values():
        objects += rendered(*values, kubernetes=kubernetes)
    objects += rendered("--set", "optIn.shop=plan-only,monitoring.grafana=true")
    for overlay in sorted((MANIFESTS / "overlays").iterdir()):
        objects += built([f"overlays/{overlay.name}"])
    for example in sorted((MANIFESTS / "examples").glob("*.yaml")):
        objects += [each for each in yaml.safe_load_all(example.read_text()) if each]
    distinct = {json.dumps(each, sort_keys=True): each for each in objects if each["kind"] not in OWN_KINDS}
    assert len(distinct) > 60
    namespaces = {each["metadata"].get("namespace") for each in distinct.values()} - {None}
    for name in sorted(namespaces):
        client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    text = yaml.safe_dump_all(distinct.values())
    apply = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
    assert kubectl.call(*apply, kubeconfig=Path(own.kubeconfig), stdin=text).count("(server dry run)") == len(distinct)
    for name in sorted(namespaces):
        client.delete(f"/api/v1/namespaces/{name}")
    wait_for("the namespaces to go", lambda: not namespaces & named_namespaces(client))


def named_namespaces(client: Client) -> set[str]:
    return {each["metadata"]["name"] for each in client.get_json("/api/v1/namespaces")["items"]}


def test_helm_installs_upgrades_and_leaves_nothing_behind(own: LocalCluster, client: Client) -> None:
    """An upgrade keeps what the webhook has written: its certificate, the caBundles."""
    before = objects_of(own)
    shown = on(own, "install", "spotweave", str(CHART), "--create-namespace", "--wait", "--timeout", "60s")
    for command in ("spotweave doctor", "spotweave plan --opt-in", "spotweave opt-in NAMESPACE=plan-only"):
        assert command in shown
    certificate = {"tls.crt": "Y2VydA==", "tls.key": "a2V5", "ca.crt": "Y2E="}
    client.patch(publish.SECRET, {"data": certificate})
    bundle = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "Y2E="}]
    client.patch(publish.CONFIGURATION, bundle, content_type="application/json-patch+json")
    values = "configuration.cordon=move,replicas.webhook=3,gangs.enabled=true"
    on(own, "upgrade", "spotweave", str(CHART), "--wait", "--timeout", "60s", "--set", values)
    assert client.get_json(publish.SECRET)["data"] == certificate
    entries = {each["name"]: each["clientConfig"] for each in client.get_json(publish.CONFIGURATION)["webhooks"]}
    assert entries[names.WEBHOOK_ENTRY]["caBundle"] == "Y2E="
    assert names.GANG_ENTRY in entries
    config = client.get_json(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{names.CONFIG_MAP}")["data"]
    assert yaml.safe_load(config[names.CONFIG_KEY])["cordon"] == "move"
    on(own, "rollback", "spotweave", "1", "--wait", "--timeout", "60s")
    (entry,) = client.get_json(publish.CONFIGURATION)["webhooks"]
    assert (entry["name"], entry["clientConfig"]["caBundle"]) == (names.WEBHOOK_ENTRY, "Y2E=")
    on(own, "uninstall", "spotweave", "--wait", "--timeout", "60s")
    client.delete(f"/api/v1/namespaces/{NAMESPACE}")
    wait_for("the namespace to go", lambda: NAMESPACE not in named_namespaces(client))
    assert objects_of(own) == before


def test_the_job_opts_its_namespaces_in_and_may_write_no_others(
    own: LocalCluster, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Helm runs it after an install. Kubelets are simulated, so its command is run by hand, with its token."""
    for name in ("shop", "bank"):
        client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    chosen = ("--set", "optIn.shop=plan-only")
    on(own, "install", "spotweave", str(CHART), "--create-namespace", "--timeout", "60s", *chosen)
    with pytest.raises(NotFound):  # the Job, its account and its right are gone when they have done their work
        client.get(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/spotweave-opt-in")
    hooks = [each for each in rendered(*chosen) if each["metadata"]["name"] == "spotweave-opt-in"]
    (job,) = (each for each in hooks if each["kind"] == "Job")
    rights = yaml.safe_dump_all(each for each in hooks if each["kind"] != "Job")
    kubectl.call("apply", "-f", "-", kubeconfig=Path(own.kubeconfig), stdin=rights)
    file = tmp_path / "account"
    file.write_bytes(access_for(Path(own.kubeconfig), client, "spotweave-opt-in"))
    arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert main([*arguments, "--kubeconfig", str(file)]) == 0
    shop = client.get_json("/api/v1/namespaces/shop")["metadata"]
    assert (shop["labels"][names.PLACEMENT], shop["annotations"][names.REBALANCE]) == (names.ENABLED, "plan-only")
    assert main(["opt-in", "bank", "--kubeconfig", str(file)]) == 3
    assert "not allowed to patch namespaces" in capsys.readouterr().err
    assert names.PLACEMENT not in client.get_json("/api/v1/namespaces/bank")["metadata"]["labels"]
