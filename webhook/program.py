"""The webhook program, put together: caches, admission, certificates, and the Lease that other replicas see."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import uvloop

from certs.reconcile import Keeper
from certs.renewal import Bundle, expiry
from kube.client import Client
from kube.configmaps import ObservedMemory, OutageMemory, PauseMemory
from kube.errors import ApiError
from kube.events import EventWriter
from kube.evictionnote import note_eviction
from kube.failures import creation_failure
from kube.following import Followed
from kube.gctuning import spare_caches
from kube.leadership import Leadership
from kube.membership import RENEW_SECONDS, Membership, announce, withdraw
from kube.owners import look_up
from kube.resources import (
    CONFIGURATION_VERSIONS,
    EVICTION_CONFIGURATION_VERSIONS,
    LEADER,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SCOPED_QUOTAS,
    STATE,
    WEBHOOK,
    WEBHOOK_LEASES,
    Lease,
    rows_of,
)
from kube.store import Store
from placement import names
from placement.configuration import Configuration
from placement.pause import standing
from serving.listener import RECEIVED_BYTES, bind
from webhook.admission import Admission, Caches
from webhook.evictionledger import EvictionLedger
from webhook.evictions import EvictionReviewer
from webhook.gangs import GangAdmission, GangCaches, GangReviewer
from webhook.gate import GateReviewer
from webhook.metrics import WebhookMetrics
from webhook.mistakes import Mistakes
from webhook.nodeends import NodeEnds
from webhook.ownership import Books, Tenure
from webhook.peers import HttpsLines, Peers
from webhook.refusals import Refusals
from webhook.review import keep_priority
from webhook.reviewer import Reviewer
from webhook.routes import ports
from webhook.server import TlsIdentity, serve

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
SOON_SECONDS = 0.1
LOOK_SECONDS = 0.25  # between two looks at decisions that became no pods
MOST_TRIES = 30  # to get a Lease; after that the replica is ready without one
BREATH_SECONDS = 0.5  # between two checks of the certificates: another tool may restore its caBundle as fast as we do
LEAVE_SECONDS = 0.5  # for the other replicas to notice
UNSEEN_SECONDS = 2.0  # for our last decisions to be seen, at most


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the webhook listens (HOST:PORT each), and where other replicas reach it ("" if there are none)."""

    admission: str
    probes: str
    is_shared: bool = False  # several processes listen on the same port
    peers: str | None = None  # None: the same address as for admission
    advertised: str = ""


def run(client: Client, configuration: Configuration, addresses: Addresses, keeper: Keeper) -> None:
    """Runs until it is stopped."""
    program = WebhookProgram(client, configuration, addresses.advertised, keeper)
    others = [bind(addresses.peers, received_bytes=RECEIVED_BYTES)] if addresses.peers else []
    tls = [bind(addresses.admission, shared=addresses.is_shared, received_bytes=RECEIVED_BYTES), *others]
    plain = bind(addresses.probes)
    program.followed.start()
    program.is_spared = spare_caches(program.followed.awaited.wait_synced).is_set
    program.events.start()
    uvloop.run(_serve(program, tls, plain))
    program.events.stop()
    program.followed.stop()


async def _serve(program: WebhookProgram, tls: list[socket.socket], plain: socket.socket) -> None:
    await serve(
        program.ports,
        program.identity,
        tls,
        plain,
        background=program.chores,
        enter=program.able,
        listening=program.listening,
        leave=program.leave,
    )
    await program.lines.close()


def peer_address(pod_ip: str, listen: str) -> str:
    """The pod's address with the port that it listens on, as URLs have it: `[fd00::5]:8443` for IPv6."""
    host = f"[{pod_ip}]" if ":" in pod_ip else pod_ip
    return f"{host}:{listen.rpartition(':')[2]}" if pod_ip else ""


