"""Ends programs without ceremony: an orderly end of a webhook takes ten seconds, which few tests are about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from demo import supervisor
from demo.supervisor import Installed, Process
from kube.client import Client
from kube.resources import WEBHOOK_LEASES


@contextmanager
def running(*arguments: Any, **options: Any) -> Iterator[Installed]:
    """As `demo.supervisor.running`, but the programs are killed at the end.

    In an orderly end each webhook waits up to ten seconds for connections that the API server keeps open. That end is
    tested in `test_replicas.py`, `test_outage.py` and `test_faults.py`.
    """
    with supervisor.running(*arguments, **options) as installed:
        try:
            yield installed
        finally:
            kill(installed.processes)


def kill(processes: Iterable[Process]) -> None:
    """Each that still lives."""
    alive = [each.process for each in processes if each.process.poll() is None]
    for process in alive:
        process.kill()
    for process in alive:
        process.wait()


def forget_webhooks(client: Client) -> None:
    """Removes the Leases that killed webhooks have left, so that the next ones know of no peer that is gone."""
    client.delete(WEBHOOK_LEASES.path, query=WEBHOOK_LEASES.query)
