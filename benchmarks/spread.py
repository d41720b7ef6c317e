"""How a workload's spot pods are spread over pools: with our pool preference, and with zone and host spread alone.

The cloud takes a whole pool away at once, and no topology key names a pool. There are six spot pools of unequal size in
three zones. The figure is the share of a workload's spot pods in its fullest pool, with the real scheduler.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from demo.supervisor import running
from kube.client import Client, connect
from localcluster import LocalCluster, Options
from localcluster.profile import NodePool, Profile
from placement import names

OUT = Path(__file__).parent.parent / "out" / "bench"
SIZES = (10, 30, 100)
ROUNDS = 3
SPOT = (
    ("zone-a", "m5", 6),
    ("zone-a", "c5", 2),
    ("zone-b", "m5", 4),
    ("zone-b", "r5", 1),
    ("zone-c", "m5", 3),
    ("zone-c", "c5", 2),
)
ON_DEMAND = NodePool("on-demand", "zone-a", "m5", 2, "16", "64Gi", "on-demand")
PROFILE = Profile(
    (ON_DEMAND, *(NodePool(f"{zone}-{kind}", zone, kind, count, "16", "64Gi", "spot") for zone, kind, count in SPOT))
)


def main() -> None:
    fast = Options(controller_qps=200, controller_burst=400)
    with LocalCluster.start(PROFILE, options=fast) as cluster, running(cluster.kubeconfig, log_level="warning"):
        client = connect(cluster.kubeconfig, user_agent="spotweave-bench")
        for namespace, labels in (("ours", {names.PLACEMENT: names.ENABLED}), ("plain", {})):
            metadata = {"name": namespace, "labels": labels}
            client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        pools = {
            node["metadata"]["name"]: (
                node["metadata"]["labels"][names.ZONE],
                node["metadata"]["labels"][names.INSTANCE_TYPE],
            )
            for node in client.get_json("/api/v1/nodes")["items"]
        }
        measured = [
            {
                "pods": size,
                **{which: _fullest(client, which, f"web-{size}-{turn}", size, pools) for which in ("ours", "plain")},
            }
            for turn in range(ROUNDS)
            for size in SIZES
        ]
        client.close()
    _report(measured)


def _fullest(client: Client, namespace: str, name: str, size: int, pools: dict[str, tuple[str, str]]) -> int:
    """The number of pods in the fullest pool."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    client.post(path, _deployment(name, size, by_hand=namespace == "plain"))
    deadline = time.monotonic() + 120
    while client.get_json(f"{path}/{name}")["status"].get("readyReplicas") != size:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} is not ready")
        time.sleep(0.1)
    pods = client.get_json(f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": f"app={name}"})["items"]
    client.delete(f"{path}/{name}")
    return max(Counter(pools[pod["spec"]["nodeName"]] for pod in pods).values())


def _deployment(name: str, size: int, *, by_hand: bool) -> dict[str, Any]:
    """All on spot: by our policy, or by hand-written affinity."""
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": name}},
        }
        for key in (names.ZONE, names.HOSTNAME)
    ]
    own = {"nodeSelector": {names.CAPACITY: "spot"}, "topologySpreadConstraints": spread} if by_hand else {}
    container = {
        "name": "app",
        "image": "example/app:1.0",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "annotations": {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}},
        "spec": {
            "replicas": size,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **own},
            },
        },
    }


def _report(measured: list[dict[str, int]]) -> None:
    table = Table(title=f"pods of a workload in its fullest of six spot pools, worst of {ROUNDS} rounds")
    for column in ("spot pods", "ours", "zone + host spread alone", "ideal"):
        table.add_column(column, justify="right")
    for size in SIZES:
        rows = [each for each in measured if each["pods"] == size]
        shown = [max(row[which] for row in rows) for which in ("ours", "plain")]
        table.add_row(str(size), *(f"{count} ({count / size:.0%})" for count in (*shown, -(-size // len(SPOT)))))
    Console().print(table)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "spread.json").write_text(json.dumps(measured, indent=2))
