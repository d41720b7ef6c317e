"""What our webhook costs an eviction that it does not hold: the same evictions in a namespace where it is not asked.

Two Deployments, one of them in an opted-in namespace with `eviction-hold: off`. Their pods are evicted one after the
other, in turn, over one connection. Each round waits until both serve again.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from benchmarks.report import Round, rounds_wanted, tell
from demo.supervisor import running
from kube.client import Client, connect
from localcluster import LocalCluster, Options, demo_profile
from placement import names

ROUNDS = 10
REPLICAS = 200
PATIENCE_SECONDS = 180.0
WITH, WITHOUT = "asked", "not asked"
NAMESPACES = {WITH: "asked", WITHOUT: "not-asked"}
FIGURES = {"p50_ms": "p50, ms", "p99_ms": "p99, ms"}


def main() -> None:
    options = Options(controller_qps=200, controller_burst=400)
    with (
        LocalCluster.start(demo_profile(), options=options) as cluster,
        running(cluster.kubeconfig, 2, log_level="warning", rebalancers=1),
    ):
        client = connect(cluster.kubeconfig, user_agent="spotweave-bench")
        for which, namespace in NAMESPACES.items():
            _deploy(client, namespace, is_asked=which == WITH)
        _round(client, 0)  # warm up
        rounds = [_round(client, number) for number in range(rounds_wanted(ROUNDS))]
        client.close()
    tell("evictions", f"{REPLICAS} evictions, none of them held", rounds, FIGURES, [(WITH, WITHOUT)])


def _deploy(client: Client, namespace: str, *, is_asked: bool) -> None:
    labels = {names.PLACEMENT: names.ENABLED} if is_asked else {}
    meta = {"name": namespace, "labels": labels, "annotations": {names.EVICTION_HOLD: "off", names.REBALANCE: "off"}}
    client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "web"}]}}
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    raw = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    client.post(f"/apis/apps/v1/namespaces/{namespace}/deployments", raw)


def _round(client: Client, number: int) -> Round:
    order = (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH)
    pods = {which: _serving(client, NAMESPACES[which]) for which in order}
    taken: dict[str, list[float]] = {which: [] for which in order}
    for at in range(REPLICAS):
        for which in order:
            taken[which].append(_evict(client, NAMESPACES[which], pods[which][at]))
    return {which: _figures(taken[which]) for which in (WITH, WITHOUT)}


def _figures(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return {"p50_ms": 1000 * statistics.median(seconds), "p99_ms": 1000 * cuts[98]}


def _serving(client: Client, namespace: str) -> list[str]:
    """The names of its pods, when as many are ready as there should be."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = client.get_json(f"/api/v1/namespaces/{namespace}/pods")["items"]
        ready = [pod["metadata"]["name"] for pod in found if _is_ready(pod)]
        if len(ready) == len(found) == REPLICAS:
            return ready
        if time.monotonic() > deadline:
            raise TimeoutError(f"{namespace}: {len(ready)} of {REPLICAS} pods serve")
        time.sleep(0.2)


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return (
        "deletionTimestamp" not in pod["metadata"]
        and {"Ready": "True"}.items() <= {each["type"]: each["status"] for each in conditions}.items()
    )


def _evict(client: Client, namespace: str, name: str) -> float:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    began = time.monotonic()
    client.post(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body)
    return time.monotonic() - began
