"""The queue of gangs, as `spotweave queue` shows it: state, members, reason, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from placement.gang.gang import Gang, GangStatus, State, status_of
from placement.gang.odds import odds_of
from placement.gang.terms import sentence
from placement.model import Key
from placement.observation import NOTHING_OBSERVED, Observed
from placement.plan.ground import Sites
from report.sentences import moment

NO_SITES: Sites = {}
NO_GANGS = "No gang. Members carry the annotation spotweave.dev/pod-group on the pod template."
GANGS_OFF = "Gangs are switched off: the configuration does not say `gangs: {enabled: true}`."
STYLES = {
    State.RUNNING: "green",
    State.BLOCKED: "bold red",
    State.ROLLING_BACK: "bold red",
    State.RESTARTING: "bold red",
    State.FAILING: "bold red",
    State.WAITING: "yellow",
    State.ASSEMBLING: "yellow",
}


@dataclass(frozen=True, slots=True)
class QueuedGang:
    """A gang as it is shown."""

    status: GangStatus
    chance: float | None = None  # that it survives its expected run time where it is, or is about to go

    @property
    def raw(self) -> dict[str, Any]:
        status, gang = self.status, self.status.gang
        runtime = gang.terms.expected_runtime
        return {
            "namespace": gang.key.namespace,
            "name": gang.key.name,
            "state": str(status.state),
            "reason": status.reason,
            "members": {
                "needed": gang.needed or None,
                "bound": len(gang.running),
                "starting": len(gang.starting),
                "gated": len(gang.gated),
                "succeeded": gang.done,
            },
            "priority": {"spec": gang.priority, "effective": gang.wish},
            "classes": [str(of) for of in gang.terms.classes],
            "since": datetime.fromtimestamp(gang.since, UTC).isoformat(),
            "expectedRuntimeSeconds": None if runtime is None else runtime.total_seconds(),
            "survival": None if self.chance is None else round(self.chance, 6),
            "isLate": status.is_late,
            "mistakes": [sentence(each) for each in gang.declared.mistakes],
        }


def queue_of(
    planned: Sequence[GangStatus],
    gangs: Mapping[Key, Gang],
    now: float,
    sites: Sites = NO_SITES,
    observed: Observed = NOTHING_OBSERVED,
) -> list[QueuedGang]:
    """Those that wait or start, as a plan left them, then those that run."""
    known = {each.gang.key for each in planned}
    running = [status_of(gangs[key], now) for key in sorted(gangs.keys() - known)]
    found = sorted((*planned, *running), key=lambda each: each.state is State.RUNNING)
    return [QueuedGang(_as_it_is(each), _chance(each, sites, observed)) for each in found]


def _chance(status: GangStatus, sites: Sites, observed: Observed) -> float | None:
    """From the start where its members are, or room is kept for them; else where the plan would put them."""
    nodes = {pod.node or pod.nominated for pod in status.gang.pods} & sites.keys()
    return odds_of(status.gang.terms, observed).chance(sites[node] for node in nodes) if nodes else status.chance


_URGENCY = (
    State.BLOCKED,
    State.FAILING,
    State.RESTARTING,
    State.ROLLING_BACK,
    State.WAITING,
    State.EVICTING,
    State.RESERVED,
    State.PLACING,
    State.ASSEMBLING,
    State.RUNNING,
)


def in_order(found: Iterable[QueuedGang]) -> tuple[QueuedGang, ...]:
    """By state; then the highest priority, and those that have waited for longest."""

    def rank(each: QueuedGang) -> tuple[int, int, float, Key]:
        gang = each.status.gang
        return _URGENCY.index(each.status.state), -gang.wish, gang.since, gang.key

    return tuple(sorted(found, key=rank))


def _as_it_is(status: GangStatus) -> GangStatus:
    """What a plan is about to reserve is not reserved yet."""
    if status.state is State.RESERVED and not status.gang.reservations:
        _, semicolon, survives = status.reason.partition("; ")
        return replace(status, state=State.WAITING, reason=f"there is room for it now{semicolon}{survives}")
    if status.state is State.EVICTING and not status.gang.reservations:
        return replace(status, state=State.WAITING)
    return status


def queue_table(found: Sequence[QueuedGang]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("GANG", overflow="fold")
    table.add_column("STATE", no_wrap=True)
    for title in ("NEEDS", "BOUND", "GATED"):
        table.add_column(title, justify="right")
    table.add_column("SINCE", no_wrap=True)
    table.add_column("REASON", overflow="fold")
    for each in found:
        status, gang = each.status, each.status.gang
        table.add_row(
            Text(str(gang.key)),
            Text(str(status.state), style=STYLES.get(status.state, "")),
            str(gang.needed or "?"),
            str(len(gang.running) + gang.done),
            str(len(gang.gated)),
            moment(gang.since),
            Text("; ".join(_reasons(status))),
        )
    return table


def _reasons(status: GangStatus) -> list[str]:
    """Why it waits, then its mistakes; one of these may be why."""
    found = [status.reason, *map(sentence, status.gang.declared.mistakes)]
    return [each for each in dict.fromkeys(found) if each]
