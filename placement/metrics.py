"""Every metric: what it is, which labels it has, what it says and who writes it.

The programs build their metrics from this table, and `spotweave metrics` writes docs/metrics.md from it: what is
documented is what is exposed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from placement import names


class Type(StrEnum):
    """As Prometheus calls them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Exposer(StrEnum):
    """Who exposes a metric."""

    WEBHOOK = "every webhook"
    REBALANCER = "every rebalancer"
    LEADER = "the rebalancer that leads"
    ALL = "every webhook and rebalancer"

    @property
    def components(self) -> frozenset[str]:
        if self is Exposer.ALL:
            return frozenset((names.WEBHOOK_COMPONENT, names.REBALANCER_COMPONENT))
        return frozenset((names.WEBHOOK_COMPONENT if self is Exposer.WEBHOOK else names.REBALANCER_COMPONENT,))


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, and what its labels' values are."""

    name: str
    type: Type
    writer: Exposer
    help: str
    labels: tuple[str, ...] = ()

    @property
    def series(self) -> str:
        """The name to ask Prometheus for; of a histogram, the stem of three."""
        return f"{self.name}_total" if self.type is Type.COUNTER else self.name

    @property
    def declared(self) -> tuple[str, str, tuple[str, ...]]:
        """As the client library's constructors take it."""
        return self.name, self.help, self.labels


_WORKLOAD = ("namespace", "kind", "name")
_POOL = ("class", "zone", "instance_type")

