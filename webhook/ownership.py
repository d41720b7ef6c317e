"""Which ReplicaSets this replica decides on, and how they change hands without losing a decision.

Ranks define which replica should decide, but replicas see each other come and go at different times. So rank alone is
no permission: before its first decision on a ReplicaSet, a replica asks all the others. An asked replica hands over
its decisions whose pods it has not seen, and from then on does not decide on the ReplicaSet unless it asks in turn. Or
it refuses, because it ranks higher and stays, and the call is forwarded to it. The old owner may have seen pods that
the new one has not. So the answer contains the version of the pods' cache, and the new owner waits for that version.

Example: A owns a ReplicaSet, B is next in rank, C last. A gets SIGTERM.
- A call reaches A. A forwards it to B, whose view may still be the old one. B does not send it back, since A forwarded
  it. B asks A and C, then decides.
- A call reaches C, which knows nothing yet. C forwards to A, A to B.
- A call reaches B, which knows nothing yet. B forwards to A, A back to B.
D joins and ranks first. It may know that before A does, and asks A. A answers when it has seen D's Lease too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from cachetools import LRUCache

from webhook.evictionledger import OWNED, EvictionLedger
from webhook.ledger import Ledger
from webhook.peers import ASK_SECONDS, Estate, Peer, Peers, Refused, ranked

log = logging.getLogger(__name__)

MOST_OWNERS = 100_000  # ReplicaSets remembered as ours
PAUSE_SECONDS = 0.005
SETTLE_SECONDS = 0.1  # time to see the last decisions of a replica that no longer answers
LEASE_SECONDS = ASK_SECONDS * 0.8  # time to see the Lease of the asking replica; less than that replica waits


class Book(Protocol):
    """What this replica has decided and not seen yet."""

    def recent(self, uid: str) -> dict[str, int] | None:
        """By the decision's id; None where none was made for a while."""

    def take_over(self, uid: str, decisions: Mapping[str, int]) -> None:
        """Notes what another replica has decided."""


class Books:
    """Slots by ReplicaSet, and evictions by workload."""

    def __init__(self, ledger: Ledger, evictions: EvictionLedger) -> None:
        self._ledger = ledger
        self._evictions = evictions

    def recent(self, uid: str) -> dict[str, int] | None:
        return self._book(uid).recent(uid)

    def take_over(self, uid: str, decisions: Mapping[str, int]) -> None:
        self._book(uid).take_over(uid, decisions)

    def _book(self, uid: str) -> Book:
        return self._evictions if uid.startswith(OWNED) else self._ledger


class Tenure:
    """What this replica may decide on. Lives on the event loop."""

    def __init__(
        self,
        peers: Peers,
        book: Book,
        latest: Callable[[], int] = lambda: 0,
        applied: Callable[[], int] = lambda: 0,
    ) -> None:
        """`latest`: the newest version of pods known here; `applied`: everything up to this version is known."""
        self.peers = peers
        self._book = book
        self._latest = latest
        self._applied = applied
        self._held: LRUCache[str, bool] = LRUCache(MOST_OWNERS)
        self._acquiring: dict[str, asyncio.Task[Peer | None]] = {}

    def holds(self, uid: str, passed: Sequence[str] = ()) -> bool:
        """Whether this replica may decide now. Valid until the caller next awaits something."""
        if self.peers.owner(uid, passed) is not None:
            self._held.pop(uid, None)
            return False
        if uid not in self._held and not self.peers.others():
            self._held[uid] = True
        return uid in self._held

    async def acquire(self, uid: str) -> Peer | None:
        """Asks the others, once for all waiting calls. Returns the replica that refused, which decides instead."""
        task = self._acquiring.get(uid)
        if task is None:
            task = self._acquiring[uid] = asyncio.ensure_future(self._ask_all(uid))
        return await asyncio.shield(task)  # the caller may be cancelled

    async def _ask_all(self, uid: str) -> Peer | None:
        try:
            others = self.peers.others()
            told = await asyncio.gather(*(self._ask(peer, uid) for peer in others))
            refused = {peer[0]: peer for peer, answer in zip(others, told, strict=True) if isinstance(answer, Refused)}
            if refused:
                return refused[ranked(uid, refused)[0]]
            await self._take_over(uid, [each for each in told if isinstance(each, Estate)])
            if None in told:
                await asyncio.sleep(SETTLE_SECONDS)
            if self._acquiring.get(uid) is asyncio.current_task():  # else it was handed over while we asked
                self._held[uid] = True
            return None
        finally:
            if self._acquiring.get(uid) is asyncio.current_task():
                del self._acquiring[uid]

    async def _ask(self, peer: Peer, uid: str) -> Estate | Refused | None:
        try:
            return await self.peers.ask(peer, uid)
        except Refused as refused:
            return refused

    async def _take_over(self, uid: str, estates: Sequence[Estate]) -> None:
        version = max((each.version for each in estates), default=0)
        for each in estates:
            if each != Estate():
                self._book.take_over(uid, each.decisions)
        if not await _until(lambda: self._applied() >= version, ASK_SECONDS):
            log.warning("ReplicaSet %s taken over with a cache at version %d of %d", uid, self._applied(), version)

    async def hand_over(self, uid: str, asker: str) -> Estate | None:
        """What a replica that takes over needs to know; None if it must not take over."""
        peers = self.peers
        if peers.outranks(uid, asker):
            if peers.stays or uid in self._acquiring:
                return None
        elif peers.stays and not await _until(lambda: peers.is_member(asker), LEASE_SECONDS):
            return None  # we could not forward to it
        self._held.pop(uid, None)  # from here on, no waiting
        self._acquiring.pop(uid, None)
        decisions = self._book.recent(uid)
        return Estate() if decisions is None else Estate(self._latest(), decisions)


async def _until(condition: Callable[[], bool], seconds: float) -> bool:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(PAUSE_SECONDS)
    return True
