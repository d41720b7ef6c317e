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
from localcluster.reclaim import TERMINATION_TAINT
from placement.model import Class, Node, Pod

APP = "app"  # the label that tells a workload's pods, released ones included


class ServingHistory:
    """Serving pods by their `app` label: ready, not on their way out, on a node that exists."""

    def __init__(self, pods: Store[Pod], nodes: Store[Node]) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self._nodes: dict[str, Node] = {}
        self._worst: dict[str, int] = {}
        self._worst_on_demand: dict[str, int] = {}
        self._history: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        self._arrivals: defaultdict[str, list[float]] = defaultdict(list)
        self._notices: defaultdict[str, list[float]] = defaultdict(list)
        self._noticed: dict[str, float] = {}  # by node: when
        self.asked: list[float] = []  # seconds from the notice of its node until a pod was released
        self._left_at: dict[str, float] = {}
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
                self._left_at[old.node] = time.monotonic()
            seen = new or old
            assert seen is not None
            app = seen.labels.get(APP, "")
            if old is None:
                self._arrivals[app].append(time.monotonic())
            elif new is not None and new.is_released and not old.is_released and new.node in self._noticed:
                self.asked.append(time.monotonic() - self._noticed[new.node])
            self._note(app)

    def _see_node(self, old: Node | None, new: Node | None) -> None:
        with self._lock:
            if old is not None:
                self._nodes.pop(old.name, None)
            if new is not None:
                self._nodes[new.name] = new
                if new.is_leaving((TERMINATION_TAINT,)) and new.name not in self._noticed:
                    self._see_notice(new.name)
            for app in {pod.labels.get(APP, "") for pod in self._pods.values()}:
                self._note(app)

    def _see_notice(self, node: str) -> None:
        """For each of its pods: from now on another one is wanted."""
        self._noticed[node] = time.monotonic()
        for pod in self._pods.values():
            if pod.node == node and pod.is_live:
                self._notices[pod.labels.get(APP, "")].append(time.monotonic())

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
            self._noticed, self._left_at, self.asked = {}, {}, []
            for kept in (self._history, self._arrivals, self._notices):
                kept.clear()
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

    def answers(self, app: str) -> list[float]:
        """Seconds from the notice of each pod's node until one more pod was there; infinite where none came."""
        with self._lock:
            asked = sorted(self._notices[app])
            came = sorted(at for at in self._arrivals[app] if asked and at >= asked[0])
            came += [float("inf")] * (len(asked) - len(came))
            return [then - at for at, then in zip(asked, came, strict=False)]

    def arrived(self, app: str, began: float) -> float:
        """Seconds from a moment (monotonic) until its last pod so far was there, ready or not."""
        with self._lock:
            return max(self._arrivals[app]) - began

    def emptied(self) -> float:
        """Seconds from the first notice until the last pod had left the nodes that got one."""
        with self._lock:
            first = min(at for notices in self._notices.values() for at in notices)
            return max(at for node, at in self._left_at.items() if node in self._noticed) - first

    def full_since(self, app: str, replicas: int) -> float:
        """The moment (monotonic) since when so many serve."""
        with self._lock:
            below = [at for at, serving in self._history[app] if serving < replicas]
            later = [at for at, serving in self._history[app] if serving >= replicas and at > max(below, default=0.0)]
            return later[0] if later else float("inf")


@contextmanager
def tracking_serving(client: Client) -> Iterator[ServingHistory]:
    pods, nodes = Store[Pod](), Store[Node]()
    history = ServingHistory(pods, nodes)
    informers = InformerSet([Informer(client, NODES, nodes), Informer(client, PODS, pods)])
    informers.start()
    assert informers.wait_synced(30)
    try:
        yield history
    finally:
        informers.stop()
