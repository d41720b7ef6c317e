"""The Grafana dashboards of manifests/monitoring/grafana, as tables of panels, from which the JSON is generated.

Queries use the programs' own metrics, so that the dashboards work where the recording rules are not loaded. While one
rebalancer takes over from another both may be seen for a scrape: `max by` takes one of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["stat", "timeseries", "bargauge", "table"]
COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RATE = "$__rate_interval"
PICKED = 'namespace=~"$namespace"'
WORKLOAD = "namespace, kind, name"
NAMED = "{{namespace}}/{{name}}"
FAILED_ACTIONS = 'spotweave_actions_total{outcome!~"done|gone"}'


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL, and what its series are called."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A picture: what it asks, in which unit, and how many of the 24 columns it takes."""

    title: str
    kind: Kind
    queries: tuple[Query, ...]
    width: int
    height: int = 8
    unit: str = "short"
    about: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Panels from left to right, a new row where one does not fit."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    has_namespaces: bool = False


def _pods(state: str, by: str = "", of: str = "") -> str:
    """Pods of the namespaces that were picked, each workload counted once."""
    chosen = f'{PICKED},state="{state}"' + (f',class="{of}"' if of else "")
    total = f"sum by ({by})" if by else "sum"
    return f"{total} (max by ({WORKLOAD}, class) (spotweave_workload_pods{{{chosen}}}))"


def _exposed(assumed: str) -> str:
    """How many workloads would not survive, by domain; 0 where all do."""
    lost = f"1 - min by ({WORKLOAD}, domain) (spotweave_survives{{{PICKED}}})"
    chosen = f'0 * min by ({WORKLOAD}) (spotweave_workload_headroom{{{PICKED},assumed="{assumed}"}}) + 1'
    return f"sum by (domain) (({lost}) * on ({WORKLOAD}) group_left () ({chosen}))"


def _quantile(share: float, histogram: str) -> str:
    return f"histogram_quantile({share}, sum by (le) (rate({histogram}_bucket[{RATE}])))"


def _rate(counter: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) (rate({counter}[{RATE}]))" if by else f"sum(rate({counter}[{RATE}]))"


