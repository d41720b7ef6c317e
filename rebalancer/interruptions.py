"""Observes spot pools: for how long each was watched, and how often it was interrupted.

Every replica watches; only the one that leads counts, and adds what it has seen to what is noted: a loss within a
minute, hours four times an hour. So a restart loses a quarter of an hour of watching, and no loss that was written.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator

from kube.errors import ApiError
from placement.model import Class
from placement.observation import Interruption, Observed, Watch, extended
from placement.plan.group import Ground
from rebalancer.index import Index
from report.exposure import pool_name

log = logging.getLogger(__name__)

LONGEST_GAP_SECONDS = 60.0  # between two looks; in a longer one nobody knows what was there
SOONEST_SECONDS = 60.0  # between two writes
HOURS_SECONDS = 900.0  # between two that tell of no loss

Change = Callable[[Observed], Observed]


class Observer:
    """What this replica has seen, until it is written."""

    def __init__(self, index: Index, is_leading: Callable[[], bool], write: Callable[[Change], object]) -> None:
        self._index = index
        self._is_leading = is_leading
        self._write = write
        self._ground: Ground | None = None
        self._nodes: Counter[str] = Counter()  # by pool, as of the last look
        self._looked: float | None = None
        self._written = 0.0
        self._watches: dict[str, Watch] = {}
        self._interruptions: list[Interruption] = []

    def look(self, now: float) -> None:
        """After every pass, on the loop's thread."""
        before, self._looked = self._looked, now
        lost = [Interruption(pool, self._nodes[pool], now) for pool in self._interrupted()]
        if before is None or not self._is_leading():
            self._watches, self._interruptions, self._written = {}, [], now
        else:
            self._interruptions += lost
            self._watch(now - before)
            self._write_down(now)
        self._count()

    def _interrupted(self) -> Iterator[str]:
        """The pools of the nodes that were taken since the last look."""
        while self._index.interrupted:
            yield pool_name(self._index.interrupted.popleft().pool)

    def _watch(self, seconds: float) -> None:
        if not 0 < seconds <= LONGEST_GAP_SECONDS:
            return
        for pool, nodes in self._nodes.items():
            known = self._watches.get(pool, Watch())
            self._watches[pool] = Watch(known.seconds + seconds, known.node_seconds + seconds * nodes)

    def _count(self) -> None:
        ground = self._index.ground
        if ground is not self._ground:
            live = (site.pool for site in ground.sites.values() if site.is_target and site.of is Class.SPOT)
            self._ground, self._nodes = ground, Counter(map(pool_name, live))

    def _write_down(self, now: float) -> None:
        """What could not be written is kept, and tried again as late as anything else."""
        since = now - self._written
        if since < (SOONEST_SECONDS if self._interruptions else HOURS_SECONDS):
            return
        self._written = now
        watches, interruptions = self._watches, self._interruptions
        try:
            self._write(lambda known: extended(known, watches, interruptions, now))
        except (ApiError, TimeoutError) as error:
            log.warning("cannot write the observed losses of pools: %s", error)
            return
        for each in interruptions:
            log.info("pool %s lost one of its %d nodes", each.pool, each.had)
        self._watches, self._interruptions = {}, []
