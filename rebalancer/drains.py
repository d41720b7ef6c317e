"""Which nodes are drained: cordoned, and others evict pods from them. A bare cordon is no drain."""

from __future__ import annotations

from dataclasses import replace

from placement.model import Node

REORDERED_SECONDS = 5.0  # what happens to nodes and to pods may reach us in another order than it happened


class Drains:
    """Followed by every replica, since a drain shows only while it goes on. `is_drained` may be asked by any thread."""

    def __init__(self) -> None:
        self._drained: set[str] = set()
        self._evicted_at: dict[str, float] = {}  # by node: when others were last seen to evict a pod from it

    def is_drained(self, node: str) -> bool:
        return node in self._drained

    def evict(self, node: str, now: float) -> None:
        """Others evict a pod from this node."""
        self._evicted_at[node] = now

    def judged(self, node: Node, now: float) -> Node:
        """The node, marked if it is drained. An uncordon ends that."""
        if not node.unschedulable:
            self._drained.discard(node.name)
        elif now - self._evicted_at.get(node.name, float("-inf")) < REORDERED_SECONDS:
            self._drained.add(node.name)
        return replace(node, drained=True) if node.name in self._drained else node

    def forget(self, node: str) -> None:
        self._drained.discard(node)
        self._evicted_at.pop(node, None)
