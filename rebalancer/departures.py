"""Nodes that go: which are lost, and which the cloud took. Kept up to date by differences."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

from placement.configuration import Configuration
from placement.model import Node, Pod, Sign
from placement.plan.interruption import OwnPlans, is_announced, is_interruption, is_taken
from placement.plan.losses import GoneNode, gone_node, unseen_node
from rebalancer.signs import Signs

MOST_INTERRUPTED = 10_000  # that wait to be counted


class Departures:
    """What is remembered of nodes that are gone, until their last pod is."""

    def __init__(self, configuration: Configuration, signs: Signs, pods_on: Mapping[str, tuple[Pod, ...]]) -> None:
        self._configuration = configuration
        self._signs = signs
        self._pods_on = pods_on
        self._announced: set[str] = set()  # nodes whose termination was announced
        self._plans = OwnPlans()
        self.lost: dict[str, GoneNode] = {}
        self.interrupted: deque[Node] = deque(maxlen=MOST_INTERRUPTED)  # spot nodes that the cloud took, each once

    def see(self, old: Node | None, new: Node | None) -> None:
        """A node came, changed or went.

        One that is first seen with its end announced was counted by the leader that saw it before.
        """
        self._plans.see(old, new)
        if new is not None and self._is_announced(new):
            if old is not None and new.name not in self._announced:
                self._interrupt(new)
            self._announced.add(new.name)
        elif old is not None:
            was_announced = old.name in self._announced
            self._announced.discard(old.name)
            if new is None and not was_announced:
                self._take(self._gone(old))

    def _is_announced(self, node: Node) -> bool:
        is_planned = self._plans.covers(node, self._configuration.leaving_taints)
        return is_announced(node, self._configuration) and not is_planned

    def lose(self, node: Node) -> None:
        if self._pods_on.get(node.name):
            self.lost[node.name] = self._gone(node)

    def come_back(self, node: str) -> None:
        self.lost.pop(node, None)

    def hear(self, sign: Sign) -> None:
        """A word of the cloud may come after the Node that it is about is gone."""
        known = self.lost.get(sign.about)
        if known is None or known.proof:
            return
        proof = self._gone(known.node).proof
        if proof:
            self.lost[sign.about] = replace(known, proof=proof)
            self._take(self.lost[sign.about])

    def note(self, pods: Iterable[Pod]) -> None:
        """Pods whose node is gone; some nodes were gone before we came."""
        for pod in pods:
            if pod.node not in self.lost:
                sign = self._signs.of_cloud(pod.node)
                self.lost[pod.node] = unseen_node(pod, self._pods_on[pod.node], self._configuration, sign)

    def forget(self) -> None:
        """Nodes whose last pod is gone."""
        for name in [name for name in self.lost if not self._pods_on.get(name)]:
            del self.lost[name]

    def _gone(self, node: Node) -> GoneNode:
        return gone_node(node, self._configuration, self._signs.of_cloud(node.name))

    def _take(self, gone: GoneNode) -> None:
        if is_taken(gone.node, self._configuration.leaving_taints, gone.proof):
            self._interrupt(gone.node)

    def _interrupt(self, node: Node) -> None:
        if is_interruption(node, self._pods_on.get(node.name, ()), self._configuration.classes):
            self.interrupted.append(node)
