"""Publishing: the Secret and the caBundle become what they should be, also when others write at the same time."""

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from certs.publish import CONFIGURATION, HOSTS, SECRET, bundle_of, data_of, reconcile
from certs.renewal import LEAF_LOOK_AHEAD, Bundle, expiry, renewed, verifies
from kube.client import Client
from kube.errors import NotFound
from placement import names
from tests.certs.fakeapi import FakeApi

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
BUNDLE = renewed(Bundle(), HOSTS, NOW)
OTHER = renewed(Bundle(), HOSTS, NOW)
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


def published(api: FakeApi) -> list[str | None]:
    return [entry["clientConfig"].get("caBundle") for entry in api.objects[CONFIGURATION]["webhooks"]]


def run(api: FakeApi, now: datetime = NOW) -> Bundle:
    """One pass, and what must hold after each: what is returned is in the Secret, its authorities in all entries."""
    bundle = reconcile(cast(Client, api), now)
    assert bundle_of(api.objects[SECRET]) == bundle
    assert verifies(bundle, HOSTS, now)
    assert set(published(api)) == {b64encode(bundle.trusted).decode()}
    return bundle


def test_a_bundle_survives_the_secret() -> None:
    """Written and read back, it is the same."""
    assert bundle_of({"data": data_of(BUNDLE)}) == BUNDLE
    assert set(data_of(BUNDLE)) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}


UNREADABLE: dict[str, Raw] = {
    "no Secret": {},
    "no data": {"data": None},
    "other data": {"data": {"password": "eA=="}},
    "not base64": {"data": {"ca.crt": "%%%", "tls.crt": "x"}},
    "not even ASCII": {"data": {"ca.crt": "ü"}},
    "null": {"data": {"ca.crt": None}},
}


@pytest.mark.parametrize("raw_secret", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_cannot_be_read_is_empty(raw_secret: Raw) -> None:
    """And so will be issued anew."""
    assert bundle_of(raw_secret) == Bundle()


def test_nothing_to_do_writes_nothing() -> None:
    """A pass every ten seconds by every replica must cost no write."""
    api = FakeApi({SECRET: secret(BUNDLE), CONFIGURATION: configuration(BUNDLE.trusted, BUNDLE.trusted)})
    assert run(api) == BUNDLE
    assert api.writes == []


def test_a_missing_secret_is_created() -> None:
    """With the name and namespace that the Deployment mounts, and the authority goes to every entry."""
    api = FakeApi({CONFIGURATION: configuration(None, b"old")})
    run(api)
    assert api.writes == [("POST", names.TLS_SECRET), ("PATCH", "spotweave")]
    metadata = api.objects[SECRET]["metadata"]
    assert (metadata["name"], metadata["namespace"]) == (names.TLS_SECRET, names.SYSTEM_NAMESPACE)


def test_an_empty_secret_is_filled() -> None:
    """The rest of it is kept: type, labels and keys of others."""
    api = FakeApi({SECRET: secret(Bundle(), note="eA=="), CONFIGURATION: configuration(b"")})
    run(api)
    assert api.writes == [("PUT", names.TLS_SECRET), ("PATCH", "spotweave")]
    assert (api.objects[SECRET]["type"], api.objects[SECRET]["data"]["note"]) == ("x", "eA==")


def test_only_entries_that_differ_are_patched() -> None:
    """Each after a test of its name, since it is addressed by its place in a list."""
    api = FakeApi({SECRET: secret(BUNDLE), CONFIGURATION: configuration(BUNDLE.trusted, OTHER.trusted)})
    assert run(api) == BUNDLE
    assert api.writes == [("PATCH", "spotweave")]
    assert api.patches == [
        [
            {"op": "test", "path": "/webhooks/1/name", "value": "entry-1.spotweave.dev"},
            {
                "op": "add",
                "path": "/webhooks/1/clientConfig/caBundle",
                "value": b64encode(BUNDLE.trusted).decode(),
            },
        ]
    ]


def test_a_leaf_that_is_due_is_renewed_in_the_secret_alone() -> None:
    """The authority is the same, so the configuration stays as it is."""
    api = FakeApi({SECRET: secret(BUNDLE), CONFIGURATION: configuration(BUNDLE.trusted)})
    later = expiry(BUNDLE.leaf) - LEAF_LOOK_AHEAD / 2
    assert run(api, later).leaf != BUNDLE.leaf
    assert api.writes == [("PUT", names.TLS_SECRET)]


def test_a_faster_writer_of_the_secret_wins() -> None:
    """A conflict is read again, and what the other wrote is served: two replicas never serve two authorities."""
    api = FakeApi({SECRET: secret(Bundle()), CONFIGURATION: configuration(b"")})
    api.before_write = lambda: api.store(SECRET, secret(OTHER))
    assert run(api) == OTHER


def test_a_faster_creator_of_the_secret_wins() -> None:
    """The same when there was none."""
    api = FakeApi({CONFIGURATION: configuration(b"")})
    api.before_write = lambda: api.store(SECRET, secret(OTHER))
    assert run(api) == OTHER


def test_a_changed_list_of_entries_is_read_again() -> None:
    """Somebody put an entry before ours between our read and our write: the test of its name fails, nothing is lost."""
    api = FakeApi({SECRET: secret(BUNDLE), CONFIGURATION: configuration(b"old")})
    changed = configuration(b"old", b"old")
    changed["webhooks"].reverse()
    api.before_write = lambda: api.store(CONFIGURATION, changed)
    run(api)
    assert api.writes == [("PATCH", "spotweave")] * 2
    assert [entry["name"] for entry in api.objects[CONFIGURATION]["webhooks"]] == [
        "entry-1.spotweave.dev",
        "entry-0.spotweave.dev",
    ]


def test_endless_conflicts_are_told() -> None:
    """The caller tries again later; it must not hang here."""
    api = FakeApi({SECRET: secret(Bundle()), CONFIGURATION: configuration(b"")})

    def disturb() -> None:
        api.store(SECRET, secret(Bundle()))
        api.before_write = disturb

    api.before_write = disturb
    with pytest.raises(TimeoutError):
        reconcile(cast(Client, api), NOW)


def test_a_missing_configuration_is_told() -> None:
    """There is nothing to publish to; the Secret is in order all the same."""
    api = FakeApi({})
    with pytest.raises(NotFound):
        reconcile(cast(Client, api), NOW)
    assert verifies(bundle_of(api.objects[SECRET]), HOSTS, NOW)
