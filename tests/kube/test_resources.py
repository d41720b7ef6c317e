"""The table of resources: RBAC grants what its rows read, and a new resource takes few places."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from kube import wire
from kube.client import Client
from kube.decode import Decoder
from kube.following import Followed, Stores
from kube.resources import (
    LEADER,
    PODS,
    REBALANCER,
    RESOURCES,
    SNAPSHOT,
    WEBHOOK,
    WEBHOOK_LEASES,
    Follower,
    Resource,
    Rows,
    rows_of,
)
from kube.snapshot import facts_of, read_snapshot
from placement import names
from placement.configuration import Configuration
from placement.model import Key
from rebalancer.index import Index
from tests.builders.api import page
from tests.kube.scripted import Script

Raw = dict[str, Any]
ROOT = Path(__file__).parent.parent.parent
BASE = ROOT / "manifests" / "base"
MANIFESTS = [each for path in sorted(BASE.glob("*rbac.yaml")) for each in yaml.safe_load_all(path.read_text())]
# Who reads, and the roles by which it may. A snapshot is read by people.
ROLES = {WEBHOOK: names.WEBHOOK_ACCOUNT, REBALANCER: names.REBALANCER_ACCOUNT, SNAPSHOT: names.VIEW_ROLE}
VERBS = {WEBHOOK: ("list", "watch"), REBALANCER: ("list", "watch"), SNAPSHOT: ("list",)}


class Grant(NamedTuple):
    """The right to one verb; of some objects only, if they are named, and in one namespace only, if it is."""

    group: str
    plural: str
    verb: str
    namespace: str = ""
    of: str = ""


def grants(role: str, manifests: Sequence[Raw] = MANIFESTS) -> set[Grant]:
    """All that a role and the ClusterRole of its name grant."""
    return {
        Grant(group, plural, verb, each["metadata"].get("namespace", ""), of)
        for each in manifests
        if each["kind"] in ("Role", "ClusterRole") and each["metadata"]["name"] == role
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for plural in rule["resources"]
        for verb in rule["verbs"]
        for of in rule.get("resourceNames", [""])
    }


def needed(follower: Follower, rows: Iterable[Resource[Any]] = RESOURCES) -> set[Grant]:
    """What its rows read. The name is the one that a field selector asks for: RBAC goes by that."""
    return {
        Grant(row.group, row.plural, verb, namespace_of(row), name_of(row))
        for row in rows_of(follower, rows)
        for verb in VERBS[follower]
    }


def namespace_of(row: Resource[Any]) -> str:
    return row.path.partition("/namespaces/")[2].partition("/")[0]


def name_of(row: Resource[Any]) -> str:
    return str(row.query.get("fieldSelector", "")).partition("metadata.name=")[2]


def is_granted(need: Grant, given: Collection[Grant]) -> bool:
    """A right to all objects, or in all namespaces, is one to each."""
    return any(
        need._replace(of=of, namespace=namespace) in given for of in {need.of, ""} for namespace in {need.namespace, ""}
    )


def unread(given: Iterable[Grant], needs: Collection[Grant]) -> set[tuple[str, str]]:
    """What may be listed or watched, and is not."""
    read = {(need.group, need.plural) for need in needs}
    return {(each.group, each.plural) for each in given if each.verb in ("list", "watch")} - read


# Granted and not in the table, each with its reason.
BESIDES: dict[Follower, dict[tuple[str, str], str]] = {
    WEBHOOK: {("events.k8s.io", "events"): "kube/failures.py: why a controller's pods are refused, by its UID"},
    REBALANCER: {
        ("coordination.k8s.io", "leases"): "listed by kube/outagewriter.py: which webhooks have read an outage",
        ("events.k8s.io", "events"): "one rule for the Events that it reads and for those that it writes",
        ("scheduling.k8s.io", "priorityclasses"): "granted since the first version; no row reads them",
    },
    SNAPSHOT: {
        ("coordination.k8s.io", "leases"): "kube/installation.py: whether a webhook answers and a rebalancer leads"
    },
}
# Read one by one as well, by a path that is made from a row's.
GOT: dict[Follower, dict[tuple[str, str], str]] = {
    WEBHOOK: {
        ("", "configmaps"): "kube/configmaps.py: the configuration",
        ("apps", "deployments"): "kube/owners.py",
        ("apps", "replicasets"): "kube/owners.py",
        ("apps", "statefulsets"): "kube/owners.py",
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): "certs/publish.py",
    },
    REBALANCER: {
        ("", "pods"): "kube/podwriter.py",
        ("", "nodes"): "kube/podwriter.py",
        ("", "configmaps"): "kube/configmaps.py",
        ("coordination.k8s.io", "leases"): "kube/lease.py",
    },
    SNAPSHOT: {("", "configmaps"): "kube/configmaps.py"},
}


@pytest.mark.parametrize("follower", Follower)
def test_rbac_grants_what_is_followed_and_nothing_else(follower: Follower) -> None:
    """`list` and `watch` to the accounts that follow a resource, `list` to people who read a snapshot."""
    given, needs = grants(ROLES[follower]), needed(follower)
    assert {need for need in needs if not is_granted(need, given)} == set()
    assert unread(given, needs) == set(BESIDES[follower])


@pytest.mark.parametrize("follower", Follower)
def test_rbac_grants_get_where_single_objects_are_read(follower: Follower) -> None:
    """An owner that the caches do not know, a Node that may have returned."""
    given = {(each.group, each.plural) for each in grants(ROLES[follower]) if each.verb == "get"}
    assert set(GOT[follower]) <= given


def test_a_right_that_is_missing_is_noticed() -> None:
    """The test of RBAC can fail: by a rule too few, a rule too many, and a right to another object."""
    given = grants(names.WEBHOOK_ACCOUNT)
    fewer = {each for each in given if each.plural != "nodes"}
    assert {need.plural for need in needed(WEBHOOK) if not is_granted(need, fewer)} == {"nodes"}
    besides = set(BESIDES[WEBHOOK])
    assert unread(given | {Grant("", "secrets", "list")}, needed(WEBHOOK)) - besides == {("", "secrets")}
    others = {each._replace(of="another") if each.of else each for each in given}
    missing = {need.plural for need in needed(WEBHOOK) if not is_granted(need, others)}
    assert missing == {"configmaps", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"}


def test_no_follower_reads_a_resource_twice() -> None:
    """Two rows of one name are two forms of the same, and each follower has one of them."""
    for follower in Follower:
        followed = [row.name for row in rows_of(follower)]
        assert len(followed) == len(set(followed)), follower
    assert all(row.followed_by for row in RESOURCES)


@pytest.mark.parametrize("follower", [WEBHOOK, REBALANCER])
def test_what_gangs_read_is_granted_by_their_component(follower: Follower) -> None:
    """And read only while they are switched on: else it would be refused again and again."""
    component = yaml.safe_load_all((ROOT / "manifests" / "components" / "gangs" / "rbac.yaml").read_text())
    role = f"{ROLES[follower]}-gangs"
    rows = set(rows_of(follower, with_gangs=True)) - set(rows_of(follower))
    needs = {Grant(row.group, row.plural, verb) for row in rows for verb in VERBS[follower]}
    assert needs <= grants(role, list(component))


def test_programs_wait_for_facts_and_not_for_what_makes_them_quick() -> None:
    """Events may be forbidden, and Leases of the rebalancer may be missing."""
    heard = {row.plural for row in RESOURCES if not row.is_awaited and not row.is_for_gangs}
    assert heard == {"events", "leases", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
    assert {row.plural for row in RESOURCES if row.is_for_gangs} == {"events", "jobs", "podgroups", "resourcequotas"}
    assert {row.plural for row in RESOURCES if row.is_optional} == {"podgroups"}
    assert not any(row.is_awaited for row in RESOURCES if row.is_for_gangs)
    assert (LEADER.is_awaited, WEBHOOK_LEASES.is_awaited) == (False, True)


@pytest.mark.parametrize("package", ["webhook", "rebalancer", "certs", "dashboard", "cli", "demo"])
def test_informers_are_made_from_the_table_alone(package: str) -> None:
    """Else a resource would be followed that the test of RBAC does not know."""
    made = [path.name for path in (ROOT / package).rglob("*.py") if "Informer(" in path.read_text()]
    assert made == []


def test_a_store_of_a_resource_that_is_not_followed_is_a_mistake() -> None:
    """The rebalancer reads pods in full; the webhook's form of them is another row."""
    with pytest.raises(KeyError):
        Stores(rows_of(REBALANCER)).of(PODS)


