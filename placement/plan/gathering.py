"""Nodes that have just begun to leave. Others may follow, and a replacement must not start on one of those.

A cloud or an autoscaler that takes six nodes marks one after the other, within a second. Were the pods of the first one
released at once, some replacements would start on the others and be released again: 16 releases for 7 pods were seen.
"""

from __future__ import annotations

from placement.plan.ground import Ground

QUIET_SECONDS = 0.4  # no further node has begun to leave for so long
LONGEST_SECONDS = 1.0  # no node waits for longer; of held evictions it takes up a quarter of the time for a release
NONE: frozenset[str] = frozenset()


class Gathering:
    """Remembers when nodes began to leave, by a monotonic timer. What leaves at the first look does not wait."""

    def __init__(self) -> None:
        self._ground: Ground | None = None
        self._since: dict[str, float] = {}
        self.is_waiting = False  # some node is not released yet, and time alone changes that

    def nodes(self, ground: Ground, timer: float) -> frozenset[str]:
        """The nodes whose pods are not released yet."""
        if ground is not self._ground:
            first = float("-inf") if self._ground is None else timer
            leaving = (name for name, site in ground.sites.items() if site.is_leaving and not site.is_only_cordoned)
            self._since = {name: self._since.get(name, first) for name in leaving}
            self._ground = ground
        if timer - max(self._since.values(), default=float("-inf")) >= QUIET_SECONDS:
            found = NONE
        else:
            found = frozenset(name for name, since in self._since.items() if timer - since < LONGEST_SECONDS)
        self.is_waiting = bool(found)
        return found
