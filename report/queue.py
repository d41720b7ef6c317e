"""The queue of gangs, as `spotweave queue` shows it: state, members, reason, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from placement.gang.gang import Gang, GangStatus, State, status_of
from placement.gang.terms import sentence
from placement.model import Key
from report.sentences import moment

NO_GANGS = "No gang. Members carry the annotation spotweave.dev/pod-group on the pod template."
GANGS_OFF = "Gangs are switched off: the configuration does not say `gangs: {enabled: true}`."
STYLES = {
    State.RUNNING: "green",
    State.BLOCKED: "bold red",
    State.ROLLING_BACK: "bold red",
    State.WAITING: "yellow",
    State.ASSEMBLING: "yellow",
}


@dataclass(frozen=True, slots=True)
class QueuedGang:
    """A gang as it is shown."""

    status: GangStatus

    @property
    def raw(self) -> dict[str, Any]:
        status, gang = self.status, self.status.gang
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
            "isLate": status.is_late,
            "mistakes": [sentence(each) for each in gang.declared.mistakes],
        }


def queue_of(planned: Sequence[GangStatus], gangs: Mapping[Key, Gang], now: float) -> list[QueuedGang]:
    """Those that wait or start, as a plan left them, then those that run."""
    known = {each.gang.key for each in planned}
    running = [status_of(gangs[key], now) for key in sorted(gangs.keys() - known)]
    return [QueuedGang(_as_it_is(each)) for each in (*planned, *running)]


_URGENCY = (
    State.BLOCKED,
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
        return replace(status, state=State.WAITING, reason="there is room for it now")
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
