"""Since when nodes leave, and when they end, as far as that is announced.

A hold counts from the first moment at which this replica saw it. After a restart that is later than it was: a hold may
then last longer, by as much as the restart came after the announcement.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from placement.configuration import Configuration
from placement.model import Node
from placement.plan.interruption import OwnPlans


class NodeEnds:
    """Fed by the informer of nodes, read by the event loop."""

    def __init__(self, configuration: Configuration, now: Callable[[], float] = time.time) -> None:
        self._configuration = configuration
        self._now = now
        self._plans = OwnPlans()
        self._leaving: dict[str, float] = {}  # since when, by the node's name
        self._ending: dict[str, float] = {}  # when it ends

    def see(self, old: Node | None, new: Node | None) -> None:
        """A node came, changed or went."""
        self._plans.see(old, new)
        if new is not None:
            now, notice = self._now(), self._notice_seconds(new)
            _keep(self._leaving, new.name, now if self._configuration.is_leaving(new) else None)
            _keep(self._ending, new.name, None if notice is None else now + notice)
        elif old is not None:
            _keep(self._leaving, old.name, None)
            _keep(self._ending, old.name, None)

    def leaving_since(self, node: str) -> float | None:
        return self._leaving.get(node)

    def end_of(self, node: str) -> float | None:
        return self._ending.get(node)

    def _notice_seconds(self, node: Node) -> float | None:
        """Karpenter's own plan is no end that is announced: it waits for the pods."""
        is_planned = self._plans.covers(node, self._configuration.leaving_taints)
        return None if is_planned else self._configuration.notice_seconds(node)


def _keep(known: dict[str, float], name: str, at: float | None) -> None:
    """The first moment counts, until it no longer applies."""
    if at is None:
        known.pop(name, None)
    else:
        known.setdefault(name, at)
