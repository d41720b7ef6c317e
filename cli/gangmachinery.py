"""Whether anything would start gangs: are they switched on, does a rebalancer lead, do new members get their gate?

What cannot be read for want of rights is not known, and nothing is said about it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from kube.client import Client
from kube.convert import seconds
from kube.errors import Forbidden, NotFound
from kube.gates import gates_new_members
from kube.lease import PATH
from kube.resources import LEADER
from placement.configuration import Configuration
from report.queue import GANGS_OFF

T = TypeVar("T")
UNLED_SECONDS = 60.0  # longer than any hand-over takes
UNLED = (
    "No rebalancer leads: gated pods wait until one does. `spotweave queue release` takes gates off, without guarantee."
)
UNGATED = (
    "Nothing gives new members their gate, so they start alone: the policy spotweave-gang is not installed "
    "(manifests/components/gangs)."
)


@dataclass(frozen=True, slots=True)
class Machinery:
    """None: not known. `leader` is "" where nobody leads."""

    is_on: bool
    leader: str | None = None
    gates: bool | None = None

    @property
    def warnings(self) -> Iterator[str]:
        if not self.is_on:
            yield GANGS_OFF
            return
        if self.leader == "":
            yield UNLED
        if self.gates is False:
            yield UNGATED

    @property
    def raw(self) -> dict[str, Any]:
        return {"enabled": self.is_on, "leader": self.leader, "gate": self.gates, "warnings": list(self.warnings)}


def machinery(client: Client, configuration: Configuration) -> Machinery:
    is_on = configuration.gangs.enabled
    return Machinery(is_on, _known(lambda: leader_of(client, time.time())), _known(lambda: gates_new_members(client)))


def leader_of(client: Client, now: float) -> str:
    """Who leads; "" where nobody does, or the last one has not renewed its Lease for a minute."""
    try:
        lease = LEADER.shape.single(client.get(PATH))
    except NotFound:
        return ""
    return lease.address if abs(now - seconds(lease.renewed)) < UNLED_SECONDS else ""


def _known(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except Forbidden:
        return None
