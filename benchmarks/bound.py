"""A Deployment of 500 replicas, from its creation until all pods are bound, at two rates of the controller manager."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from benchmarks.admission.compare import pod_spec
from benchmarks.contenders import (
    ALL_ON_SPOT,
    CONTENDERS,
    OURS,
    PAIRS,
    PROFILE,
    check,
    create_namespaces,
    empty,
    install_policy,
    pods_path,
    present,
    turns,
)
from benchmarks.report import rounds_wanted, tell
from kube.client import Client, Stream, connect
from kube.errors import NotFound
from localcluster import LocalCluster, Options
from placement import names

REPLICAS = 500
SETTLE_SECONDS = 3.0  # until the controllers may create a whole burst again
PATIENCE_SECONDS = 120.0
RATES = (
    ("bound-fast", "200 calls a second, burst 400", Options(controller_qps=200, controller_burst=400), 10),
    ("bound-default", "Kubernetes' default, 20 calls a second, burst 30", Options(), 5),
)
FIGURES = {"seconds": "until all bound, s"}


def main() -> None:
    for name, text, options, usual in RATES:
        rounds = _rounds(options, rounds_wanted(usual))
        tell(name, f"{REPLICAS} replicas; controllers: {text}", rounds, FIGURES, PAIRS)


def _rounds(options: Options, count: int) -> Sequence[dict[str, dict[str, float]]]:
    with LocalCluster.start(PROFILE, options=options) as cluster:
        client = connect(cluster.kubeconfig, user_agent="spotweave-bench")
        create_namespaces(client)
        _learn_policy(cluster, client)
        measured = []
        for number in range(count):
            found = {which: {"seconds": _measure(cluster, client, which)} for which in turns(number)}
            measured.append({which: found[which] for which in CONTENDERS})
        client.close()
    return measured


def _learn_policy(cluster: LocalCluster, client: Client) -> None:
    """From a small Deployment that ours placed. Its pods equal the others: the template defines their hash."""
    with present(OURS, cluster.kubeconfig):
        _until_bound(client, OURS, 10)
        placed = check(client, OURS, 10)
        _delete(client, OURS)
    labels = {
        key: value for key, value in placed["metadata"]["labels"].items() if key in ("app", names.POD_TEMPLATE_HASH)
    }
    trial = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "trial-", "labels": labels},
        "spec": pod_spec(),
    }
    install_policy(client, placed, trial)


def _measure(cluster: LocalCluster, client: Client, which: str) -> float:
    with present(which, cluster.kubeconfig):
        time.sleep(SETTLE_SECONDS)
        seconds = _until_bound(client, which, REPLICAS)
        check(client, which, REPLICAS)
        _delete(client, which)
    return seconds


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata


class _Event(msgspec.Struct):
    object: _Object


def _until_bound(client: Client, which: str, replicas: int) -> float:
    """Watches pods with a node, which costs the API server little compared with what is measured."""
    watch = _watch(client, which)
    begun = time.monotonic()
    client.post(f"/apis/apps/v1/namespaces/{which}/deployments", _deployment(replicas))
    bound: set[str] = set()
    while len(bound) < replicas:
        if time.monotonic() > begun + PATIENCE_SECONDS:
            raise TimeoutError(f"{which}: {len(bound)} of {replicas} pods were bound")
        for line in watch:
            bound.add(msgspec.json.decode(line, type=_Event).object.metadata.uid)
            if len(bound) == replicas:
                taken = time.monotonic() - begun
                break
        else:  # in bursts, the API server ends watches that lag; a new one begins with the present state
            watch = _watch(client, which)
    watch.close()
    return taken


def _watch(client: Client, which: str) -> Stream:
    query = {"watch": "true", "fieldSelector": "spec.nodeName!="}
    return client.stream(pods_path(which), query, read_timeout_seconds=PATIENCE_SECONDS)


def _deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "annotations": ALL_ON_SPOT},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec()},
        },
    }


def _delete(client: Client, which: str) -> None:
    """Deletes all pods at once: the controllers would take as long to delete them as to create them."""
    collection = f"/apis/apps/v1/namespaces/{which}"
    client.delete(f"{collection}/deployments/web")
    for replica_set in client.get_json(f"{collection}/replicasets")["items"]:
        with suppress(NotFound):  # the garbage collector was faster
            client.delete(f"{collection}/replicasets/{replica_set['metadata']['name']}")
    empty(client, which)
