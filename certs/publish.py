"""Keeps the Secret and the webhook configuration's caBundle as `renewal` says. Several replicas may race here."""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from datetime import datetime
from typing import Any

from certs.renewal import Bundle, renewed
from kube.client import JSON_PATCH, Client
from kube.errors import Conflict, Invalid, NotFound
from placement import names

log = logging.getLogger(__name__)

SECRETS = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/secrets"
SECRET = f"{SECRETS}/{names.TLS_SECRET}"
CONFIGURATION = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{names.WEBHOOK_CONFIGURATION}"
HOSTS = (f"{names.WEBHOOK_SERVICE}.{names.SYSTEM_NAMESPACE}.svc",)
_KEYS = {"trusted": "ca.crt", "authority_key": "ca.key", "leaf": "tls.crt", "leaf_key": "tls.key"}
_TRIES = 5


def reconcile(client: Client, now: datetime) -> Bundle:
    """Renews what needs it, publishes it, and returns the bundle to serve."""
    for _ in range(_TRIES):
        try:
            bundle = _reconcile_secret(client, now)
            _reconcile_configuration(client, bundle.trusted)
            return bundle
        except (Conflict, Invalid):  # another replica was faster (Invalid: a JSON patch whose test failed)
            log.info("certificates: another writer was faster; reading again")
    raise TimeoutError(f"the certificates were changed by others {_TRIES} times in a row")


def _reconcile_secret(client: Client, now: datetime) -> Bundle:
    raw_secret = _read_secret(client)
    old = bundle_of(raw_secret or {})
    new = renewed(old, HOSTS, now)
    if new is not old:
        _write_secret(client, raw_secret, new)
        log.info("certificates: issued a new leaf for %s", ", ".join(HOSTS))
    return new


def _read_secret(client: Client) -> dict[str, Any] | None:
    try:
        raw: dict[str, Any] = client.get_json(SECRET)
        return raw
    except NotFound:
        return None


def _write_secret(client: Client, raw_secret: dict[str, Any] | None, bundle: Bundle) -> None:
    """A PUT with the resource version that was read: of several writers one wins, the others read again."""
    if raw_secret is None:
        metadata = {"name": names.TLS_SECRET, "namespace": names.SYSTEM_NAMESPACE}
        client.post(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data_of(bundle)})
    else:
        client.put(SECRET, {**raw_secret, "data": {**(raw_secret.get("data") or {}), **data_of(bundle)}})


def _reconcile_configuration(client: Client, trusted: bytes) -> None:
    """Writes the caBundle of every entry that has another one. `test` keeps us from writing into a changed list."""
    wanted = b64encode(trusted).decode()
    entries = client.get_json(CONFIGURATION).get("webhooks") or []
    operations = [
        operation
        for index, entry in enumerate(entries)
        if entry["clientConfig"].get("caBundle") != wanted
        for operation in (
            {"op": "test", "path": f"/webhooks/{index}/name", "value": entry["name"]},
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": wanted},
        )
    ]
    if operations:
        client.patch(CONFIGURATION, operations, content_type=JSON_PATCH)
        log.info("certificates: published the CA bundle to the webhook configuration")


def bundle_of(raw_secret: dict[str, Any]) -> Bundle:
    """What the Secret holds; what is missing or garbled is empty, and so will be issued anew."""
    data = raw_secret.get("data") or {}
    return Bundle(**{field: _decoded(data.get(key)) for field, key in _KEYS.items()})


def data_of(bundle: Bundle) -> dict[str, str]:
    return {key: b64encode(getattr(bundle, field)).decode() for field, key in _KEYS.items()}


def _decoded(text: str | None) -> bytes:
    try:
        return b64decode(text or "", validate=True)
    except ValueError:  # not base64, or not even ASCII
        return b""
