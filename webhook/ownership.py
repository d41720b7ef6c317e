"""Which ReplicaSets this replica decides on: how they change hands without a decision lost.

Ranks say which replica should decide, but replicas see each other come and go at different times. So rank alone is no
permission: before its first decision on a ReplicaSet a replica asks all the others. Whoever is asked hands over what
it has decided and not seen, and from that moment does not decide on it, unless it asks in turn; or it refuses, because
it ranks higher and stays, and the call is forwarded to it. What the one has seen the other may still not have: so the
answer tells the version of the pods' cache, and the new owner waits until its own has come that far.

Example: A owns a ReplicaSet, B is next in rank, C last. A gets SIGTERM.
- A call reaches A: it forwards to B, whose view may still be the old one. B does not send it back, since A has passed
  it on: it asks A and C, then decides.
- A call reaches C, which knows nothing yet: C forwards to A, A to B.
- A call reaches B, which knows nothing yet: B forwards to A, A back to B.
D joins and ranks first. It may know that before A does, and asks A; A answers when it has seen D's Lease too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from cachetools import LRUCache

from webhook.ledger import Ledger
from webhook.peers import ASK_SECONDS, Estate, Peer, Peers, Refused, ranked

log = logging.getLogger(__name__)

MOST_OWNERS = 100_000  # ReplicaSets that are remembered as ours
PAUSE_SECONDS = 0.005
SETTLE_SECONDS = 0.1  # for the last decisions of a replica that cannot be asked any more to be seen
LEASE_SECONDS = ASK_SECONDS * 0.8  # to see the Lease of who asks; less than that one waits


class Tenure:
    """What this replica may decide on. Lives on the event loop."""

    def __init__(
        self,
        peers: Peers,
        ledger: Ledger,
        latest: Callable[[], int] = lambda: 0,
        applied: Callable[[], int] = lambda: 0,
    ) -> None:
        """`latest`: nothing that happened to pods later is known here; `applied`: all up to there is."""
        self.peers = peers
        self._ledger = ledger
        self._latest = latest
        self._applied = applied
        self._held: LRUCache[str, bool] = LRUCache(MOST_OWNERS)
        self._acquiring: dict[str, asyncio.Task[Peer | None]] = {}

    def holds(self, uid: str, passed: Sequence[str] = ()) -> bool:
        """Whether this replica may decide, now: good until the next time that the caller waits for something."""
        if self.peers.owner(uid, passed) is not None:
            self._held.pop(uid, None)
            return False
        if uid not in self._held and not self.peers.others():
            self._held[uid] = True
        return uid in self._held

    async def acquire(self, uid: str) -> Peer | None:
        """Asks the others, once for all calls that wait for it. Gives the one that refused: it decides instead."""
        task = self._acquiring.get(uid)
        if task is None:
            task = self._acquiring[uid] = asyncio.ensure_future(self._ask_all(uid))
        return await asyncio.shield(task)  # the caller may go away

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
            if self._acquiring.get(uid) is asyncio.current_task():  # else it was handed on while we asked
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
                self._ledger.take_over(uid, each.decisions)
        if not await _until(lambda: self._applied() >= version, ASK_SECONDS):
            log.warning("ReplicaSet %s taken over with a cache at version %d of %d", uid, self._applied(), version)

    async def hand_over(self, uid: str, asker: str) -> Estate | None:
        """What a replica that takes over has to know; None where it is not to take over."""
        peers = self.peers
        if peers.outranks(uid, asker):
            if peers.stays or uid in self._acquiring:
                return None
        elif peers.stays and not await _until(lambda: peers.is_member(asker), LEASE_SECONDS):
            return None  # we could not forward to it
        self._held.pop(uid, None)  # from here on, no waiting
        self._acquiring.pop(uid, None)
        decisions = self._ledger.recent(uid)
        return Estate() if decisions is None else Estate(self._latest(), decisions)


async def _until(condition: Callable[[], bool], seconds: float) -> bool:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(PAUSE_SECONDS)
    return True
