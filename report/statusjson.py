"""The JSON that scripts rely on (design §9): one shape for the command line and the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from placement.lint import rollout_finding
from placement.outage import Outage
from placement.pause import Pause
from placement.policy import SETTINGS, Policy, percent
from placement.skipped import NOTHING_SKIPPED, SkipCounts
from placement.slots import Mix
from report.rollout import rollout_need
from report.rolloutroom import Foreseen
from report.savings import Savings
from report.skipped import skipped_json
from report.status import WorkloadStatus


def workload_json(status: WorkloadStatus) -> dict[str, Any]:
    workload = status.workload
    return {
        "namespace": workload.namespace,
        "kind": str(workload.kind),
        "name": workload.name,
        "policy": policy_json(status.policy),
        "replicas": workload.replicas,
        "wanted": mix_json(status.wanted),
        "actual": mix_json(status.actual),
        "pending": mix_json(status.pending),
        "missed": list(status.missed),
        "soft": status.soft,
        "reason": status.reason,
        "held": [each.raw for each in status.held],
        "exposure": status.exposure.raw,
        "rollout": _rollout_json(status),
        "advice": advice_of(status),
        "mistakes": [
            {"level": each.level, "annotation": each.annotation, "value": each.value, "expected": each.expected}
            for each in status.mistakes
        ],
    }


def pods_json(status: WorkloadStatus) -> list[dict[str, Any]]:
    return [
        {
            "name": each.pod.name,
            "slot": each.pod.slot,
            "node": each.pod.node or None,
            "class": each.node_class,
            "given": each.given,
            "serves": each.serves,
            "reason": each.pod.why_pending or each.reason,
        }
        for each in status.pods
    ]


def _rollout_json(status: WorkloadStatus) -> dict[str, Any]:
    """The free places that a rollout needs at its peak, and whether it may take all of on-demand away at once."""
    takes_all = rollout_finding(status.workload, status.policy) is not None
    return {**mix_json(rollout_need(status.policy, status.workload)), "takesAllOnDemand": takes_all}


def advice_of(status: WorkloadStatus) -> str:
    """What is no mistake, but worth a second look: a rollout that may take the whole on-demand floor away at once."""
    finding = rollout_finding(status.workload, status.policy)
    if finding is None:
        return ""
    return f"{finding.annotation} {finding.value} {finding.verdict}; recommended: {finding.expected}"


def mix_json(mix: Mix) -> dict[str, int]:
    return {"spot": mix.spot, "onDemand": mix.on_demand}


def policy_json(policy: Policy) -> dict[str, Any]:
    """The policy by the annotations' names in camel case, and the level that each value came from."""
    values = {_camel(setting.name): _plain(getattr(policy, setting.field), setting.name) for setting in SETTINGS}
    return {**values, "source": {_camel(name): level for name, level in policy.source.items()}}


def _camel(name: str) -> str:
    first, *others = name.split("-")
    return first + "".join(map(str.title, others))


def _plain(value: Any, name: str) -> Any:
    """As people write it in an annotation; null if it is not set and would be derived."""
    if name == "spot-ratio":
        return "auto" if value is None else percent(value)
    if name == "availability-target":
        return percent(value)
    if name == "spread":
        return ",".join(map(str, value)) or "none"
    if name == "eviction-hold" and not value:
        return "off"
    if isinstance(value, timedelta):
        return f"{int(value.total_seconds())}s"
    return value if value is None or isinstance(value, int) else str(value)


def status_json(
    found: Sequence[WorkloadStatus],
    now: datetime,
    paused: Pause | None = None,
    saved: Savings | None = None,
    ahead: Sequence[Foreseen] = (),
    outages: Sequence[Outage] = (),
    skipped: SkipCounts = NOTHING_SKIPPED,
    *,
    with_pods: bool = False,
) -> dict[str, Any]:
    workloads = [workload_json(each) | ({"pods": pods_json(each)} if with_pods else {}) for each in found]
    raw_pause = None if paused is None else paused.raw
    raw_savings = (saved or Savings()).raw
    return {
        "synced": True,
        "generatedAt": now.isoformat(),
        "paused": raw_pause,
        "outages": [each.raw for each in outages],
        "savings": raw_savings,
        "ahead": [each.raw() for each in ahead],
        "skipped": skipped_json(skipped),
        "workloads": workloads,
    }
