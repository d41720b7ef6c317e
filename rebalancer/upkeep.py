"""What the leader keeps for gangs beside their pods: twins of PriorityClasses, taints of nodes, status of PodGroups."""

from __future__ import annotations

import time
from functools import partial

from kube.client import Client
from kube.nodetaints import write_taint
from kube.podgroups import write_status
from kube.twins import TwinWriter
from placement.gang.settings import Gangs
from placement.model import Pod
from rebalancer.index import Index
from rebalancer.nodetaints import NodeTaints
from rebalancer.podgroups import GroupStatuses
from rebalancer.twins import Twins


class Upkeep:
    """While gangs are off, only taints that were left behind are removed."""

    def __init__(self, client: Client, index: Index, gangs: Gangs) -> None:
        self._index = index
        self._is_on = gangs.enabled
        self._twins = Twins(TwinWriter(client), is_guarding=gangs.guard_solo)
        self._statuses = GroupStatuses(partial(write_status, client), time.monotonic)
        self._taints = NodeTaints(partial(write_taint, client), time.monotonic)

    def observe(self, old: Pod | None, new: Pod | None) -> None:
        """Called by the pods' store for every difference, while gangs are on."""
        self._twins.observe(old, new)

    def look(self, now: float) -> None:
        """Called by the leader after every pass, on the loop's thread."""
        self._taints.look(self._index.taint_changes)
        if self._is_on:
            self._twins.look(now)
            self._statuses.look(self._index.group_changes())
