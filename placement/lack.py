"""Why a pod finds no place: one enum, for plans, drills and whoever else asks."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Lack(StrEnum):
    """What is missing, in the order in which nodes are asked.

    Where nodes refuse a pod for different reasons, the last of them counts: that node came closest.
    """

    NODES = "there is no node"
    OCCUPIED = "no node is empty but for DaemonSet pods"
    TERMS = "no node matches its node selector and node affinity"
    TAINTS = "no node is left whose taints it tolerates"
    PODS = "no node takes more pods"
    ROOM = "no node has room for {}"
    PORTS = "no node has host port {} free"
    CLAIM = "its claim {} cannot be used"
    ONE_POD = "another pod uses its claim {}, which is for one pod (ReadWriteOncePod)"
    VOLUME = "no node can use its volume {}"
    ATTACHMENTS = "no node can attach more volumes of {}"
    APART = "pod anti-affinity leaves no node"
    COMPANY = "no node has the pods that its affinity requires"
    SPREAD = "its topology spread leaves no node"
    ODDS = "its chance to survive its run time there is {}"
    UNKNOWN_PODS = "not modelled: who its neighbours would be"
    UNKNOWN_CLAIMS = "not modelled: resource claims"
    UNKNOWN_DISKS = "not modelled: disks that the pod names itself"
    UNKNOWN_EPHEMERAL = "not modelled: volumes that are created with the pod"
    UNKNOWN_VOLUMES = "not modelled: claim {}, which is not bound yet"

    @property
    def label(self) -> str:
        """For metrics: `one-pod`."""
        return self.name.lower().replace("_", "-")

    @property
    def rank(self) -> int:
        return _RANKS[self]

    @property
    def is_unknown(self) -> bool:
        """Nobody here can tell. Nothing is evicted then, but no way out is closed either."""
        return self in _UNKNOWN


_RANKS = {each: rank for rank, each in enumerate(Lack)}
_UNKNOWN = frozenset(each for each in Lack if each.name.startswith("UNKNOWN"))


class NoPlace(NamedTuple):
    """Why a pod gets no place, and of what there is too little."""

    lack: Lack
    what: str = ""

    def __str__(self) -> str:
        return self.lack.value.format(self.what)


def furthest(one: NoPlace | None, other: NoPlace | None) -> NoPlace | None:
    """The one that says more: it came from a node that fits in more ways."""
    if one is None or other is None:
        return one or other
    return one if one.lack.rank >= other.lack.rank else other
