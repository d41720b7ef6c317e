"""What `spotweave queue preview` shows: where a gang would run, who would be evicted for it, chance and cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from placement.gang.gang import State
from placement.gang.survival import Survival, survival
from placement.gang.terms import sentence
from placement.gang.victims import Victim
from placement.model import Class
from placement.observation import NOTHING_OBSERVED, Observed
from placement.plan.ground import Site, Sites
from placement.plan.preview import GangPreview
from report.savings import Prices, Savings, charged

MOST_LINES = 20  # of nodes, and of pods


@dataclass(frozen=True, slots=True)
class ShownPreview:
    """A preview with what is known around it."""

    found: GangPreview
    sites: Sites
    observed: Observed = NOTHING_OBSERVED
    prices: Prices = field(default_factory=Prices)
    notes: tuple[str, ...] = ()  # what else is in the way, or not known

    @property
    def fits(self) -> bool:
        return self.found.fits

    @property
    def _there(self) -> list[Site]:
        return [self.sites[node] for node in self.found.nodes.values() if node in self.sites]

    @property
    def _survival(self) -> Survival:
        return survival(self._there, self.observed, self.found.gang.terms.expected_runtime)

    @property
    def _savings(self) -> Savings:
        rates = self.prices.rates(self.sites)
        members = [pod for pod in self.found.gang.pods if self.found.nodes.get(pod.uid) in rates]
        return charged(((pod.needs, self.found.nodes[pod.uid]) for pod in members), len(members), rates)

    @property
    def raw(self) -> dict[str, Any]:
        found, gang, survives = self.found, self.found.gang, self._survival
        runtime = survives.runtime
        return {
            "namespace": gang.key.namespace,
            "name": gang.key.name,
            "fits": found.fits,
            "state": str(found.status.state),
            "reason": found.why,
            "needed": gang.needed or len(gang.gated),
            "members": [self._member(uid, node) for uid, node in sorted(self._named.items())],
            "victims": [_victim(each) for each in (found.victims.gangs if found.victims else ())],
            "cost": _cost(found),
            "savings": self._savings.raw if found.fits else None,
            "survival": {
                "lossesPer30Days": round(survives.losses, 4),
                "expectedRuntimeSeconds": None if runtime is None else runtime.total_seconds(),
                "chance": None if survives.chance is None else round(survives.chance, 4),
                "pools": list(survives.pools),
            }
            if found.fits
            else None,
            "ahead": [str(each) for each in found.ahead],
            "mistakes": [sentence(each) for each in gang.declared.mistakes],
            "notes": list(self.notes),
        }

    @property
    def _named(self) -> Mapping[str, str]:
        """By the member's name."""
        return {pod.name: self.found.nodes[pod.uid] for pod in self.found.gang.pods if pod.uid in self.found.nodes}

    def _member(self, name: str, node: str) -> dict[str, Any]:
        site = self.sites.get(node)
        where: dict[str, str | None] = {"class": None, "zone": None, "pool": None}
        if site is not None:
            where = {"class": str(site.of), "zone": site.zone, "pool": site.spot_pool or None}
        return {"pod": name, "node": node, **where}

    @property
    def lines(self) -> Iterator[str]:
        found, gang = self.found, self.found.gang
        yield f"Gang {gang.key}: {self._verdict}"
        yield from self._places()
        yield from self._victims()
        if found.fits:
            yield from self._figures()
        if found.ahead:
            first = ", ".join(map(str, found.ahead[:3])) + (" …" if len(found.ahead) > 3 else "")
            yield f"its turn comes after {len(found.ahead)} that wait{'s' if len(found.ahead) == 1 else ''}: {first}"
        yield from (f"! {sentence(each)}" for each in gang.declared.mistakes)
        yield from (f"! {note}" for note in self.notes)

    @property
    def _verdict(self) -> str:
        found, gang = self.found, self.found.gang
        if not found.fits:
            return f"does not start: {found.why}"
        if found.status.state is State.RUNNING:
            return f"runs, {found.status.counts}"
        if found.status.state is not State.WAITING:
            return f"is {found.status.state}: {found.status.reason}"
        counted = f"{len(found.nodes)} of {len(gang.gated)} members would start"
        if found.victims is not None:
            cost = found.victims.cost
            return f"{counted} once {cost.pods} pod{'' if cost.pods == 1 else 's'} {_are(cost.pods)} evicted"
        return f"{counted} now"

    def _places(self) -> Iterator[str]:
        nodes = Counter(self.found.nodes.values())
        for node, count in sorted(nodes.items())[:MOST_LINES]:
            site = self.sites.get(node)
            where = f" ({site.of}, {site.zone}/{site.pool.instance_type})" if site is not None else ""
            yield f"  {count} on {node}{where}"
        if len(nodes) > MOST_LINES:
            yield f"  and {len(nodes) - MOST_LINES} more nodes"

    def _victims(self) -> Iterator[str]:
        victims = self.found.victims
        if victims is None:
            return
        yield "evicted for it:"
        for each in victims.gangs[:MOST_LINES]:
            of, there = each.candidate, len(each.candidate.running)
            number = "all" if each.is_whole else f"{len(each.pods)} of"
            part = "" if there == 1 else f", {number} {there} pods"
            yield f"  {of.key} (priority {of.priority}{part})"
        if len(victims.gangs) > MOST_LINES:
            yield f"  and {len(victims.gangs) - MOST_LINES} more"
        yield f"  this loses {victims.cost.node_hours:.1f} node-hours of work"

    def _figures(self) -> Iterator[str]:
        survives, there = self._survival, self._there
        spot = sum(site.of is Class.SPOT for site in there)
        if survives.chance is not None and survives.runtime is not None:
            hours = survives.runtime.total_seconds() / 3600
            text = f"chance that all nodes stay for its {hours:.3g} h: {survives.chance:.1%}"
        else:
            text = f"losses expected in 30 days: {survives.losses:.3g} (declare expected-runtime to see the chance)"
        yield f"{text}; {spot} on spot in {len(survives.pools)} pool{'' if len(survives.pools) == 1 else 's'}"
        savings = self._savings
        if savings.share is not None:
            yield f"cost: {1 - savings.share:.0%} of the same on on-demand"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _victim(each: Victim) -> dict[str, Any]:
    of = each.candidate
    return {
        "namespace": of.key.namespace,
        "name": of.key.name,
        "priority": of.priority,
        "whole": each.is_whole,
        "pods": sorted(pod.name for pod in each.pods),
    }


def _cost(found: GangPreview) -> dict[str, Any]:
    if found.victims is None:
        return {"gangs": 0, "pods": 0, "nodeHours": 0.0}
    cost = found.victims.cost
    return {"gangs": cost.gangs, "pods": cost.pods, "nodeHours": round(cost.node_hours, 3)}


def preview_lines(found: Sequence[ShownPreview], left_out: Sequence[str] = ()) -> str:
    parts = ["\n".join(each.lines) for each in found]
    return "\n\n".join([*parts, *(["\n".join(left_out)] if left_out else [])])
