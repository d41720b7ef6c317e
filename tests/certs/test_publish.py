"""The Secret and the caBundles, read and written: what is not ours stays, what was changed meanwhile is not touched."""

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from certs.publish import CONFIGURATION, HOSTS, SECRET, Entries, bundle_of, data_of, publish, read_entries, write_secret
from certs.renewal import Bundle, Published, next_step
from kube.client import Client
from kube.errors import Conflict, Invalid
from placement import names
from tests.certs.fakeapi import FakeApi

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
BUNDLE = next_step(Bundle(), Published(), None, HOSTS, NOW).bundle
Raw = dict[str, Any]


def configuration(*bundles: bytes | None) -> Raw:
    """A webhook configuration whose entries have these caBundles."""
    entries = [
        {
            "name": f"entry-{index}.spotweave.dev",
            "clientConfig": {"service": {"name": "x"}}
            | ({} if each is None else {"caBundle": b64encode(each).decode()}),
        }
        for index, each in enumerate(bundles)
    ]
    return {"metadata": {"name": "spotweave"}, "webhooks": entries}


def secret(bundle: Bundle, **data: str) -> Raw:
    return {"kind": "Secret", "metadata": {"name": names.TLS_SECRET}, "type": "x", "data": {**data_of(bundle), **data}}


def client(api: FakeApi) -> Client:
    return cast(Client, api)


def test_a_bundle_survives_the_secret() -> None:
    """Written and read back, it is the same; what is empty is not written."""
    full = Bundle(b"1", b"2", b"3", b"4", b"5", b"6")
    assert bundle_of({"data": data_of(full)}) == full
    assert bundle_of({"data": data_of(BUNDLE)}) == BUNDLE
    assert set(data_of(BUNDLE)) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}


UNREADABLE: dict[str, Raw | None] = {
    "no Secret": None,
    "no data": {"data": None},
    "other data": {"data": {"password": "eA=="}},
    "not base64": {"data": {"ca.crt": "%%%", "tls.crt": "x"}},
    "not even ASCII": {"data": {"ca.crt": "ü"}},
    "null": {"data": {"ca.crt": None}},
}


@pytest.mark.parametrize("raw_secret", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_cannot_be_read_is_empty(raw_secret: Raw | None) -> None:
    """And so will be issued anew."""
    assert bundle_of(raw_secret) == Bundle()


def test_a_secret_is_created_under_its_name() -> None:
    """The one that the webhooks read."""
    api = FakeApi({})
    write_secret(client(api), None, BUNDLE)
    metadata = api.objects[SECRET]["metadata"]
    assert (metadata["name"], metadata["namespace"]) == (names.TLS_SECRET, names.SYSTEM_NAMESPACE)
    assert bundle_of(api.objects[SECRET]) == BUNDLE


def test_a_secret_keeps_what_is_not_ours() -> None:
    """Type, labels and keys of others stay; a key of ours that has become empty goes."""
    wished = Bundle(BUNDLE.trusted, wish=b"leaf")
    api = FakeApi({SECRET: secret(wished, note="eA==")})
    write_secret(client(api), api.get_json(SECRET), BUNDLE)
    assert api.objects[SECRET]["type"] == "x"
    assert api.objects[SECRET]["data"] == {**data_of(BUNDLE), "note": "eA=="}


def test_a_secret_that_was_changed_meanwhile_is_not_written() -> None:
    """The version that was read goes with the write."""
    api = FakeApi({SECRET: secret(Bundle())})
    read = api.get_json(SECRET)
    api.store(SECRET, secret(BUNDLE))
    with pytest.raises(Conflict):
        write_secret(client(api), read, Bundle())


def test_only_entries_that_differ_are_patched() -> None:
    """By their place in the list, so after a test that nothing has changed since it was read."""
    api = FakeApi({CONFIGURATION: configuration(b"new", b"old", None)})
    entries = read_entries(client(api))
    assert entries == Entries("1", (b"new", b"old", b""))
    assert publish(client(api), entries, b"new") == Entries("2", (b"new",) * 3)
    value = b64encode(b"new").decode()
    assert api.patches == [
        [
            {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
            {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": value},
            {"op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": value},
        ]
    ]
    assert publish(client(api), read_entries(client(api)), b"new") == Entries("2", (b"new",) * 3)
    assert len(api.patches) == 1


def test_a_configuration_that_was_changed_meanwhile_is_not_written() -> None:
    """An earlier state is never published over a later one."""
    api = FakeApi({CONFIGURATION: configuration(b"old")})
    entries = read_entries(client(api))
    api.store(CONFIGURATION, configuration(b"newer"))
    with pytest.raises(Invalid):
        publish(client(api), entries, b"new")


def test_without_a_configuration_there_are_no_entries() -> None:
    """And nothing to publish to."""
    api = FakeApi({})
    assert read_entries(client(api)) == Entries("", ())
    assert publish(client(api), Entries("", ()), b"new") == Entries("", ())
    assert api.patches == []
