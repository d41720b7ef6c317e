"""Certificates on the real control plane: rotated, lost, garbled or overwritten, and pods are placed all the same.

The load is real: creates through the API server and its webhook call, as dry runs, without a pause. Two witnesses tell
of a failed call: a pod that comes back without a decision, and the API server's own count of calls that failed open.
"""

from __future__ import annotations

import argparse
import os
import random
import ssl
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from certs import publish
from certs.authority import Issued, issue, new_authority
from certs.renewal import Bundle, authorities, successor, verifies
from cli import certs, logs
from demo.supervisor import Installed, Process, access_for, install
from kube.client import Client, connect
from localcluster import LocalCluster, Options, demo_profile, kubectl
from localcluster.layout import free_port
from localcluster.process import spawn
from placement import names
from tests.builders.api import raw_namespace, raw_pod_spec, raw_workload
from tests.certs.garble import garbled
from tests.cluster.killing import forget_webhooks, kill
from tests.cluster.namespaceuser import failed_open, label, wait_for, wait_within
from tests.timing import timed, within

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parent.parent.parent
SEED = int(os.environ.get("SEED", "4"))
OVERLAP_SECONDS = 3
NAMESPACE = "certificates"
ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"


# --- the cluster and the webhooks -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[LocalCluster]:
    """A cluster whose certificates may be broken."""
    with LocalCluster.start(demo_profile(), options=Options(controller_qps=200, controller_burst=400)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(own_cluster: LocalCluster) -> Iterator[Client]:
    client = connect(Path(own_cluster.kubeconfig), user_agent="spotweave-tests")
    client.post("/api/v1/namespaces", raw_namespace(NAMESPACE))
    label(client, NAMESPACE)
    wait_for("the namespace's account", lambda: own_cluster.api.exists(ACCOUNT))
    yield client
    client.close()


@contextmanager
def webhooks(cluster: LocalCluster, admin: Client, count: int, *options: str) -> Iterator[Installed]:
    """Spotweave's webhooks with a short overlap, ready, and called by the API server."""
    kubeconfig = Path(cluster.kubeconfig)
    address = install(kubeconfig, admin, None)
    access = access_for(kubeconfig, admin, names.WEBHOOK_ACCOUNT)
    installed = Installed([], lambda _component, name, _environment: start(name, access, address, *options))
    try:
        for _ in range(count):
            installed.add()  # one by one: what was started is stopped, also when the next one fails
        yield installed
    finally:
        kill(installed.processes)
        forget_webhooks(admin)


def start(name: str, access: bytes, address: str, *options: str) -> Process:
    port, peer_port = free_port(), free_port()
    descriptor = os.memfd_create("kubeconfig")
    os.write(descriptor, access)
    command = [sys.executable, "-m", "cli.main", "webhook", "--kubeconfig", f"/dev/fd/{descriptor}", "--share-port"]
    listen = ["--listen", address, "--metrics-listen", f"127.0.0.1:{port}", "--peer-listen", f"127.0.0.1:{peer_port}"]
    pace = ["--ca-overlap", str(OVERLAP_SECONDS), "--log-level", "warning"]
    process = spawn([*command, *listen, *pace, *options], sys.stderr.fileno(), cwd=ROOT, descriptors=(descriptor,))
    os.close(descriptor)
    return Process(name, process, port)


@pytest.fixture(scope="module")
def shop(own_cluster: LocalCluster, admin: Client) -> Iterator[dict[str, Any]]:
    """Two webhooks until the end, and the StatefulSet that the load's pods say they belong to.

    Tests with webhooks of their own come before those with these, since one address serves one set.
    """
    with webhooks(own_cluster, admin, 2):
        yield stateful_set(admin)


def stateful_set(admin: Client) -> dict[str, Any]:
    """Without replicas: the pods are ours, and none is ever stored. Its pods' slots come with their names, at once."""
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets"
    found = [each for each in admin.get_json(path)["items"] if each["metadata"]["name"] == "load"]
    owner: dict[str, Any] = found[0] if found else admin.post(path, raw_workload("StatefulSet", "load", 0))
    wait_for("the first pod to be placed", lambda: is_placed(admin, owner))
    return owner


# --- the load -------------------------------------------------------------------------------------------------------


def is_placed(client: Client, owner: dict[str, Any]) -> bool:
    """Creates a pod of the StatefulSet as a dry run, and tells whether it came back with a decision."""
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "load", "controller": True}
    metadata = {
        "name": "load-0",
        "labels": {"app": "load"},
        "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": raw_pod_spec()}
    made = client.post(f"/api/v1/namespaces/{NAMESPACE}/pods", pod, {"dryRun": "All"})
    return names.CLASS in made["metadata"]["labels"]


