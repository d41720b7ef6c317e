"""For how long gangs have lacked members: an owner that was scaled down shows it a moment after its pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from placement.gang.gang import Gang
from placement.model import Key


class Losses:
    """Memory of the loop, by a timer. After a restart all of them begin anew."""

    def __init__(self) -> None:
        self._since: dict[Key, float] = {}

    def lasting(self, gangs: Iterable[Gang], timer: float) -> Mapping[Key, float]:
        """Seconds since each gang began to lack members; `gangs` are all that there is something about."""
        lacking = {gang.key for gang in gangs if gang.life.lost}
        for key in self._since.keys() - lacking:
            del self._since[key]
        return {key: timer - self._since.setdefault(key, timer) for key in lacking}
