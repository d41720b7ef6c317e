"""`spotweave status`: every opted-in workload, its wanted and actual mix, and why they differ."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from cli import access
from cli.configuration import configuration_for_reading
from kube.snapshot import read_snapshot
from localcluster.errors import ClusterError
from placement.lint import rollout_finding
from placement.model import Class, Kind
from placement.policy import SETTINGS, Policy, percent
from placement.slots import Mix
from placement.status import PodStatus, WorkloadStatus, statuses

STYLES = {Class.ON_DEMAND: "cyan", Class.SPOT: "magenta"}
SHORT_KIND = {Kind.DEPLOYMENT: "deploy", Kind.STATEFUL_SET: "sts"}


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("status", parents=[common], help="show wanted and actual mixes")
    access.add_options(parser)
    parser.add_argument("--config", type=Path, help="configuration file (default: the ConfigMap spotweave-config)")
    parser.add_argument("-n", "--namespace", help="only this namespace")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--pods", action="store_true", help="list every pod, where it is and why")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 where a mix is not what it should be."""
    with access.client_for(args) as client:
        configuration = configuration_for_reading(args.config, client)
        snapshot = read_snapshot(client)
    if args.namespace is not None and args.namespace not in snapshot.namespaces:
        raise ClusterError(f"there is no namespace {args.namespace!r}", exit_code=2)
    found = statuses(snapshot, configuration)
    shown = [each for each in found if args.namespace in (None, each.workload.namespace)]
    if args.output == "json":
        print(json.dumps(as_json(shown, datetime.now(UTC), with_pods=args.pods), indent=2))
    else:
        Console().print(as_table(shown, with_pods=args.pods))
    return 0 if all(each.is_exact for each in shown) else 1


# --- for machines ----------------------------------------------------------------------------------------------------


def as_json(found: Sequence[WorkloadStatus], now: datetime, *, with_pods: bool = False) -> dict[str, Any]:
    workloads = [_workload_json(each) | ({"pods": _pods_json(each)} if with_pods else {}) for each in found]
    return {"synced": True, "generatedAt": now.isoformat(), "workloads": workloads}


def _pods_json(status: WorkloadStatus) -> list[dict[str, Any]]:
    return [
        {
            "name": each.pod.name,
            "slot": each.pod.slot,
            "node": each.pod.node or None,
            "class": each.node_class,
            "given": each.given,
            "serves": each.serves,
            "reason": each.pod.unschedulable or each.reason,
        }
        for each in status.pods
    ]


def _workload_json(status: WorkloadStatus) -> dict[str, Any]:
    workload = status.workload
    return {
        "namespace": workload.namespace,
        "kind": str(workload.kind),
        "name": workload.name,
        "policy": policy_json(status.policy),
        "replicas": workload.replicas,
        "wanted": _mix_json(status.wanted),
        "actual": _mix_json(status.actual),
        "pending": _mix_json(status.pending),
        "missed": list(status.missed),
        "soft": status.soft,
        "reason": status.reason,
        "advice": advice_of(status),
        "mistakes": [
            {"level": each.level, "annotation": each.annotation, "value": each.value, "expected": each.expected}
            for each in status.mistakes
        ],
    }


def _mix_json(mix: Mix) -> dict[str, int]:
    return {"spot": mix.spot, "onDemand": mix.on_demand}


def policy_json(policy: Policy) -> dict[str, Any]:
    """The policy by the annotations' names in camel case, and the level that each value came from."""
    values = {_camel(setting.name): _plain(getattr(policy, setting.field), setting.name) for setting in SETTINGS}
    return {**values, "source": {_camel(name): level for name, level in policy.source.items()}}


def _camel(name: str) -> str:
    first, *others = name.split("-")
    return first + "".join(map(str.title, others))


