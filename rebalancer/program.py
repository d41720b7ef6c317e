"""The rebalancer program, put together: caches, index, loop, writers, the page, and who hears of a pass."""

from __future__ import annotations

import logging
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from dashboard.access import Guard
from dashboard.answercache import AnswerCache
from dashboard.server import serving_page
from dashboard.viewer import NO_PRICES, Around, Viewer
from kube.client import Client
from kube.configmaps import ObservedMemory, OutageMemory, PauseMemory, change_observed, write_autostate
from kube.crashpoints import Faults
from kube.events import REBALANCER as SOURCE
from kube.events import EventWriter
from kube.following import Followed
from kube.gctuning import spare_caches
from kube.lease import Leader
from kube.nodeclaims import is_expired
from kube.outagewriter import Notes
from kube.podwriter import CALL_SECONDS, PodWriter
from kube.resources import NAMESPACES, NODES, POD_GROUPS, PODS_IN_FULL, REBALANCER, STATE, rows_of
from placement.configuration import Configuration
from placement.pause import standing
from placement.plan.actions import Plan
from rebalancer.executor import MOST_ENDS, Done, Executor, LastLook
from rebalancer.gangnews import GangNews
from rebalancer.index import Index
from rebalancer.interruptions import Observer
from rebalancer.loop import Loop, Watched
from rebalancer.metrics import RebalancerMetrics
from rebalancer.notify import Teller
from rebalancer.probes import probes, serving_probes
from rebalancer.promises import Noted, Promises
from rebalancer.pulse import Pulse
from rebalancer.upkeep import Upkeep
from report.history import Archive, History
from report.savings import Prices

log = logging.getLogger(__name__)

WRITERS = 16