SHARE = Dashboard(
    "share",
    "Spotweave: share and exposure",
    (
        Panel(
            "Spot share",
            "stat",
            (Query(f"{_pods('serving', of='spot')} / {_pods('serving')}"),),
            4,
            unit="percentunit",
            about="Share of the serving pods of opted-in workloads that run on spot.",
        ),
        Panel(
            "Would not survive, declared",
            "bargauge",
            (Query(_exposed("false"), "{{domain}}"),),
            6,
            about="Workloads that the loss of one node, pool, zone or all spot takes below a declared min-available.",
        ),
        Panel(
            "Would not survive, assumed",
            "bargauge",
            (Query(_exposed("true"), "{{domain}}"),),
            6,
            about="The same for workloads without a declared minimum. This is advice only.",
        ),
        Panel(
            "Pods that fell back",
            "stat",
            (Query(_pods("fallback", "class"), "now on {{class}}"),),
            4,
            about="Pods that run on the other class because their own was out.",
        ),
        Panel("Outages", "stat", (Query("max by (class) (spotweave_outages)", "{{class}}"),), 4),
        Panel(
            "Spot share by namespace",
            "timeseries",
            (Query(f"{_pods('serving', 'namespace', 'spot')} / {_pods('serving', 'namespace')}", "{{namespace}}"),),
            12,
            unit="percentunit",
        ),
        Panel(
            "Wanted and serving",
            "timeseries",
            (
                Query(
                    f"sum by (class) (max by ({WORKLOAD}, class) (spotweave_workload_wanted{{{PICKED}}}))",
                    "{{class}} wanted",
                ),
                Query(_pods("serving", "class"), "{{class}} serving"),
                Query(_pods("pending", "class"), "{{class}} pending"),
            ),
            12,
        ),
        Panel(
            "Workloads",
            "table",
            (
                Query(f"max by ({WORKLOAD}) (spotweave_workload_spot_share{{{PICKED}}})", "spot share"),
                Query(f"min by ({WORKLOAD}, assumed) (spotweave_workload_headroom{{{PICKED}}})", "headroom"),
                Query(f'max by ({WORKLOAD}) (spotweave_blast_radius{{{PICKED},domain="pool"}})', "pool"),
                Query(f'max by ({WORKLOAD}) (spotweave_blast_radius{{{PICKED},domain="zone"}})', "zone"),
                Query(f'max by ({WORKLOAD}) (spotweave_blast_radius{{{PICKED},domain="spot"}})', "all spot"),
            ),
            24,
            10,
            about="Replicas that can be lost, and the most that are lost with one pool, one zone or all spot.",
        ),
        Panel(
            "Expected incidents in 30 days",
            "bargauge",
            (Query(f"topk(20, max by ({WORKLOAD}) (spotweave_expected_incidents_per_month{{{PICKED}}}))", NAMED),),
            8,
            about="Expected incidents that leave fewer replicas than must serve, for the worst workloads. "
            "From observed losses of pools and where the pods run now.",
        ),
        Panel(
            "Expected unavailability",
            "bargauge",
            (Query(f"topk(20, max by ({WORKLOAD}) (spotweave_expected_unavailability{{{PICKED}}}))", NAMED),),
            8,
            unit="percentunit",
            about="Expected share of time with fewer replicas than must serve, for the worst workloads.",
        ),
        Panel(
            "Losses of spot pools in 30 days",
            "table",
            (
                Query("max by (zone, instance_type) (spotweave_pool_losses_per_month)", "losses"),
                Query("max by (zone, instance_type) (spotweave_pool_watched_seconds) / 86400", "days observed"),
            ),
            8,
            about="Expected losses of each pool. A pool without a long history counts as lost once.",
        ),
        Panel(
            "Nodes by pool",
            "timeseries",
            (
                Query(
                    "max by (class, zone, instance_type, state) (spotweave_nodes)",
                    "{{class}} {{zone}}/{{instance_type}} {{state}}",
                ),
            ),
            10,
        ),
        Panel(
            "Fullest resource of each pool",
            "bargauge",
            (
                Query(
                    "max by (class, zone, instance_type) (spotweave_node_utilisation)",
                    "{{class}} {{zone}}/{{instance_type}}",
                ),
            ),
            10,
            unit="percentunit",
        ),
        Panel("Nodes without a class", "stat", (Query("max(spotweave_nodes_without_class)"),), 4),
    ),
    has_namespaces=True,
)

WAITING_GANGS = 'spotweave_gangs{state=~"Waiting|Assembling|Blocked"}'

