"""Several replicas decide as one: all pods of a ReplicaSet are decided on by the same replica.

Each replica has its own caches, and a decision is in no other replica's cache until its pod is seen. So a call is
forwarded, unchanged, to the replica that owns the ReplicaSet: the one that ranks highest for its UID (rendezvous
hashing: every replica computes the same ranks, and when one goes, only its own ReplicaSets change hands). If the owner
cannot be reached, the next in rank owns the ReplicaSet for a while. `ownership` describes how one changes hands.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Protocol

import aiohttp
import msgspec
from cachetools import TTLCache

from placement import names

log = logging.getLogger(__name__)

FORWARDED = "x-spotweave-forwarded"  # header: the replicas that have forwarded the call, and must not get it back
FORWARD_SECONDS = 1.0  # a peer may itself wait for its caches, and look an owner up
ASK_SECONDS = 0.25
SUSPECT_SECONDS = 5.0

Peer = tuple[str, str]  # name and address


class Question(msgspec.Struct, frozen=True):
    """What a replica asks the others before it decides on a ReplicaSet."""

    uid: str
    asker: str


class Estate(msgspec.Struct, frozen=True):
    """The answer: decisions whose pods were not seen when the pods' cache was at this version.

    Id → slot; for evictions the pod's UID → 0.
    """

    version: int = 0
    decisions: dict[str, int] = {}


class Refused(Exception):
    """The asked replica ranks higher, is not leaving, and decides itself."""


def ranked(uid: str, members: Iterable[str]) -> list[str]:
    """The members in the order in which they own a ReplicaSet."""
    return sorted(members, key=lambda member: hashlib.blake2b(f"{member}/{uid}".encode()).digest())


def nobody() -> Mapping[str, str]:
    return {}


class NoAnswer(Exception):
    """A replica could not be reached, or gave no valid answer."""


class Lines(Protocol):
    """The way to other replicas."""

    async def post(
        self, address: str, path: str, body: bytes, headers: Mapping[str, str], seconds: float
    ) -> tuple[int, bytes]:
        """Status and body of the answer. Raises NoAnswer."""


class HttpsLines:
    """Connections over TLS, which stay open."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._context: ssl.SSLContext | None = None

    def trust(self, trusted: bytes) -> None:
        """The authorities that sign peers' certificates. With none, no peer is trusted, not even by system CAs."""
        if not trusted:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            return
        self._context = ssl.create_default_context(cadata=trusted.decode())

    async def post(
        self, address: str, path: str, body: bytes, headers: Mapping[str, str], seconds: float
    ) -> tuple[int, bytes]:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
            self._session = aiohttp.ClientSession(connector=connector)
        try:
            answer = await self._session.post(
                f"https://{address}{path}",
                data=body,
                headers={"content-type": "application/json", **headers},
                ssl=self._context or True,
                server_hostname=f"{names.WEBHOOK_SERVICE}.{names.SYSTEM_NAMESPACE}.svc",
                timeout=aiohttp.ClientTimeout(total=seconds),
            )
            async with answer:
                return answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoAnswer(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)  # lets the transports close


class Peers:
    """The other replicas, as seen from this one. Lives on the event loop."""

    def __init__(
        self,
        own_name: str,
        members: Callable[[], Mapping[str, str]],
        left: Callable[[], Mapping[str, str]] = nobody,
        lines: Lines | None = None,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.own_name = own_name
        self.is_leaving = False
        self._members = members
        self._left = left
        self._lines = lines or HttpsLines()
        self._suspects: TTLCache[str, bool] = TTLCache(1000, SUSPECT_SECONDS, timer)
        self._known: frozenset[str] = frozenset()

    def owner(self, uid: str, passed: Sequence[str] = ()) -> Peer | None:
        """The replica that owns the ReplicaSet; None if that is this one.

        A replica without a Lease, not yet or no longer, owns nothing while there are others, unless one of them has
        forwarded (`passed`) a call to it. A call does not return to a replica that forwarded it. The exception is a
        replica that leaves: it must return the call, and the other one then knows that it leaves.
        """
        members = self._members()
        self._note(frozenset(members))
        others = {name for name in members if name not in self._suspects} - {self.own_name}
        candidates = others - set(passed)
        if not self.is_leaving and (self.own_name in members or passed):
            candidates.add(self.own_name)
        if not candidates and self.own_name not in passed:
            candidates = others
        first = ranked(uid, candidates)[0] if candidates else self.own_name
        return None if first == self.own_name else (first, members[first])

    def others(self) -> list[Peer]:
        """All replicas that may have decided something a moment ago, including leaving ones while they answer."""
        leaving = {name: address for name, address in self._left().items() if name not in self._suspects}
        return [peer for peer in {**leaving, **self._members()}.items() if peer[0] != self.own_name]

    @property
    def stays(self) -> bool:
        """This replica is a member: it is not leaving, and has seen its own Lease."""
        return not self.is_leaving and self.is_member(self.own_name)

    def is_member(self, name: str) -> bool:
        return name in self._members()

    def outranks(self, uid: str, other: str) -> bool:
        """Whether this replica ranks before the other one."""
        return ranked(uid, (self.own_name, other))[0] == self.own_name

    def _note(self, members: frozenset[str]) -> None:
        if members != self._known:
            log.info("webhook replicas: %s", ", ".join(sorted(members)) or "only this one")
            self._known = members

    async def forward(
        self, peer: Peer, body: bytes, passed: Sequence[str] = (), seconds: float = FORWARD_SECONDS
    ) -> bytes | None:
        """The peer's answer; None if it gave none. It is then skipped for a while."""
        headers = {FORWARDED: ",".join((*passed, self.own_name))}
        path, seconds = names.WEBHOOK_PATH, min(seconds, FORWARD_SECONDS)
        try:
            status, told = await self._lines.post(peer[1], path, body, headers, seconds)
            return _checked(status, told)
        except NoAnswer as error:
            self._suspect(peer, error)
            return None

    async def pass_eviction(
        self, peer: Peer, body: bytes, passed: Sequence[str] = (), seconds: float = FORWARD_SECONDS
    ) -> bytes | None:
        """The same for an eviction. It is in a hurry, so a late answer says nothing about the peer."""
        headers = {FORWARDED: ",".join((*passed, self.own_name))}
        try:
            return _checked(*await self._lines.post(peer[1], names.EVICTION_PATH, body, headers, seconds))
        except NoAnswer as error:
            log.debug("replica %s at %s: %s", *peer, error)
            return None

    async def ask(self, peer: Peer, uid: str) -> Estate | None:
        """What the peer hands over; None if it did not answer. Raises Refused."""
        question = msgspec.json.encode(Question(uid, self.own_name))
        try:
            status, told = await self._lines.post(peer[1], names.HAND_OVER_PATH, question, {}, ASK_SECONDS)
            if status == HTTPStatus.CONFLICT:
                self._suspects.pop(peer[0], None)
                raise Refused
            return msgspec.json.decode(_checked(status, told), type=Estate)
        except (NoAnswer, msgspec.DecodeError) as error:
            self._suspect(peer, error)
            return None

    def _suspect(self, peer: Peer, why: Exception) -> None:
        level = logging.DEBUG if peer[0] in self._suspects else logging.WARNING
        log.log(level, "replica %s at %s: %s", *peer, why)
        self._suspects[peer[0]] = True


def _checked(status: int, told: bytes) -> bytes:
    if status != HTTPStatus.OK:
        raise NoAnswer(f"status {status}")
    return told
