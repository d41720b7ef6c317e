"""Every metric: what it is, which labels it has, what it says and who writes it.

The programs build their metrics from this table, and `spotweave metrics` writes docs/metrics.md from it: what is
documented is what is exposed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from textwrap import wrap

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
    LEADER = "the leading rebalancer"
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
        "Admitted pods by the class they got (none: left unchanged) and the reason",
        ("class", "reason"),
    ),
    Metric(
        names.METRIC_FAIL_OPEN,
        Type.COUNTER,
        Exposer.WEBHOOK,
        "Pods admitted unchanged because of an error",
    ),
    Metric(
        names.METRIC_EVICTIONS,
        Type.COUNTER,
        Exposer.WEBHOOK,
        "Evictions by others that were reviewed: held, or why not",
        ("answer",),
    ),
    Metric(
        names.METRIC_POLICY_MISTAKES,
        Type.COUNTER,
        Exposer.WEBHOOK,
        "Mistakes in policy annotations, found while placing pods",
    ),
    Metric(
        names.METRIC_ADMISSION_SECONDS,
        Type.HISTOGRAM,
        Exposer.WEBHOOK,
        "Duration of admission calls, from request to response",
    ),
    Metric(
        names.METRIC_FORWARDED,
        Type.COUNTER,
        Exposer.WEBHOOK,
        "Calls forwarded to the replica that owns the ReplicaSet, by outcome: answered or failed",
        ("outcome",),
    ),
    Metric(
        names.METRIC_LEDGER,
        Type.GAUGE,
        Exposer.WEBHOOK,
        "Decisions whose pod the cache does not show yet",
    ),
    Metric(
        names.METRIC_REFUSED,
        Type.GAUGE,
        Exposer.WEBHOOK,
        "ReplicaSets and StatefulSets whose pods are created without our patch, by what refuses it and its name",
        ("by", "name"),
    ),
    Metric(
        names.METRIC_CERTIFICATE_EXPIRY,
        Type.GAUGE,
        Exposer.WEBHOOK,
        "Expiry of the served certificate, in seconds since 1970; 0 if there is none yet",
    ),
    Metric(
        names.METRIC_OUTAGES,
        Type.GAUGE,
        Exposer.WEBHOOK,
        "Current outages of a class; new pods only prefer a class that is out",
        ("class",),
    ),
    # --- both
    Metric(
        names.METRIC_CACHE_AGE,
        Type.GAUGE,
        Exposer.ALL,
        "Time since the API server last sent anything, for the oldest resource; up to a minute is normal",
    ),
    Metric(
        names.METRIC_OUTAGE_VERSION,
        Type.GAUGE,
        Exposer.ALL,
        "Version of the outages that this replica has read",
    ),
    # --- every rebalancer
    Metric(
        names.METRIC_LEADING,
        Type.GAUGE,
        Exposer.REBALANCER,
        "1 if this replica leads",
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
        "Duration of planning, per pass",
    ),
    Metric(
        names.METRIC_PASS_SECONDS,
        Type.HISTOGRAM,
        Exposer.REBALANCER,
        "Duration of a whole pass, actions included; no pass runs until the caches are synced",
    ),
    Metric(
        names.METRIC_BLOCKED,
        Type.GAUGE,
        Exposer.REBALANCER,
        "Pods that should move but cannot, by what blocks them",
        ("reason",),
    ),
    # --- the one that leads
    Metric(
        names.METRIC_MOVES,
        Type.COUNTER,
        Exposer.LEADER,
        "Steps of moves, by reason and by outcome (release-done, finish-done, …); the reason over means unknown",
        ("reason", "outcome"),
    ),
    Metric(
        names.METRIC_ACTIONS,
        Type.COUNTER,
        Exposer.LEADER,
        "Actions on pods, annotations included",
        ("action", "reason", "outcome"),
    ),
    Metric(
        names.METRIC_UNDER_WAY,
        Type.GAUGE,
        Exposer.LEADER,
        "Moves under way: released pods that still exist",
    ),
    Metric(
        names.METRIC_EVICTIONS_HELD,
        Type.GAUGE,
        Exposer.LEADER,
        "Pods whose eviction by others is held now, until enough replicas serve without them",
        _WORKLOAD,
    ),
    Metric(
        names.METRIC_GANGS,
        Type.GAUGE,
        Exposer.LEADER,
        "Gangs by state; only while gangs are switched on",
        ("state",),
    ),
    Metric(
        names.METRIC_GANGS_LATE,
        Type.GAUGE,
        Exposer.REBALANCER,
        "Gangs that wait for longer than their wait-timeout; 0 on those that do not lead",
    ),
    Metric(
        names.METRIC_GATED_PODS,
        Type.GAUGE,
        Exposer.REBALANCER,
        "Pods with the gate of gangs, in all namespaces",
    ),
    Metric(
        names.METRIC_GATES_LEFT,
        Type.GAUGE,
        Exposer.REBALANCER,
        "Pods that have had the gate for a minute, and that no gang will ever start",
    ),
    Metric(
        names.METRIC_GANG_ATTEMPTS,
        Type.COUNTER,
        Exposer.REBALANCER,
        "Times that room was looked for, for a whole gang: reserved, preempting (others have to go), or no-room",
        ("outcome",),
    ),
    Metric(
        names.METRIC_GANG_FAILURES,
        Type.COUNTER,
        Exposer.REBALANCER,
        "Attempts that failed, by reason: what the nodes lacked (such as room, taints), rolled-back, given-up",
        ("reason",),
    ),
    Metric(
        names.METRIC_GANG_STARTS,
        Type.COUNTER,
        Exposer.REBALANCER,
        "Starts of gangs by outcome: whole, or rolled-back because not all members got a node in time",
        ("outcome",),
    ),
    Metric(
        names.METRIC_GANG_PREEMPTIONS,
        Type.COUNTER,
        Exposer.REBALANCER,
        "Preemptions for gangs: begun, and given-up because an eviction was refused or the gang did not fit any more",
        ("outcome",),
    ),
    Metric(
        names.METRIC_GANG_VICTIMS,
        Type.COUNTER,
        Exposer.REBALANCER,
        "Pods that were evicted to make room for gangs",
    ),
    Metric(
        names.METRIC_GANG_SECONDS,
        Type.HISTOGRAM,
        Exposer.REBALANCER,
        "Time from when all members of a gang exist until all have a node",
    ),
    Metric(
        names.METRIC_WORKLOAD_PODS,
        Type.GAUGE,
        Exposer.LEADER,
        "Pods by class and state (serving, pending); the states soft and fallback count some of them again",
        (*_WORKLOAD, "class", "state"),
    ),
    Metric(
        names.METRIC_WORKLOAD_WANTED,
        Type.GAUGE,
        Exposer.LEADER,
        "Pods that should run on each class",
        (*_WORKLOAD, "class"),
    ),
    Metric(
        names.METRIC_SPOT_SHARE,
        Type.GAUGE,
        Exposer.LEADER,
        "Share of serving pods on spot; no series while no pod serves",
        _WORKLOAD,
    ),
    Metric(
        names.METRIC_FLOOR,
        Type.GAUGE,
        Exposer.LEADER,
        "min-on-demand of the policy",
        _WORKLOAD,
    ),
    Metric(
        names.METRIC_HEADROOM,
        Type.GAUGE,
        Exposer.LEADER,
        "Replicas that can be lost; assumed is false if min-available or a budget declares how many must serve",
        (*_WORKLOAD, "assumed"),
    ),
    Metric(
        names.METRIC_BLAST_RADIUS,
        Type.GAUGE,
        Exposer.LEADER,
        "Most replicas lost with one node, one pool, one zone or all spot",
        (*_WORKLOAD, "domain"),
    ),
    Metric(
        names.METRIC_SURVIVES,
        Type.GAUGE,
        Exposer.LEADER,
        "1 if enough replicas serve after the loss of any one node, pool or zone, or of all spot",
        (*_WORKLOAD, "domain"),
    ),
    Metric(
        names.METRIC_INCIDENTS,
        Type.GAUGE,
        Exposer.LEADER,
        "Expected incidents in 30 days that leave fewer replicas than must serve, from observed losses",
        _WORKLOAD,
    ),
    Metric(
        names.METRIC_UNAVAILABILITY,
        Type.GAUGE,
        Exposer.LEADER,
        "Expected share of time with fewer replicas than must serve; 1 if fewer serve now",
        _WORKLOAD,
    ),
    Metric(
        names.METRIC_POOL_LOSSES,
        Type.GAUGE,
        Exposer.LEADER,
        "Expected losses of a spot pool in 30 days, from observed losses and a weak prior",
        ("zone", "instance_type"),
    ),
    Metric(
        names.METRIC_POOL_WATCHED,
        Type.GAUGE,
        Exposer.LEADER,
        "How long a spot pool has been observed; observations older than 90 days fade",
        ("zone", "instance_type"),
    ),
    Metric(
        names.METRIC_WORKLOADS_LEFT_OUT,
        Type.GAUGE,
        Exposer.LEADER,
        "Workloads without series, because the limit of workloads is reached",
    ),
    Metric(
        names.METRIC_WORKLOADS_FAILING,
        Type.GAUGE,
        Exposer.LEADER,
        "Workloads left alone because their assessment fails; the log shows the error",
    ),
    Metric(
        names.METRIC_SKIPPED,
        Type.GAUGE,
        Exposer.LEADER,
        "Pods of opted-in namespaces that are not placed, by the reason; at most 500 series, the largest",
        ("namespace", "reason"),
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
        "Share of a pool's cpu, memory or pods that is requested",
        (*_POOL, "resource"),
    ),
    Metric(
        names.METRIC_UNKNOWN_NODES,
        Type.GAUGE,
        Exposer.LEADER,
        "Nodes without a known class label; they count as on-demand",
    ),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _TABLE}


def document() -> str:
    """docs/metrics.md."""
    return "\n".join([_ABOUT, *(line for exposer in Exposer for line in _section(exposer))])


def _section(exposer: Exposer) -> list[str]:
    """The metrics that one kind of replica exposes, under a heading."""
    entries = [line for metric in _TABLE if metric.writer is exposer for line in _entry(metric)]
    return [f"## Exposed by {exposer}", "", *entries, ""]


def _entry(metric: Metric) -> list[str]:
    """Name, type and labels on one line; the meaning below, in lines of at most 120 characters."""
    labels = f"; labels {', '.join(f'`{label}`' for label in metric.labels)}" if metric.labels else ""
    meaning = wrap(f"{metric.help}.", 120, initial_indent="  ", subsequent_indent="  ")
    return [f"- `{metric.series}` ({metric.type}{labels}):", *meaning]


_ABOUT = """\
# Metrics

<!-- Generated by `spotweave metrics --write` from placement/metrics.py. Do not edit. -->

Both programs serve their metrics at `/metrics` on port `metrics` (8080), in the Prometheus text format. The
leading rebalancer exposes the series of workloads, at most 2,000 of them by default (`metrics: {workloads: N}` in the
configuration). A histogram has the series `_bucket`, `_sum` and `_count`.
[monitoring.md](monitoring.md) describes the rules, alerts and Grafana dashboards that use these metrics.
"""
