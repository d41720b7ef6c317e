"""The client and the informers on a real API server: its errors, its restarts, its expired versions."""

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.client import APPLY_PATCH, JSON_PATCH, Client, Query, connect
from kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
    Unauthorized,
    error_from,
)
from kube.informer import Informer, InformerSet, Pace
from kube.resources import DEPLOYMENTS, NODES, PODS, REPLICA_SETS, STATEFUL_SETS, Resource
from kube.snapshot import read_snapshot
from kube.store import Store
from localcluster import LocalCluster
from placement.model import Key, Kind, Pod, ReplicaSet, Workload
from tests.builders.api import raw_bare_pod, raw_workload

pytestmark = pytest.mark.cluster

AGENT = "spotweave-tests"
WAIT_SECONDS = 30.0


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with closing(connect(cluster.kubeconfig, user_agent=AGENT)) as connected:
        yield connected


def within(namespace: str, resource: Resource[Any]) -> str:
    """The collection's path in one namespace."""
    prefix, name = resource.path.rsplit("/", 1)
    return f"{prefix}/namespaces/{namespace}/{name}"


class WatchedStores:
    """Stores that tests wait on: each change of one is an occasion to look again."""

    def __init__(self, *stores: Store[Any]) -> None:
        self._changes: queue.Queue[None] = queue.Queue()
        self._stores = stores
        for store in stores:
            store.subscribe(lambda old, new: self._changes.put(None))

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            try:
                self._changes.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"did not come: {[store.values() for store in self._stores]}")


@contextmanager
def following(*informers: Informer[Any]) -> Iterator[InformerSet]:
    together = InformerSet(informers)
    together.start()
    try:
        yield together
    finally:
        together.stop()


# --- the client ---------------------------------------------------------------------------------------------------


def test_the_real_errors_are_typed(client: Client, namespace: str) -> None:
    """404, 409 in its three forms, and 422 with the field that is wrong."""
    pods = within(namespace, PODS)
    created = client.post(pods, raw_bare_pod("a", nodeName="nowhere"))
    with pytest.raises(NotFound, match=r'GET .*/missing: 404 NotFound: pods "missing" not found'):
        client.get(f"{pods}/missing")
    with pytest.raises(AlreadyExists):
        client.post(pods, raw_bare_pod("a"))
    with pytest.raises(Conflict):
        client.delete(f"{pods}/a", {"preconditions": {"uid": "another"}})
    with pytest.raises(Conflict):
        client.patch(f"{pods}/a", {"metadata": {"resourceVersion": "1", "labels": {"x": "y"}}})
    with pytest.raises(Invalid) as invalid:
        client.post(pods, raw_bare_pod("Not_A_Name"))
    assert [cause.field for cause in invalid.value.causes] == ["metadata.name"]
    assert client.get_json(f"{pods}/a")["metadata"]["uid"] == created["metadata"]["uid"]


