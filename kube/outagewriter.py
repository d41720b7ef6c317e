"""Outages as the rebalancer notes them: written, and read by every webhook before anything rests on them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from kube.client import Client
from kube.configmaps import change_outages
from kube.crashpoints import NO_FAULTS, Faults
from kube.errors import ApiError
from kube.membership import DURATION_SECONDS
from kube.podwriter import CALL_SECONDS
from kube.resources import WEBHOOK_LEASES
from placement import names
from placement.outage import Outage, Outages, ended, noted

log = logging.getLogger(__name__)

READ_SECONDS = 1.0  # the longest wait for the webhooks; a pod that was placed too early is placed again
PAUSE_SECONDS = 0.03


class Notes:
    """Notes outages, and their end, in the shared state."""

    def __init__(
        self,
        client: Client,
        faults: Faults = NO_FAULTS,
        now: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._client = client
        self._faults = faults
        self._now = now
        self._timer = timer
        self._pause = pause
        self._call_seconds = call_seconds

    def note(self, outages: Sequence[Outage]) -> None:
        """Raises ApiError where it could not be written. Orphans wait for it, so no call may take long."""

        def with_them(known: Outages) -> Outages:
            for outage in outages:
                known = noted(known, outage, self._now())
            return known

        written = change_outages(self._client, with_them, self._faults, self._call_seconds)
        for outage in outages:
            log.warning("outage noted (version %d): %s", written.version, outage.sentence)
        self._wait_until_read(written.version)

    def end(self, outages: Sequence[Outage]) -> None:

        def without_them(known: Outages) -> Outages:
            return ended(known, outages, self._now())

        written = change_outages(self._client, without_them, self._faults, self._call_seconds)
        for outage in outages:
            log.info("outage of %s is over (version %d)", outage.of, written.version)

    def _wait_until_read(self, version: int) -> None:
        deadline, behind = self._timer() + READ_SECONDS, ["any webhook"]  # who stands still for a second asks nobody
        while (left := deadline - self._timer()) > 0.0:
            try:
                behind = [name for name, read in self._readers(left).items() if read < version]
            except ApiError as error:
                log.warning("cannot find out which webhooks have read version %d: %s", version, error)
                return
            if not behind:
                return
            self._pause(PAUSE_SECONDS)
        log.warning("version %d of the outages was not read within %.0f s by %s", version, READ_SECONDS, behind)

    def _readers(self, call_seconds: float) -> dict[str, int]:
        """The webhook replicas that are alive, and the version that each has read."""
        raw = self._client.get_json(WEBHOOK_LEASES.path, WEBHOOK_LEASES.query, timeout_seconds=call_seconds)
        return {each["metadata"]["name"]: _version(each) for each in raw["items"] if _is_alive(each, self._now())}


def _version(raw_lease: dict[str, Any]) -> int:
    text = (raw_lease["metadata"].get("annotations") or {}).get(names.OUTAGE_VERSION, "")
    return int(text) if text.isdecimal() else 0


def _is_alive(raw_lease: dict[str, Any], now: float) -> bool:
    """By the replica's own clock, which is good enough: we wait at most a second for a replica that seems alive."""
    renewed = raw_lease["spec"].get("renewTime") or ""
    try:
        at = datetime.fromisoformat(renewed).astimezone(UTC).timestamp()
    except ValueError:
        return False
    return abs(now - at) < DURATION_SECONDS
