"""What our own tokens may write in our namespace, and to webhook configurations: on a real API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from certs.publish import CONFIGURATION, SECRET, SECRETS
from demo.supervisor import Installed, access_for
from kube.client import JSON_PATCH, Client, connect
from kube.errors import ApiError, Forbidden
from localcluster import LocalCluster, kubectl
from placement import names
from tests.cluster.namespaceuser import wait_for

pytestmark = pytest.mark.cluster

OVERLAYS = Path(__file__).parent.parent.parent / "manifests" / "overlays"
FENCE = f"ValidatingAdmissionPolicy '{names.SYSTEM_FENCE_POLICY}'"
SYSTEM = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}"
CONFIG_MAPS = f"{SYSTEM}/configmaps"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{names.SYSTEM_NAMESPACE}/leases"
DRY = {"dryRun": "All"}


def token_of(account: str, cluster: LocalCluster, admin: Client, directory: Path) -> Client:
    """Who has this account's token, and no other."""
    path = directory / account
    path.write_bytes(access_for(Path(cluster.kubeconfig), admin, account))
    return connect(path, user_agent="spotweave-tests")


@pytest.fixture(scope="module")
def tokens(
    cluster: LocalCluster, installed: Installed, admin: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Client]]:
    """By account; the fence is in force."""
    directory = tmp_path_factory.mktemp("access")
    accounts = (names.WEBHOOK_ACCOUNT, names.REBALANCER_ACCOUNT)
    clients = {account: token_of(account, cluster, admin, directory) for account in accounts}
    wait_for("the fence to be in force", lambda: is_fenced(lambda: clients[accounts[0]].post(LEASES, lease("x"), DRY)))
    yield clients
    for client in clients.values():
        client.close()


def is_fenced(write: Callable[[], Any]) -> bool:
    try:
        write()
    except Forbidden as error:
        return FENCE in error.message
    return False


def lease(name: str) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}}


def secret(name: str, kind: str = "Opaque") -> dict[str, Any]:
    """Of the type that is filled with a token, it names whose."""
    annotations = {"kubernetes.io/service-account.name": names.REBALANCER_ACCOUNT}
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind}


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


STOLEN = {"spec": {"holderIdentity": "thief"}}
TOKEN = "kubernetes.io/service-account-token"
Write = Callable[[Client], Any]
REFUSED: dict[str, tuple[str, Write]] = {
    "a Secret of another name": (names.WEBHOOK_ACCOUNT, lambda thief: thief.post(SECRETS, secret("x"), DRY)),
    "a Secret that becomes another account's token": (
        names.WEBHOOK_ACCOUNT,
        lambda thief: thief.post(SECRETS, secret(names.TLS_SECRET, TOKEN), DRY),
    ),
    "the rebalancer's Lease, by the webhook": (
        names.WEBHOOK_ACCOUNT,
        lambda thief: thief.patch(f"{LEASES}/{names.LEASE}", STOLEN, DRY),
    ),
    "its end, by the webhook": (
        names.WEBHOOK_ACCOUNT,
        lambda thief: thief.delete(f"{LEASES}/{names.LEASE}", query=DRY),
    ),
    "a Lease of another name, by the webhook": (
        names.WEBHOOK_ACCOUNT,
        lambda thief: thief.post(LEASES, lease("x"), DRY),
    ),
    "a Lease of a webhook, by the rebalancer": (
        names.REBALANCER_ACCOUNT,
        lambda thief: thief.post(LEASES, lease("spotweave-webhook-x"), DRY),
    ),
    "a ConfigMap of another name": (
        names.REBALANCER_ACCOUNT,
        lambda thief: thief.post(CONFIG_MAPS, config_map("x"), DRY),
    ),
}


