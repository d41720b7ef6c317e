"""Keeps the taints of nodes that are a gang's own, as `Index.taint_changes` says. All of it follows from the pods.

So a taint that outlives its plan goes with the next look, whoever wrote it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from kube.errors import ApiError
from placement.gang.exclusive import TaintChange

log = logging.getLogger(__name__)

AGAIN_SECONDS = 2.0  # until the same is written to a node again: its echo is on the way, or the write has failed
MOST_AT_ONCE = 100
WRITERS = 8


class NodeTaints:
    """Called by the leader after every pass, on the loop's thread. `timer` is a monotonic clock."""

    def __init__(self, write: Callable[[TaintChange], None], timer: Callable[[], float]) -> None:
        self._write = write
        self._timer = timer
        self._tried: dict[str, tuple[TaintChange, float]] = {}  # by node, and when

    def look(self, changes: Iterable[TaintChange]) -> None:
        now = self._timer()
        self._tried = {node: tried for node, tried in self._tried.items() if now - tried[1] < AGAIN_SECONDS}
        due = [each for each in changes if self._tried.get(each.node, (None,))[0] != each][:MOST_AT_ONCE]
        if not due:
            return
        self._tried.update((each.node, (each, now)) for each in due)
        with ThreadPoolExecutor(WRITERS, "taint") as pool:
            list(pool.map(self._one, due))

    def _one(self, change: TaintChange) -> None:
        try:
            self._write(change)
            log.info("node %s: %s", change.node, "kept for one gang" if change.mark else "free for all again")
        except ApiError as error:
            log.warning("taint of node %s: %s", change.node, error)
