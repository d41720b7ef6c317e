"""Events that others write and the rebalancer goes by: a cloud deletes a Node, an autoscaler brings one.

Anybody may write an Event, so none of them proves anything by itself.
"""

from __future__ import annotations

from placement import names
from placement.model import Pod, Sign

SCALE_UPS = (names.SIGN_SCALE_UP, names.SIGN_NOMINATED)


class Signs:
    """The latest of each kind. Events stay for an hour, and nodes' names come again."""

    def __init__(self) -> None:
        self._signs: dict[tuple[str, str, str], Sign] = {}  # by reason, and by what it is about: namespace and name

    def take(self, old: Sign | None, new: Sign | None) -> None:
        if old is not None and self._signs.get(_regarding(old)) is old:
            del self._signs[_regarding(old)]
        if new is None or (new.reason == names.SIGN_NODE_DELETED and not _is_of_cloud(new)):
            return
        known = self._signs.get(_regarding(new))
        if known is None or known.at <= new.at:
            self._signs[_regarding(new)] = new

    def of_cloud(self, node: str) -> Sign | None:
        """What the cloud's controller said about a node of this name."""
        return self._signs.get((names.SIGN_NODE_DELETED, "", node))

    def is_awaited(self, pod: Pod) -> float:
        """When an autoscaler last said that it brings a node for this pod."""
        found = [self._signs.get((reason, pod.namespace, pod.name)) for reason in SCALE_UPS]
        return max((sign.at for sign in found if sign is not None), default=float("-inf"))


def _is_of_cloud(sign: Sign) -> bool:
    """Events about Nodes are in this namespace. In others tenants write what they like."""
    return sign.kind == "Node" and sign.namespace == "default"


def _regarding(sign: Sign) -> tuple[str, str, str]:
    """Nodes have no namespace, and Events about them are anywhere; those about a pod are in the pod's."""
    return sign.reason, "" if sign.reason == names.SIGN_NODE_DELETED else sign.namespace, sign.about
