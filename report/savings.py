"""Savings: what workloads cost as they run, compared with the same replicas all on on-demand.

A pod is charged for what it asks for, at the rate of its node: 1 on on-demand, on spot the share of the on-demand price
that is known best: from a price table, else from an annotation on the node, else for the cluster, else 0.35. Surge and
fallback are charged: every pod that has a node counts, at that node's rate, also one beyond the replicas.

Ten replicas, seven on spot at 0.35, cost 3 + 7 × 0.35 = 5.45 of 10: 45.5 % are saved. While one of them is being
moved there are eleven pods, four of them on on-demand: 4 + 7 × 0.35 = 6.45 of 10.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from placement import names
from placement.configuration import Configuration
from placement.model import FINISHED, Class, Needs, Node, Pod, Snapshot
from placement.plan.ground import Site, Sites, ground_of
from placement.plan.group import Group
from placement.plan.marks import former_owner, has_left
from placement.policy import parse_share
from report.status import WorkloadStatus

DEFAULT_RATIO = 0.35
GIB_PER_CORE = 0.134  # what a GiB of memory costs, compared with a core (OpenCost's own defaults)
LEAST = 0.1  # of a core, for pods that ask for nothing
COLUMNS = ("InstanceID", "InstanceIDField", "MarketPriceHourly")
_NAME = "metadata.name"
_PROVIDER_ID = "spec.providerID"
_LABELS = "metadata.labels."
_ANNOTATIONS = "metadata.annotations."
_AWS = re.compile("aws:///[^/]+/([^/]+)")
FIELDS = (_NAME, _PROVIDER_ID, f"{_LABELS}LABEL", f"{_ANNOTATIONS}{names.PREFIX}…")


class PriceSource(StrEnum):
    """Where a rate comes from; the first that knows one counts."""

    TABLE = "price table"
    ANNOTATION = "node annotation"
    CLUSTER = "cluster ratio"
    DEFAULT = "default"


_PRICED = {
    PriceSource.TABLE: "by the price table",
    PriceSource.ANNOTATION: "by node annotations",
    PriceSource.CLUSTER: "by the cluster ratio",
    PriceSource.DEFAULT: f"at the default {DEFAULT_RATIO}",
}


@dataclass(frozen=True, slots=True)
class Rate:
    """The price of a node as a share of its on-demand price."""

    ratio: float
    source: PriceSource | None = None  # of on-demand: none, it is 1


ON_DEMAND = Rate(1.0)


@dataclass(frozen=True, slots=True)
class Price:
    """One row of a price table: what nodes cost an hour whose field has this value. Case does not matter."""

    field: str  # as OpenCost names it: `metadata.name`, `spec.providerID`, `metadata.labels.LABEL`; or a bare label
    value: str
    region: str
    hourly: float


@dataclass(frozen=True, slots=True)
class PriceTable:
    """The rows that say something of nodes, and what was left out and why."""

    rows: tuple[Price, ...] = ()
    remarks: tuple[str, ...] = ()


def parse_prices(text: str) -> PriceTable:
    """An OpenCost price table, read as OpenCost does: comments and lines of another length do not count.

    ValueError says what is wrong with which line.
    """
    lines = csv.reader(text.splitlines())
    header = next((row for row in lines if not _is_comment(row)), [])
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        raise ValueError(f"the columns {', '.join(missing)} are missing; a price table needs {', '.join(COLUMNS)}")
    rows: list[Price] = []
    remarks: list[str] = []
    for row in lines:
        if _is_comment(row):
            continue
        if len(row) != len(header):
            remarks.append(f"line {lines.line_num}: skipped: it has {len(row)} fields, the header has {len(header)}")
            continue
        price, remark = _price(dict(zip(header, row, strict=True)), lines.line_num)
        rows += [] if price is None else [price]
        remarks += [f"line {lines.line_num}: {remark}"] if remark else []
    return PriceTable(tuple(rows), tuple(remarks))


def _is_comment(row: list[str]) -> bool:
    return not row or row[0].lstrip().startswith("#")


def _price(row: Mapping[str, str], line: int) -> tuple[Price | None, str]:
    """A row's price, or why it is left out; disks and GPUs are not asked about."""
    if (row.get("AssetClass") or "node").lower() != "node":
        return None, ""
    if not _is_known(named := row["InstanceIDField"]):
        return None, f"skipped: InstanceIDField {named!r} is not supported; expected one of {', '.join(FIELDS)}"
    text = row["MarketPriceHourly"]
    try:
        hourly = float(text)
    except ValueError:
        hourly = -1.0
    if not 0 < hourly < 1e6:
        raise ValueError(f"line {line}: MarketPriceHourly {text!r} is not a price; expected a number above 0")
    region = (row.get("Region") or "").lower()
    return Price(named, row["InstanceID"].lower(), region, hourly), ""


def _is_known(field: str) -> bool:
    """Of nodes' annotations only ours are read. What is no path of a node is a bare label."""
    if field.startswith(_ANNOTATIONS):
        return field.removeprefix(_ANNOTATIONS).startswith(names.PREFIX)
    is_path = field.startswith(("metadata.", "spec.", "status."))
    return bool(field) and (not is_path or field in (_NAME, _PROVIDER_ID) or field.startswith(_LABELS))


def _value(node: Node, field: str) -> str:
    """What a node says in a field; of AWS' IDs the instance's, which OpenCost's tables name."""
    if field == _NAME:
        return node.name.lower()
    if field == _PROVIDER_ID:
        instance = _AWS.match(node.provider_id)
        return (instance[1] if instance else node.provider_id.removeprefix("azure://")).lower()
    if field.startswith(_ANNOTATIONS):
        return node.annotations.get(field.removeprefix(_ANNOTATIONS), "").lower()
    return node.labels.get(field.removeprefix(_LABELS), "").lower()


