"""One replica's care for the certificates: reads, takes the next step, publishes, and returns what to serve.

Every replica runs a pass every two seconds, and when the configuration changes. Any of them may take the next step;
all it needs is in the two objects. It also remembers what it serves, and since when it has seen the objects unchanged.
This memory makes it careful, and lets it restore a lost Secret.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum

from certs import publish
from certs.read import pem
from certs.renewal import OVERLAP, Bundle, Change, Published, authorities, expiry, is_accepted, next_step, serves
from kube.client import Client
from kube.errors import Conflict, Invalid

log = logging.getLogger(__name__)

PASS_SECONDS = 2.0
_TRIES = 5


class Issuer(StrEnum):
    """Who issues the certificates."""

    OWN = "own"  # the webhooks themselves
    SECRET = "secret"  # noqa: S105 - another tool, such as cert-manager, which also publishes the authority


class Keeper:
    """`timer` is a monotonic clock; `now` is the time of day, which certificates use."""

    def __init__(
        self,
        client: Client,
        source: Issuer = Issuer.OWN,
        overlap: timedelta = OVERLAP,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._source = source
        self._overlap = overlap
        self._timer = timer
        self._sight = StandingSince()
        self.seen = Published()
        self.serving: Bundle | None = None

    @property
    def pass_seconds(self) -> float:
        """Several passes within one overlap, so that every replica keeps up with the steps."""
        return min(PASS_SECONDS, self._overlap.total_seconds() / 5)

    @property
    def trusted(self) -> bytes:
        """The authorities that may have signed leaves of replicas: those published now, and those published next."""
        known = [*sorted(self.seen.published), self.serving.trusted if self.serving else b""]
        return b"".join(dict.fromkeys(pem(each) for trusted in known for each in authorities(trusted)))

    def look(self, now: datetime) -> Bundle | None:
        """One pass. Returns what to serve; None if there is nothing yet."""
        for _ in range(_TRIES):
            try:
                return self._pass(now)
            except Conflict:
                log.info("certificates: another replica was faster; reading again")
        raise TimeoutError(f"the certificates were changed by others {_TRIES} times in a row")

    def missing(self, now: datetime) -> str | None:
        """Why callers cannot rely on this replica's certificate; None if they can."""
        if self.serving is None:
            return "no certificate yet"
        if not self.seen.published:
            return "the webhook configuration has no entries"
        if expiry(self.serving.leaf) <= now:
            return f"the served certificate expired at {expiry(self.serving.leaf).isoformat()}"
        if not is_accepted(self.serving, self.seen, publish.HOSTS, now):
            return "the served certificate does not verify against the published bundle"
        return None

    def _pass(self, now: datetime) -> Bundle | None:
        """The configurations are read before the Secret, and each is written only if it has not changed since.

        So a replica that was delayed between reading and writing cannot publish an earlier state over a later one.
        """
        entries = self._entries()
        raw_secret = publish.read_secret(self._client)
        bundle = publish.bundle_of(raw_secret)
        self.seen = self._sight.of(bundle, entries, self._timer())
        if self._source is Issuer.OWN:
            step = next_step(bundle, self.seen, self.serving, publish.HOSTS, now, self._overlap)
            if step.why is not Change.NOTHING:
                publish.write_secret(self._client, raw_secret, step.bundle)
                log.info("certificates: %s", step.why)
            bundle = step.bundle
            self._publish(entries, bundle)
        self.serving = serves(self.serving, bundle, self.seen, publish.HOSTS, now, self._overlap)
        return self.serving

    def _entries(self) -> tuple[publish.Entries, ...]:
        """Those that must accept what is served.

        If another tool publishes the authority, evictions do not count: a bundle that is missing there costs a hold and
        must not keep the webhook from placing pods.
        """
        if self._source is Issuer.OWN:
            return publish.read_all_entries(self._client)
        return (publish.read_entries(self._client),)

    def _publish(self, entries: tuple[publish.Entries, ...], bundle: Bundle) -> None:
        try:
            now_published = tuple(publish.publish(self._client, each, bundle.trusted) for each in entries)
            if now_published != entries:
                log.info("certificates: published authorities: %d", len(authorities(bundle.trusted)))
        except Invalid as error:  # the test of the version failed
            raise Conflict(error.asked, error.status, error.reason, error.message) from error
        self.seen = self._sight.of(bundle, now_published, self._timer())


class StandingSince:
    """Since when the Secret and the configurations have been seen unchanged.

    For configurations, their version counts: a caBundle that was overwritten and repaired by another replica looks as
    it did before.
    """

    def __init__(self) -> None:
        self._bundle: Bundle | None = None
        self._entries: tuple[publish.Entries, ...] = ()
        self._bundle_since = self._entries_since = 0.0

    def of(self, bundle: Bundle, entries: tuple[publish.Entries, ...], uptime: float) -> Published:
        if bundle != self._bundle:
            self._bundle, self._bundle_since = bundle, uptime
        if entries != self._entries:
            self._entries, self._entries_since = entries, uptime
        return Published(
            frozenset(published for each in entries for published in each.published),
            timedelta(seconds=uptime - self._entries_since),
            timedelta(seconds=uptime - self._bundle_since),
        )
