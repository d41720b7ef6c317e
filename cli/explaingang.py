"""`spotweave explain gang/NAME`: a gang, its members and its plan, what it waits for, and what happened to it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.text import Text

from cli import gangnames, output
from cli.gangmachinery import Machinery, machinery
from cli.plan import Picture, index_of
from cli.queuepreview import gang_scene, of_gang, with_jobs
from kube.client import Client
from kube.convert import seconds
from kube.errors import Forbidden
from kube.paths import collection_in
from placement import names
from placement.gang.belonging import gang_key
from placement.gang.gang import State
from placement.model import Key, Subject
from placement.plan.select import plan
from report.gangview import GangView, is_calm, victims_of
from report.queue import queue_of
from report.savings import Prices
from report.sentences import moment

EVENTS = "/api/v1/events"  # which who may view may read
MOST_EVENTS = 500  # of a page
MOST_SUBJECTS = 5
REASONS = {
    names.EVENT_GANG_STARTED: "starts",
    names.EVENT_GANG_UNDONE: "rolledBack",
    names.EVENT_GANG_PREEMPTING: "preemptions",
}


@dataclass(frozen=True, slots=True)
class GangEvent:
    """An Event about a gang, as far as it is shown."""

    at: float
    reason: str
    on: str
    text: str
    count: int = 1

    @property
    def raw(self) -> dict[str, Any]:
        return {"at": self.at, "reason": self.reason, "on": self.on, "text": self.text, "count": self.count}

    @property
    def line(self) -> str:
        times = f" ×{self.count}" if self.count > 1 else ""
        return f"  {moment(self.at)} {self.reason}{times} on {self.on}: {self.text}"


def look(args: argparse.Namespace, client: Client, picture: Picture, name: str) -> output.Result:
    """Raises UsageError where there is no such gang."""
    picture = with_jobs(picture, client)
    key = gangnames.key_of(args, name, known_in(picture))
    index = index_of(picture)
    found = index.gangs.get(key)
    subjects = [] if found is None else [index.subject_of(pod) for pod in found.pods]
    return explained(picture, key, events_of(client, key, subjects), machinery(client, picture.configuration))


def known_in(picture: Picture) -> set[Key]:
    return {key for pod in picture.snapshot.pods if (key := gang_key(pod)) is not None}


def explained(picture: Picture, key: Key, events: Sequence[GangEvent], around: Machinery) -> output.Result:
    index = index_of(picture)
    shown = of_gang(picture, index, key, Prices(), list(around.warnings))
    scene = gang_scene(picture, index)
    made = plan(scene)
    queued = next(each for each in queue_of(made.gangs, index.gangs, picture.now) if each.status.gang.key == key)
    view = GangView(queued, index.ground.sites, victims_of(queued.status, scene.marked), picture.observed)
    attempts = Counter(dict.fromkeys(REASONS.values(), 0))
    for each in events:
        if each.reason in REASONS:
            attempts[REASONS[each.reason]] += each.count
    raw = {
        "fine": is_calm(queued.status.state),
        **view.raw,
        "preview": shown.raw if queued.status.state is State.WAITING else None,
        "attempts": dict(attempts),
        "events": [each.raw for each in events],
        "warnings": list(around.warnings),
    }
    lines = [*(f"! {each}" for each in around.warnings), *view.lines]
    if queued.status.state is State.WAITING:
        lines += ["now:", *(f"  {line}" for line in replace(shown, notes=()).lines)]
    lines += _history(events, attempts)
    return output.Result({**raw, "lines": lines}, lambda: Text("\n".join(lines)), 0 if raw["fine"] else 1)


def _history(events: Sequence[GangEvent], attempts: Counter[str]) -> list[str]:
    if not events:
        return ["No Event about it: they are kept for an hour."]
    begun = f"{attempts['starts']} starts, {attempts['rolledBack']} rolled back, {attempts['preemptions']} preemptions"
    return [f"Events of the last hour ({begun}):", *(each.line for each in events)]


# --- Events ----------------------------------------------------------------------------------------------------------


def events_of(client: Client, key: Key, subjects: Iterable[Subject]) -> list[GangEvent]:
    """Those on what owns its members, the oldest first. What may not be read is not shown."""
    found: list[GangEvent] = []
    for subject in list(dict.fromkeys(subjects))[:MOST_SUBJECTS]:
        query: dict[str, str | int] = {"fieldSelector": f"involvedObject.uid={subject.uid}", "limit": MOST_EVENTS}
        try:
            raw = client.get_json(collection_in(EVENTS, key.namespace), query)
        except Forbidden:
            return []
        found += [told for each in raw.get("items") or () if (told := _event(each, key)) is not None]
    return sorted(found, key=lambda each: each.at)


def _event(raw: dict[str, Any], key: Key) -> GangEvent | None:
    """Of other gangs of the same owner nothing is told."""
    reason, text = raw.get("reason") or "", raw.get("message") or ""
    if not reason.startswith("Gang") or not (reason == names.EVENT_GANG_PREEMPTED or f"Gang {key.name}" in text):
        return None
    series, on = raw.get("series") or {}, raw.get("involvedObject") or {}
    at = series.get("lastObservedTime") or raw.get("eventTime") or raw["metadata"].get("creationTimestamp")
    return GangEvent(seconds(at), reason, f"{on.get('kind')}/{on.get('name')}", text, int(series.get("count") or 1))