class _Index:
    """Finds a node's price: the last row that holds for it. One look for each field, however long the table is."""

    def __init__(self, table: Iterable[Price]) -> None:
        self._by_field: dict[str, dict[tuple[str, str], tuple[int, Price]]] = {}
        for number, price in enumerate(table):
            self._by_field.setdefault(price.field, {})[price.region, price.value] = number, price

    def of(self, node: Node) -> Price | None:
        region = node.labels.get(names.REGION, "").lower()
        found = (
            rows.get((where, value))
            for field, rows in self._by_field.items()
            if (value := _value(node, field))
            for where in {"", region}
        )
        return max((each for each in found if each is not None), key=lambda each: each[0], default=(0, None))[1]


@dataclass(frozen=True, slots=True)
class Prices:
    """What is known of prices."""

    table: tuple[Price, ...] = ()
    cluster_ratio: float | None = None

    def rates(self, sites: Sites) -> dict[str, Rate]:
        """By node. On-demand is what all else is compared with."""
        index = _Index(self.table)
        known = {name: index.of(site.node) for name, site in sites.items()} if self.table else {}
        full = {
            site.pool.instance_type: price
            for name, site in sites.items()
            if site.of is Class.ON_DEMAND and (price := known.get(name)) is not None
        }
        return {
            name: self._rate(site, known.get(name), full.get(site.pool.instance_type))
            if site.of is Class.SPOT
            else ON_DEMAND
            for name, site in sites.items()
        }

    def _rate(self, site: Site, price: Price | None, whole: Price | None) -> Rate:
        """A row that matches both classes, such as one for an instance type, says nothing about spot."""
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

    @property
    def share(self) -> float | None:
        """Negative where surge and fallback cost more than spot saves."""
        return 1 - self.charged / self.full if self.full else None

    def explain(self) -> str:
        """`Estimated saving against all on-demand: 35.8 % (11 spot pods, priced at the default 0.35)`."""
        if self.share is None:
            return "No estimate of savings: no pod has a node"
        return f"Estimated saving against all on-demand: {self.share * 100:.1f} % ({self._explain_prices()})"

    def _explain_prices(self) -> str:
        """`7 spot pods: 2 priced at the default 0.35, 5 priced by the price table`."""
        pods = _pods(sum(self.sources.values()))
        if len(self.sources) == 1:
            return f"{pods}, priced {_PRICED[next(iter(self.sources))]}"
        each = ", ".join(f"{count} priced {_PRICED[source]}" for source, count in sorted(self.sources.items()))
        return f"{pods}: {each}" if each else pods

    @property
    def raw(self) -> dict[str, Any]:
        """What is saved and what is paid, both of the price on on-demand, and by whose prices of spot."""
        share = self.share
        return {
            "share": None if share is None else round(share, 4),
            "cost": None if share is None else round(1 - share, 4),
            "sources": {str(source): count for source, count in sorted(self.sources.items())},
        }


def total(savings: Iterable[Savings]) -> Savings:
    """Of all these together."""
    charged = full = 0.0
    sources: dict[PriceSource, int] = {}
    for each in savings:
        charged += each.charged
        full += each.full
        for source, pods in each.sources.items():
            sources[source] = sources.get(source, 0) + pods
    return Savings(charged, full, sources)


def told(source: str) -> str:
    """The default is a guess, so it says which."""
    return f"{source} {DEFAULT_RATIO}" if source == PriceSource.DEFAULT else str(source)


def _pods(count: int) -> str:
    return "1 spot pod" if count == 1 else f"{count} spot pods"


def savings(group: Group, rates: Mapping[str, Rate]) -> Savings:
    """Of one workload, as its pods run."""
    every = (pod for cohort in group.cohorts for pod in (*cohort.pods, *cohort.released))
    return savings_of(every, group.workload.replicas, rates)


def savings_of(pods: Iterable[Pod], replicas: int, rates: Mapping[str, Rate]) -> Savings:
    """The same, for who has its pods, also those that are released."""
    placed = [pod for pod in pods if pod.node in rates and pod.phase not in FINISHED]
    return charged(((pod.needs, pod.node) for pod in placed), replicas, rates)


def savings_in(
    snapshot: Snapshot, configuration: Configuration, found: Iterable[WorkloadStatus], prices: Prices
) -> Savings:
    """Of all these workloads together."""
    rates = prices.rates(ground_of(snapshot.nodes.values(), configuration).sites)
    owners = {each.uid: each.owner.uid for each in snapshot.replica_sets if each.owner}
    let_go: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if has_left(pod):
            let_go.setdefault(owners.get(former_owner(pod), ""), []).append(pod)
    return total(
        savings_of(
            (*(each.pod for each in status.pods), *let_go.get(status.workload.uid, ())), status.workload.replicas, rates
        )
        for status in found
    )


def charged(pods: Iterable[tuple[Needs, str]], replicas: int, rates: Mapping[str, Rate]) -> Savings:
    """Of pods that ask for so much on these nodes. Replicas that have no node cost nothing, and save nothing."""
    costs = whole = 0.0
    count = 0
    sources: Counter[PriceSource] = Counter()
    known, weight = None, 0.0
    for needs, node in pods:
        if needs is not known:  # pods of one template share it
            known, weight = needs, weight_of(needs)
        rate = rates[node]
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
