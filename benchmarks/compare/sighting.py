"""What is seen of pods: when each got its reservation, lost its gate and got a node; and what the API server wrote."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kube.client import Client
from kube.informer import Informer, InformerSet
from kube.resources import PODS_IN_FULL
from kube.store import Store
from placement.model import Pod

GANG = "gang"  # label: the gang's name
TORN_SECONDS = 2.0  # a gang that is partly on nodes for longer is torn
TICKS = os.sysconf("SC_CLK_TCK")
WRITES = re.compile(r'^apiserver_request_total\{[^}]*resource="([a-z/]*)"[^}]*verb="(POST|PUT|PATCH|DELETE|APPLY)"')
COUNTED = ("pods", "podgroups", "workloads", "jobs", "localqueues", "clusterqueues")  # nodes have heartbeats


class Sighting:
    """Follows all pods that have the label."""

    def __init__(self, pods: Store[Pod]) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self.nominated: dict[str, float] = {}  # by name: when it was first seen
        self.released: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.gone: set[str] = set()
        self._torn_since: dict[str, float] = {}
        self.torn: set[str] = set()
        pods.subscribe(self._see)

    def _see(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is None or GANG not in pod.labels:
            return
        now = time.monotonic()
        with self._lock:
            if new is None:
                self._pods.pop(pod.name, None)
                self.gone.add(pod.name)
                return
            self._pods[pod.name] = new
            if new.nominated:
                self.nominated.setdefault(pod.name, now)
            if not new.gates:
                self.released.setdefault(pod.name, now)
            if new.node:
                self.bound.setdefault(pod.name, now)

    def of(self, gang: str) -> list[Pod]:
        with self._lock:
            return [pod for pod in self._pods.values() if pod.labels[GANG] == gang]

    def placed(self, gang: str) -> int:
        return sum(bool(pod.node) for pod in self.of(gang))

    def look_for_torn(self, gangs: list[str], members: int) -> None:
        """To be called often."""
        now = time.monotonic()
        for gang in gangs:
            if 0 < self.placed(gang) < members:
                if now - self._torn_since.setdefault(gang, now) > TORN_SECONDS:
                    self.torn.add(gang)
            else:
                self._torn_since.pop(gang, None)


@contextmanager
def watching(client: Client) -> Iterator[Sighting]:
    pods: Store[Pod] = Store()
    seen = Sighting(pods)
    informers = InformerSet([Informer(client, PODS_IN_FULL, pods)])
    informers.start()
    if not informers.wait_synced(30):
        raise TimeoutError("pods could not be listed")
    try:
        yield seen
    finally:
        informers.stop()


def writes(client: Client) -> int:
    """What the API server was asked to write so far of pods, and of what stands for gangs."""
    found: Counter[str] = Counter()
    for line in client.get("/metrics", most_bytes=64 << 20).decode().splitlines():
        matched = WRITES.match(line)
        if matched and matched[1].partition("/")[0] in COUNTED:
            found[matched[1]] += int(float(line.rpartition(" ")[2]))
    return found.total()


def processor_seconds(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS
