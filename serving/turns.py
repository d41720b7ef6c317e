"""Large bodies take turns: few are read at a time, and the sources whose bodies wait are served in rotation. Pure.

Reading a body of 7 MiB takes as long as answering twenty calls. Eighty of them at once would hold up everybody, and
fill the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

W = TypeVar("W", bound=Hashable)


class Turns(Generic[W]):
    """Who may read, and who waits for it, by source."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._reading: set[W] = set()
        self._waiting: dict[str, deque[W]] = {}  # the source whose turn is next comes first

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def ask(self, who: W, source: str) -> bool:
        """Whether it may go on; else it waits."""
        if len(self._reading) < self._most and not self._waiting:
            self._reading.add(who)
            return True
        self._waiting.setdefault(source, deque()).append(who)
        return False

    def leave(self, who: W, source: str) -> W | None:
        """It is done, or gone. Gives the one that may go on instead, if there is one."""
        if who not in self._reading:
            self._no_longer_waits(who, source)
            return None
        self._reading.discard(who)
        if not self._waiting:
            return None
        first, waiting = next(iter(self._waiting.items()))
        del self._waiting[first]
        following = waiting.popleft()
        if waiting:
            self._waiting[first] = waiting  # behind the others
        self._reading.add(following)
        return following

    def _no_longer_waits(self, who: W, source: str) -> None:
        waiting = self._waiting.get(source)
        if waiting is not None and who in waiting:
            waiting.remove(who)
            if not waiting:
                del self._waiting[source]