# --- a worked example: the rebalancer and the offline plan are to know the ConfigMaps of users -----------------------
# Four places, marked below. Nothing else names the resource.


@dataclass(frozen=True, slots=True)
class UserMap:
    """Place 1, placement/model.py: what is read of it."""

    namespace: str
    name: str
    size: int

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class _UserMapObject(wire.AnyObject):
    data: dict[str, str] | None = None


def _user_map(raw: _UserMapObject) -> UserMap:
    return UserMap(raw.metadata.namespace or "", raw.metadata.name or "", len(raw.data or {}))


# Place 2, kube/resources.py: the shape, the conversion and the row.
USER_MAPS: Resource[UserMap] = Resource(
    "configmaps", "/api/v1/configmaps", Decoder(_UserMapObject, _user_map), followed_by={REBALANCER, SNAPSHOT}
)
TABLE: Rows = (*RESOURCES, USER_MAPS)


class MapIndex(Index):
    """Place 3, rebalancer/catalogue.py: a line in the table, and what follows from a change."""

    def __init__(self) -> None:
        super().__init__(Configuration())
        self.maps: dict[Key, UserMap] = {}
        catalogue = self._catalogue
        catalogue._takes = {**catalogue._takes, UserMap: self._take_map}

    def _take_map(self, old: UserMap | None, new: UserMap | None) -> None:
        known = new or old
        assert known is not None
        self.maps.pop(known.key, None)
        self.maps |= {new.key: new} if new is not None else {}


