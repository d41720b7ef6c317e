"""Observes spot pools: how long each was watched, and how often it was interrupted.

Every replica watches. Only the leader adds what it has seen to the note: a loss within a minute, hours four times an
hour. So a restart loses at most a quarter of an hour of watching, and no loss that was written.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from kube.errors import ApiError, NotFound
from placement.model import Class, Node
from placement.observation import Interruption, Observed, Watch, extended
from placement.plan.ground import Ground, pool_name
from placement.plan.interruption import is_in_doubt
from rebalancer.index import Index

log = logging.getLogger(__name__)

LONGEST_GAP_SECONDS = 60.0  # between two looks; what happened in a longer gap is unknown
SOONEST_SECONDS = 60.0  # between two writes
HOURS_SECONDS = 900.0  # between two writes without a loss
DOUBT_SECONDS = 10.0  # Karpenter writes the Event about its own plan just after it has deleted the Node
MOST_ASKED = 5  # nodes after whose age the API server is asked in one look: it waits for the answers

Change = Callable[[Observed], Observed]


class Observer:
    """What this replica has seen, until it is written."""

    def __init__(
        self,
        index: Index,
        is_leading: Callable[[], bool],
        write: Callable[[Change], object],
        is_expired: Callable[[Node], bool] = lambda _node: False,
        hear: Callable[[Node, float, Mapping[str, int]], None] = lambda _node, _now, _workloads: None,
    ) -> None:
        self._hear = hear  # of each lost node, and how many pods of which workloads were on it
        self._index = index
        self._is_leading = is_leading
        self._write = write
        self._is_expired = is_expired
        self._unasked: list[Node] = []  # in doubt, and perhaps deleted because they are old enough
        self._expired: set[str] = set()  # the UIDs of those in doubt that were
        self._ground: Ground | None = None
        self._nodes: Counter[str] = Counter()  # by pool, as of the last look
        self._looked: float | None = None
        self._written = 0.0
        self._watches: dict[str, Watch] = {}
        self._interruptions: list[Interruption] = []
        self._doubtful: list[tuple[Node, Interruption, Mapping[str, int]]] = []  # they may be no interruptions

    def look(self, now: float) -> None:
        """Called after every pass, on the loop's thread."""
        before, self._looked = self._looked, now
        lost = list(self._interrupted(now))
        if before is None or not self._is_leading():
            self._watches, self._interruptions, self._written = {}, [], now
        else:
            self._interruptions += lost
            self._watch(now - before)
            self._write_down(now)
        self._count()

    def _interrupted(self, now: float) -> Iterator[Interruption]:
        """The nodes that were lost since the last look; those in doubt a while later, dated by the loss."""
        while self._index.interrupted:
            node = self._index.interrupted.popleft()
            pool = pool_name(node.pool)
            each = Interruption(pool, self._nodes[pool], now)
            self._doubtful.append((node, each, self._index.workloads_on(node.name)))  # later, its pods may be gone
            if self._is_in_doubt(node):
                self._unasked.append(node)
        self._ask()
        seen, self._doubtful = self._doubtful, []
        for node, each, workloads in seen:
            if self._is_in_doubt(node) and now - each.at < DOUBT_SECONDS:
                self._doubtful.append((node, each, workloads))
            elif not self._index.is_planned(node) and node.uid not in self._expired:
                self._hear(node, each.at, workloads)
                yield each
        if not self._doubtful:
            self._unasked, self._expired = [], set()

    def _is_in_doubt(self, node: Node) -> bool:
        return is_in_doubt(node, self._index.ground.configuration.leaving_taints)

    def _ask(self) -> None:
        """Whether Karpenter deletes them because of their age: some in each look, while they are still there."""
        asked, self._unasked = self._unasked[:MOST_ASKED], self._unasked[MOST_ASKED:]
        for node in asked:
            try:
                if self._is_expired(node):
                    self._expired.add(node.uid)
            except NotFound:
                continue  # it is gone; the others may still be asked for
            except (ApiError, TimeoutError) as error:
                log.warning("cannot find out whether nodes have expired; they count as interrupted: %s", error)
                break

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
        """What could not be written is kept, and tried again at the next regular time."""
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
            log.info("pool %s lost a node; %d of its nodes were ready before", each.pool, each.had)
        self._watches, self._interruptions = {}, []