def _plain(value: Any, name: str) -> Any:
    """As people write it in an annotation; what is derived when nobody says it is null."""
    if name == "spot-ratio":
        return "auto" if value is None else percent(value)
    if name == "availability-target":
        return percent(value)
    if name == "spread":
        return ",".join(map(str, value)) or "none"
    if name == "spot-fallback-after":
        return f"{int(value.total_seconds())}s"
    return value if value is None or isinstance(value, int) else str(value)


# --- for people ------------------------------------------------------------------------------------------------------


def as_table(found: Sequence[WorkloadStatus], *, with_pods: bool = False) -> Group | Text:
    if not found:
        return Text(
            "No workload is opted in. Label a namespace: kubectl label namespace NAME spotweave.dev/placement=enabled"
        )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("WORKLOAD", overflow="fold")
    table.add_column("POLICY", no_wrap=True)
    table.add_column("N", justify="right")
    for title in ("WANTED", "ACTUAL", "PENDING"):
        table.add_column(f"{title}\nspot+od", justify="right")
    for each in found:
        table.add_row(*_row(each))
    remarks = [line for each in found for line in _remarks(each)]
    return Group(table, *remarks, *(_pod_table(each) for each in found if with_pods))


def _row(status: WorkloadStatus) -> tuple[Text, ...]:
    workload = status.workload
    return (
        Text(f"{workload.namespace}/{workload.name} ({SHORT_KIND[workload.kind]})"),
        Text(_short_policy(status.policy)),
        Text(str(workload.replicas)),
        _mix(status.wanted),
        Text(f"{status.actual.spot}+{status.actual.on_demand}", style="green" if status.is_exact else "bold red"),
        _mix(status.pending),
    )


def _short_policy(policy: Policy) -> str:
    ratio = "auto" if policy.spot_ratio is None else percent(policy.spot_ratio)
    return f"{ratio}, ≥{policy.min_on_demand} od"


def _mix(mix: Mix) -> Text:
    return Text(f"{mix.spot}+{mix.on_demand}", style="" if mix.spot or mix.on_demand else "dim")


def _remarks(status: WorkloadStatus) -> list[Text]:
    """Why the mixes differ, which pods were missed, and what was written wrong."""
    workload = f"{status.workload.namespace}/{status.workload.name}"
    differs = [Text(f"! {workload}: {status.reason}", style="yellow")] if status.reason else []
    missed = [Text(f"! {workload}: missed by admission: {', '.join(status.missed)}")] if status.missed else []
    advice = [Text(f"? {workload}: {text}", style="dim")] if (text := advice_of(status)) else []
    mistakes = (Text(f"! {workload}: {mistake}", style="red") for mistake in status.mistakes)
    return [*differs, *missed, *mistakes, *advice]


def advice_of(status: WorkloadStatus) -> str:
    """What is no mistake, but worth a second look: a rollout that may take the whole on-demand floor away at once."""
    finding = rollout_finding(status.workload, status.policy)
    if finding is None:
        return ""
    return f"{finding.annotation} {finding.value} {finding.verdict}; better: {finding.expected}"


def _pod_table(status: WorkloadStatus) -> Table:
    title = f"\n{status.workload.namespace}/{status.workload.name}: {status.policy.explain()}"
    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold", header_style="dim")
    for column in ("POD", "SLOT", "NODE", "CLASS"):
        table.add_column(column, no_wrap=True)
    table.add_column("WHY")
    for each in status.pods:
        table.add_row(*_pod_row(each, f" ({status.policy.explain()})"))
    return table


def _pod_row(each: PodStatus, said_already: str) -> tuple[Text, ...]:
    state = str(each.node_class) if each.node_class else each.given or "?"
    style = STYLES.get(each.node_class, "yellow") if each.node_class else "yellow"
    waiting = "" if each.serves else " (terminating)" if each.pod.terminating else " (not ready)"
    return (
        Text(each.pod.name),
        Text("-" if each.pod.slot is None else str(each.pod.slot)),
        Text(each.pod.node or "-"),
        Text(state + waiting, style=style),
        Text(each.pod.unschedulable or each.reason.replace(said_already, "")),
    )
