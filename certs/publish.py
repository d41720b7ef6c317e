"""What holds certificates, read and written: the Secret, and the caBundles of both webhook configurations.

Each write carries the version that was read. So if several replicas write, one wins and the others read again.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

from certs.renewal import Bundle
from kube.client import JSON_PATCH, Client
from kube.errors import Forbidden, NotFound
from kube.resources import CONFIGURATION_VERSIONS, EVICTION_CONFIGURATION_VERSIONS
from placement import names

SECRETS = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/secrets"
SECRET = f"{SECRETS}/{names.TLS_SECRET}"
CONFIGURATION = f"{CONFIGURATION_VERSIONS.path}/{names.WEBHOOK_CONFIGURATION}"
EVICTION_CONFIGURATION = f"{EVICTION_CONFIGURATION_VERSIONS.path}/{names.WEBHOOK_CONFIGURATION}"
HOSTS = (f"{names.WEBHOOK_SERVICE}.{names.SYSTEM_NAMESPACE}.svc",)
ROTATE_KEY = "rotate"
READ_SECONDS = 5.0  # a pass that hangs repairs nothing
# The first three are named as cert-manager writes them.
KEYS = {
    "leaf": "tls.crt",
    "leaf_key": "tls.key",
    "trusted": "ca.crt",
    "authority_key": "ca.key",
    "next_key": "next-ca.key",
    "wish": ROTATE_KEY,
}


@dataclass(frozen=True, slots=True)
class Entries:
    """A configuration's entries: what each publishes, and the version that was read."""

    version: str
    published: tuple[bytes, ...]
    path: str = CONFIGURATION


def read_secret(client: Client) -> dict[str, Any] | None:
    return _read(client, SECRET)


def write_secret(client: Client, raw_secret: dict[str, Any] | None, bundle: Bundle) -> None:
    """A PUT with the resource version that was read; keys that are not ours stay."""
    if raw_secret is None:
        metadata = {"name": names.TLS_SECRET, "namespace": names.SYSTEM_NAMESPACE}
        client.post(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data_of(bundle)})
    else:
        others = {key: value for key, value in (raw_secret.get("data") or {}).items() if key not in KEYS.values()}
        client.put(SECRET, {**raw_secret, "data": {**others, **data_of(bundle)}})


def read_entries(client: Client, path: str = CONFIGURATION) -> Entries:
    """No entries if there is no configuration."""
    raw = _read(client, path)
    return Entries("", (), path) if raw is None else _entries_of(raw, path)


def read_all_entries(client: Client) -> tuple[Entries, ...]:
    """Of both configurations. The one for evictions may not be readable: roles may be older than the program."""
    try:
        evictions = read_entries(client, EVICTION_CONFIGURATION)
    except Forbidden:
        evictions = Entries("", (), EVICTION_CONFIGURATION)
    return read_entries(client, CONFIGURATION), evictions


def _entries_of(raw: dict[str, Any], path: str) -> Entries:
    bundles = tuple(_decoded(entry["clientConfig"].get("caBundle")) for entry in raw.get("webhooks") or [])
    return Entries(raw["metadata"]["resourceVersion"], bundles, path)


def publish(client: Client, entries: Entries, trusted: bytes) -> Entries:
    """Writes the caBundle of every entry with a different one; returns the resulting entries."""
    value = b64encode(trusted).decode()
    changes = [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": value}
        for index, published in enumerate(entries.published)
        if published != trusted
    ]
    if not changes:
        return entries
    unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": entries.version}
    raw = client.patch(entries.path, [unchanged, *changes], content_type=JSON_PATCH)
    return _entries_of(raw, entries.path)


def bundle_of(raw_secret: dict[str, Any] | None) -> Bundle:
    """The content of the Secret. Missing or unreadable parts are empty, so they will be issued again."""
    data = (raw_secret or {}).get("data") or {}
    return Bundle(**{field: _decoded(data.get(key)) for field, key in KEYS.items()})


def data_of(bundle: Bundle) -> dict[str, str]:
    held = {key: getattr(bundle, field) for field, key in KEYS.items()}
    return {key: b64encode(value).decode() for key, value in held.items() if value}


def _read(client: Client, path: str) -> dict[str, Any] | None:
    try:
        raw: dict[str, Any] = client.get_json(path, timeout_seconds=READ_SECONDS)
        return raw
    except NotFound:
        return None


def _decoded(text: str | None) -> bytes:
    try:
        return b64decode(text or "", validate=True)
    except ValueError:  # not base64, or not even ASCII
        return b""
