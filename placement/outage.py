"""Outages: a class that is out for a while, wholly or in some zones, noted in the ConfigMap `spotweave-state`.

    {"version": 3, "outages": [{"class": "spot", "zones": ["zone-a"], "shape": {"cpuMillis": 4000}, "namespace": "shop",
                                "terms": [[{"key": "arch", "operator": "In", "values": ["arm64"]}]],
                                "since": 1750000000, "until": 1750000300, "strikes": 0, "by": "rebalancer",
                                "evidence": {"pod": "shop/web-4", "workload": "Deployment shop/web"}}]}

While an outage stands, slots of that class are admitted soft: the class is preferred, not required. A note covers what
its evidence covers. Lost nodes affect all tenants, so an outage from them is noted for all namespaces. A pod that finds
no node is evidence for its own namespace only: nothing that one tenant writes softens the pods of another. A note
expires by itself. If it is noted again soon after, it lasts twice as long.
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
MOST_OF_NAMESPACE = 10  # notes; beyond these, one note covers all pods of the class in the namespace
MOST_NOTED = 300  # notes of single namespaces; beyond these the oldest are dropped, because a ConfigMap holds 1 MiB
LONGEST_TERMS = 500  # characters; longer terms are left out of the note


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """How much a pod requests. A class without room for a shape has no room for a larger one."""

    cpu_millis: int = 0
    memory_mib: int = 0

    @classmethod
    def asking(cls, requests: Mapping[str, int]) -> Shape:
        """The shape of a pod with these requests: CPU in thousandths, memory in bytes."""
        return cls(requests.get("cpu", 0), requests.get("memory", 0) // 1024**2)

    def covers(self, asked: Shape) -> bool:
        """Whether a note about this shape also holds for the other: it requests at least as much."""
        return asked.cpu_millis >= self.cpu_millis and asked.memory_mib >= self.memory_mib

    def least(self, other: Shape) -> Shape:
        """The largest shape that covers both."""
        return Shape(min(self.cpu_millis, other.cpu_millis), min(self.memory_mib, other.memory_mib))


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod needs from a class: its namespace, its own node terms, and its requests."""

    namespace: str = ""
    own_terms: tuple[NodeTerm, ...] = ()
    shape: Shape = Shape()


