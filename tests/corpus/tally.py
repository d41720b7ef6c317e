"""Counts, all the while, how many pods of each workload have a node and serve, and for how long one was missing."""

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
from localcluster.nodes import CAPACITY_LABEL
from placement.model import Class, Key, Node, Pod
from placement.slots import Mix
from tests.cluster.servinghistory import APP


class ServingTally:
    """By namespace and `app` label. A pod counts while it is not on its way out, on a node that exists."""

    def __init__(self, pods: Store[Pod], nodes: Store[Node]) -> None:
        self._lock = threading.Lock()
        self._pods: defaultdict[Key, dict[str, Pod]] = defaultdict(dict)
        self._nodes: dict[str, Node] = {}
        self._wanted: dict[Key, int] = {}
        self._short_since: dict[Key, float] = {}
        self._longest: defaultdict[Key, float] = defaultdict(float)
        self._fewest: dict[Key, int] = {}
        pods.subscribe(self._see_pod)
        nodes.subscribe(self._see_node)

    def _see_pod(self, old: Pod | None, new: Pod | None) -> None:
        with self._lock:
            for pod in (old, new):
                if pod is not None:
                    self._pods[_key(pod)].pop(pod.uid, None)
            if new is not None:
                self._pods[_key(new)][new.uid] = new
            seen = new or old
            assert seen is not None
            self._note(_key(seen))

    def _see_node(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None:
            return  # what they say of their health does not matter here
        with self._lock:
            if old is not None:
                self._nodes.pop(old.name, None)
            if new is not None:
                self._nodes[new.name] = new
            for key in list(self._pods):
                self._note(key)

    def _note(self, key: Key) -> None:
        now = time.monotonic()
        serving = sum(pod.ready for pod in self._bound(key))
        self._fewest[key] = min(self._fewest.get(key, serving), serving)
        if len(self._bound(key)) < self._wanted.get(key, 0):
            self._short_since.setdefault(key, now)
        elif key in self._short_since:
            self._longest[key] = max(self._longest[key], now - self._short_since.pop(key))

    def _bound(self, key: Key) -> list[Pod]:
        """A released pod counts too: it serves until its replacement does."""
        ended = ("Failed", "Succeeded")
        return [
            pod
            for pod in self._pods[key].values()
            if not pod.terminating and pod.phase not in ended and pod.node in self._nodes
        ]

    def begin(self) -> None:
        """A new chapter: what was is forgotten."""
        with self._lock:
            self._longest.clear()
            self._fewest.clear()
            self._short_since.clear()
            for key in list(self._pods):
                self._note(key)

    def expect(self, key: Key, replicas: int) -> None:
        """So many are wanted from now on."""
        with self._lock:
            self._wanted[key] = replicas
            self._note(key)

    def longest_short(self, key: Key) -> float:
        """Seconds for which fewer pods than wanted had a node, without a break."""
        with self._lock:
            running = time.monotonic() - self._short_since[key] if key in self._short_since else 0.0
            return max(self._longest[key], running)

    def is_short(self, key: Key) -> bool:
        with self._lock:
            return key in self._short_since

    def fewest(self, key: Key) -> int:
        """The fewest that served at any moment of this chapter."""
        with self._lock:
            return self._fewest.get(key, 0)

    def bound(self, key: Key) -> int:
        with self._lock:
            return len(self._bound(key))

    def serving(self, key: Key) -> Mix:
        """By the class of their nodes."""
        with self._lock:
            labels = [self._nodes[pod.node].labels for pod in self._bound(key) if pod.ready]
        return Mix.of(Class.SPOT if each.get(CAPACITY_LABEL) == Class.SPOT else Class.ON_DEMAND for each in labels)

    def is_moving(self, key: Key) -> bool:
        """A pod is released, waits, starts or ends."""
        with self._lock:
            pods = list(self._pods[key].values())
            return len(pods) != self._wanted.get(key, 0) or any(
                pod.is_released or pod.terminating or not pod.ready for pod in pods
            )


def _key(pod: Pod) -> Key:
    return Key(pod.key.namespace, pod.labels.get(APP, ""))


@contextmanager
def tallying(client: Client) -> Iterator[ServingTally]:
    pods, nodes = Store[Pod](), Store[Node]()
    tally = ServingTally(pods, nodes)
    informers = InformerSet([Informer(client, NODES, nodes), Informer(client, PODS, pods)])
    informers.start()
    assert informers.wait_synced(30)
    try:
        yield tally
    finally:
        informers.stop()
