"""Outages: a class that is out for a while, wholly or in some zones, noted in the ConfigMap `spotweave-state`.

    {"version": 3, "outages": [{"class": "spot", "zones": ["zone-a"], "shape": {"cpuMillis": 4000},
                                "since": 1750000000, "until": 1750000300, "strikes": 0, "by": "operator"}]}

While one stands, slots of that class are admitted soft: the class is preferred, no longer required. It is
cluster-wide, not per workload, and runs out by itself; one that is noted again soon after lasts twice as long.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from placement import names
from placement.backoff import doubled
from placement.model import Class, NodeTerm

KEY = "outages.json"
FIRST_SECONDS = 300.0
LONGEST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """How much a pod asks for. What has no room for a shape has none for a larger one."""

    cpu_millis: int = 0
    memory_mib: int = 0

    @classmethod
    def asking(cls, requests: Mapping[str, int]) -> Shape:
        """Of a pod that asks for so much: CPU in thousandths, memory in bytes."""
        return cls(requests.get("cpu", 0), requests.get("memory", 0) // 1024**2)

    def covers(self, asked: Shape) -> bool:
        """Whether what is said of this shape holds for one that asks for as much or more."""
        return asked.cpu_millis >= self.cpu_millis and asked.memory_mib >= self.memory_mib

    def least(self, other: Shape) -> Shape:
        """One that covers both."""
        return Shape(min(self.cpu_millis, other.cpu_millis), min(self.memory_mib, other.memory_mib))


@dataclass(frozen=True, slots=True)
class Outage:
    """A class that is out until a moment (seconds since 1970), in these zones (none: everywhere), for this shape."""

    of: Class
    until: float
    zones: frozenset[str] = frozenset()
    shape: Shape = Shape()
    since: float = 0.0
    strikes: int = 0  # how often it was noted again
    by: str = "operator"

    @property
    def key(self) -> tuple[Class, frozenset[str], Shape]:
        return (self.of, self.zones, self.shape)

    @property
    def raw(self) -> dict[str, Any]:
        """As it is noted, and as scripts read it."""
        return {
            "class": str(self.of),
            "zones": sorted(self.zones),
            "shape": {"cpuMillis": self.shape.cpu_millis, "memoryMiB": self.shape.memory_mib},
            "since": self.since,
            "until": self.until,
            "strikes": self.strikes,
            "by": self.by,
        }


@dataclass(frozen=True, slots=True)
class Outages:
    """What is noted, and its version, which each reader shows."""

    version: int = 0
    noted: tuple[Outage, ...] = ()

    def standing(self, now: float) -> tuple[Outage, ...]:
        return tuple(outage for outage in self.noted if now < outage.until)

    def zones_left(self, of: Class, zones: frozenset[str], asked: Shape, now: float) -> frozenset[str]:
        """Of these zones those where the class is not out for a pod that asks for so much."""
        notes = self._about(of, asked, now)
        return frozenset() if any(not note.zones for note in notes) else zones.difference(*(n.zones for n in notes))

    def stands(
        self, of: Class, zones: frozenset[str], own_terms: tuple[NodeTerm, ...], asked: Shape, now: float
    ) -> bool:
        """Whether the class is out wherever a pod with these terms of its own could find it.

        `zones` have nodes of the class. Zones that are noted count too: their nodes may be gone. With nodes left in c
        and a note of a, a pod that is bound to a finds none, and one that is bound to nothing does.
        """
        notes = self._about(of, asked, now)
        if any(not note.zones for note in notes):
            return True
        out = frozenset[str]().union(*(note.zones for note in notes))
        there = reachable(zones | out, own_terms)
        return bool(there) and there <= out

    def _about(self, of: Class, asked: Shape, now: float) -> list[Outage]:
        return [each for each in self.standing(now) if each.of is of and each.shape.covers(asked)]


def noted(outages: Outages, outage: Outage, now: float, seconds: float | None = None) -> Outages:
    """With one outage more. Without a duration it lasts five minutes, and twice as long each time it is noted again

    within as long after it ran out as it had lasted; an hour at most.
    """
    before = next((each for each in outages.noted if each.key == outage.key), None)
    strikes = before.strikes + 1 if before is not None and now < before.until + (before.until - before.since) else 0
    lasts = doubled(FIRST_SECONDS, strikes, LONGEST_SECONDS) if seconds is None else seconds
    new = replace(outage, since=now, until=now + lasts, strikes=strikes)
    return Outages(outages.version + 1, (*_without(outages, [outage], now), new))


def ended(outages: Outages, over: Iterable[Outage], now: float) -> Outages:
    """With these over now. They are remembered: noted again soon, each lasts twice as long."""
    keys = {outage.key for outage in over}
    kept = (replace(each, until=now) if each.key in keys and now < each.until else each for each in outages.noted)
    return Outages(outages.version + 1, tuple(kept))


def cleared(outages: Outages, gone: Iterable[Outage], now: float) -> Outages:
    """Without these."""
    return Outages(outages.version + 1, _without(outages, gone, now))


def cleared_in(outages: Outages, of: Class, zones: frozenset[str], now: float) -> Outages:
    """Without these zones in what is noted of a class; a note of a and b goes on for b when a is cleared.

    A note of everywhere stays: it names no zone that could be taken out.
    """
    about = [each for each in outages.noted if each.of is of and each.zones & zones]
    rest = tuple(replace(each, zones=each.zones - zones) for each in about if each.zones - zones)
    return Outages(outages.version + 1, (*_without(outages, about, now), *rest))


def _without(outages: Outages, gone: Iterable[Outage], now: float) -> tuple[Outage, ...]:
    """What is left. One that has run out is remembered for a while, because it may be noted again."""
    keys = {outage.key for outage in gone}
    return tuple(each for each in outages.noted if each.key not in keys and now < each.until + LONGEST_SECONDS)


def reachable(zones: frozenset[str], own_terms: tuple[NodeTerm, ...]) -> frozenset[str]:
    """The zones that a pod's own node terms leave open."""
    if not own_terms:
        return zones
    return frozenset(
        zone
        for zone in zones
        if any(all(each.allows(zone) for each in term if each.key == names.ZONE) for term in own_terms)
    )