@dataclass
class Load:
    """Creates without a pause, from two connections; keeps count."""

    kubeconfig: Path
    owner: dict[str, Any]
    calls: int = 0
    missed: list[float] = field(default_factory=list)  # when a call that failed had come back
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        client = connect(self.kubeconfig, user_agent="spotweave-tests")
        while not self._stop.is_set():
            if not is_placed(client, self.owner):
                self.missed.append(time.monotonic())
            self.calls += 1
        client.close()

    @contextmanager
    def running(self) -> Iterator[Load]:
        threads = [threading.Thread(target=self.run) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def go_on(self) -> None:
        """Waits for the next hundred calls."""
        goal = self.calls + 100
        wait_for("the load to go on", lambda: self.calls >= goal)

    def misses_none(self) -> bool:
        """Whether none of the next hundred calls fails."""
        before = len(self.missed)
        self.go_on()
        return len(self.missed) == before


# --- what is seen ---------------------------------------------------------------------------------------------------


def bundle(admin: Client) -> Bundle:
    return publish.bundle_of(publish.read_secret(admin))


def published(admin: Client) -> frozenset[bytes]:
    return frozenset(publish.read_entries(admin).published)


def is_steady(admin: Client) -> bool:
    """One authority, published, and a leaf that callers accept."""
    now = bundle(admin)
    return (
        published(admin) == {now.trusted}
        and len(authorities(now.trusted)) == 1
        and not now.wish
        and successor(now) is None
        and verifies(now, publish.HOSTS, datetime.now(UTC))
    )


def rotate(cluster: LocalCluster, admin: Client, *options: str) -> None:
    """Asks for a rotation as an operator does, and waits until it is done."""
    before = bundle(admin)
    assert command(cluster, "rotate", *options) == 0
    part: Callable[[Bundle], bytes] = (lambda each: each.trusted) if options else (lambda each: each.leaf)
    wait_for("the rotation", lambda: part(bundle(admin)) != part(before) and is_steady(admin))


def command(cluster: LocalCluster, *arguments: str) -> int:
    """`spotweave certs …`"""
    parser = argparse.ArgumentParser()
    certs.add_parser(parser.add_subparsers(), logs.options())
    args = parser.parse_args(["certs", *arguments, "--kubeconfig", str(cluster.kubeconfig)])
    code: int = args.run(args)
    return code


def served(admin: Client) -> bytes:
    """The leaf that a webhook shows to whoever calls."""
    service = admin.get_json(f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/services/{names.WEBHOOK_SERVICE}")["spec"]
    return ssl.get_server_certificate((service["clusterIP"], service["ports"][0]["port"])).encode()


def rotate_under_load(cluster: LocalCluster, admin: Client, owner: dict[str, Any], leaves: int, cas: int) -> Load:
    kinds = [()] * leaves + [("--ca",)] * cas
    random.Random(SEED).shuffle(kinds)
    before = failed_open(admin)
    with Load(Path(cluster.kubeconfig), owner).running() as load:
        for options in kinds:
            rotate(cluster, admin, *options)
            load.go_on()
    print(f"{leaves} leaf and {cas} CA rotations: {load.calls} calls, {len(load.missed)} missed, seed {SEED}")
    assert load.missed == []
    assert failed_open(admin) == before
    return load


# --- somebody else's certificates -----------------------------------------------------------------------------------


def overwrite(value: bytes) -> Callable[[Client], None]:
    def act(admin: Client) -> None:
        path = "/webhooks/0/clientConfig/caBundle"
        operation = {"op": "add", "path": path, "value": b64encode(value).decode()}
        admin.patch(publish.CONFIGURATION, [operation], content_type="application/json-patch+json")

    return act


def hand_out(admin: Client, authority: Issued) -> Issued:
    """What cert-manager does: the Secret gets a leaf and its authority; and its injector: the caBundle."""
    leaf = issue(authority, publish.HOSTS, datetime.now(UTC))
    given = {"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": authority.certificate}
    data = {key: b64encode(value).decode() for key, value in given.items()}
    admin.patch(publish.SECRET, {"data": {**dict.fromkeys(publish.KEYS.values()), **data}})
    overwrite(authority.certificate)(admin)
    return leaf


def test_with_certificates_of_others_the_webhook_serves_and_writes_nothing(
    own_cluster: LocalCluster, admin: Client
) -> None:
    """`--certificates secret`: each leaf is taken from the Secret, and nobody's objects are touched."""
    install(Path(own_cluster.kubeconfig), admin, None)
    authority = new_authority(datetime.now(UTC))
    hand_out(admin, authority)
    with webhooks(own_cluster, admin, 1, "--certificates", "secret"):
        owner = stateful_set(admin)
        with Load(Path(own_cluster.kubeconfig), owner).running() as load:
            leaf = hand_out(admin, authority)
            wait_for("the new leaf", lambda: served(admin).strip() == leaf.certificate.strip())
            load.go_on()
        assert load.missed == []
        held = bundle(admin)
        assert (held.leaf, held.authority_key) == (leaf.certificate, b"")
        assert published(admin) == {authority.certificate}


def test_both_witnesses_see_a_failed_call(own_cluster: LocalCluster, admin: Client) -> None:
    """Else "none" would say nothing: with nobody serving, a pod comes back unplaced and the API server counts it."""
    with webhooks(own_cluster, admin, 1):
        owner = stateful_set(admin)
    before = failed_open(admin)
    assert not is_placed(admin, owner)
    assert failed_open(admin) == before + 1


def test_taking_over_from_others_costs_no_call(own_cluster: LocalCluster, admin: Client) -> None:
    """The Secret holds a leaf whose authority's key is not ours to use: it is served until our own is trusted."""
    install(Path(own_cluster.kubeconfig), admin, None)
    foreign = hand_out(admin, new_authority(datetime.now(UTC)))
    with webhooks(own_cluster, admin, 2):
        owner = stateful_set(admin)
        before = failed_open(admin)
        with Load(Path(own_cluster.kubeconfig), owner).running() as load:
            wait_for("a leaf of our own", lambda: bundle(admin).leaf != foreign.certificate and is_steady(admin))
            load.go_on()
        assert load.missed == []
        assert failed_open(admin) == before


# --- rotations ------------------------------------------------------------------------------------------------------


def test_rotations_under_load_cost_no_call(own_cluster: LocalCluster, admin: Client, shop: dict[str, Any]) -> None:
    """Three leaves and an authority, in an order drawn from the seed."""
    load = rotate_under_load(own_cluster, admin, shop, leaves=3, cas=1)
    assert load.calls > 400


@pytest.mark.soak
def test_many_rotations_under_load_cost_no_call(own_cluster: LocalCluster, admin: Client, shop: dict[str, Any]) -> None:
    """50 leaves and 20 authorities."""
    rotate_under_load(own_cluster, admin, shop, leaves=50, cas=20)


# --- damage ---------------------------------------------------------------------------------------------------------


def delete(admin: Client) -> None:
    admin.delete(publish.SECRET)


def garble(*keys: str) -> Callable[[Client], None]:
    junk = {key: b64encode(b"junk").decode() for key in keys}
    return lambda admin: admin.patch(publish.SECRET, {"data": junk}) and None


def empty(admin: Client) -> None:
    raw = publish.read_secret(admin)
    assert raw is not None
    admin.put(publish.SECRET, {**raw, "data": {}})


def flip(key: str) -> Callable[[Client], None]:
    """Bytes inside the DER of an entry are others; the PEM around it is as it was."""
    chance = random.Random(f"{SEED} {key}")

    def act(admin: Client) -> None:
        raw = publish.read_secret(admin)
        assert raw is not None
        bent = garbled(b64decode(raw["data"][key]), chance.randrange)
        admin.patch(publish.SECRET, {"data": {key: b64encode(bent).decode()}})

    return act


FLIPPED = [flip(key) for key in ("ca.crt", "ca.key", "tls.crt", "tls.key")] * 3
LOST: dict[str, Callable[[Client], None]] = {
    "the Secret is deleted": delete,
    "the Secret is emptied": empty,
    "all of it is garbled": garble("ca.crt", "ca.key", "tls.crt", "tls.key"),
    "the authority is garbled": garble("ca.crt"),
    "the authority's key is garbled": garble("ca.key"),
    "the leaf is garbled": garble("tls.crt"),
    "the leaf's key is garbled": garble("tls.key"),
}


@timed
def test_a_lost_secret_is_brought_back_and_costs_no_call(
    own_cluster: LocalCluster, admin: Client, shop: dict[str, Any]
) -> None:
    """Whatever is lost: the replicas remember it, and callers notice nothing."""
    before = failed_open(admin)
    with Load(Path(own_cluster.kubeconfig), shop).running() as load:
        for what, damage in LOST.items():
            wait_for("all to be in order", lambda: is_steady(admin))
            held = bundle(admin)
            damage(admin)
            wait_within(f"repair: {what}", lambda: is_steady(admin), 5)
            assert bundle(admin).trusted == held.trusted, what
            load.go_on()
    assert load.missed == []
    assert failed_open(admin) == before


def test_bytes_garbled_inside_the_secret_cost_no_call(
    own_cluster: LocalCluster, admin: Client, shop: dict[str, Any]
) -> None:
    """A dozen times, in each entry: all comes to rest, no replica ends, callers notice nothing."""
    before = failed_open(admin)
    with Load(Path(own_cluster.kubeconfig), shop).running() as load:
        for damage in FLIPPED:
            damage(admin)
            wait_for("all to be in order", lambda: is_steady(admin))
            load.go_on()
    assert load.missed == []
    assert failed_open(admin) == before


def remove(admin: Client) -> None:
    operation = {"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}
    admin.patch(publish.CONFIGURATION, [operation], content_type="application/json-patch+json")


PROMISED_SECONDS = 1.5  # docs/certificates.md
OVERWRITTEN: dict[str, Callable[[Client], None]] = {
    "removed": remove,
    "not even PEM": overwrite(b"junk"),
    "a foreign authority": overwrite(new_authority(datetime.now(UTC)).certificate),
}


@timed
def test_an_overwritten_ca_bundle_is_published_again(
    own_cluster: LocalCluster, admin: Client, shop: dict[str, Any]
) -> None:
    """Within the promise; then no call fails any more. Until then pods are created without us, and none is refused."""
    wait_for("all to be in order", lambda: is_steady(admin))
    held = bundle(admin)
    for what, damage in OVERWRITTEN.items():
        before = failed_open(admin)
        with Load(Path(own_cluster.kubeconfig), shop).running() as load:
            load.go_on()
            began = time.monotonic()
            damage(admin)
            wait_for(f"the authority again: {what}", lambda: published(admin) == {held.trusted})
            repaired = time.monotonic() - began
            wait_for("a hundred calls of which none fails", load.misses_none)
        last = max(load.missed, default=began) - began
        told = f"{what}: published again after {repaired:.2f} s; {len(load.missed)} of {load.calls} calls failed"
        print(f"{told}, the last after {last:.2f} s")
        within("the last failed call", last, PROMISED_SECONDS)
        assert failed_open(admin) - before == len(load.missed)
    assert bundle(admin) == held


def test_the_command_shows_how_it_stands(
    own_cluster: LocalCluster, admin: Client, shop: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0 and "accept" where callers accept the leaf."""
    wait_for("all to be in order", lambda: is_steady(admin))
    assert command(own_cluster, "show") == 0
    assert "callers      accept the leaf" in capsys.readouterr().out


# --- the overlay -----------------------------------------------------------------------------------------------------


def test_the_overlay_fits_what_the_webhook_looks_for() -> None:
    """Names of one object in another: Secret, host, Certificate to inject from; and no right to write Secrets."""
    rendered = kubectl.call("kustomize", str(ROOT / "manifests" / "overlays" / "cert-manager"))
    objects = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(rendered) if each}
    certificate = objects["Certificate", "spotweave-webhook"]
    assert certificate["spec"]["secretName"] == names.TLS_SECRET
    assert tuple(certificate["spec"]["dnsNames"]) == publish.HOSTS
    assert ("Secret", names.TLS_SECRET) not in objects
    authority = objects["Certificate", objects["Issuer", certificate["spec"]["issuerRef"]["name"]]["metadata"]["name"]]
    assert authority["spec"]["isCA"] is True
    configuration = objects["MutatingWebhookConfiguration", names.WEBHOOK_CONFIGURATION]
    source = configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert source == f"{names.SYSTEM_NAMESPACE}/{certificate['metadata']['name']}"
    (container,) = objects["Deployment", "spotweave-webhook"]["spec"]["template"]["spec"]["containers"]
    assert "--certificates=secret" in container["args"]
    rules = objects["Role", "spotweave-webhook"]["rules"]
    assert [rule["verbs"] for rule in rules if "secrets" in rule["resources"]] == [["get"]]