@pytest.mark.parametrize(("account", "write"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.usefixtures("no_leader")
def test_a_token_writes_nothing_but_its_own(
    tokens: dict[str, Client], admin: Client, account: str, write: Write
) -> None:
    """RBAC lets each of these through: an administrator with the same right is not refused."""
    ensure_lease(admin)
    with pytest.raises(Forbidden) as caught:
        write(tokens[account])
    assert FENCE in caught.value.message


def ensure_lease(admin: Client) -> None:
    try:
        admin.post(LEASES, lease(names.LEASE))
    except ApiError as error:
        assert error.status == 409  # noqa: PT017 - it is there


def test_a_token_writes_its_own(tokens: dict[str, Client], admin: Client) -> None:
    """What the programs need: a Lease for each webhook, the Secret, the state."""
    webhook, rebalancer = tokens[names.WEBHOOK_ACCOUNT], tokens[names.REBALANCER_ACCOUNT]
    webhook.post(LEASES, lease("spotweave-webhook-trial"))
    webhook.delete(f"{LEASES}/spotweave-webhook-trial")
    webhook.put(SECRET, admin.get_json(SECRET), DRY)
    try:
        rebalancer.post(CONFIG_MAPS, config_map(names.STATE_MAP), DRY)
    except ApiError as error:
        assert error.status == 409  # noqa: PT017 - it is there, and nothing else was wrong


def test_nothing_is_written_in_other_namespaces(tokens: dict[str, Client], namespace: str) -> None:
    """RBAC sees to that already."""
    for client in tokens.values():
        with pytest.raises(Forbidden):
            client.post(f"/api/v1/namespaces/{namespace}/configmaps", config_map("x"), DRY)


# --- webhook configurations ------------------------------------------------------------------------------------------

CONFIGURATION_FENCE = f"ValidatingAdmissionPolicy '{names.CONFIGURATION_FENCE_POLICY}'"
ENTRY, CLIENT = "/webhooks/0", "/webhooks/0/clientConfig"
ELSEWHERE = {"name": "thief", "namespace": "default", "port": 443}
ALL_SECRETS = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["*"]}]
MORE = {
    "name": "more.spotweave.dev",
    "clientConfig": {"url": "https://thief.example"},
    "rules": ALL_SECRETS,
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
Operations = list[dict[str, Any]]


def put(path: str, value: Any) -> Operations:
    return [{"op": "add", "path": path, "value": value}]


REWRITTEN: dict[str, Operations] = {
    "another Service is called": put(f"{CLIENT}/service", ELSEWHERE),
    "a URL is called": [{"op": "remove", "path": f"{CLIENT}/service"}, *put(f"{CLIENT}/url", "https://thief.example")],
    "another path": put(f"{CLIENT}/service/path", "/x"),
    "all Secrets are sent": put(f"{ENTRY}/rules", ALL_SECRETS),
    "all namespaces": put(f"{ENTRY}/namespaceSelector", {}),
    "all objects": put(f"{ENTRY}/objectSelector", {}),
    "it blocks pods": put(f"{ENTRY}/failurePolicy", "Fail"),
    "it takes long": put(f"{ENTRY}/timeoutSeconds", 30),
    "another match": put(f"{ENTRY}/matchPolicy", "Exact"),
    "a condition": put(f"{ENTRY}/matchConditions", [{"name": "never", "expression": "false"}]),
    "other side effects": put(f"{ENTRY}/sideEffects", "None"),
    "another name": put(f"{ENTRY}/name", "other.spotweave.dev"),
    "one entry more": put("/webhooks/-", MORE),
    "no entry": put("/webhooks", []),
    "an annotation": put("/metadata/annotations", {"cert-manager.io/inject-ca-from": "default/thief"}),
    "a label": put("/metadata/labels/x", "y"),
    "a finalizer": put("/metadata/finalizers", ["example.com/wait"]),
}


@pytest.mark.parametrize("change", REWRITTEN.values(), ids=REWRITTEN.keys())
def test_a_stolen_token_rewrites_no_webhook_configuration(tokens: dict[str, Client], change: Operations) -> None:
    """RBAC lets it through; the fence does not."""
    with pytest.raises(ApiError) as caught:
        tokens[names.WEBHOOK_ACCOUNT].patch(CONFIGURATION, change, DRY, content_type=JSON_PATCH)
    assert CONFIGURATION_FENCE in str(caught.value)


def test_the_ca_bundle_is_published(tokens: dict[str, Client], admin: Client) -> None:
    """It is the one thing that the webhook writes there; and others are not fenced."""
    bundle = admin.get_json(CONFIGURATION)["webhooks"][0]["clientConfig"]["caBundle"]
    for value in (bundle, ""):
        change = put(f"{CLIENT}/caBundle", value)
        tokens[names.WEBHOOK_ACCOUNT].patch(CONFIGURATION, change, DRY, content_type=JSON_PATCH)
    for change in (put(f"{ENTRY}/timeoutSeconds", 30), put("/metadata/labels/x", "y")):
        admin.patch(CONFIGURATION, change, DRY, content_type=JSON_PATCH)


def test_only_our_own_webhook_configuration_is_within_reach(tokens: dict[str, Client], admin: Client) -> None:
    """By name: the webhook can neither change another one, nor create or delete one; the rebalancer none at all."""
    collection = CONFIGURATION.rpartition("/")[0]
    raw = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "webhooks": []}
    for client in tokens.values():
        for write in (
            lambda client=client: client.patch(f"{collection}/another", {"webhooks": []}, DRY),
            lambda client=client: client.post(collection, {**raw, "metadata": {"name": "another"}}, DRY),
            lambda client=client: client.delete(CONFIGURATION, query=DRY),
        ):
            with pytest.raises(Forbidden):
                write()  # type: ignore[no-untyped-call]
    with pytest.raises(Forbidden):
        tokens[names.REBALANCER_ACCOUNT].patch(CONFIGURATION, {"metadata": {"labels": {"x": "y"}}}, DRY)


