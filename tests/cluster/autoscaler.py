"""An autoscaler as small as can be: it brings spot nodes, and only for pods that wait for spot and for nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from localcluster import LocalCluster
from localcluster.nodes import create_nodes, list_nodes, raw_node, takes_pods
from placement import names

LOOK_SECONDS = 0.5
PLACES = 3  # on each node, so that several are needed


@dataclass
class Autoscaler:
    """Brings one node at a time, for pods of one namespace."""

    cluster: LocalCluster
    namespace: str
    brought: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        spot = next(pool for pool in self.cluster.profile.pools if pool.capacity_class == "spot")
        small = replace(spot, pods=PLACES)
        numbers = count()
        while not self._stopping.wait(LOOK_SECONDS):
            if self._is_starting() or not any(map(waits_for_spot, self._pods())):
                continue
            name = f"brought-{next(numbers)}"
            create_nodes(self.cluster.api, [raw_node(small, name, self.cluster.profile.region)])
            self.brought.append(name)

    def stop(self) -> None:
        self._stopping.set()

    def _pods(self) -> list[dict[str, Any]]:
        return list(self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"])

    def _is_starting(self) -> bool:
        ready = {node["metadata"]["name"] for node in list_nodes(self.cluster.api) if takes_pods(node)}
        return any(name not in ready for name in self.brought)


def waits_for_spot(raw_pod: dict[str, Any]) -> bool:
    """Unschedulable, and no node would do but spot."""
    conditions = raw_pod["status"].get("conditions", ())
    is_waiting = any(each.get("reason") == "Unschedulable" for each in conditions)
    affinity = raw_pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
    asked = [each for term in required for each in term.get("matchExpressions", ())]
    return is_waiting and any(each["key"] == names.CAPACITY and each["operator"] == "In" for each in asked)


@contextmanager
def autoscaling(cluster: LocalCluster, namespace: str) -> Iterator[Autoscaler]:
    autoscaler = Autoscaler(cluster, namespace)
    thread = threading.Thread(target=autoscaler.run, name="autoscaler", daemon=True)
    thread.start()
    try:
        yield autoscaler
    finally:
        autoscaler.stop()
        thread.join()
