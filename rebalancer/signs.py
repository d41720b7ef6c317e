"""Events of other programs that the rebalancer uses: a cloud deletes a Node, an autoscaler adds or removes one, the
webhook's patch is refused.

Any user may write an Event, so an Event alone proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from placement import names
from placement.model import Node, Pod, Sign, Workload
from placement.plan.losses import is_deleted_by
from placement.refusal import Hold, held

MOST_HOLDS = 10_000
SCALE_UPS = (names.SIGN_SCALE_UP, names.SIGN_NOMINATED)
FORBIDDEN = "incompatible requirements, key {}"  # Karpenter: no NodePool brings nodes with such a value of the label
ABOUT_NODES = (names.SIGN_NODE_DELETED, names.SIGN_PLANNED)


class Signs:
    """The latest of each kind. Events stay for an hour, and nodes' names come again."""

    def __init__(self) -> None:
        self._signs: dict[tuple[str, str, str], Sign] = {}  # by reason, and by what it is about: namespace and name
        self._holds: dict[tuple[str, str], Hold] = {}  # by namespace and UID of the workload; they outlast the Events

    def take(self, old: Sign | None, new: Sign | None) -> None:
        if new is not None and new.reason == names.EVENT_REFUSED:
            regarding = (new.namespace, new.uid)  # an Event of another namespace is about nothing of this one
            self._holds[regarding] = held(self._holds.pop(regarding, None), new.at)
            if len(self._holds) > MOST_HOLDS:
                del self._holds[next(iter(self._holds))]
            return
        if old is not None and self._signs.get(_regarding(old)) is old:
            del self._signs[_regarding(old)]
        if new is None or (new.reason in ABOUT_NODES and not _is_of_cloud(new)):
            return
        known = self._signs.get(_regarding(new))
        if known is None or known.at <= new.at:
            self._signs[_regarding(new)] = new

    def hold_of(self, workload: Workload) -> Hold | None:
        """That this workload is not moved for a while, because somebody refuses pods with our patch.

        Who may write Events in a namespace can hold its workloads so, which their annotations may ask for anyway.
        """
        return self._holds.get((workload.namespace, workload.uid))

    def of_cloud(self, node: str) -> Sign | None:
        """What the cloud's controller said about a node of this name."""
        return self._signs.get((names.SIGN_NODE_DELETED, "", node))

    def is_planned(self, node: Node) -> bool:
        """Whether an autoscaler said that it removes this node by its own plan."""
        return is_deleted_by(self._signs.get((names.SIGN_PLANNED, "", node.name)), node)

    def is_awaited(self, pod: Pod) -> float:
        """When an autoscaler last said that it brings a node for this pod."""
        return self._latest(pod, SCALE_UPS)

    def is_denied(self, pod: Pod, labels: Collection[str]) -> bool:
        """Whether an autoscaler last said that it can bring no node for this pod; Karpenter, because of these labels.

        Who may write Events in a namespace can so make its own pods fall back sooner.
        """
        unscheduled = self._signs.get((names.SIGN_UNSCHEDULED, pod.namespace, pod.name))
        is_told = unscheduled is not None and any(FORBIDDEN.format(label) in unscheduled.message for label in labels)
        reasons = (names.SIGN_NO_SCALE_UP, *((names.SIGN_UNSCHEDULED,) if is_told else ()))
        denied = self._latest(pod, reasons)
        return denied > self._latest(pod, SCALE_UPS) and denied >= int(pod.created)  # Events may be in whole seconds

    def _latest(self, pod: Pod, reasons: Iterable[str]) -> float:
        found = [self._signs.get((reason, pod.namespace, pod.name)) for reason in reasons]
        return max((sign.at for sign in found if sign is not None), default=float("-inf"))


def _is_of_cloud(sign: Sign) -> bool:
    """Events about Nodes are in this namespace. In others tenants write what they like."""
    return sign.kind == "Node" and sign.namespace == "default"


def _regarding(sign: Sign) -> tuple[str, str, str]:
    """Nodes have no namespace, and Events about them are anywhere; those about a pod are in the pod's."""
    return sign.reason, "" if sign.reason in ABOUT_NODES else sign.namespace, sign.about
