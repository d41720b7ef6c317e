"""Savings: what workloads cost as they run, compared with the same replicas all on on-demand.

A pod is charged for what it asks for, at the rate of its node: 1 on on-demand, on spot the share of the on-demand price
that is known best: from a price table, else from an annotation on the node, else for the cluster, else 0.35. Surge and
fallback are charged: every pod that has a node counts, at that node's rate, also one beyond the replicas.

Ten replicas, seven on spot at 0.35, cost 3 + 7 × 0.35 = 5.45 of 10: 45.5 % are saved. While one of them is being
moved there are eleven pods, four of them on on-demand: 4 + 7 × 0.35 = 6.45 of 10.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from placement import names
from placement.configuration import Configuration
from placement.model import Class, Needs, Node, Pod, Snapshot
from placement.plan.group import Group, Site, Sites, former_owner, ground_of, released
from placement.policy import parse_share
from placement.status import WorkloadStatus

DEFAULT_RATIO = 0.35
GIB_PER_CORE = 0.134  # what a GiB of memory costs, compared with a core (OpenCost's own defaults)
LEAST = 0.1  # of a core, for pods that ask for nothing
COLUMNS = ("InstanceID", "InstanceIDField", "MarketPriceHourly")
_METADATA = "metadata.labels."


class PriceSource(StrEnum):
    """Where a rate comes from; the first that knows one counts."""

    TABLE = "price table"
    ANNOTATION = "node annotation"
    CLUSTER = "cluster ratio"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Rate:
    """The price of a node as a share of its on-demand price."""

    ratio: float
    source: PriceSource | None = None  # of on-demand: none, it is 1


ON_DEMAND = Rate(1.0)


@dataclass(frozen=True, slots=True)
class Price:
    """One row of a price table: what nodes cost an hour whose field has this value."""

    field: str  # as OpenCost names it: `metadata.name`, `metadata.labels.LABEL`, or a bare label
    value: str
    region: str
    hourly: float

    def is_of(self, node: Node) -> bool:
        if self.region and self.region != node.labels.get(names.REGION, ""):
            return False
        if self.field == "metadata.name":
            return node.name == self.value
        return node.labels.get(self.field.removeprefix(_METADATA)) == self.value


def parse_prices(text: str) -> tuple[Price, ...]:
    """The nodes' rows of an OpenCost price table; ValueError says what is wrong with which line."""
    rows = csv.DictReader(text.splitlines())
    missing = [column for column in COLUMNS if column not in (rows.fieldnames or ())]
    if missing:
        raise ValueError(f"a price table needs the columns {', '.join(COLUMNS)}; {', '.join(missing)} are missing")
    return tuple(_price(row, rows.line_num) for row in rows if (row.get("AssetClass") or "node").lower() == "node")


def _price(row: Mapping[str, str], line: int) -> Price:
    text = row["MarketPriceHourly"] or ""
    try:
        hourly = float(text)
    except ValueError:
        hourly = -1.0
    if not 0 < hourly < 1e6:
        raise ValueError(f"line {line}: MarketPriceHourly {text!r} is no price")
    return Price(row["InstanceIDField"] or "", row["InstanceID"] or "", row.get("Region") or "", hourly)


@dataclass(frozen=True, slots=True)
class Prices:
    """What is known of prices."""

    table: tuple[Price, ...] = ()
    cluster_ratio: float | None = None

    def rates(self, sites: Sites) -> dict[str, Rate]:
        """By node. On-demand is what all else is compared with."""
        full = self._full(sites.values())
        return {name: self._rate(site, full) if site.of is Class.SPOT else ON_DEMAND for name, site in sites.items()}

    def _full(self, sites: Iterable[Site]) -> dict[str, Price]:
        """What on-demand nodes cost, by instance type."""
        found: dict[str, Price] = {}
        for site in sites if self.table else ():
            price = self._of(site.node) if site.of is Class.ON_DEMAND else None
            if price is not None:
                found[site.pool.instance_type] = price
        return found

    def _of(self, node: Node) -> Price | None:
        return next((price for price in self.table if price.is_of(node)), None)

    def _rate(self, site: Site, full: Mapping[str, Price]) -> Rate:
        """A row that holds for both classes, such as one for an instance type, tells nothing of spot."""
        price, whole = self._of(site.node), full.get(site.pool.instance_type)
        if price is not None and whole is not None and price is not whole:
            return Rate(price.hourly / whole.hourly, PriceSource.TABLE)
        written = _written(site.node)
        if written is not None:
            return Rate(written, PriceSource.ANNOTATION)
        if self.cluster_ratio is not None:
            return Rate(self.cluster_ratio, PriceSource.CLUSTER)
        return Rate(DEFAULT_RATIO, PriceSource.DEFAULT)