REBALANCER = Dashboard(
    "rebalancer",
    "Spotweave: rebalancer",
    (
        Panel("Leaders", "stat", (Query("sum(spotweave_rebalancer_leading)"),), 4, 4),
        Panel("Paused", "stat", (Query("max(spotweave_paused)"),), 4, 4, unit="bool_yes_no"),
        Panel("Moves under way", "stat", (Query("max(spotweave_moves_under_way)"),), 4, 4),
        Panel("Blocked", "stat", (Query("sum(max by (reason) (spotweave_blocked_pods)) or vector(0)"),), 4, 4),
        Panel("Workloads without series", "stat", (Query("max(spotweave_workloads_left_out)"),), 4, 4),
        Panel("Outages", "stat", (Query("max by (class) (spotweave_outages)", "{{class}}"),), 4, 4),
        Panel(
            "Moves per minute, by reason",
            "timeseries",
            (Query(f"60 * {_rate('spotweave_moves_total', 'reason')}", "{{reason}}"),),
            12,
        ),
        Panel(
            "Moves per minute, by outcome",
            "timeseries",
            (Query(f"60 * {_rate('spotweave_moves_total', 'outcome')}", "{{outcome}}"),),
            12,
        ),
        Panel(
            "Blocked pods, by reason",
            "timeseries",
            (Query("max by (reason) (spotweave_blocked_pods)", "{{reason}}"),),
            12,
        ),
        Panel(
            "Failed actions per minute",
            "timeseries",
            (
                Query(
                    f"60 * {_rate(FAILED_ACTIONS, 'action', 'outcome')} or vector(0)",
                    "{{action}} {{outcome}}",
                ),
            ),
            12,
        ),
        Panel(
            "Duration of a pass",
            "timeseries",
            (
                Query(_quantile(0.5, "spotweave_pass_seconds"), "pass, median"),
                Query(_quantile(0.99, "spotweave_pass_seconds"), "pass, 99 %"),
                Query(_quantile(0.99, "spotweave_plan_seconds"), "planning, 99 %"),
            ),
            8,
            unit="s",
        ),
        Panel(
            "Passes per second",
            "timeseries",
            (Query(f"rate(spotweave_pass_seconds_count[{RATE}])", "{{instance}}"),),
            8,
        ),
        Panel(
            "Time since the API server last sent anything",
            "timeseries",
            (Query("spotweave_cache_age_seconds", "{{instance}}"),),
            8,
            unit="s",
            about="Up to a minute is normal.",
        ),
        Panel(
            "Gangs, by state",
            "timeseries",
            (Query("max by (state) (spotweave_gangs)", "{{state}}"),),
            8,
            about="Only while gangs are switched on.",
        ),
        Panel(
            "Gangs: attempts per minute",
            "timeseries",
            (
                Query(f"60 * {_rate('spotweave_gang_attempts_total', 'outcome')}", "{{outcome}}"),
                Query(f"60 * {_rate('spotweave_gang_failures_total', 'reason')}", "failed: {{reason}}"),
            ),
            8,
            about="How often room was looked for, and why attempts failed.",
        ),
        Panel(
            "Gangs: from complete to all on nodes",
            "timeseries",
            (
                Query(_quantile(0.5, "spotweave_gang_start_seconds"), "median"),
                Query(_quantile(0.95, "spotweave_gang_start_seconds"), "95 %"),
            ),
            8,
            unit="s",
        ),
        Panel("Gangs waiting", "stat", (Query(f"sum(max by (state) ({WAITING_GANGS})) or vector(0)"),), 4, 4),
        Panel("Gangs beyond their wait-timeout", "stat", (Query("max(spotweave_gangs_late)"),), 4, 4),
        Panel(
            "Gangs: starts that became whole",
            "stat",
            (
                Query(
                    'sum(increase(spotweave_gang_starts_total{outcome="whole"}[1h])) '
                    "/ (sum(increase(spotweave_gang_starts_total[1h])) > 0)"
                ),
            ),
            4,
            4,
            unit="percentunit",
            about="Of the last hour; the others were rolled back.",
        ),
        Panel(
            "Gangs: preemptions per hour",
            "stat",
            (Query("sum by (outcome) (increase(spotweave_gang_preemptions_total[1h]))", "{{outcome}}"),),
            4,
            4,
        ),
        Panel("Gangs: victims per hour", "stat", (Query("sum(increase(spotweave_gang_victims_total[1h]))"),), 4, 4),
        Panel(
            "Gates that nothing will take off",
            "stat",
            (Query("max(spotweave_gates_left_behind)"),),
            4,
            4,
            about="Pods with the gate that belong to no gang.",
        ),
    ),
)

