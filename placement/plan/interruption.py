"""What counts as an interruption: the cloud takes a spot node that was in use.

Karpenter removes nodes by its own plan, too: because they are empty or underutilized, or have drifted. Both ways end
with its taint on a Node that is being deleted. They differ in what comes first. By its own plan Karpenter taints the
node, brings the replacement, and deletes the Node then. When the cloud takes a machine, the Node is deleted first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from placement import names
from placement.classes import Classes
from placement.configuration import Configuration
from placement.leavingtaints import PATIENT_TAINTS
from placement.model import Class, Node, Pod
from placement.plan.neighbours import is_on

OF_NODES = frozenset({"DaemonSet", "Node"})  # owners of pods that every node has; the latter of static ones


def is_announced(node: Node, configuration: Configuration) -> bool:
    """The cloud says that it will take the node; or Karpenter does, on a Node that is being deleted.

    Karpenter's taint alone never says so, even if pods are to leave at once for it: its own plans begin with it.
    """
    found = {taint.key for taint in node.taints}.intersection(configuration.leaving_taints) - {names.SCALED_DOWN}
    return bool(found) and (node.deleting or not found <= configuration.patient_taints | PATIENT_TAINTS)


def is_planned(node: Node) -> bool:
    """Karpenter has begun to remove the node, and the cloud has not: the Node is not being deleted yet."""
    return is_disrupted(node) and not node.deleting


def is_disrupted(node: Node) -> bool:
    """Karpenter removes the node, by its own plan or not."""
    return any(taint.key == names.DISRUPTED for taint in node.taints)


class OwnPlans:
    """Which nodes Karpenter removes by its own plan: remembered until they are gone, or the plan is given up."""

    def __init__(self) -> None:
        self._nodes: set[str] = set()

    def see(self, old: Node | None, new: Node | None) -> None:
        """A node came, changed or went."""
        if new is not None and is_planned(new):
            self._nodes.add(new.name)
        elif old is not None and (new is None or not is_disrupted(new)):
            self._nodes.discard(old.name)

    def covers(self, node: Node, leaving_taints: Collection[str]) -> bool:
        """The node goes by such a plan, and nothing else announces its end."""
        return node.name in self._nodes and is_in_doubt(node, leaving_taints)


def is_in_doubt(node: Node, leaving_taints: Collection[str]) -> bool:
    """Nothing but Karpenter's taint announces its end. Karpenter's Event about its own plan may still come."""
    others = [taint for taint in node.taints if taint.key != names.DISRUPTED]
    return is_disrupted(node) and not any(taint.key in leaving_taints for taint in others)


def is_taken(last_seen: Node, leaving_taints: Collection[str], proof: str) -> bool:
    """The cloud took it without a notice. A cordon, a deletion or a scale-down before shows that a person wanted it."""
    is_marked = any(taint.key in leaving_taints for taint in last_seen.taints)
    return not (last_seen.unschedulable or last_seen.deleting or is_marked) and bool(proof)


def is_interruption(node: Node, pods: Iterable[Pod], classes: Classes) -> bool:
    """Only spot nodes count, and only those in use: empty nodes go because they are not needed."""
    is_used = any(is_on(pod) and (pod.owner is None or pod.owner.kind not in OF_NODES) for pod in pods)
    return is_used and classes.of_node(node.labels) is Class.SPOT
