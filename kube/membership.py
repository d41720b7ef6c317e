"""The other replicas: each replica of a program holds its own Lease, and watches those of the others.

Clocks of others are not trusted. A member is alive if its Lease was seen to change within its duration, by our own
clock. A killed replica remains a member for that long, so callers must handle a member that does not answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Lock

from cachetools import TTLCache

from kube.client import Client
from kube.errors import AlreadyExists, ApiError, NotFound
from kube.paths import path_of
from kube.resources import WEBHOOK_LEASES, Lease
from kube.store import Store
from placement import names

log = logging.getLogger(__name__)

LEASES = "/apis/coordination.k8s.io/v1/leases"
PATH = WEBHOOK_LEASES.path
DURATION_SECONDS = 10
RENEW_SECONDS = 3.0
LEFT_SECONDS = 5.0  # for as long as what one that left has decided may be unseen
FORGET_SECONDS = 60.0  # after which others delete what a killed member left


class Membership:
    """The members, according to their Leases. Fed by an informer, callable from any thread."""

    def __init__(self, store: Store[Lease], timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._lock = Lock()
        self._seen: dict[str, tuple[Lease, float]] = {}
        self._left: TTLCache[str, Lease] = TTLCache(1000, LEFT_SECONDS, timer)
        store.subscribe(self._observe)

    def _observe(self, old: Lease | None, new: Lease | None) -> None:
        with self._lock:
            if new is not None:
                self._seen[new.name] = (new, self._timer())
            elif old is not None:
                self._seen.pop(old.name, None)
                self._left[old.name] = old

    def members(self) -> dict[str, str]:
        """Name → address of those that are alive."""
        return {lease.name: lease.address for lease in self._quiet_for(0.0, DURATION_SECONDS)}

    def left(self) -> dict[str, str]:
        """Name → address of those that have gone a moment ago, or were given up. They may still answer."""
        silent = self._quiet_for(DURATION_SECONDS, DURATION_SECONDS + LEFT_SECONDS)
        with self._lock:
            return {lease.name: lease.address for lease in (*silent, *self._left.values())}

    def forgotten(self) -> list[str]:
        """Names of those that have been silent for so long that their Lease may go."""
        return [lease.name for lease in self._quiet_for(FORGET_SECONDS, float("inf"))]

    def _quiet_for(self, at_least: float, less_than: float) -> list[Lease]:
        now = self._timer()
        with self._lock:
            return [lease for lease, seen in self._seen.values() if at_least <= now - seen < less_than]


def announce(client: Client, name: str, address: str, outage_version: int) -> None:
    """Says that we are here, or still here, and which outages we know of."""
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    spec = {"holderIdentity": address, "leaseDurationSeconds": DURATION_SECONDS, "renewTime": now}
    metadata: dict[str, object] = {"annotations": {names.OUTAGE_VERSION: str(outage_version)}}
    try:
        client.patch(path_of(LEASES, name, names.SYSTEM_NAMESPACE), {"metadata": metadata, "spec": spec})
    except NotFound:
        labels = {names.COMPONENT: names.WEBHOOK_COMPONENT}
        metadata |= {"name": name, "namespace": names.SYSTEM_NAMESPACE, "labels": labels}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        try:
            client.post(PATH, lease)
        except AlreadyExists:  # the next renewal will patch it
            log.debug("lease %s already exists", name)


def withdraw(client: Client, name: str) -> None:
    """Says that we leave; or, of another, that it is gone. Failing is no harm: Leases run out."""
    try:
        client.delete(path_of(LEASES, name, names.SYSTEM_NAMESPACE))
    except NotFound:
        return
    except ApiError as error:
        log.warning("lease %s could not be deleted and will expire: %s", name, error)