# Place 4, manifests/base: a rule for each role that reads it, here two.
RULE = {"apiGroups": [""], "resources": ["configmaps"]}
GRANTED = [
    {"kind": "ClusterRole", "metadata": {"name": role}, "rules": [{**RULE, "verbs": list(VERBS[follower])}]}
    for follower, role in ROLES.items()
    if follower is not WEBHOOK
]


def raw_map(name: str) -> Raw:
    return {"metadata": {"name": name, "namespace": "shop"}, "data": {"a": "1"}}


def test_a_new_resource_is_followed_by_the_rebalancer_and_reaches_its_index(client: Client) -> None:
    """Places 1 to 3: there is an informer that the program waits for, and the index hears of every difference."""
    followed, index = Followed(client, rows_of(REBALANCER, TABLE)), MapIndex()
    followed.stores.subscribe(index.observe)
    assert "configmaps" in (followed.missing() or "")
    followed.stores.of(USER_MAPS).put(UserMap("shop", "m", 1))
    index.drain()
    assert index.maps == {Key("shop", "m"): UserMap("shop", "m", 1)}
    followed.stores.of(USER_MAPS).remove(Key("shop", "m"))
    index.drain()
    assert index.maps == {}


def test_a_new_resource_is_in_the_snapshot_and_in_the_offline_plan(script: Script, client: Client) -> None:
    """Places 1 to 3 again: it is listed with the others, and fills the same index."""
    rows = [row for row in rows_of(SNAPSHOT, TABLE) if row.is_awaited]
    script.answer(*[page(raw_map("m")) if row is USER_MAPS else page() for row in rows])
    index = MapIndex()
    for fact in facts_of(read_snapshot(client, TABLE)):
        index.observe(None, fact)
    index.drain()
    assert index.maps == {Key("shop", "m"): UserMap("shop", "m", 1)}


def test_a_new_resource_needs_rights() -> None:
    """Place 4: until it is granted, the test of RBAC names what is missing; then it is content."""
    for follower in (REBALANCER, SNAPSHOT):
        needs = needed(follower, TABLE)
        missing = {need for need in needs if not is_granted(need, grants(ROLES[follower]))}
        assert missing == {Grant("", "configmaps", verb) for verb in VERBS[follower]}
        assert all(is_granted(need, grants(ROLES[follower], [*MANIFESTS, *GRANTED])) for need in needs)
    assert needed(WEBHOOK, TABLE) == needed(WEBHOOK)