class WebhookProgram:
    """The webhook, put together."""

    def __init__(self, client: Client, configuration: Configuration, advertised: str, keeper: Keeper) -> None:
        self._client = client
        self._advertised = advertised
        self._is_leaving = False
        self.is_spared: Callable[[], bool] = lambda: True  # from the garbage collector, after all was read
        self._is_introduced = not advertised  # to the other replicas; once, and never waited for again
        self._loop: asyncio.AbstractEventLoop | None = None
        self._renew, self._look, self.listening = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.name = f"{names.WEBHOOK_SERVICE}-{secrets.token_hex(4)}"
        self._keeper = keeper
        alone = frozenset() if advertised else {WEBHOOK_LEASES}
        rows = rows_of(WEBHOOK, with_gangs=configuration.gangs.enabled)
        self.followed = Followed(client, (row for row in rows if row not in alone))
        stores = self.followed.stores
        for each in (CONFIGURATION_VERSIONS, EVICTION_CONFIGURATION_VERSIONS):
            stores.of(each).subscribe(lambda *_: self._wake(self._look))
        leadership = Leadership(stores.of(LEADER))
        self._loaded = self._trusted = b""
        self._membership = Membership(stores.of(WEBHOOK_LEASES) if advertised else Store[Lease]())
        members, left = self._membership.members, self._membership.left
        self.lines = HttpsLines()
        self.peers = Peers(self.name, members, left, self.lines) if advertised else None
        pods = self.followed.informer(PODS)
        self._outages = outages = OutageMemory(stores.of(STATE), lambda: self._wake(self._renew))
        observed = ObservedMemory(stores.of(STATE), lambda _: None)
        self.metrics = WebhookMetrics()
        self.identity = TlsIdentity()
        self.events = EventWriter(client, self.name)
        self.refusals = Refusals(
            lambda owner, namespace: creation_failure(client, owner, namespace, time.time()), self.events.tell
        )
        gangs = self._gangs() if configuration.gangs.enabled else None
        self.admission = Admission(
            Caches.of(stores),
            configuration,
            is_synced=lambda: self.followed.awaited.synced,
            outages=lambda: outages.current,
            now=time.time,
            look_up=lambda owner, namespace: look_up(client, owner, namespace),
            mistakes=Mistakes(self.events.tell),
            rates=lambda: observed.current.rates,
            unled_seconds=leadership.unled_seconds,
            refusals=self.refusals,
            guard=gangs.priority if gangs is not None and configuration.gangs.guard_solo else keep_priority,
        )
        ledger = EvictionLedger()
        books = Books(self.admission.ledger, ledger)
        tenure = Tenure(self.peers, books, lambda: pods.latest, lambda: pods.applied) if self.peers else None
        reviewer = Reviewer(self.admission, self.metrics, ThreadPoolExecutor(4, "look-up"), tenure)
        evictions = self._evictions(configuration, ledger, tenure, leadership)
        twins = GangReviewer(gangs, self.metrics) if gangs is not None else None
        gate = GateReviewer(self.metrics, gangs.additions if gangs is not None else None, configuration.gangs)
        self.ports = ports(reviewer, self.metrics, self.missing, evictions, twins, gate)
        self._show()

    def _gangs(self) -> GangAdmission:
        followed, quotas = self.followed, self.followed.informer(SCOPED_QUOTAS)
        caches = GangCaches(
            followed.stores.of(PRIORITY_CLASSES),
            followed.stores.of(SCOPED_QUOTAS),
            is_synced=lambda: followed.awaited.synced and quotas.synced,
        )
        return GangAdmission(caches)

    def _evictions(
        self, configuration: Configuration, ledger: EvictionLedger, tenure: Tenure | None, leadership: Leadership
    ) -> EvictionReviewer:
        stores, client = self.followed.stores, self._client
        pause = PauseMemory(stores.of(STATE), lambda: None)
        node_ends = NodeEnds(configuration)
        stores.of(NODES).subscribe(node_ends.see)
        return EvictionReviewer(
            self.admission,
            self.metrics,
            configuration,
            lambda pod, text: note_eviction(client, pod, text),
            executor=ThreadPoolExecutor(16, "eviction"),
            ledger=ledger,
            tenure=tenure,
            node_ends=node_ends,
            is_paused=lambda now: standing(pause.current, now) is not None,
            unled_seconds=leadership.unled_seconds,
        )

    def _show(self) -> None:
        """What the metrics read when they are asked for."""
        metrics, outages = self.metrics, self._outages
        metrics.outage_version.set_function(lambda: outages.current.version)
        metrics.show_outages(lambda: outages.current.standing(time.time()))
        metrics.show_refusals(self.refusals.let_in)
        metrics.ledger.set_function(lambda: len(self.admission.ledger))
        metrics.cache_age.set_function(lambda: self.followed.awaited.age_seconds(time.monotonic()))

    def missing(self) -> str | None:
        """What is missing until this replica is ready."""
        if self._is_leaving:
            return "leaving"
        return self._unable() or (None if self._is_introduced else "its Lease has not been seen yet")

    def _unable(self) -> str | None:
        """What is missing until pods can be placed."""
        return self.followed.missing() or self._keeper.missing(datetime.now(UTC))

    async def chores(self) -> None:
        """Background work beside the calls, while the program runs."""
        self._loop = asyncio.get_running_loop()
        await asyncio.gather(
            self._keep_certificates(), self._watch_refusals(), *([self._keep_lease()] if self.peers else [])
        )

    async def able(self) -> None:
        """Waits until pods can be placed. Earlier calls would have no effect.

        Also waits until the garbage collector has walked through what was read. On a busy machine that may take a
        second, in which no call is answered.
        """
        while self._unable() is not None or not self.is_spared():
            await asyncio.sleep(SOON_SECONDS)

    async def leave(self) -> None:
        """Stops deciding, announces it to the other replicas, which then own our ReplicaSets, and hands over."""
        self._is_leaving = True
        if self.peers is None:
            return
        self.peers.is_leaving = True
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, withdraw, self._client, self.name)
        await asyncio.sleep(LEAVE_SECONDS)
        deadline = loop.time() + UNSEEN_SECONDS
        while len(self.admission.ledger) and loop.time() < deadline:
            await asyncio.sleep(SOON_SECONDS)

    async def _keep_lease(self) -> None:
        """Holds our Lease while we can place pods, and removes the Leases of killed replicas.

        If Leases are unavailable, pods are still placed: a mix that is off by a few is better than none.
        """
        loop, tries = asyncio.get_running_loop(), 0
        await self.listening.wait()  # replicas that see our Lease may call
        while not self._is_leaving:
            try:
                if self._unable() is None:
                    version = self._outages.current.version
                    await loop.run_in_executor(None, announce, self._client, self.name, self._advertised, version)
                for name in self._membership.forgotten():
                    await loop.run_in_executor(None, withdraw, self._client, name)
            except ApiError as error:
                log.warning("lease: %s", error)
                tries += 1
            is_member = self.name in self._membership.members()
            self._is_introduced = self._is_introduced or is_member or tries > MOST_TRIES
            pause = RENEW_SECONDS if is_member or tries > MOST_TRIES else SOON_SECONDS
            with suppress(TimeoutError):
                await asyncio.wait_for(self._renew.wait(), pause)
            self._renew.clear()

    def _wake(self, event: asyncio.Event) -> None:
        """Called from an informer's thread when outages or the caBundle have changed."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(event.set)

    async def _keep_certificates(self) -> None:
        """Maintains the certificates: a pass at regular intervals, and when a caBundle may have changed.

        An error is logged and the pass is tried again: serving with what is loaded is better than exiting.
        """
        loop = asyncio.get_running_loop()
        while True:
            pause = self._keeper.pass_seconds
            try:
                self._serve_with(await loop.run_in_executor(None, self._keeper.look, datetime.now(UTC)))
            except (ApiError, TimeoutError, ssl.SSLError) as error:
                log.warning("certificates: %s", error)
                pause = min(pause, RETRY_SECONDS)
            except Exception:  # the boundary
                log.exception("certificates: unexpected error; serving the loaded certificate")
            await asyncio.sleep(min(pause, BREATH_SECONDS))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), max(0.0, pause - BREATH_SECONDS))
            self._look.clear()

    async def _watch_refusals(self) -> None:
        """Looks for decisions that became no pods, and why. It asks the API server, so it has a thread of its own."""
        loop, looker = asyncio.get_running_loop(), ThreadPoolExecutor(1, "refusals")
        while True:
            try:
                await loop.run_in_executor(looker, self.refusals.look)
            except Exception:  # the boundary
                log.exception("refusals: unexpected error; pods are admitted as before")
            await asyncio.sleep(LOOK_SECONDS)

    def _serve_with(self, bundle: Bundle | None) -> None:
        """Loads our own leaf first: the authorities for peers may be unreadable, which does not affect callers."""
        if bundle is not None and bundle.leaf != self._loaded:
            self.identity.load(bundle.leaf, bundle.leaf_key)
            self._loaded = bundle.leaf
            self.metrics.certificate_expiry.set(expiry(bundle.leaf).timestamp())
            log.info("certificates: serving a leaf that expires at %s", expiry(bundle.leaf).isoformat())
        if self._keeper.trusted not in (self._trusted, b""):
            self.lines.trust(self._keeper.trusted)
            self._trusted = self._keeper.trusted
