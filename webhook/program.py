"""The webhook program, put together: caches, admission, certificates, the Lease that tells other replicas of it."""

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
from kube.configmaps import ObservedMemory, OutageMemory
from kube.errors import ApiError
from kube.events import EventWriter
from kube.following import Followed
from kube.gctuning import spare_caches
from kube.leadership import Leadership
from kube.membership import RENEW_SECONDS, Membership, announce, withdraw
from kube.owners import look_up
from kube.resources import CONFIGURATION_VERSIONS, LEADER, PODS, STATE, WEBHOOK, WEBHOOK_LEASES, Lease, rows_of
from kube.store import Store
from placement import names
from placement.configuration import Configuration
from serving.listener import bind
from webhook.admission import Admission, Caches
from webhook.metrics import WebhookMetrics
from webhook.mistakes import Mistakes
from webhook.ownership import Tenure
from webhook.peers import HttpsLines, Peers
from webhook.reviewer import Reviewer
from webhook.routes import ports
from webhook.server import TlsIdentity, serve

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
SOON_SECONDS = 0.1
MOST_TRIES = 30  # to get a Lease, before the replica is ready without one
BREATH_SECONDS = 0.5  # between two looks at the certificates: somebody may put his caBundle back as fast as we put ours
LEAVE_SECONDS = 0.5  # for the other replicas to hear of it
UNSEEN_SECONDS = 2.0  # for our last decisions to be seen, at most


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the webhook listens (HOST:PORT each), and where other replicas reach it ("": it is alone)."""

    admission: str
    probes: str
    is_shared: bool = False  # several processes listen on the same port
    peers: str | None = None  # None: where all do
    advertised: str = ""


def run(client: Client, configuration: Configuration, addresses: Addresses, keeper: Keeper) -> None:
    """Until it is told to stop."""
    program = WebhookProgram(client, configuration, addresses.advertised, keeper)
    others = [bind(addresses.peers)] if addresses.peers else []
    tls = [bind(addresses.admission, shared=addresses.is_shared), *others]
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
        self.followed = Followed(client, (row for row in rows_of(WEBHOOK) if row not in alone))
        stores = self.followed.stores
        stores.of(CONFIGURATION_VERSIONS).subscribe(lambda *_: self._wake(self._look))
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
        )
        self.metrics.outage_version.set_function(lambda: outages.current.version)
        self.metrics.show_outages(lambda: outages.current.standing(time.time()))
        self.metrics.ledger.set_function(lambda: len(self.admission.ledger))
        self.metrics.cache_age.set_function(lambda: self.followed.awaited.age_seconds(time.monotonic()))
        ledger = self.admission.ledger
        tenure = Tenure(self.peers, ledger, lambda: pods.latest, lambda: pods.applied) if self.peers else None
        reviewer = Reviewer(self.admission, self.metrics, ThreadPoolExecutor(4, "look-up"), tenure)
        self.ports = ports(reviewer, self.metrics, self.missing)

    def missing(self) -> str | None:
        """What is missing until this replica is ready."""
        if self._is_leaving:
            return "leaving"
        return self._unable() or (None if self._is_introduced else "its Lease has not been seen yet")

    def _unable(self) -> str | None:
        """What is missing until pods can be placed."""
        return self.followed.missing() or self._keeper.missing(datetime.now(UTC))

    async def chores(self) -> None:
        """What goes on beside the calls, for as long as the program runs."""
        self._loop = asyncio.get_running_loop()
        await asyncio.gather(self._keep_certificates(), *([self._keep_lease()] if self.peers else []))

    async def able(self) -> None:
        """Waits until pods can be placed: calls that come sooner would be for nothing.

        Also until the garbage collector has been through what was read: on a busy machine that may take a second, in
        which nothing is answered.
        """
        while self._unable() is not None or not self.is_spared():
            await asyncio.sleep(SOON_SECONDS)

    async def leave(self) -> None:
        """Decides no more, tells the other replicas, which own our ReplicaSets then, and answers their questions."""
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
        """Holds our Lease while we can place pods; clears away what killed replicas left.

        Where Leases cannot be had, pods are placed all the same: off by a few is better than not at all.
        """
        loop, tries = asyncio.get_running_loop(), 0
        await self.listening.wait()  # whoever sees our Lease may call
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
        """Called from an informer's thread: there is news, of outages or of the caBundle."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(event.set)

    async def _keep_certificates(self) -> None:
        """Keeps the certificates as they should be: a pass from time to time, and when a caBundle may have changed.

        Whatever goes wrong is told and tried again: to serve with what is loaded is better than to end.
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

    def _serve_with(self, bundle: Bundle | None) -> None:
        """Our own leaf first: what peers are judged by may be garbled, and callers do not care."""
        if bundle is not None and bundle.leaf != self._loaded:
            self.identity.load(bundle.leaf, bundle.leaf_key)
            self._loaded = bundle.leaf
            self.metrics.certificate_expiry.set(expiry(bundle.leaf).timestamp())
            log.info("certificates: serving a leaf that expires at %s", expiry(bundle.leaf).isoformat())
        if self._keeper.trusted not in (self._trusted, b""):
            self.lines.trust(self._keeper.trusted)
            self._trusted = self._keeper.trusted