def rendered(overlay: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(kubectl.call("kustomize", str(OVERLAYS / overlay))) if each]


def renamed(raw: dict[str, Any]) -> dict[str, Any]:
    """The same role or binding, for another account."""
    text = yaml.safe_dump(raw).replace(names.WEBHOOK_ACCOUNT, "managed-webhook")
    changed: dict[str, Any] = yaml.safe_load(text.replace("managed-webhook-tls", names.TLS_SECRET))
    return changed


def test_with_cert_manager_the_webhook_writes_neither_secrets_nor_its_configuration(
    cluster: LocalCluster, tokens: dict[str, Client], admin: Client, tmp_path: Path
) -> None:
    """An account with the overlay's rights reads both, and can change neither."""
    kinds = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "ServiceAccount")
    of_webhook = [each for each in rendered("cert-manager") if names.WEBHOOK_ACCOUNT in each["metadata"]["name"]]
    objects = [renamed(each) for each in of_webhook if each["kind"] in kinds]
    assert len(objects) == 5
    kubectl.call("apply", "-f", "-", kubeconfig=Path(cluster.kubeconfig), stdin=yaml.safe_dump_all(objects))
    managed = token_of("managed-webhook", cluster, admin, tmp_path)
    wait_for("its rights", lambda: is_allowed(lambda: managed.get(CONFIGURATION)))
    assert managed.get_json(SECRET)["metadata"]["name"] == names.TLS_SECRET
    bundle = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]
    writes: list[Callable[[], Any]] = [
        lambda: managed.patch(CONFIGURATION, bundle, DRY, content_type=JSON_PATCH),
        lambda: managed.put(SECRET, admin.get_json(SECRET), DRY),
        lambda: managed.post(SECRETS, secret(names.TLS_SECRET), DRY),
    ]
    for write in writes:
        with pytest.raises(Forbidden):
            write()
    tokens[names.WEBHOOK_ACCOUNT].patch(CONFIGURATION, bundle, DRY, content_type=JSON_PATCH)  # in the base it may
    managed.close()


def is_allowed(read: Callable[[], Any]) -> bool:
    try:
        read()
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize("overlay", ["cert-manager", "narrow"])
def test_every_overlay_is_accepted_as_it_is(cluster: LocalCluster, installed: Installed, overlay: str) -> None:
    """By a real API server, field by field.

    Left out are cert-manager's own kinds, which it does not know, and Services, which have other ports here.
    """
    known = [each for each in rendered(overlay) if "cert-manager.io" not in each["apiVersion"]]
    objects = [each for each in known if each["kind"] != "Service"]
    dry = ("apply", "--dry-run=server", "--validate=strict", "--server-side", "--force-conflicts", "-f", "-")
    kubectl.call(*dry, kubeconfig=Path(cluster.kubeconfig), stdin=yaml.safe_dump_all(objects))
