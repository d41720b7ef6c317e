"""Statuses as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from placement import names
from placement.model import Class, Kind
from placement.outage import Outage
from placement.pause import Pause
from placement.policy import Policy, percent
from placement.skipped import NOTHING_SKIPPED, SkipCounts
from placement.slots import Mix
from report.exposure import Domain, Exposure
from report.held import held_sentence
from report.residue import LeftOver
from report.rollout import rollout_need
from report.rolloutroom import Foreseen
from report.savings import Savings
from report.sentences import outage_sentence, pause_sentence
from report.skipped import skipped_sentence
from report.status import PodStatus, WorkloadStatus
from report.statusjson import advice_of

STYLES = {Class.ON_DEMAND: "cyan", Class.SPOT: "magenta"}
NOTHING_OPTED_IN = (
    "No workload is opted in. Label a namespace:\n  kubectl label namespace NAME spotweave.dev/placement=enabled"
)
ASSUMED = "* assumed from the rollout strategy: neither min-available nor a PodDisruptionBudget is set"
NOTHING_LEFT_OVER = "No pod outside opted-in namespaces carries labels or annotations of Spotweave."
LEFT_OVER = "A pod keeps them until it is recreated: kubectl rollout restart."
NARROWEST = 16  # of columns whose texts may be long
SHORT_KIND = {Kind.DEPLOYMENT: "deploy", Kind.STATEFUL_SET: "sts"}


def status_table(
    found: Sequence[WorkloadStatus],
    paused: Pause | None = None,
    saved: Savings | None = None,
    ahead: Sequence[Foreseen] = (),
    outages: Sequence[Outage] = (),
    skipped: SkipCounts = NOTHING_SKIPPED,
    *,
    with_pods: bool = False,
    problems: Sequence[str] = (),
) -> Group:
    standing = [*problems, *([pause_sentence(paused)] if paused is not None else []), *map(outage_sentence, outages)]
    on_top = [Text(line, style="bold yellow") for line in standing]
    left_out = [Text(f"? {text}", style="dim")] if (text := skipped_sentence(skipped)) else []
    if not found:
        return Group(*on_top, *([] if problems else [Text(NOTHING_OPTED_IN)]), *left_out)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("WORKLOAD", overflow="fold")
    table.add_column("POLICY", no_wrap=True)
    table.add_column("N", justify="right")
    for title in ("WANTED", "ACTUAL", "PENDING"):
        table.add_column(f"{title}\nspot+od", justify="right")
    table.add_column("HEADROOM\nsurvives", no_wrap=True)
    for each in found:
        table.add_row(*_row(each))
    remarks = [line for each in found for line in _remarks(each)] + foreseen_lines(ahead)
    notes = [Text(ASSUMED, style="dim")] if any(each.exposure.is_assumed for each in found) else []
    if saved is not None:
        notes.append(Text(saved.explain(), style="dim"))
    return Group(*on_top, table, *remarks, *left_out, *notes, *(_pod_table(each) for each in found if with_pods))


def left_over_table(found: Sequence[LeftOver]) -> Group:
    if not found:
        return Group(Text(NOTHING_LEFT_OVER))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("POD", "NODE", "REQUIRES", "CARRIES"):
        table.add_column(column, overflow="fold")
    for each in found:
        carried = ", ".join(key.removeprefix(names.PREFIX) for key in (*each.labels, *each.annotations))
        table.add_row(str(each.pod.key), each.pod.node or "-", str(each.requires or "-"), carried)
    return Group(table, Text(LEFT_OVER, style="dim"))


def _row(status: WorkloadStatus) -> tuple[Text, ...]:
    workload = status.workload
    return (
        Text(f"{workload.namespace}/{workload.name} ({SHORT_KIND[workload.kind]})"),
        Text(_short_policy(status.policy)),
        Text(str(workload.replicas)),
        _mix(status.wanted),
        Text(f"{status.actual.spot}+{status.actual.on_demand}", style="green" if status.is_exact else "bold red"),
        _mix(status.pending),
        headroom(status.exposure),
    )


def headroom(exposure: Exposure) -> Text:
    """`2  pool`: two more than must serve, and it survives the loss of any node and pool, but not of a zone or spot."""
    largest = survived(exposure)
    style = "" if largest not in ("none", "node") else "dim" if exposure.is_assumed else "bold red"
    count = f"{exposure.headroom}{'*' if exposure.is_assumed else ''}"
    return Text(f"{count:<3} {largest}", style=style)


def survived(exposure: Exposure) -> str:
    """The largest loss that it survives, and all smaller ones with it."""
    if not exposure.survives(Domain.NODE):
        return "none"
    if not exposure.survives(Domain.POOL):
        return "node"
    larger = [str(domain) for domain in (Domain.ZONE, Domain.SPOT) if exposure.survives(domain)]
    return larger[0] if len(larger) == 1 else "all" if larger else "pool"


def _short_policy(policy: Policy) -> str:
    ratio = f"{'auto ' if policy.spot_ratio is None else ''}{percent(policy.ratio)}"
    return f"{ratio}, ≥{policy.min_on_demand} od"


def _mix(mix: Mix) -> Text:
    return Text(f"{mix.spot}+{mix.on_demand}", style="" if mix.spot or mix.on_demand else "dim")


def _remarks(status: WorkloadStatus) -> list[Text]:
    """Why the mixes differ, which pods were missed, whose eviction is held, and what was written wrong."""
    workload = f"{status.workload.namespace}/{status.workload.name}"
    differs = [Text(f"! {workload}: {status.reason}", style="yellow")] if status.reason else []
    missed = [Text(f"! {workload}: missed by admission: {', '.join(status.missed)}")] if status.missed else []
    advice = [Text(f"? {workload}: {text}", style="dim")] if (text := advice_of(status)) else []
    mistakes = (Text(f"! {workload}: {mistake}", style="red") for mistake in status.mistakes)
    exposed = (Text(f"! {workload}: {text}", style="yellow") for text in _exposed(status.exposure))
    held = [Text(f"! {workload}: {text}", style="yellow")] if (text := held_sentence(status.held)) else []
    return [*differs, *missed, *held, *exposed, *mistakes, *advice]


def foreseen_lines(ahead: Sequence[Foreseen]) -> list[Text]:
    return [Text(f"? {each.workload.namespace}/{each.workload.name}: {each.text}", style="dim") for each in ahead]


def _exposed(exposure: Exposure) -> list[str]:
    """That too few are ready, or the node or pool whose loss would leave too few; only for declared minima."""
    if exposure.is_assumed:
        return []
    if exposure.headroom < 0:
        return [f"{exposure.ready} replicas are ready, but {exposure.availability.needed} must serve"]
    return [exposure.explain(each) for each in (Domain.NODE, Domain.POOL) if not exposure.survives(each)][:1]


def _pod_table(status: WorkloadStatus) -> Group:
    """The title is no part of the table, which would wrap it at its own width."""
    need = rollout_need(status.policy, status.workload)
    title = f"\n{status.workload.namespace}/{status.workload.name}: {status.policy.explain()}"
    if need != Mix():
        title += f"; a rollout needs {need.spot} more spot and {need.on_demand} more on-demand places"
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("POD", overflow="fold", min_width=NARROWEST)  # folded where it must be, and never cut
    table.add_column("SLOT", no_wrap=True)
    table.add_column("NODE", overflow="fold", min_width=NARROWEST)
    table.add_column("CLASS", min_width=len(Class.ON_DEMAND))
    table.add_column("WHY", overflow="fold", min_width=NARROWEST)
    for each in status.pods:
        table.add_row(*_pod_row(each, f" ({status.policy.explain()})"))
    return Group(Text(title, style="bold"), table)


def _pod_row(each: PodStatus, said_already: str) -> tuple[Text, ...]:
    state = str(each.node_class) if each.node_class else each.given or "?"
    style = STYLES.get(each.node_class, "yellow") if each.node_class else "yellow"
    waiting = "" if each.serves else " (terminating)" if each.pod.terminating else " (not ready)"
    return (
        Text(each.pod.name),
        Text("-" if each.pod.slot is None else str(each.pod.slot)),
        Text(each.pod.node or "-"),
        Text(state + waiting, style=style),
        Text(each.pod.why_pending or each.reason.replace(said_already, "")),
    )
