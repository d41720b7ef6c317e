"""Several replicas decide as one: all pods of a ReplicaSet are decided on by the same replica.

Replicas have caches of their own, and a decision is in nobody else's until its pod is seen. So a call is forwarded,
as it came, to the replica that owns the ReplicaSet: the one that ranks highest for its UID (rendezvous hashing: every
replica ranks alike, and when one goes only its own ReplicaSets change hands). Where that one cannot be reached, the
next in rank owns it for a while.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus

import aiohttp
from cachetools import TTLCache

from placement import names

log = logging.getLogger(__name__)

FORWARDED = "x-spotweave-forwarded"  # header: decide here, do not forward again
FORWARD_SECONDS = 1.0  # a peer may itself wait for its caches, and look an owner up
SUSPECT_SECONDS = 5.0
UNSETTLED_SECONDS = 1.0


def ranked(uid: str, members: Iterable[str]) -> list[str]:
    """The members in the order in which they own a ReplicaSet."""
    return sorted(members, key=lambda member: hashlib.blake2b(f"{member}/{uid}".encode()).digest())


class Peers:
    """The other replicas, as seen from this one. Lives on the event loop."""

    def __init__(
        self,
        own_name: str,
        members: Callable[[], Mapping[str, str]],
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._own_name = own_name
        self._members = members
        self._timer = timer
        self._suspects: TTLCache[str, bool] = TTLCache(1000, SUSPECT_SECONDS, timer)
        self._known: frozenset[str] = frozenset()
        self._changed_at = float("-inf")
        self._session: aiohttp.ClientSession | None = None
        self._context: ssl.SSLContext | None = None

    def trust(self, trusted: bytes) -> None:
        """The authorities that peers' certificates are signed by."""
        self._context = ssl.create_default_context(cadata=trusted.decode())

    def owner(self, uid: str) -> tuple[str, str] | None:
        """Name and address of the replica that owns the ReplicaSet; None where that is this one."""
        members = self._members()
        self._note(frozenset(members))
        candidates = {*(name for name in members if name not in self._suspects), self._own_name}
        first = ranked(uid, candidates)[0] if len(candidates) > 1 else self._own_name
        return None if first == self._own_name else (first, members[first])

    @property
    def is_settled(self) -> bool:
        """The members have been the same for a moment. If not, an earlier owner's last decisions may be unseen."""
        return self._timer() - self._changed_at > UNSETTLED_SECONDS

    def _note(self, members: frozenset[str]) -> None:
        if members != self._known:
            log.info("webhook replicas: %s", ", ".join(sorted(members)) or "this one alone")
            self._changed_at = self._timer() if self._known else self._changed_at
            self._known = members

    async def forward(self, peer: tuple[str, str], body: bytes) -> bytes | None:
        """The peer's answer; None where it gave none, and then it is passed over for a while."""
        name, address = peer
        try:
            return await self._post(address, body)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("replica %s at %s: %s: %s", name, address, type(error).__name__, error)
            self._suspects[name] = True
            self._changed_at = self._timer()
            return None

    async def _post(self, address: str, body: bytes) -> bytes:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
            self._session = aiohttp.ClientSession(connector=connector)
        answer = await self._session.post(
            f"https://{address}{names.WEBHOOK_PATH}",
            data=body,
            headers={"content-type": "application/json", FORWARDED: "1"},
            ssl=self._context or True,
            server_hostname=f"{names.WEBHOOK_SERVICE}.{names.SYSTEM_NAMESPACE}.svc",
            timeout=aiohttp.ClientTimeout(total=FORWARD_SECONDS),
        )
        async with answer:
            if answer.status != HTTPStatus.OK:
                raise aiohttp.ClientError(f"status {answer.status}")
            return await answer.read()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)  # lets the transports close