WEBHOOK = Dashboard(
    "webhook",
    "Spotweave: webhook",
    (
        Panel("Calls per second", "stat", (Query(_rate("spotweave_admission_seconds_count")),), 4, 4),
        Panel(
            "99th percentile of admission",
            "stat",
            (Query(_quantile(0.99, "spotweave_admission_seconds")),),
            4,
            4,
            unit="s",
        ),
        Panel("Failed open per hour", "stat", (Query("sum(increase(spotweave_admission_fail_open_total[1h]))"),), 4, 4),
        Panel(
            "Certificate expires in",
            "stat",
            (Query("min(spotweave_certificate_expiry_timestamp_seconds) - time()"),),
            4,
            4,
            unit="s",
        ),
        Panel(
            "Decisions not seen yet",
            "stat",
            (Query("sum(spotweave_ledger_decisions)"),),
            4,
            4,
            about="Decisions whose pod the cache does not show yet.",
        ),
        Panel("Mistakes per hour", "stat", (Query("sum(increase(spotweave_policy_mistakes_total[1h]))"),), 4, 4),
        Panel(
            "Latency",
            "timeseries",
            tuple(
                Query(_quantile(share, "spotweave_admission_seconds"), f"{100 * share:g} %")
                for share in (0.5, 0.9, 0.99)
            ),
            12,
            unit="s",
        ),
        Panel(
            "Calls per second, by replica",
            "timeseries",
            (Query(_rate("spotweave_admission_seconds_count", "instance"), "{{instance}}"),),
            12,
        ),
        Panel(
            "Decisions per second, by class",
            "timeseries",
            (Query(_rate("spotweave_admission_decisions_total", "class"), "{{class}}"),),
            8,
        ),
        Panel(
            "Decisions per second, by reason",
            "timeseries",
            (Query(_rate("spotweave_admission_decisions_total", "reason"), "{{reason}}"),),
            8,
        ),
        Panel(
            "Forwarded to the owning replica, per second",
            "timeseries",
            (Query(_rate("spotweave_admission_forwarded_total", "outcome"), "{{outcome}}"),),
            8,
        ),
        Panel(
            "Version of the outages, by replica",
            "timeseries",
            (Query("spotweave_outage_version", "{{instance}}"),),
            12,
            about="Replicas differ for at most a second.",
        ),
        Panel(
            "Time since the API server last sent anything",
            "timeseries",
            (Query("spotweave_cache_age_seconds", "{{instance}}"),),
            12,
            unit="s",
        ),
    ),
)

DASHBOARDS = (SHARE, REBALANCER, WEBHOOK)


def text(dashboard: Dashboard) -> str:
    """The JSON that Grafana imports."""
    variables = [{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
    raw = {
        "uid": f"spotweave-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["spotweave"],
        "editable": True,
        "refresh": "30s",
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": variables + ([_namespaces()] if dashboard.has_namespaces else [])},
        "links": [{"type": "dashboards", "tags": ["spotweave"], "title": "Spotweave", "asDropdown": True}],
        "panels": list(_placed(dashboard.panels)),
    }
    return json.dumps(raw, indent=2, ensure_ascii=False) + "\n"


def _namespaces() -> dict[str, Any]:
    return {
        "name": "namespace",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": "label_values(spotweave_workload_pods, namespace)", "refId": "namespaces"},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _placed(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    """Rows are as high as their highest panel."""
    x = y = height = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > COLUMNS:
            x, y, height = 0, y + height, 0
        position = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        x, height = x + panel.width, max(height, panel.height)
        yield {"id": number, "gridPos": position, **_panel(panel)}


def _panel(panel: Panel) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "type": panel.kind,
        "title": panel.title,
        "datasource": SOURCE,
        "targets": [_target(panel, query, chr(ord("A") + index)) for index, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
    }
    if panel.about:
        raw["description"] = panel.about
    if panel.kind == "table":
        named = {f"Value #{chr(ord('A') + index)}": query.legend for index, query in enumerate(panel.queries)}
        tidy = {"renameByName": named, "excludeByName": {"Time": True}}
        raw["transformations"] = [{"id": "merge", "options": {}}, {"id": "organize", "options": tidy}]
        del raw["fieldConfig"]["defaults"]["min"]  # headroom may be negative
    return raw


def _target(panel: Panel, query: Query, letter: str) -> dict[str, Any]:
    now = panel.kind != "timeseries"
    return {
        "refId": letter,
        "datasource": SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend or panel.title,
        "instant": now,
        "range": not now,
        "format": "table" if panel.kind == "table" else "time_series",
    }
