"""Paths are made from names that an object can have, and from no others."""

import pytest

from kube.client import Client
from kube.errors import BadName
from kube.owners import look_up
from kube.paths import collection_in, path_of
from placement.model import Owner
from tests.kube.scripted import Script

REPLICA_SETS = "/apis/apps/v1/replicasets"
FORGED: dict[str, str] = {
    "up and elsewhere": "../../../../api/v1/pods?watch=true",
    "one level up": "..",
    "here": ".",
    "a query": "web?watch=true",
    "a fragment": "web#x",
    "a part of another object": "web/status",
    "a coded slash": "web%2f..",
    "an empty name": "",
    "a line of its own": "web\nHost: x",
    "a line's end": "web\n",
    "upper case": "Web",
    "a letter of another alphabet": "wéb",
    "a digit of another alphabet": "web-٣",
    "a hyphen at the end": "web-",
    "a hyphen at the beginning": "-web",
    "two dots": "web..x",
    "a dot at the end": "web.",
    "a blank": "we b",
    "too long": "x" * 254,
}


@pytest.mark.parametrize("name", FORGED.values(), ids=FORGED.keys())
def test_what_cannot_be_a_name_makes_no_path(name: str) -> None:
    """Neither as a name nor as a namespace; the error says what would be right."""
    with pytest.raises(BadName, match="lower case letters, digits"):
        path_of(REPLICA_SETS, name, "shop")
    with pytest.raises(BadName, match="not a namespace: expected lower case letters, digits and '-', at most 63"):
        path_of(REPLICA_SETS, "web", name)
    with pytest.raises(BadName):
        collection_in(REPLICA_SETS, name)


def test_a_path_is_made_of_names() -> None:
    """With a namespace or for the whole cluster, up to the greatest length; namespaces have no dots."""
    assert path_of("/api/v1/pods", "web-1", "shop") == "/api/v1/namespaces/shop/pods/web-1"
    assert path_of("/api/v1/nodes", "ip-10-0-0-1.ec2.internal") == "/api/v1/nodes/ip-10-0-0-1.ec2.internal"
    assert path_of(REPLICA_SETS, "x" * 253, "y" * 63).endswith(f"/namespaces/{'y' * 63}/replicasets/{'x' * 253}")
    assert collection_in(REPLICA_SETS, "0") == "/apis/apps/v1/namespaces/0/replicasets"
    for namespace in ("a.b", "y" * 64):
        with pytest.raises(BadName):
            collection_in(REPLICA_SETS, namespace)


def test_a_long_name_is_not_repeated_in_full() -> None:
    """It goes to a log, and anybody may send one of megabytes."""
    with pytest.raises(BadName) as refused:
        path_of(REPLICA_SETS, "/" * 1_000_000, "shop")
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("name", FORGED.values(), ids=FORGED.keys())
def test_a_forged_owner_is_not_looked_up(script: Script, client: Client, name: str) -> None:
    """Nothing is sent to the API server, and the owner is unknown."""
    assert look_up(client, Owner("ReplicaSet", name, "u"), "shop") is None
    assert look_up(client, Owner("StatefulSet", "web", "u"), name) is None
    assert script.asked.empty()


def test_an_owner_is_looked_up_by_its_name(script: Script, client: Client) -> None:
    """And is the one that was meant only if its UID is the same."""
    body = b'{"metadata": {"name": "web-abc", "namespace": "shop", "uid": "rs"}, "spec": {"replicas": 3}}'
    script.answer(body, body)
    found = look_up(client, Owner("ReplicaSet", "web-abc", "rs"), "shop")
    assert found is not None
    assert (found.uid, found.replicas) == ("rs", 3)
    assert script.next_request().path == "/apis/apps/v1/namespaces/shop/replicasets/web-abc"
    assert look_up(client, Owner("ReplicaSet", "web-abc", "another"), "shop") is None
