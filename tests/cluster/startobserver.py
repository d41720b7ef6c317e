"""Watches how gangs start, change by change in the order of the API server: whole, or in part."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kube.client import Client
from kube.informer import Informer, InformerSet
from kube.resources import PODS_IN_FULL
from kube.store import Store
from placement.gang.belonging import SOLO, gang_key
from placement.gang.reservation import reservation_of
from placement.model import FINISHED, Key, Pod

BOUND_SECONDS = 2.0  # so soon after its last gate has gone, all members of a gang have a node


@dataclass
class _ObservedStart:
    """One gang: its members, and how its present start goes."""

    members: int
    pods: dict[str, Pod] = field(default_factory=dict)  # by UID
    is_whole: bool = False  # since it was, what it loses is no start
    last_release: float = 0.0
    began: float = 0.0  # when the first member got a node


class StartObserver:
    """Partial starts of all gangs of a namespace.

    A start is partial where a member has a node while another one keeps its gate, and the plan that started the first
    does not hold room for the second; and where not all have a node some time after the last gate has gone. A gang that
    was whole, and loses members, starts again when none has a node any more.
    """

    def __init__(self, pods: Store[Pod], members: int) -> None:
        self._lock = threading.Lock()
        self._usual = members
        self._members: dict[str, int] = {}
        self._starts: dict[Key, _ObservedStart] = {}
        self.partial: list[str] = []
        self.whole = 0  # starts that were whole
        self.bound_after: list[float] = []  # seconds from the last release of a start to its last member on a node
        pods.subscribe(self._see)

    def expect(self, name: str, members: int) -> None:
        """So many members of this gang start together."""
        with self._lock:
            self._members[name] = members

    def check(self) -> None:
        """No start was partial so far."""
        with self._lock:
            now = time.monotonic()
            for key, start in self._starts.items():
                if start.began and not start.is_whole and start.last_release and not _gated(start):
                    waited = now - start.last_release
                    if waited > BOUND_SECONDS and len(_live(start)) >= start.members:
                        self.partial.append(f"{key}: not all members have a node {waited:.1f} s after the last release")
            assert self.partial == []

    def forget(self) -> None:
        """What a test did on purpose."""
        with self._lock:
            self.partial = []
            self._starts = {}

    def _see(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        key = gang_key(pod)
        if key is None or key.name.startswith(SOLO):
            return
        with self._lock:
            start = self._starts.setdefault(key, _ObservedStart(self._members.get(key.name, self._usual)))
            if old is not None:
                start.pods.pop(old.uid, None)
            if new is not None and not new.terminating:
                start.pods[new.uid] = new
            self._judge(key, start, old, new)

    def _judge(self, key: Key, start: _ObservedStart, old: Pod | None, new: Pod | None) -> None:
        now = time.monotonic()
        if old is not None and new is not None and old.is_gated and not new.is_gated:
            start.last_release = now
        bound = [pod for pod in start.pods.values() if pod.node]
        if not bound:
            start.is_whole, start.began = False, 0.0
            return
        start.began = start.began or now
        if start.is_whole:
            return
        if len(bound) >= start.members:
            start.is_whole = True
            self.whole += 1
            self.bound_after.append(now - max(start.last_release, start.began if not start.last_release else 0.0))
            return
        plans = {found.plan for pod in bound if (found := reservation_of(pod)) is not None}
        undone = any((found := reservation_of(pod)) is not None and found.is_undone for pod in bound)
        torn = [pod for pod in _gated(start) if (found := reservation_of(pod)) is None or found.plan not in plans]
        if torn and not undone and not any(pod.phase in FINISHED for pod in start.pods.values()):
            self.partial.append(
                f"{key}: {len(bound)} members have nodes by {sorted(plans)}, and {torn[0].name} keeps its gate"
            )


def _gated(start: _ObservedStart) -> list[Pod]:
    return [pod for pod in start.pods.values() if pod.is_gated]


def _live(start: _ObservedStart) -> list[Pod]:
    return [pod for pod in start.pods.values() if pod.phase not in FINISHED]


@contextmanager
def observing_starts(client: Client, members: int) -> Iterator[StartObserver]:
    pods: Store[Pod] = Store()
    observer = StartObserver(pods, members)
    informers = InformerSet([Informer(client, PODS_IN_FULL, pods)])
    informers.start()
    assert informers.wait_synced(30)
    try:
        yield observer
    finally:
        informers.stop()
