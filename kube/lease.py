"""Leader election on the Lease `spotweave-rebalancer`: a thread that carries out what `election` decides.

A Lease does not fence. So the program asks `is_leading` before each write, and each write has its own preconditions.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from kube.client import Client
from kube.crashpoints import NO_FAULTS, Call, Faults
from kube.election import (
    ABSENT,
    Create,
    Knowledge,
    LeaseRecord,
    Lost,
    Observed,
    ReadLease,
    Step,
    Terms,
    Unanswered,
    WasRead,
    Woken,
    Write,
    Wrote,
    next_step,
)
from kube.errors import AlreadyExists, ApiError, Conflict, Garbled, NotFound
from kube.membership import PATH as LEASES
from placement import names

log = logging.getLogger(__name__)

PATH = f"{LEASES}/{names.LEASE}"
CALL_SECONDS = 2.5  # several calls fit into the time in which a leader must renew
RELEASED_SECONDS = 1  # a holder that gave up writes this duration, as Kubernetes' own programs do
RELEASE_TRIES = 3


class Leader:
    """One contender. `on_change` is called with True or False, from the thread, after `is_leading` has changed.

    While `is_fit` returns False, it neither takes nor renews the Lease, so it stops leading at the end of its term.
    Never use an `identity` twice: after a restart the new process would be mistaken for the old one.
    """

    def __init__(
        self,
        client: Client,
        identity: str,
        timer: Callable[[], float] = time.monotonic,
        *,
        on_change: Callable[[bool], None] = lambda _: None,
        is_fit: Callable[[], bool] = lambda: True,
        faults: Faults = NO_FAULTS,
        terms: Terms | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._timer = timer
        self._on_change = on_change
        self._is_fit = is_fit
        self._faults = faults
        self._chance = chance
        self._state = Knowledge(identity, terms or Terms())
        self._told = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops leading at once, then gives the Lease up, so that another replica takes it without waiting."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2 * RELEASE_TRIES * CALL_SECONDS)

    def is_leading(self) -> bool:
        """Called before each write, from any thread. It is cheap."""
        return self._state.is_leading(self._timer()) and not self._stopping.is_set()

    @property
    def holder(self) -> str | None:
        """The leader as last seen; "" if there is none; None if the Lease was not read yet."""
        record = self._state.record
        return None if record is None else record.holder

    def _run(self) -> None:
        observed: Observed = Woken()
        while not self._stopping.is_set():
            self._state, step = next_step(self._state, observed, self._timer(), self._chance(), self._is_fit())
            self._tell()
            observed = self._take(step)
        self._tell()
        self._release()

    def _tell(self) -> None:
        is_leading = self.is_leading()
        if is_leading != self._told:
            log.info("%s %s", self._state.identity, "leads" if is_leading else "no longer leads")
            self._told = is_leading
            self._on_change(is_leading)

    def _take(self, step: Step) -> Observed:
        try:
            match step:
                case ReadLease():
                    return WasRead(self._read())
                case Create():
                    return WasRead(self._create())
                case Write(over):
                    began_at = self._timer()
                    return Wrote(self._write(over, self._ours(over)), began_at)
        except (Conflict, NotFound) as lost:
            log.debug("lease: %s", lost)
            return Lost()
        except ApiError as failure:
            log.warning("lease: %s", failure)
            return Unanswered()
        self._stopping.wait(step.seconds)
        return Woken()

    def _read(self) -> LeaseRecord:
        try:
            return _record("GET", self._client.get_json(PATH, timeout_seconds=CALL_SECONDS))
        except NotFound:
            return ABSENT

    def _write(self, over: LeaseRecord, spec: dict[str, Any]) -> LeaseRecord:
        """Replaces the version that was seen, and no other."""
        patch = {"metadata": {"resourceVersion": over.version}, "spec": spec}
        with self._faults.around(Call.LEASE):
            return _record("PATCH", self._client.patch(PATH, patch, timeout_seconds=CALL_SECONDS))

    def _create(self) -> LeaseRecord:
        with self._faults.around(Call.LEASE):
            return _record("POST", self._client.post(LEASES, lease_object({}), timeout_seconds=CALL_SECONDS))

    def _ours(self, over: LeaseRecord) -> dict[str, Any]:
        """The times are for people to read. No decision uses them."""
        now, identity = _now(), self._state.identity
        spec = {
            "holderIdentity": identity,
            "leaseDurationSeconds": self._state.terms.duration_seconds,
            "renewTime": now,
        }
        if over.holder != identity:
            spec |= {"acquireTime": now, "leaseTransitions": over.transitions + 1}
        return spec

    def _release(self) -> None:
        """Reads the Lease first: a renewal whose answer was lost may have been stored."""
        for _ in range(RELEASE_TRIES):
            try:
                record = self._read()
                if record.holder == self._state.identity:
                    self._write(record, released_spec())
                    log.info("lease: released")
            except Conflict:
                continue
            except ApiError as error:
                log.warning("lease: could not be released and will expire: %s", error)
            return


def permit_first_leader(client: Client) -> None:
    """If there is no Lease, creates one that was given up, so that the first replica need not wait for it.

    For installers that know that no replica leads. An existing Lease is left as it is.
    """
    try:
        client.post(LEASES, lease_object(released_spec()))
    except AlreadyExists:
        return


def lease_object(spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {
        "name": names.LEASE,
        "namespace": names.SYSTEM_NAMESPACE,
        "labels": {names.COMPONENT: names.REBALANCER_COMPONENT},
    }
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def released_spec() -> dict[str, Any]:
    return {"holderIdentity": "", "leaseDurationSeconds": RELEASED_SECONDS, "renewTime": _now()}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


# --- what the API says -----------------------------------------------------------------------------------------------


class _LeaseMetadata(msgspec.Struct, rename="camel"):
    resource_version: str


class _LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct):
    metadata: _LeaseMetadata
    spec: _LeaseSpec | None = None


def _record(verb: str, raw: Any) -> LeaseRecord:
    try:
        lease = msgspec.convert(raw, _Lease)
    except msgspec.ValidationError as error:
        raise Garbled(f"{verb} {PATH}", str(error)) from error
    spec = lease.spec or _LeaseSpec()
    holder, seconds = spec.holder_identity or "", spec.lease_duration_seconds or 0
    is_released = not holder and seconds == RELEASED_SECONDS
    return LeaseRecord(
        lease.metadata.resource_version, holder, float(seconds), is_released, spec.lease_transitions or 0
    )
