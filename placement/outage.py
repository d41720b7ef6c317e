"""Outages: a class that is out for a while, wholly or in some zones, noted in the ConfigMap `spotweave-state`.

    {"version": 3, "outages": [{"class": "spot", "zones": ["zone-a"], "shape": {"cpuMillis": 4000}, "namespace": "shop",
                                "terms": [[{"key": "arch", "operator": "In", "values": ["arm64"]}]],
                                "since": 1750000000, "until": 1750000300, "strikes": 0, "by": "rebalancer",
                                "evidence": {"pod": "shop/web-4", "workload": "Deployment shop/web"}}]}

While one stands, slots of that class are admitted soft: the class is preferred, no longer required. A note covers what
its evidence covers. Nodes that are gone are everybody's loss, so what was lost with them is noted for all namespaces.
A pod that finds no node speaks for its own namespace only: nothing that one tenant writes softens another's pods. A
note runs out by itself; one that is noted again soon after lasts twice as long.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from placement import names
from placement.backoff import doubled
from placement.model import Class, NodeRequirement, NodeTerm

KEY = "outages.json"
FIRST_SECONDS = 300.0
LONGEST_SECONDS = 3600.0
MOST_OF_NAMESPACE = 10  # notes; one more stands for all of its namespace's pods of the class instead
MOST_NOTED = 300  # of single namespaces; beyond these the oldest are forgotten: a ConfigMap holds 1 MiB
LONGEST_TERMS = 500  # characters; what asks for more of nodes is noted without


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
class Demand:
    """What a pod asks of a class: for which namespace, on nodes with which terms of its own, and how much."""

    namespace: str = ""
    own_terms: tuple[NodeTerm, ...] = ()
    shape: Shape = Shape()


@dataclass(frozen=True, slots=True)
class Evidence:
    """The pod that shows an outage, and its workload: `shop/web-4`, `Deployment shop/web`."""

    pod: str
    workload: str


@dataclass(frozen=True, slots=True)
class Outage:
    """A class that is out until a moment (seconds since 1970), in these zones (none: everywhere), for these pods."""

    of: Class
    until: float
    zones: frozenset[str] = frozenset()
    shape: Shape = Shape()
    since: float = 0.0
    strikes: int = 0  # how often it was noted again
    by: str = "operator"
    namespace: str = ""  # "": all
    terms: tuple[NodeTerm, ...] = ()  # only for pods that ask at least this of nodes, zones apart; none: for all
    evidence: Evidence | None = None  # None: somebody said so

    @property
    def key(self) -> tuple[object, ...]:
        return (self.of, self.zones, self.shape, self.namespace, self.terms)

    @property
    def is_whole(self) -> bool:
        """It covers whatever a pod of its namespace asks for."""
        return not self.zones and not self.terms and self.shape == Shape()

    @property
    def pods(self) -> str:
        """The pods that it is about, for people: `≥500m, ≥256Mi, arch In arm64`."""
        size = f"≥{self.shape.cpu_millis}m, ≥{self.shape.memory_mib}Mi" if self.shape != Shape() else "any pod"
        terms = " or ".join(" and ".join(map(str, term)) for term in self.terms)
        return f"{size}, {terms}" if terms else size

    @property
    def sentence(self) -> str:
        """`Spot is out in zone-a for any pod of namespace shop (evidence: shop/web-4)`."""
        where = f" in {', '.join(sorted(self.zones))}" if self.zones else ""
        whose = f" of namespace {self.namespace}" if self.namespace else ""
        shown = f" (evidence: {self.evidence.pod})" if self.evidence is not None else ""
        return f"{str(self.of).capitalize()} is out{where} for {self.pods}{whose}{shown}"

    def covers(self, demand: Demand) -> bool:
        """Whether what shows this outage holds for such a pod, zones apart."""
        return (
            self.namespace in ("", demand.namespace)
            and self.shape.covers(demand.shape)
            and is_narrower(demand.own_terms, self.terms)
        )

    @property
    def raw(self) -> dict[str, Any]:
        """As it is noted, and as scripts read it."""
        return {
            "class": str(self.of),
            "zones": sorted(self.zones),
            "shape": {"cpuMillis": self.shape.cpu_millis, "memoryMiB": self.shape.memory_mib},
            "namespace": self.namespace,
            "terms": [[_raw_requirement(each) for each in term] for term in self.terms],
            "since": self.since,
            "until": self.until,
            "strikes": self.strikes,
            "by": self.by,
            "evidence": None
            if self.evidence is None
            else {"pod": self.evidence.pod, "workload": self.evidence.workload},
        }


@dataclass(frozen=True, slots=True)
class Outages:
    """What is noted, and its version, which each reader shows."""

    version: int = 0
    noted: tuple[Outage, ...] = ()

    def standing(self, now: float) -> tuple[Outage, ...]:
        return tuple(outage for outage in self.noted if now < outage.until)

    def zones_left(self, of: Class, zones: frozenset[str], demand: Demand, now: float) -> frozenset[str]:
        """Of these zones those where the class is not out for such a pod."""
        notes = self._about(of, demand, now)
        return frozenset() if any(not note.zones for note in notes) else zones.difference(*(n.zones for n in notes))

    def stands(self, of: Class, zones: frozenset[str], demand: Demand, now: float) -> bool:
        """Whether the class is out wherever such a pod could find it.

        `zones` have nodes of the class. Zones that are noted count too: their nodes may be gone. With nodes left in c
        and a note of a, a pod that is bound to a finds none, and one that is bound to nothing does.
        """
        notes = self._about(of, demand, now)
        if any(not note.zones for note in notes):
            return True
        out = frozenset[str]().union(*(note.zones for note in notes))
        there = reachable(zones | out, demand.own_terms)
        return bool(there) and there <= out

    def _about(self, of: Class, demand: Demand, now: float) -> list[Outage]:
        return [each for each in self.standing(now) if each.of is of and each.covers(demand)]


def is_narrower(own_terms: tuple[NodeTerm, ...], than: tuple[NodeTerm, ...]) -> bool:
    """Whether every node that these ORed terms allow is surely allowed by the others; no terms allow every node.

    `arm64 and ssd` is narrower than `arm64`; `arm64, or ssd` is not.
    """
    if not than:
        return True
    return bool(own_terms) and all(any(set(wider) <= set(term) for wider in than) for term in own_terms)


def without_zones(own_terms: tuple[NodeTerm, ...]) -> tuple[NodeTerm, ...]:
    """What a note says of nodes beside its zones. Terms that are too long to note count as none."""
    terms = tuple(tuple(each for each in term if each.key != names.ZONE) for term in own_terms)
    size = sum(len(str(each)) for term in terms for each in term)
    return terms if all(terms) and size <= LONGEST_TERMS else ()


def noted(outages: Outages, outage: Outage, now: float, seconds: float | None = None) -> Outages:
    """With one outage more. Without a duration it lasts five minutes, and twice as long each time it is noted again

    within as long after it ran out as it had lasted; an hour at most.
    """
    if sum(bool(each.namespace) and each.namespace == outage.namespace for each in outages.noted) >= MOST_OF_NAMESPACE:
        outage = replace(outage, zones=frozenset(), shape=Shape(), terms=())
    before = next((each for each in outages.noted if each.key == outage.key), None)
    strikes = before.strikes + 1 if before is not None and now < before.until + (before.until - before.since) else 0
    lasts = doubled(FIRST_SECONDS, strikes, LONGEST_SECONDS) if seconds is None else seconds
    new = replace(outage, since=now, until=now + lasts, strikes=strikes)
    return Outages(outages.version + 1, (*_bounded(_without(outages, [outage], now)), new))


def _bounded(kept: tuple[Outage, ...]) -> tuple[Outage, ...]:
    """Without the oldest of single namespaces that are too many; what is noted for all stays."""
    own = [each for each in kept if each.namespace]
    forgotten = {id(each) for each in own[: max(0, len(own) + 1 - MOST_NOTED)]}
    return tuple(each for each in kept if id(each) not in forgotten) if forgotten else kept


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
        raise ValueError(f"outages are unreadable: {error}") from error


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
        str(raw.get("namespace", "")),
        tuple(tuple(_requirement(each) for each in term) for term in raw.get("terms") or ()),
        _evidence(raw.get("evidence")),
    )


def _evidence(raw: dict[str, Any] | None) -> Evidence | None:
    return Evidence(str(raw["pod"]), str(raw["workload"])) if raw else None


def _requirement(raw: dict[str, Any]) -> NodeRequirement:
    return NodeRequirement(str(raw["key"]), str(raw["operator"]), tuple(str(each) for each in raw.get("values") or ()))


def _raw_requirement(asked: NodeRequirement) -> dict[str, Any]:
    return {"key": asked.key, "operator": asked.operator, "values": list(asked.values)}


def outages_text(outages: Outages) -> str:
    entries = [each.raw for each in outages.noted]
    return json.dumps({"version": outages.version, "outages": entries})
