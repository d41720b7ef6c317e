"""Somebody who leads and does nothing else: webhooks admit pods as with a rebalancer, and nothing is moved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kube.client import Client
from kube.lease import Leader, permit_first_leader


@contextmanager
def leading(client: Client) -> Iterator[None]:
    """Without it, webhooks that run alone require nothing after a minute, and a test would depend on its time."""
    permit_first_leader(client)
    leader = Leader(client, "tests")
    leader.start()
    try:
        yield
    finally:
        leader.stop()
