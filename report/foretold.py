"""What is foretold: each workload now, and once the rebalancer has done all that it will do. Pure.

Both sides are views, one of the cluster as it is and one of the cluster as it comes to rest. So a mix, an exposure and
a cost of one line are always about the same pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from placement.plan.actions import Blocked
from placement.plan.assess import Assessment
from report.savings import told
from report.statusjson import mix_json
from report.view import View

Raw = dict[str, Any]
NOT_READY = "the pod is not ready"
MISSING = str(Blocked.MISSING)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a workload comes to rest: as it stands then, by how many moves, and why pods stay where they are."""

    assessment: Assessment
    moves: int = 0
    stays: tuple[tuple[str, int], ...] = ()  # the reason, and how many pods
    waits_for_window: bool = False

    @property
    def is_quiet(self) -> bool:
        """Nothing moves, and nothing should."""
        return not (self.moves or self.stays)

    def sentences(self) -> list[str]:
        """`2 pods not moved: a PodDisruptionBudget allows no disruption`."""
        return [_stay(reason, pods, "not moved") for reason, pods in self.stays]


def _stay(reason: str, pods: int, words: str) -> str:
    """What is not there or not ready is no matter of moves."""
    count, are = ("1 pod", "is") if pods == 1 else (f"{pods} pods", "are")
    told = {NOT_READY: f"{count} {are} not ready", MISSING: f"{count} {are} missing"}
    return told.get(reason, f"{count} {words}: {reason}")


def workload_json(now: View, then: View, ending: Ending) -> Raw:
    """`wanted` is what the policy asks for, `then` what comes of it."""
    workload = ending.assessment.group.workload
    key = (workload.namespace, str(workload.kind), workload.name)
    before, after = now.by_key[key], then.by_key[key]
    return {
        "namespace": workload.namespace,
        "kind": str(workload.kind),
        "name": workload.name,
        "wanted": mix_json(after.wanted),
        "actual": mix_json(before.actual),
        "then": mix_json(after.actual),
        "moves": ending.moves,
        "blocked": [reason for reason, _ in ending.stays],
        "unplaced": sum(pods for _, pods in ending.stays),
        "stays": [{"pods": pods, "reason": reason} for reason, pods in ending.stays],
        "waitsForWindow": ending.waits_for_window,
        "exposure": before.exposure.raw,
        "exposureAfter": after.exposure.raw,
        "savings": before.savings.raw,
        "savingsAfter": after.savings.raw,
    }


def workloads_table(answered: Sequence[Raw]) -> Table:
    """Each workload now, and what it will be."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("WORKLOAD", overflow="fold")
    table.add_column("")
    for title in ("MIX\nspot+od", "HEADROOM", "POOL LOSS", "COST"):
        table.add_column(title, justify="right")
    table.add_column("MOVES", justify="right")
    for each in answered:
        name = f"{each['namespace']}/{each['name']}"
        table.add_row(name, "now", *_cells(each["actual"], each["exposure"], each["savings"]), "")
        then = _cells(each["then"], each["exposureAfter"], each["savingsAfter"])
        table.add_row("", "then", *then, str(each["moves"]))
    return table


def _cells(mix: dict[str, int], seen: Raw, saved: Raw) -> tuple[str, ...]:
    survival = "survived" if seen["survives"]["pool"] else "not survived"
    cost = "-" if saved["cost"] is None else f"{saved['cost']:.0%}"
    return (f"{mix['spot']}+{mix['onDemand']}", str(seen["headroom"]), survival, cost)


def remarks(answered: Sequence[Raw]) -> Iterator[Text]:
    """Why a workload does not come to what its policy asks for, and what its moves wait for."""
    for each in answered:
        name, wanted = f"{each['namespace']}/{each['name']}", each["wanted"]
        for stay in each["stays"]:
            asked = f"its policy asks for {wanted['spot']}+{wanted['onDemand']}"
            text = _stay(stay["reason"], stay["pods"], "will not move")
            yield Text(f"! {name}: {asked}, but {text}", style="yellow")
        if each["waitsForWindow"]:
            yield Text(f"? {name}: its moves wait until its rebalance-window opens", style="dim")


def prices_line(answered: Sequence[Raw]) -> str:
    """What costs are compared with, and where the prices of spot come from."""
    costs = [costs for each in answered for costs in (each["savings"], each["savingsAfter"])]
    sources = sorted({told(source) for each in costs for source in each["sources"]})
    return f"COST is relative to all on-demand; spot prices: {', '.join(sources) or 'none needed'}"
