"""Claims, volumes and attach limits, as they are now."""

from __future__ import annotations

from typing import Any

from placement.model import AttachLimits, Claim, Key, Volume
from placement.plan.storage import Storage
from rebalancer.multimap import put


class Volumes:
    """Where volumes can be used. Plans look at it; nothing else follows from a change."""

    def __init__(self) -> None:
        self._claims: dict[Key, Claim] = {}
        self._volumes: dict[str, Volume] = {}
        self._limits: dict[str, AttachLimits] = {}  # by node
        self.storage = Storage(self._claims, self._volumes, self._limits)  # always as it is now
        self._copy: Storage | None = None

    def take(self, old: Any, new: Any) -> None:
        self._copy = None
        known = new if new is not None else old
        if isinstance(known, Claim):
            put(self._claims, known.key, new)
        elif isinstance(known, Volume):
            put(self._volumes, known.name, new)
        else:
            put(self._limits, known.name, new)

    def copy(self) -> Storage:
        """As of now; it may be read later, from any thread. Made anew only where something has changed."""
        if self._copy is None:
            self._copy = Storage(dict(self._claims), dict(self._volumes), dict(self._limits))
        return self._copy
