"""A leader that does nothing else: webhooks admit pods as with a rebalancer, and nothing is moved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from kube.client import Client
from kube.lease import Leader, permit_first_leader


class IdleLeader:
    """Holds the rebalancers' Lease. Where a test wants to lead itself, it steps aside."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._names = (f"tests-{number}" for number in count())
        self._leader = self._begun()

    def _begun(self) -> Leader:
        permit_first_leader(self._client)
        leader = Leader(self._client, next(self._names))
        leader.start()
        return leader

    def stop(self) -> None:
        self._leader.stop()

    @contextmanager
    def aside(self) -> Iterator[None]:
        self.stop()
        try:
            yield
        finally:
            self._leader = self._begun()


@contextmanager
def holding_lease(client: Client) -> Iterator[IdleLeader]:
    """Without it, webhooks that run alone require nothing after a minute, and a test would depend on its time."""
    idle_leader = IdleLeader(client)
    try:
        yield idle_leader
    finally:
        idle_leader.stop()