def run(program: RebalancerProgram, probes_at: str, page_at: str, guard: Guard) -> None:
    """Runs until it is stopped; `probes_at` and `page_at` are where it listens, HOST:PORT each."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: program.loop.stop())
    with (
        serving_probes(probes(program.metrics, program.missing, program.pulse.hang), probes_at),
        serving_page(AnswerCache(program.viewer, program.history), guard, page_at),
    ):
        program.run()


class RebalancerProgram:
    """The rebalancer, put together."""

    def __init__(
        self,
        client: Client,
        configuration: Configuration,
        faults: Faults,
        known: Prices = NO_PRICES,
        archive: Archive | None = None,
    ) -> None:
        self.name = f"{socket.gethostname()}_{secrets.token_hex(4)}"  # a restart of the container changes it
        self._wake = threading.Event()
        self.followed = Followed(client, rows_of(REBALANCER, with_gangs=configuration.gangs.enabled))
        states = self.followed.stores.of(STATE)
        self.pulse = Pulse()
        self._outages = OutageMemory(states, self._wake.set)
        self._pause = PauseMemory(states, self._wake.set)
        self._index = Index(configuration, self._pod_groups_served(configuration))
        self.followed.stores.subscribe(self._index.observe)
        self.followed.stores.subscribe(self._stir)
        self._observed = ObservedMemory(states, lambda known: self._index.observe(None, known.rates))
        self._leader = Leader(
            client, self.name, on_change=lambda _: self._wake.set(), is_fit=self.pulse.is_fit, faults=faults
        )
        self._events = EventWriter(client, self.name, source=SOURCE)
        self._teller = Teller(self._events.tell)
        self._has_gangs = configuration.gangs.enabled
        self._upkeep = Upkeep(client, self._index, configuration.gangs)
        if self._has_gangs:
            self.followed.stores.of(PODS_IN_FULL).subscribe(self._upkeep.observe)
        self._promises = self._promising(client)
        self._observer = self._watching(client)
        around = Around(
            self._leader.is_leading,
            self._is_current,
            lambda: self._outages.current,
            lambda: self._pause.current,
            observed=lambda: self._observed.current,
        )
        self.viewer, self.history = Viewer(self._index, around, known), History(archive)
        self.metrics = RebalancerMetrics(self.viewer.view, self._leader.is_leading)
        self._gang_news = GangNews(self._events.tell, self.metrics, self._index.subject_of, self._index.gang_members)
        self.metrics.cache_age.set_function(lambda: self.followed.awaited.age_seconds(time.monotonic()))
        self.metrics.outage_version.set_function(lambda: self._outages.current.version)
        self.metrics.paused.set_function(lambda: self._is_paused(time.time()))
        self._ends = ThreadPoolExecutor(MOST_ENDS, "end")
        executor = Executor(
            PodWriter(client, faults, is_leading=self._leader.is_leading),
            Notes(client, faults=faults),
            ThreadPoolExecutor(WRITERS, "write"),
            self._ends,
            self._sight(configuration),
            on_progress=self.pulse.work,
        )
        watched = Watched(
            is_current=self._is_current,
            is_leading=self._leader.is_leading,
            outages=lambda: self._outages.current,
            is_paused=self._is_paused,
            observed=lambda: self._observed.current,
        )
        self.loop = Loop(self._index, executor, watched, self._tell, self._wake, self.pulse)

    def run(self) -> None:
        """Until the loop is stopped; then the Lease is given up first, so that another replica goes on at once.

        What it has begun is over by then: another leader may put back what an eviction of ours is about to end.
        """
        spare_caches(self.followed.awaited.wait_synced)
        self.followed.start()
        self._events.start()
        self._leader.start()
        self.loop.run()
        self._ends.shutdown()
        self._leader.stop()
        self._events.stop()
        self.followed.stop()

    def missing(self) -> str | None:
        """What is missing until this replica is ready. It need not lead for that."""
        unled = "the Lease has not been read yet" if self._leader.holder is None else None
        return self.followed.missing() or unled

    def _stir(self, _old: object, _new: object) -> None:
        """Setting what is set costs as much as all else that is done for a pod once it is decoded."""
        if not self._wake.is_set():
            self._wake.set()

    def _sight(self, configuration: Configuration) -> LastLook:
        stores = self.followed.stores
        return LastLook(
            is_leading=self._leader.is_leading,
            is_paused=lambda: self._is_paused(time.time()),
            pod=stores.of(PODS_IN_FULL).get,
            node=stores.of(NODES).get,
            namespace=stores.of(NAMESPACES).get,
            is_leaving=lambda node: configuration.is_leaving(node) or self._index.is_drained(node.name),
        )

    def _pod_groups_served(self, configuration: Configuration) -> Callable[[], bool | None]:
        if not configuration.gangs.enabled:
            return lambda: False
        informer = self.followed.informer(POD_GROUPS)
        return lambda: informer.is_served

    def _watching(self, client: Client) -> Observer:
        """What observes pools; of each lost node it tells what keeps the promises of `auto`."""
        write = partial(change_observed, client, call_seconds=CALL_SECONDS)
        expired = partial(is_expired, client)
        return Observer(self._index, self._leader.is_leading, write, expired, self._promises.hear)

    def _promising(self, client: Client) -> Promises:
        """What keeps the promises of `auto`."""
        write = partial(write_autostate, client, call_seconds=CALL_SECONDS)
        return Promises(self._index, self._leader.is_leading, lambda: Noted.of(self._observed), write)

    def _is_current(self) -> bool:
        return self.followed.awaited.synced and self.followed.awaited.is_current(time.monotonic())

    def _is_paused(self, now: float) -> bool:
        return standing(self._pause.current, now) is not None

    def _tell(self, made: Plan, done: Sequence[Done], plan_seconds: float, pass_seconds: float) -> None:
        self.metrics.tell(made, done, plan_seconds, pass_seconds)
        now = time.time()
        taken = self.viewer.take(made, now)
        self.history.note(taken, [(each.action, each.outcome) for each in done], now)
        self.metrics.gates(self._index.gated, self._index.left_behind_gates(now))
        if self._leader.is_leading():
            self._teller.told(made, done)
            self._teller.watch(taken.assessments, taken.ground, now, is_paused=self._is_paused(now))
            self._upkeep.look(now)
            if self._has_gangs:
                self._gang_news.tell_victims(done)
                self._gang_news.watch(made, self._index.gangs, now)
        elif self._has_gangs:
            self.metrics.count_gangs({})
        self._observer.look(now)
        self._promises.look(now)
