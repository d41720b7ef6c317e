"""Watches all the while how many replicas of each workload serve, and remembers the worst."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from kube.client import Client
from kube.informer import Informer, InformerSet
from kube.resources import NODES, PODS
from kube.store import Store
from placement.model import Class, Node, Pod

APP = "app"  # the label that tells a workload's pods, released ones included


class Watcher:
    """Serving pods by their `app` label: ready, not on their way out, on a node that exists."""

    def __init__(self, pods: Store[Pod], nodes: Store[Node]) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self._nodes: dict[str, Node] = {}
        self._worst: dict[str, int] = {}
        self._worst_on_demand: dict[str, int] = {}
        self._history: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        self.deleted: list[Pod] = []
        pods.subscribe(self._see_pod)
        nodes.subscribe(self._see_node)

    def _see_pod(self, old: Pod | None, new: Pod | None) -> None:
        with self._lock:
            if old is not None:
                self._pods.pop(old.uid, None)
            if new is not None:
                self._pods[new.uid] = new
            elif old is not None:
                self.deleted.append(old)
            seen = new or old
            assert seen is not None
            self._note(seen.labels.get(APP, ""))

    def _see_node(self, old: Node | None, new: Node | None) -> None:
        with self._lock:
            if old is not None:
                self._nodes.pop(old.name, None)
            if new is not None:
                self._nodes[new.name] = new
            for app in {pod.labels.get(APP, "") for pod in self._pods.values()}:
                self._note(app)

    def _note(self, app: str) -> None:
        serving, on_demand = self._count(app)
        self._history[app].append((time.monotonic(), serving))
        self._worst[app] = min(self._worst.get(app, serving), serving)
        self._worst_on_demand[app] = min(self._worst_on_demand.get(app, on_demand), on_demand)

    def _count(self, app: str) -> tuple[int, int]:
        there = [self._nodes[pod.node] for pod in self._pods.values() if self._serves(pod, app)]
        on_demand = sum(node.labels.get("node.kubernetes.io/capacity") != str(Class.SPOT) for node in there)
        return len(there), on_demand

    def _serves(self, pod: Pod, app: str) -> bool:
        return pod.labels.get(APP) == app and pod.ready and not pod.terminating and pod.node in self._nodes

    def forget(self) -> None:
        """From now on."""
        with self._lock:
            self._worst, self._worst_on_demand, self.deleted = {}, {}, []
            self._history.clear()
            for app in {pod.labels.get(APP, "") for pod in self._pods.values()}:
                self._note(app)

    def worst(self, app: str) -> int:
        """The fewest that served at any moment."""
        with self._lock:
            return self._worst[app]

    def worst_on_demand(self, app: str) -> int:
        with self._lock:
            return self._worst_on_demand[app]

    def serving(self, app: str) -> int:
        with self._lock:
            return self._count(app)[0]

    def full_since(self, app: str, replicas: int) -> float:
        """The moment (monotonic) since when so many serve."""
        with self._lock:
            below = [at for at, serving in self._history[app] if serving < replicas]
            later = [at for at, serving in self._history[app] if serving >= replicas and at > max(below, default=0.0)]
            return later[0] if later else float("inf")


@contextmanager
def watching(client: Client) -> Iterator[Watcher]:
    pods, nodes = Store[Pod](), Store[Node]()
    watcher = Watcher(pods, nodes)
    informers = InformerSet([Informer(client, NODES, nodes), Informer(client, PODS, pods)])
    informers.start()
    assert informers.wait_synced(30)
    try:
        yield watcher
    finally:
        informers.stop()