def test_patches_of_each_kind_are_accepted(client: Client, namespace: str) -> None:
    """Merge, JSON and apply patches, each with its content type."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/a"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
    client.patch(path, body, {"fieldManager": "spotweave"}, content_type=APPLY_PATCH)
    client.patch(path, {"data": {"y": "2"}})
    client.patch(path, [{"op": "add", "path": "/data/z", "value": "3"}], content_type=JSON_PATCH)
    assert client.get_json(path)["data"] == {"x": "1", "y": "2", "z": "3"}


def with_token(cluster: LocalCluster, token: str, file: Path) -> Client:
    """A client of the same server that has nothing but this token."""
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    for user in document["users"]:
        user["user"] = {"token": token}
    file.write_text(yaml.safe_dump(document))
    return connect(file, user_agent=AGENT)


def test_a_weak_account_is_forbidden(cluster: LocalCluster, client: Client, namespace: str, tmp_path: Path) -> None:
    """A ServiceAccount without roles: 403, and the text names who may not do what."""
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    token = client.post(f"{account}/token", {"spec": {"expirationSeconds": 600}})["status"]["token"]
    with closing(with_token(cluster, token, tmp_path / "weak")) as weak:
        with pytest.raises(Forbidden, match=f"system:serviceaccount:{namespace}:default.*cannot list"):
            read_snapshot(weak)
        with pytest.raises(Forbidden):
            weak.stream(PODS.path, {"watch": "true"}, read_timeout_seconds=5)


def test_a_wrong_token_is_unauthorized(cluster: LocalCluster, tmp_path: Path) -> None:
    """401, which is not 403: the credentials themselves are bad."""
    with closing(with_token(cluster, "nonsense", tmp_path / "wrong")) as wrong, pytest.raises(Unauthorized):
        wrong.get(PODS.path)


def test_a_budget_that_forbids_an_eviction_is_recognised(client: Client, namespace: str) -> None:
    """429 with the cause that tells it from a busy server."""
    pods = within(namespace, PODS)
    budget = {"metadata": {"name": "all"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    client.post(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", budget)
    store: Store[Pod] = Store()
    watched = WatchedStores(store)
    with following(Informer(client, replace(PODS, path=pods), store)):
        client.post(within(namespace, DEPLOYMENTS), raw_workload("Deployment", "web", 1))
        watched.until(lambda: [pod for pod in store.values() if pod.ready])
        (pod,) = store.values()
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.name, "namespace": namespace}}
    with pytest.raises(TooManyRequests) as refused:
        client.post(f"{pods}/{pod.name}/eviction", eviction)
    assert refused.value.is_disruption_budget


def test_a_snapshot_shows_the_cluster(cluster: LocalCluster, client: Client, namespace: str) -> None:
    """Nodes with their labels and health, workloads of both kinds, revisions and pods, tied by owner."""
    client.post(within(namespace, DEPLOYMENTS), raw_workload("Deployment", "web", 2))
    client.post(within(namespace, STATEFUL_SETS), raw_workload("StatefulSet", "db", 1, ordinals={"start": 3}))

    def running() -> bool:
        pods = client.get_json(within(namespace, PODS))["items"]
        return len(pods) == 3 and all(pod["status"]["phase"] == "Running" for pod in pods)

    cluster.wait("three running pods", running)
    snapshot = read_snapshot(client)
    nodes = [node for node in snapshot.nodes.values() if node.ready and node.pool.zone and node.pool.instance_type]
    assert len(nodes) == 12
    workloads = {workload.kind: workload for workload in snapshot.workloads if workload.namespace == namespace}
    assert workloads[Kind.DEPLOYMENT].replicas == 2
    assert (workloads[Kind.STATEFUL_SET].ordered, workloads[Kind.STATEFUL_SET].first_ordinal) == (True, 3)
    (revision,) = [item for item in snapshot.replica_sets if item.namespace == namespace]
    assert revision.owner is not None
    assert (revision.owner.uid, revision.owner.api_group) == (workloads[Kind.DEPLOYMENT].uid, "apps")
    pods = [pod for pod in snapshot.pods if pod.namespace == namespace]
    assert sorted(pod.owner.uid if pod.owner is not None else "" for pod in pods) == sorted(
        [revision.uid, revision.uid, workloads[Kind.STATEFUL_SET].uid]
    )
    assert all(pod.node in snapshot.nodes for pod in pods)
    assert namespace in snapshot.namespaces


# --- the informer -------------------------------------------------------------------------------------------------


def test_informers_follow_a_workload_through_its_life(client: Client, namespace: str) -> None:
    """Created, scaled up and down, deleted: revisions and pods come and go in the stores, found by their owner."""
    deployments: Store[Workload] = Store()
    replica_sets: Store[ReplicaSet] = Store()
    pods: Store[Pod] = Store()
    watched = WatchedStores(deployments, replica_sets, pods)
    with following(
        Informer(client, DEPLOYMENTS, deployments),
        Informer(client, REPLICA_SETS, replica_sets),
        Informer(client, PODS, pods),
    ) as informers:
        assert informers.wait_synced(WAIT_SECONDS)
        uid = client.post(within(namespace, DEPLOYMENTS), raw_workload("Deployment", "web", 3))["metadata"]["uid"]

        def pods_of_it() -> list[Pod]:
            revisions = {each.uid for each in replica_sets.values() if each.owner is not None and each.owner.uid == uid}
            return [pod for pod in pods.values() if pod.owner is not None and pod.owner.uid in revisions]

        watched.until(lambda: len([pod for pod in pods_of_it() if pod.ready]) == 3)
        watched.until(lambda: deployments.get(Key(namespace, "web")))
        client.patch(f"{within(namespace, DEPLOYMENTS)}/web", {"spec": {"replicas": 1}})
        watched.until(lambda: len(pods_of_it()) == 1)
        client.delete(f"{within(namespace, DEPLOYMENTS)}/web", {"propagationPolicy": "Foreground"})
        watched.until(lambda: not [pod for pod in pods.values() if pod.namespace == namespace])
        assert informers.is_current(time.monotonic())


def test_pages_of_the_real_server_are_followed(client: Client) -> None:
    """Twelve nodes in pages of five are twelve nodes."""
    nodes: Store[Any] = Store()
    with following(Informer(client, NODES, nodes, pace=Pace(page_size=5))) as informers:
        assert informers.wait_synced(WAIT_SECONDS)
        assert len(nodes) == 12


def test_watches_that_end_are_resumed_without_a_gap(client: Client, namespace: str) -> None:
    """The server ends each watch after a second; pods that come before, between and after are all seen, once each."""
    store: Store[Pod] = Store()
    watched = WatchedStores(store)
    pods = within(namespace, PODS)
    added: list[str] = []
    store.subscribe(lambda old, new: added.append(new.name) if old is None and new is not None else None)
    pace = Pace(watch_seconds=(1.0, 1.0), shortest_watch_seconds=0.0)
    began = time.monotonic()
    names: list[str] = []
    with following(Informer(client, replace(PODS, path=pods), store, pace=pace)) as informers:
        assert informers.wait_synced(WAIT_SECONDS)
        while time.monotonic() - began < 3.5:
            names.append(f"pod-{len(names)}")
            client.post(pods, raw_bare_pod(names[-1], schedulerName="nobody"))
            watched.until(lambda: len(added) == len(names))
    assert added == names


def test_an_informer_survives_the_death_of_the_server(
    cluster: LocalCluster, client: Client, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """After `kill -9` the store stays as it was and is not current; after the restart it follows again."""
    store: Store[Pod] = Store()
    watched = WatchedStores(store)
    pods = within(namespace, PODS)
    client.post(pods, raw_bare_pod("before", schedulerName="nobody"))
    informer = Informer(client, replace(PODS, path=pods), store)
    with following(informer):
        watched.until(lambda: store.get(Key(namespace, "before")))
        cluster.wait("the watch", lambda: informer.is_current(time.monotonic()))
        cluster.kill("kube-apiserver")
        try:
            cluster.wait("the loss to be noticed", lambda: not informer.is_current(time.monotonic()))
            assert (informer.synced, [pod.name for pod in store.values()]) == (True, ["before"])
        finally:
            cluster.start_part("kube-apiserver")
        client.post(pods, raw_bare_pod("after", schedulerName="nobody"))
        watched.until(lambda: store.get(Key(namespace, "after")))
        assert store.get(Key(namespace, "before")) is not None
        cluster.wait("the watch", lambda: informer.is_current(time.monotonic()))


def test_the_real_server_says_that_a_version_has_expired(client: Client) -> None:
    """Version 1 is long gone: Gone, be it as a status or as an event."""
    shape = PODS.shape

    def watch_from_the_beginning() -> None:
        query: Query = {"watch": "true", "resourceVersion": "1", "timeoutSeconds": 5}
        for line in client.stream(PODS.path, query, read_timeout_seconds=10):
            event = shape.event(line)
            assert event.type == "ERROR"
            raise error_from("WATCH", 500, event.status)

    with pytest.raises(Gone, match="too old resource version"):
        watch_from_the_beginning()


def test_an_informer_whose_version_has_expired_lists_again(client: Client, namespace: str) -> None:
    """It holds a pod that was deleted long ago and resumes from then: the pod goes, and what is new comes."""
    pods = within(namespace, PODS)
    client.post(pods, raw_bare_pod("new", schedulerName="nobody"))
    store: Store[Pod] = Store()
    store.put(Pod(namespace, "ghost"))
    watched = WatchedStores(store)
    informer = Informer(client, replace(PODS, path=pods), store)
    informer._version = "1"
    with following(informer):
        watched.until(lambda: [pod.name for pod in store.values()] == ["new"])


def test_a_continue_token_that_is_not_valid_is_no_end_of_the_list(client: Client) -> None:
    """The server refuses it; it is not taken for "no more pages"."""
    with pytest.raises(ApiError, match="continue"):
        client.get(PODS.path, {"limit": 1, "continue": "nonsense"})