@dataclass(frozen=True, slots=True)
class Evidence:
    """The pod that is the evidence of an outage, and its workload: `shop/web-4`, `Deployment shop/web`."""

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
    terms: tuple[NodeTerm, ...] = ()  # only for pods with at least these node terms, zones excluded; none: for all
    evidence: Evidence | None = None  # None: noted by a person

    @property
    def key(self) -> tuple[object, ...]:
        return (self.of, self.zones, self.shape, self.namespace, self.terms)

    @property
    def is_whole(self) -> bool:
        """It covers every pod of its namespace, whatever the pod requests."""
        return not self.zones and not self.terms and self.shape == Shape()

    @property
    def pods(self) -> str:
        """The pods that it is about, for people: `≥500m CPU, ≥256Mi memory, arch In arm64`."""
        return ", ".join(part for part in (self._size or "any pod", self._terms) if part)

    @property
    def _size(self) -> str:
        return f"≥{self.shape.cpu_millis}m CPU, ≥{self.shape.memory_mib}Mi memory" if self.shape != Shape() else ""

    @property
    def _terms(self) -> str:
        return " or ".join(" and ".join(map(str, term)) for term in self.terms)

    @property
    def sentence(self) -> str:
        """`Spot is out in zone-a for any pod of namespace shop (evidence: shop/web-4)`."""
        where = f" in {', '.join(sorted(self.zones))}" if self.zones else ""
        whose = f" of namespace {self.namespace}" if self.namespace else ""
        shown = f" (evidence: {self.evidence.pod})" if self.evidence is not None else ""
        asks = ", ".join(part for part in (self._size, self._terms) if part)
        pods = f"pods{whose} that request {asks}" if asks else f"any pod{whose}"
        return f"{str(self.of).capitalize()} is out{where} for {pods}{shown}"

    def covers(self, demand: Demand) -> bool:
        """Whether this outage applies to such a pod, zones excluded."""
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
    """The noted outages and their version, which each reader reports."""

    version: int = 0
    noted: tuple[Outage, ...] = ()

    def standing(self, now: float) -> tuple[Outage, ...]:
        return tuple(outage for outage in self.noted if now < outage.until)

    def zones_left(self, of: Class, zones: frozenset[str], demand: Demand, now: float) -> frozenset[str]:
        """Those of the zones where the class is not out for such a pod."""
        notes = self._about(of, demand, now)
        return frozenset() if any(not note.zones for note in notes) else zones.difference(*(n.zones for n in notes))

    def stands(self, of: Class, zones: frozenset[str], demand: Demand, now: float) -> bool:
        """Whether the class is out wherever such a pod could find it.

        `zones` have nodes of the class. Noted zones count too, since their nodes may be gone. Example: nodes are left
        in zone c, and zone a is noted. A pod that is bound to a finds no node; a pod that is not bound finds one.
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
    """Whether the other terms surely allow every node that these ORed terms allow. No terms allow every node.

    `arm64 and ssd` is narrower than `arm64`; `arm64, or ssd` is not.
    """
    if not than:
        return True
    return bool(own_terms) and all(any(set(wider) <= set(term) for wider in than) for term in own_terms)


def without_zones(own_terms: tuple[NodeTerm, ...]) -> tuple[NodeTerm, ...]:
    """The node terms of a note, without its zones. Terms that are too long count as none."""
    terms = tuple(tuple(each for each in term if each.key != names.ZONE) for term in own_terms)
    size = sum(len(str(each)) for term in terms for each in term)
    return terms if all(terms) and size <= LONGEST_TERMS else ()


def noted(outages: Outages, outage: Outage, now: float, seconds: float | None = None) -> Outages:
    """Adds an outage. Without a duration it lasts five minutes, and twice as long each time it is noted again.

    "Again" means: within its own duration after it expired. It lasts an hour at most.
    """
    if sum(bool(each.namespace) and each.namespace == outage.namespace for each in outages.noted) >= MOST_OF_NAMESPACE:
        outage = replace(outage, zones=frozenset(), shape=Shape(), terms=())
    before = next((each for each in outages.noted if each.key == outage.key), None)
    strikes = before.strikes + 1 if before is not None and now < before.until + (before.until - before.since) else 0
    lasts = doubled(FIRST_SECONDS, strikes, LONGEST_SECONDS) if seconds is None else seconds
    new = replace(outage, since=now, until=now + lasts, strikes=strikes)
    return Outages(outages.version + 1, (*_bounded(_without(outages, [outage], now)), new))


def _bounded(kept: tuple[Outage, ...]) -> tuple[Outage, ...]:
    """Drops the oldest notes of single namespaces if there are too many. Notes for all namespaces stay."""
    own = [each for each in kept if each.namespace]
    forgotten = {id(each) for each in own[: max(0, len(own) + 1 - MOST_NOTED)]}
    return tuple(each for each in kept if id(each) not in forgotten) if forgotten else kept


def ended(outages: Outages, over: Iterable[Outage], now: float) -> Outages:
    """Ends these outages now. They are remembered: if noted again soon, each lasts twice as long."""
    keys = {outage.key for outage in over}
    kept = (replace(each, until=now) if each.key in keys and now < each.until else each for each in outages.noted)
    return Outages(outages.version + 1, tuple(kept))


def cleared(outages: Outages, gone: Iterable[Outage], now: float) -> Outages:
    """Without these."""
    return Outages(outages.version + 1, _without(outages, gone, now))


def cleared_in(outages: Outages, of: Class, zones: frozenset[str], now: float) -> Outages:
    """Removes these zones from the notes of a class. A note for a and b stays for b when a is cleared.

    A note for all zones stays: it names no zone that could be removed.
    """
    about = [each for each in outages.noted if each.of is of and each.zones & zones]
    rest = tuple(replace(each, zones=each.zones - zones) for each in about if each.zones - zones)
    return Outages(outages.version + 1, (*_without(outages, about, now), *rest))


def _without(outages: Outages, gone: Iterable[Outage], now: float) -> tuple[Outage, ...]:
    """The remaining outages. An expired one is remembered for a while, because it may be noted again."""
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
    """The zones to note for an outage that such a pod met, of a class with nodes in `zones`; none: everywhere."""
    there = reachable(zones, own_terms)
    return frozenset() if there == zones and there else there or named_zones(own_terms)


def named_zones(own_terms: tuple[NodeTerm, ...]) -> frozenset[str]:
    """The zones that a pod is bound to by its own terms; none if one of the terms names no zone."""
    named = [
        [frozenset(each.values) for each in term if each.key == names.ZONE and each.operator == "In"]
        for term in own_terms
    ]
    return frozenset().union(*(frozenset.intersection(*each) for each in named)) if all(named) else frozenset()


# --- text ------------------------------------------------------------------------------------------------------------


def parse_outages(text: str) -> Outages:
    """The noted outages. Raises ValueError if the text cannot be read; the reader then keeps what it had."""
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