def limited_to(zones: frozenset[str], own_terms: tuple[NodeTerm, ...]) -> frozenset[str]:
    """The zones that an outage is noted for which such a pod met, of a class that is in `zones`; none: everywhere."""
    there = reachable(zones, own_terms)
    return frozenset() if there == zones and there else there or named_zones(own_terms)


def named_zones(own_terms: tuple[NodeTerm, ...]) -> frozenset[str]:
    """The zones that a pod is bound to by its own terms; none where one of them leaves zones open."""
    named = [
        [frozenset(each.values) for each in term if each.key == names.ZONE and each.operator == "In"]
        for term in own_terms
    ]
    return frozenset().union(*(frozenset.intersection(*each) for each in named)) if all(named) else frozenset()


# --- text ------------------------------------------------------------------------------------------------------------


def parse_outages(text: str) -> Outages:
    """What was noted; ValueError where the text is garbled (then the reader keeps what it had)."""
    try:
        raw = json.loads(text)
        return Outages(int(raw["version"]), tuple(_outage(entry) for entry in raw["outages"]))
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"outages are garbled: {error}") from error


def _outage(raw: dict[str, Any]) -> Outage:
    shape = raw.get("shape") or {}
    return Outage(
        Class(raw["class"]),
        float(raw["until"]),
        frozenset(str(zone) for zone in raw.get("zones") or ()),
        Shape(int(shape.get("cpuMillis", 0)), int(shape.get("memoryMiB", 0))),
        float(raw.get("since", 0)),
        int(raw.get("strikes", 0)),
        str(raw.get("by", "operator")),
    )


def outages_text(outages: Outages) -> str:
    entries = [each.raw for each in outages.noted]
    return json.dumps({"version": outages.version, "outages": entries})
