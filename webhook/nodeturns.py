"""Whose turn it is on a node that stays: there, pods are replaced for others one at a time.

Who drains a node wants all its pods gone, and marks the node first. Who evicts from a node that stays, such as the
descheduler, wants a few gone, and does not know which: if one is refused, it asks for the next. Were all of them
replaced, the node would be empty, others would be full, and it would begin again there.
"""

from __future__ import annotations

from collections.abc import Callable

from cachetools import TTLCache

from placement.model import Pod

MOST_NODES = 10_000
MOST_PODS = 10_000
REMEMBERED_SECONDS = 600.0


class NodeTurns:
    """Lives on the event loop. `is_there` says whether a pod is, and is not on its way out."""

    def __init__(self, is_there: Callable[[Pod], bool], now: Callable[[], float]) -> None:
        self._is_there = is_there
        self._now = now
        self._turns: TTLCache[str, tuple[Pod, float]] = TTLCache(MOST_NODES, REMEMBERED_SECONDS, now)
        self._asked: TTLCache[str, float] = TTLCache(MOST_PODS, REMEMBERED_SECONDS, now)  # since when, by UID

    def before(self, pod: Pod, seconds: float) -> tuple[Pod, float] | None:
        """The pod that goes first, and until when this one waits for it; None if it is its turn from now on.

        No pod waits for longer than so many seconds, and none has its turn for longer.
        """
        now, turn = self._now(), self._turns.get(pod.node)
        until = self._asked.setdefault(pod.uid, now) + seconds
        if turn is not None and turn[0].uid != pod.uid and now < min(turn[1], until) and self._is_there(turn[0]):
            return turn[0], until
        self._turns[pod.node] = (pod, now + seconds)
        return None
