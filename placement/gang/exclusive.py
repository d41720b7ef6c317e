"""Nodes of a gang's own: `exclusive-node: pod` gives each member a node, `gang` gives all of them nodes together.

Nothing but DaemonSet pods and the node's own may run there. What keeps others away is a taint of the gang's: members
tolerate it, since admission says so, and a pod on its node has no other way to keep the next one out. Example: two
members of `shop/train`. Two empty nodes are reserved, then tainted `spotweave.dev/exclusive=6ff6b9ed1f05b82d`; if
nobody has slipped in until a second later, both start. When they end, the taints go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from placement import names
from placement.model import Key, NodeTaint, Pod

BY_POD, BY_GANG = "pod", "gang"
DIGITS = 16  # a taint's value may not be as long as a gang's name
NO_SCHEDULE = "NoSchedule"
KEEPERS = ("DaemonSet", "Node")  # owners of pods that are on every node; a Node owns its static pods


def mark_of(gang: Key) -> str:
    """The value of the taint."""
    return sha256(f"{gang.namespace}/{gang.name}".encode()).hexdigest()[:DIGITS]


def taint_of(gang: Key) -> NodeTaint:
    return NodeTaint(names.EXCLUSIVE_TAINT, mark_of(gang), NO_SCHEDULE)


def tolerates(pod: Pod, gang: Key) -> bool:
    """Admission has made the pod one that may share the gang's nodes."""
    taint = taint_of(gang)
    return any(each.tolerates(taint) for each in pod.needs.tolerations)


def is_alone(pods: Iterable[Pod], members: frozenset[str]) -> bool:
    """Whether nobody is among the pods of a node but these members, by UID, and what runs on every node."""
    return all(pod.uid in members or (pod.owner is not None and pod.owner.kind in KEEPERS) for pod in pods)


@dataclass(frozen=True, slots=True)
class TaintChange:
    """A node, and the value that its taint is to have; "": none."""

    node: str
    mark: str


def kept_apart(
    own: Mapping[str, str], reserved: Collection[str], taints: Mapping[str, tuple[NodeTaint, ...]]
) -> Mapping[str, str]:
    """Of the nodes of gangs, those that have or get the taint: reserved ones, and those that had it at the start.

    A pod that was never reserved a node, such as one that names its node itself, closes none to others.
    """

    def has(node: str, mark: str) -> bool:
        return any(each.key == names.EXCLUSIVE_TAINT and each.value == mark for each in taints.get(node, ()))

    return {node: mark for node, mark in own.items() if node in reserved or has(node, mark)}


def taint_changes(wanted: Mapping[str, str], taints: Mapping[str, tuple[NodeTaint, ...]]) -> list[TaintChange]:
    """What differs. `wanted` has the mark of each node that is a gang's, `taints` those of all nodes."""
    changes = []
    for node, there in taints.items():
        ours = [taint.value for taint in there if taint.key == names.EXCLUSIVE_TAINT]
        mark = wanted.get(node, "")
        if ours != ([mark] if mark else []):
            changes.append(TaintChange(node, mark))
    return changes
