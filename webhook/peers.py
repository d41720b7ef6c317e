"""Several replicas decide as one: all pods of a ReplicaSet are decided on by the same replica.

Replicas have caches of their own, and a decision is in nobody else's until its pod is seen. So a call is forwarded,
as it came, to the replica that owns the ReplicaSet: the one that ranks highest for its UID (rendezvous hashing: every
replica ranks alike, and when one goes only its own ReplicaSets change hands). Where that one cannot be reached, the
next in rank owns it for a while. How a ReplicaSet changes hands is in `tenure`.
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

FORWARDED = "x-spotweave-forwarded"  # header: the replicas that have passed the call on, and do not want it back
FORWARD_SECONDS = 1.0  # a peer may itself wait for its caches, and look an owner up
ASK_SECONDS = 0.25
SUSPECT_SECONDS = 5.0

Peer = tuple[str, str]  # name and address


class Question(msgspec.Struct, frozen=True):
    """What a replica asks the others before it decides on a ReplicaSet."""

    uid: str
    asker: str


class Estate(msgspec.Struct, frozen=True):
    """What it is told: decisions (id → slot) whose pods were not seen when the pods' cache was at this version."""

    version: int = 0
    decisions: dict[str, int] = {}


class Refused(Exception):
    """The replica that was asked ranks higher, is not leaving, and decides itself."""


def ranked(uid: str, members: Iterable[str]) -> list[str]:
    """The members in the order in which they own a ReplicaSet."""
    return sorted(members, key=lambda member: hashlib.blake2b(f"{member}/{uid}".encode()).digest())


def nobody() -> Mapping[str, str]:
    return {}


class NoAnswer(Exception):
    """A replica could not be reached, or gave no answer that is one."""


class Lines(Protocol):
    """The way to other replicas."""

    async def post(
        self, address: str, path: str, body: bytes, headers: Mapping[str, str], seconds: float
    ) -> tuple[int, bytes]:
        """Status and body of the answer. Raises NoAnswer."""


class HttpsLines:
    """Connections over TLS, which are kept."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._context: ssl.SSLContext | None = None

    def trust(self, trusted: bytes) -> None:
        """The authorities that peers' certificates are signed by. None of them: nobody is trusted, not the system's."""
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
        """The replica that owns the ReplicaSet; None where that is this one.

        One whose Lease is not there, no more or not yet, owns nothing as long as there are others, unless one of these
        has `passed` a call on to it. A call does not go back to who has passed it on; but to one of them it must where
        this one leaves, and then that one knows.
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
        """All that may have decided on something a moment ago: also those that leave, for as long as they answer."""
        leaving = {name: address for name, address in self._left().items() if name not in self._suspects}
        return [peer for peer in {**leaving, **self._members()}.items() if peer[0] != self.own_name]

    @property
    def stays(self) -> bool:
        """This replica is one of them: it does not leave, and has seen its own Lease."""
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
        """The peer's answer; None where it gave none, and then it is passed over for a while."""
        headers = {FORWARDED: ",".join((*passed, self.own_name))}
        path, seconds = names.WEBHOOK_PATH, min(seconds, FORWARD_SECONDS)
        try:
            status, told = await self._lines.post(peer[1], path, body, headers, seconds)
            return _checked(status, told)
        except NoAnswer as error:
            self._suspect(peer, error)
            return None

    async def ask(self, peer: Peer, uid: str) -> Estate | None:
        """What the peer has to hand over; None where it did not answer. Raises Refused."""
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
