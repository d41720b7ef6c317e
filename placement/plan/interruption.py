"""What counts as an interruption: the cloud takes a spot node that was in use."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from placement import names
from placement.classes import Classes
from placement.model import Class, Node, Pod
from placement.plan.neighbours import is_on

OF_NODES = frozenset({"DaemonSet", "Node"})  # owners of pods that every node has; the latter of static ones


def is_announced(node: Node, leaving_taints: Collection[str]) -> bool:
    """The cloud says that it will take the node."""
    return any(taint.key in leaving_taints and taint.key != names.SCALED_DOWN for taint in node.taints)


def is_taken(last_seen: Node, leaving_taints: Collection[str], proof: str) -> bool:
    """The cloud took it without a notice. A cordon, a deletion or a scale-down before is somebody's own wish."""
    is_marked = any(taint.key in leaving_taints for taint in last_seen.taints)
    return not (last_seen.unschedulable or last_seen.deleting or is_marked) and bool(proof)


def is_interruption(node: Node, pods: Iterable[Pod], classes: Classes) -> bool:
    """Only spot nodes count, and only those in use: empty nodes go because nobody needs them."""
    is_used = any(is_on(pod) and (pod.owner is None or pod.owner.kind not in OF_NODES) for pod in pods)
    return is_used and classes.of_node(node.labels) is Class.SPOT