def _written(node: Node) -> float | None:
    text = node.annotations.get(names.PRICE_RATIO)
    try:
        return None if text is None else float(parse_share(text))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Savings:
    """What is charged, what the replicas would cost on on-demand, and where the rates of spot pods come from."""

    charged: float = 0.0
    full: float = 0.0
    sources: Mapping[PriceSource, int] = field(default_factory=dict)  # spot pods

    def __add__(self, other: Savings) -> Savings:
        sources = Counter(self.sources) + Counter(other.sources)
        return Savings(self.charged + other.charged, self.full + other.full, sources)

    @property
    def share(self) -> float | None:
        """Negative where surge and fallback cost more than spot saves."""
        return 1 - self.charged / self.full if self.full else None

    def explain(self) -> str:
        """`Spot saves 45.5% of the price on on-demand (7 spot pods: 5 by price table, 2 by default 0.35)`."""
        if self.share is None:
            return "Nothing is known of savings: no pod has a node"
        count = sum(self.sources.values())
        told = ", ".join(f"{pods} by {_told(source)}" for source, pods in sorted(self.sources.items()))
        return f"Spot saves {self.share:.1%} of the price on on-demand ({_pods(count)}{': ' if told else ''}{told})"

    @property
    def raw(self) -> dict[str, Any]:
        share = self.share
        sources = {str(source): count for source, count in sorted(self.sources.items())}
        return {"share": None if share is None else round(share, 4), "sources": sources}


def _told(source: PriceSource) -> str:
    return f"{source} {DEFAULT_RATIO}" if source is PriceSource.DEFAULT else str(source)


def _pods(count: int) -> str:
    return "1 spot pod" if count == 1 else f"{count} spot pods"


def savings(group: Group, rates: Mapping[str, Rate]) -> Savings:
    """Of one workload, as its pods run."""
    every = (pod for cohort in group.cohorts for pod in (*cohort.pods, *cohort.released))
    return savings_of(every, group.workload.replicas, rates)


def savings_of(pods: Iterable[Pod], replicas: int, rates: Mapping[str, Rate]) -> Savings:
    """The same, for who has its pods, also those that are released."""
    placed = [pod for pod in pods if pod.node in rates and pod.phase not in ("Failed", "Succeeded")]
    return charged(((pod.needs, pod.node) for pod in placed), replicas, rates)


def savings_in(
    snapshot: Snapshot, configuration: Configuration, found: Iterable[WorkloadStatus], prices: Prices
) -> Savings:
    """Of all these workloads together."""
    rates = prices.rates(ground_of(snapshot.nodes.values(), configuration).sites)
    owners = {each.uid: each.owner.uid for each in snapshot.replica_sets if each.owner}
    let_go: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.owner is None and released(pod) is not None:
            let_go.setdefault(owners.get(former_owner(pod), ""), []).append(pod)
    total = Savings()
    for status in found:
        workload = status.workload
        pods = (*(each.pod for each in status.pods), *let_go.get(workload.uid, ()))
        total += savings_of(pods, workload.replicas, rates)
    return total


def charged(pods: Iterable[tuple[Needs, str]], replicas: int, rates: Mapping[str, Rate]) -> Savings:
    """Of pods that ask for so much on these nodes. Replicas that have no node cost nothing, and save nothing."""
    costs = whole = 0.0
    count = 0
    sources: Counter[PriceSource] = Counter()
    for needs, node in pods:
        weight, rate = weight_of(needs), rates[node]
        costs += weight * rate.ratio
        whole += weight
        count += 1
        if rate.source is not None:
            sources[rate.source] += 1
    return Savings(costs, whole * min(replicas, count) / count if count else 0.0, sources)


def weight_of(needs: Needs) -> float:
    """What a pod asks for, in cores."""
    asked = needs.requests
    return max(LEAST, asked.get("cpu", 0) / 1000 + GIB_PER_CORE * asked.get("memory", 0) / 1024**3)
