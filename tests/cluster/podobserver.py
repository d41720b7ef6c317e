"""Watches what is done to pods: what is written to those that have a node, what ends, what waits, what is released."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from kube.client import Client
from kube.informer import Informer, InformerSet
from kube.resources import PODS
from kube.store import Store
from placement import names
from placement.model import Pod
from tests.cluster.servinghistory import APP


class PodObserver:
    """Follows all pods. What has happened is listed, and what is the case at a moment is remembered at its worst."""

    def __init__(self, pods: Store[Pod]) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self._most_released: Counter[str] = Counter()
        self._most_waiting: Counter[str] = Counter()
        self.written: list[str] = []  # pods on a node whose labels, annotations or owner were changed, and how
        self.ended: list[Pod] = []  # as they were when their end was asked for, or when they were gone without that
        pods.subscribe(self._see)

    def _see(self, old: Pod | None, new: Pod | None) -> None:
        with self._lock:
            if old is not None and (new is None or new.uid != old.uid):
                self._pods.pop(old.uid, None)
                if not old.terminating:
                    self.ended.append(old)
            if new is not None:
                self._pods[new.uid] = new
                if old is not None and old.uid == new.uid:
                    self._compare(old, new)
            seen = new or old
            assert seen is not None
            self._count(seen.labels.get(APP, ""))

    def _compare(self, old: Pod, new: Pod) -> None:
        if new.terminating and not old.terminating:
            self.ended.append(old)
        if not old.node or new.terminating:
            return
        for what in ("labels", "annotations", "decision", "owner"):
            before, after = getattr(old, what), getattr(new, what)
            if before != after:
                self.written.append(f"{new.key}: {what} {before} → {after}")

    def _count(self, app: str) -> None:
        own = [pod for pod in self._pods.values() if pod.labels.get(APP) == app and not pod.terminating]
        released = sum(names.RELEASED in pod.annotations for pod in own)
        waiting = sum(not pod.node for pod in own)
        self._most_released[app] = max(self._most_released[app], released)
        self._most_waiting[app] = max(self._most_waiting[app], waiting)

    def forget(self) -> None:
        """From now on."""
        with self._lock:
            self.written, self.ended = [], []
            self._most_released, self._most_waiting = Counter(), Counter()
            for app in {pod.labels.get(APP, "") for pod in self._pods.values()}:
                self._count(app)

    def most_released(self, app: str) -> int:
        """The most that were released at any moment."""
        with self._lock:
            return self._most_released[app]

    def most_waiting(self, app: str) -> int:
        """The most that had no node at any moment."""
        with self._lock:
            return self._most_waiting[app]


@contextmanager
def observing_pods(client: Client) -> Iterator[PodObserver]:
    pods = Store[Pod]()
    observer = PodObserver(pods)
    informers = InformerSet([Informer(client, PODS, pods)])
    informers.start()
    assert informers.wait_synced(30)
    try:
        yield observer
    finally:
        informers.stop()
