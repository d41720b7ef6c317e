"""Required affinity and anti-affinity between pods: what we judge is what the real scheduler does."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from kube.client import Client
from kube.errors import NotFound
from kube.snapshot import read_snapshot
from placement import names
from placement.configuration import Configuration
from placement.model import Key
from placement.plan.neighbours import Crowd
from report.rolloutroom import room_in
from tests.builders.api import raw_pod_spec, raw_template
from tests.cluster.clustersetup import ClusterSetup
from tests.cluster.namespaceuser import wait_for
from tests.timing import timed, within

pytestmark = pytest.mark.cluster

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
APPS = "web", "cache"
PODS = 60
NODES = 12  # of the demo
FALLBACK_SECONDS = 20


@pytest.fixture
def second(admin: Client, namespace: str) -> Iterator[str]:
    """Another namespace, and both are labelled, so that terms can select them."""
    name = f"{namespace}-b"
    admin.post("/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    wait_for("its default ServiceAccount", lambda: _exists(admin, account))
    for each in (namespace, name):
        admin.patch(f"/api/v1/namespaces/{each}", {"metadata": {"labels": {"neighbours": namespace, "is": each}}})
    yield name
    with suppress(NotFound):
        admin.delete(f"/api/v1/namespaces/{name}")


def _exists(admin: Client, path: str) -> bool:
    with suppress(NotFound):
        return bool(admin.get_json(path))
    return False


def term(luck: Random, namespaces: tuple[str, str]) -> dict[str, Any]:
    """Hosts or zones, one or both namespaces, by labels and by keys that the API server merges into the selector."""
    made: dict[str, Any] = {"topologyKey": luck.choice([names.HOSTNAME, names.ZONE])}
    made["labelSelector"] = {"matchLabels": {"app": luck.choice(APPS)}} if luck.random() < 0.8 else {}
    if luck.random() < 0.3:
        made["matchLabelKeys" if luck.random() < 0.5 else "mismatchLabelKeys"] = ["revision"]
    kind = luck.random()
    if kind < 0.2:
        made["namespaces"] = [luck.choice(namespaces)]
    elif kind < 0.4:
        made["namespaceSelector"] = {"matchLabels": {"is": luck.choice(namespaces)}}
    elif kind < 0.5:
        made["namespaceSelector"] = {"matchLabels": {"neighbours": namespaces[0]}}
    return made


def raw_pod(name: str, luck: Random, namespaces: tuple[str, str]) -> dict[str, Any]:
    affinity: dict[str, Any] = {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if luck.random() < 0.4:
            affinity[kind] = {REQUIRED: [term(luck, namespaces) for _ in range(luck.choice((1, 1, 2)))]}
    labels = {"app": luck.choice(APPS), "revision": luck.choice("12")}
    gates = [{"name": "example.com/judged-first"}]
    spec = raw_pod_spec(affinity=affinity, tolerations=[{"operator": "Exists"}], schedulingGates=gates)
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def open_to(admin: Client, key: Key) -> set[str]:
    """The nodes that we think the pod may join."""
    snapshot = read_snapshot(admin)
    (pod,) = (each for each in snapshot.pods if each.key == key)
    beside = room_in(snapshot, Configuration()).neighbours
    assert beside is not None
    joins = beside.judge(pod, Crowd())
    return {name for name, site in beside.ground.sites.items() if joins is None or joins.joins(site)}


def scheduled(admin: Client, path: str) -> str:
    """Its node, once the scheduler has tried; "" where there is none for it."""
    seen: list[str] = []

    def has_tried() -> bool:
        raw = admin.get_json(path)
        reasons = [each.get("reason") for each in raw.get("status", {}).get("conditions", ())]
        if "nodeName" in raw["spec"] or "Unschedulable" in reasons:
            seen.append(raw["spec"].get("nodeName", ""))
        return bool(seen)

    wait_for(f"the scheduler's word about {path}", has_tried)
    return seen[0]


def test_a_pod_joins_the_nodes_that_we_say_it_may_join(admin: Client, namespace: str, second: str) -> None:
    """Pods with terms of all kinds, one after the other: each goes to a node that we held open, or to none.

    A gate holds each until it was judged. What gets no node is deleted, lest it be put there later.
    """
    luck, namespaces, ends = Random(10), (namespace, second), Counter[str]()
    for number in range(PODS):
        home, name = luck.choice(namespaces), f"p{number}"
        path = f"/api/v1/namespaces/{home}/pods"
        admin.post(path, raw_pod(name, luck, namespaces))
        expected = open_to(admin, Key(home, name))
        admin.patch(f"{path}/{name}", {"spec": {"schedulingGates": None}})
        node = scheduled(admin, f"{path}/{name}")
        assert node in (expected or {""}), f"{name} is on {node or 'no node'}, expected {sorted(expected)}"
        ends["anywhere" if len(expected) == NODES else "somewhere" if expected else "nowhere"] += 1
        if not node:
            admin.delete(f"{path}/{name}")
    assert all(ends[each] > PODS // 10 for each in ("anywhere", "somewhere", "nowhere")), ends


@timed
def test_a_pod_that_wants_a_host_of_its_own_falls_back_beside_free_ones(setup: ClusterSetup) -> None:
    """Seven of ten belong on spot, which has six hosts: the seventh waits for its fallback time, and not for five."""
    apart = {"topologyKey": names.HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}
    spec = {"template": raw_template("web", affinity={"podAntiAffinity": {REQUIRED: [apart]}})}
    began = time.monotonic()
    setup.create("web", 10, {names.SPOT_FALLBACK_AFTER: f"{FALLBACK_SECONDS}s"}, spec=spec)
    wait_for("all to serve", lambda: setup.serves_in_full("web", 10), 5 * FALLBACK_SECONDS)
    within("all serve", time.monotonic() - began, 2 * FALLBACK_SECONDS + 20)
    hosts = [pod["spec"]["nodeName"] for pod in setup.user.pods("web")]
    assert len(set(hosts)) == 10
    assert sum(host.startswith("spot") for host in hosts) == 6