_TABLE = (
    # --- webhook
    Metric(
        names.METRIC_DECISIONS,
        Type.COUNTER,
        Exposer.WEBHOOK,
        "Pods by the class that they were given (none: left alone) and why",
        ("class", "reason"),
    ),
    Metric(
        names.METRIC_FAIL_OPEN,
        Type.COUNTER,
        Exposer.WEBHOOK,
        "Pods allowed unchanged because something went wrong",
    ),
    Metric(
        names.METRIC_POLICY_MISTAKES,
        Type.COUNTER,
        Exposer.WEBHOOK,
        "Policy mistakes met while placing pods",
    ),
    Metric(
        names.METRIC_ADMISSION_SECONDS,
        Type.HISTOGRAM,
        Exposer.WEBHOOK,
        "Time from the call to the answer",
    ),
    Metric(
        names.METRIC_FORWARDED,
        Type.COUNTER,
        Exposer.WEBHOOK,
        "Calls handed to the replica that owns the ReplicaSet: answered or failed",
        ("outcome",),
    ),
    Metric(
        names.METRIC_LEDGER,
        Type.GAUGE,
        Exposer.WEBHOOK,
        "Decisions whose pod was not seen yet",
    ),
    Metric(
        names.METRIC_CERTIFICATE_EXPIRY,
        Type.GAUGE,
        Exposer.WEBHOOK,
        "When the served certificate expires, in seconds since 1970; 0 before there is one",
    ),
    Metric(
        names.METRIC_OUTAGES,
        Type.GAUGE,
        Exposer.WEBHOOK,
        "Outages of a class that stand; meanwhile its slots are admitted soft",
        ("class",),
    ),
    # --- both
    Metric(
        names.METRIC_CACHE_AGE,
        Type.GAUGE,
        Exposer.ALL,
        "Time since the API server was last heard, of the resource that is worst off; up to a minute is normal",
    ),
    Metric(
        names.METRIC_OUTAGE_VERSION,
        Type.GAUGE,
        Exposer.ALL,
        "Version of the outages that was read",
    ),
    # --- every rebalancer
    Metric(
        names.METRIC_LEADING,
        Type.GAUGE,
        Exposer.REBALANCER,
        "1: this replica leads",
    ),
    Metric(
        names.METRIC_PAUSED,
        Type.GAUGE,
        Exposer.REBALANCER,
        "1 while all moves are paused",
    ),
    Metric(
        names.METRIC_PLAN_SECONDS,
        Type.HISTOGRAM,
        Exposer.REBALANCER,
        "Time that planning took, once a pass",
    ),
    Metric(
        names.METRIC_PASS_SECONDS,
        Type.HISTOGRAM,
        Exposer.REBALANCER,
        "The same with all actions; there is no pass while nothing is known for sure",
    ),
    Metric(
        names.METRIC_BLOCKED,
        Type.GAUGE,
        Exposer.REBALANCER,
        "Pods that should be moved and are not, by what is in the way",
        ("reason",),
    ),
    # --- the one that leads
    Metric(
        names.METRIC_MOVES,
        Type.COUNTER,
        Exposer.LEADER,
        "Steps of moves, by why a pod is moved (over: not known) and what came of it (release-done, finish-done, …)",
        ("reason", "outcome"),
    ),
    Metric(
        names.METRIC_ACTIONS,
        Type.COUNTER,
        Exposer.LEADER,
        "What was done to pods, notes included",
        ("action", "reason", "outcome"),
    ),
    Metric(
        names.METRIC_UNDER_WAY,
        Type.GAUGE,
        Exposer.LEADER,
        "Moves under way: pods that are released and still there",
    ),
    Metric(
        names.METRIC_WORKLOAD_PODS,
        Type.GAUGE,
        Exposer.LEADER,
        "Pods by class and state: serving or pending; of these, soft ones, and soft ones that fell back to this class",
        (*_WORKLOAD, "class", "state"),
    ),
    Metric(
        names.METRIC_WORKLOAD_WANTED,
        Type.GAUGE,
        Exposer.LEADER,
        "Pods that should be on each class",
        (*_WORKLOAD, "class"),
    ),
    Metric(
        names.METRIC_SPOT_SHARE,
        Type.GAUGE,
        Exposer.LEADER,
        "Share of serving pods that are on spot; none while nothing serves",
        _WORKLOAD,
    ),
    Metric(
        names.METRIC_FLOOR,
        Type.GAUGE,
        Exposer.LEADER,
        "The policy's min-on-demand",
        _WORKLOAD,
    ),
    Metric(
        names.METRIC_HEADROOM,
        Type.GAUGE,
        Exposer.LEADER,
        "Replicas that may be lost; assumed is false where min-available or a budget says how many must serve",
        (*_WORKLOAD, "assumed"),
    ),
    Metric(
        names.METRIC_BLAST_RADIUS,
        Type.GAUGE,
        Exposer.LEADER,
        "The most replicas that are lost with one node, pool, zone or all spot",
        (*_WORKLOAD, "domain"),
    ),
    Metric(
        names.METRIC_SURVIVES,
        Type.GAUGE,
        Exposer.LEADER,
        "1: as many serve as must without any one node, pool, zone or all spot",
        (*_WORKLOAD, "domain"),
    ),
    Metric(
        names.METRIC_INCIDENTS,
        Type.GAUGE,
        Exposer.LEADER,
        "How often in 30 days fewer than must serve are expected to be left, by observed losses",
        _WORKLOAD,
    ),
    Metric(
        names.METRIC_UNAVAILABILITY,
        Type.GAUGE,
        Exposer.LEADER,
        "The share of the time that this is expected to last; 1 where fewer than must serve are ready now",
        _WORKLOAD,
    ),
    Metric(
        names.METRIC_POOL_LOSSES,
        Type.GAUGE,
        Exposer.LEADER,
        "Losses of a spot pool in 30 days: observed ones, and a weak prior",
        ("zone", "instance_type"),
    ),
    Metric(
        names.METRIC_POOL_WATCHED,
        Type.GAUGE,
        Exposer.LEADER,
        "For how long a spot pool was watched; what is older than 90 days fades",
        ("zone", "instance_type"),
    ),
    Metric(
        names.METRIC_WORKLOADS_LEFT_OUT,
        Type.GAUGE,
        Exposer.LEADER,
        "Workloads without series, because there are too many",
    ),
    Metric(
        names.METRIC_WORKLOADS_FAILING,
        Type.GAUGE,
        Exposer.LEADER,
        "Workloads that are left alone, because something about them makes our code fail: see the log",
    ),
    Metric(
        names.METRIC_NODES,
        Type.GAUGE,
        Exposer.LEADER,
        "Nodes by pool and state: ready, not-ready or leaving",
        (*_POOL, "state"),
    ),
    Metric(
        names.METRIC_UTILISATION,
        Type.GAUGE,
        Exposer.LEADER,
        "Share of a pool's cpu, memory or pods that is asked for",
        (*_POOL, "resource"),
    ),
    Metric(
        names.METRIC_UNKNOWN_NODES,
        Type.GAUGE,
        Exposer.LEADER,
        "Nodes whose labels tell no class; they count as on-demand",
    ),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _TABLE}


def document() -> str:
    """docs/metrics.md."""
    rows = [f"| `{each.series}` | {each.type} | {_labels(each)} | {each.help} | {each.writer} |" for each in _TABLE]
    return "\n".join(
        [_ABOUT, "| metric | type | labels | what it says | who writes it |", "|---|---|---|---|---|", *rows, ""]
    )


def _labels(metric: Metric) -> str:
    return ", ".join(f"`{label}`" for label in metric.labels)


_ABOUT = """\
# Metrics

<!-- Generated by `spotweave metrics --write` from placement/metrics.py. Do not edit. -->

Both programs serve them at `/metrics` of their port `metrics` (8080), in the Prometheus text format. Series of
workloads come from the rebalancer that leads, for the first 2,000 workloads unless
the configuration says otherwise (`metrics: {workloads: N}`). Of a histogram there are the series `_bucket`, `_sum`
and `_count`.
Rules, alerts and Grafana dashboards that use them: [monitoring.md](monitoring.md).
"""
