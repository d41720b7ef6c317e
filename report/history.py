"""What has happened lately, kept in memory and bounded: the spot share, moves, nodes that left or were lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Protocol

from placement.gang.gang import State
from placement.model import Key as GangKey
from placement.model import Workload
from placement.outage import Outage
from placement.outcome import Outcome
from placement.plan.actions import Action, How, Why
from placement.plan.ground import Ground
from placement.slots import Mix
from report.view import Taken

SAMPLE_SECONDS = 15.0
CHANGE_SECONDS = 2.0  # a change is shown this soon
MOST_SAMPLES = 5760  # a day at rest, three hours of nothing but changes
MOST_POINTS = 240  # in one answer
MOST_EVENTS = 5000
MOST_AT_ONCE = 50  # of gangs: thousands may change together
# Of gangs; the others last for less than a second as a rule.
TOLD_STATES = tuple(set(State) - {State.ASSEMBLING, State.RESERVED, State.PLACING})

NO_OUTAGES: tuple[Outage, ...] = ()

Key = tuple[str, str, str]  # namespace, kind, name of a workload
Points = Sequence[tuple[int, float]]  # when, and the spot share then


class Archive(Protocol):
    """Where older points are kept, if anywhere."""

    @property
    def version(self) -> int: ...
    def points(self) -> Points | None: ...


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened: to a workload, or to a node."""

    at: float
    what: str  # "move", "lost", "leaving", "outage", "gang"
    text: str
    workload: Key | None = None
    node: str = ""
    gang: GangKey | None = None

    @property
    def raw(self) -> dict[str, Any]:
        named = dict(zip(("namespace", "kind", "name"), self.workload, strict=True)) if self.workload else None
        gang = {"namespace": self.gang.namespace, "name": self.gang.name} if self.gang else None
        return {"at": self.at, "what": self.what, "text": self.text, "workload": named, "node": self.node, "gang": gang}


class History:
    """Written by the loop's thread, read by those that answer."""

    def __init__(self, archive: Archive | None = None) -> None:
        self._archive = archive
        self._moved: dict[Key, float] = {}  # when a pod of theirs was last moved; the latest at the end
        self._points: deque[tuple[int, float]] = deque(maxlen=MOST_SAMPLES)
        self._sampled: tuple[float, Mix] = (float("-inf"), Mix())
        self._events: deque[Happening] = deque(maxlen=MOST_EVENTS)
        self._version = 0
        self._lost: frozenset[str] = frozenset()
        self._ground: Ground | None = None
        self._leaving: frozenset[str] = frozenset()
        self._out = {outage.key: outage for outage in NO_OUTAGES}
        self._states: dict[GangKey, State] = {}  # of gangs, as they were last told
        self._seen: Taken | None = None  # what gangs were looked at in

    def note(self, taken: Taken, done: Sequence[tuple[Action, Outcome | None]], now: float) -> None:
        """After a pass: what was seen last, and what it did."""
        is_more = self._sample(taken)
        seen = (self._departures(taken), self._losses(taken), self._outages(taken), self._gangs(taken))
        for found in (*seen, _moves(now, done)):
            for event in found:
                self._events.append(event)
                is_more = True
        self._remember(now, done)
        self._version += is_more

    @property
    def version(self) -> int:
        """Increases whenever there is more to show."""
        return self._version + (0 if self._archive is None else self._archive.version)

    def points(self) -> tuple[str, Points]:
        """The source; and times with the share of serving pods on spot, including the lowest and the highest.

        Prometheus remembers longer, and memory is more recent: values later than those of Prometheus are added.
        """
        own = list(self._points)
        kept = None if self._archive is None else self._archive.points()
        if kept is None:
            return "memory", thinned(own)
        return "prometheus", thinned([*kept, *(each for each in own if each[0] > kept[-1][0])])

    def events(self, workload: Key | None = None, most: int = 50, gang: GangKey | None = None) -> list[dict[str, Any]]:
        """The latest first; of all, or of one workload or gang."""
        every = reversed(tuple(self._events))
        if gang is not None:
            found = (each for each in every if each.gang == gang)
        else:
            found = (each for each in every if workload is None or each.workload == workload)
        return [each.raw for each, _ in zip(found, range(most), strict=False)]

    def moved_at(self, workload: Key) -> float | None:
        return self._moved.get(workload)

    def _remember(self, at: float, done: Iterable[tuple[Action, Outcome | None]]) -> None:
        for action, outcome in done:
            if action.how in (How.FINISH, How.EVICT) and outcome is Outcome.DONE and action.workload is not None:
                key = _key(action.workload)
                self._moved.pop(key, None)
                self._moved[key] = at
                if len(self._moved) > MOST_EVENTS:
                    del self._moved[next(iter(self._moved))]

    def _sample(self, taken: Taken) -> bool:
        """Whether there is another one."""
        at, before = self._sampled
        if abs(taken.at - at) < CHANGE_SECONDS:  # clocks may go back
            return False
        spot = on_demand = 0
        for each in taken.assessments.values():
            spot += each.actual.spot
            on_demand += each.actual.on_demand
        now = Mix(spot, on_demand)
        if now == before and abs(taken.at - at) < SAMPLE_SECONDS:
            return False
        self._sampled = (taken.at, now)
        if now != Mix():
            self._points.append((int(taken.at), round(now.spot / (now.spot + now.on_demand), 4)))
        return True

    def _losses(self, taken: Taken) -> Iterator[Happening]:
        new = frozenset(taken.lost) - self._lost
        self._lost = frozenset(taken.lost)
        if not new:
            return
        yield from (Happening(taken.at, "lost", f"node {name} is gone", node=name) for name in sorted(new))
        for each in taken.assessments.values():
            count = sum(pod.node in new for pod in each.lost)
            if count:
                yield Happening(
                    taken.at,
                    "lost",
                    _pods(count, "lost with its node", "lost with their nodes"),
                    _key(each.group.workload),
                )

    def _outages(self, taken: Taken) -> Iterator[Happening]:
        """Noted, or over."""
        new = {outage.key: outage for outage in taken.outages}
        old, self._out = self._out, new
        for key in (*(new.keys() - old.keys()), *(old.keys() - new.keys())):
            outage = new.get(key) or old[key]
            where = ", ".join(sorted(outage.zones)) or "everywhere"
            where += f", for namespace {outage.namespace}" if outage.namespace else ""
            shown = f" (evidence: {outage.evidence.pod})" if outage.evidence is not None else ""
            text = f"{outage.of} is out, {where}{shown}" if key in new else f"{outage.of} may be back, {where}"
            yield Happening(taken.at, "outage", text)

    def _gangs(self, taken: Taken) -> Iterator[Happening]:
        """A state that is worth telling, once, with its reason. What is there at first is no news."""
        is_first, before = self._seen is None, self._states
        if self._seen is taken or not (before or taken.gangs):
            return
        self._seen = taken
        now = {each.gang.key: each for each in taken.plan.gangs}
        states = {key: now[key].state if key in now else State.RUNNING for key in taken.gangs}
        self._states = {
            key: state if state in TOLD_STATES else before.get(key, State.ASSEMBLING) for key, state in states.items()
        }
        news = [(key, state) for key, state in self._states.items() if state is not before.get(key)]
        told = [each for each in news if each[0] in before or each[1] not in (State.RUNNING, State.ASSEMBLING)]
        for key, state in () if is_first else told[:MOST_AT_ONCE]:
            reason = now[key].reason if key in now else ""
            is_whole = state is State.RUNNING and not reason
            yield Happening(taken.at, "gang", f"{state}: {'all members have a node' if is_whole else reason}", gang=key)

    def _departures(self, taken: Taken) -> Iterator[Happening]:
        if taken.ground is self._ground:
            return
        leaving = frozenset(name for name, site in taken.ground.sites.items() if site.is_leaving)
        new, self._leaving = leaving - self._leaving, leaving
        is_first, self._ground = self._ground is None, taken.ground
        if is_first or not new:
            return
        yield from (Happening(taken.at, "leaving", f"node {name} is leaving", node=name) for name in sorted(new))
        for each in taken.assessments.values():
            count = sum(member.pod.node in new for member in each.members)
            if count:
                yield Happening(
                    taken.at,
                    "leaving",
                    _pods(count, "on a node that is leaving", "on nodes that are leaving"),
                    _key(each.group.workload),
                )


def thinned(points: Points, most: int = MOST_POINTS) -> Points:
    """At most so many: of each stretch its lowest and its highest, and the last of all.

    A day of samples, 24 to a stretch, with four minutes at 0: the chart shows 0, where every 24th would not.
    """
    if len(points) <= most:
        return list(points)
    size = -(-len(points) // ((most - 1) // 2))
    stretches = (points[start : start + size] for start in range(0, len(points), size))
    chosen = {pick(stretch, key=itemgetter(1)) for stretch in stretches for pick in (min, max)}
    return sorted(chosen | {points[-1]})


_SENTENCES = {
    How.RELEASE: "moving {pod}{to}: its replacement starts first",
    How.FINISH: "moved {pod}{to}: its replacement serves",
    How.UNDO: "undid the move of {pod}",
    How.EVICT: "evicted {pod}: there is room for its replacement{to}",
    How.REPLACE: "evicted {pod} to recreate it: it was unschedulable",
    How.BURY: "deleted {pod}: its node is gone",
    How.DELETE: "deleted {pod}: {text}",
}


def _moves(at: float, done: Iterable[tuple[Action, Outcome | None]]) -> Iterator[Happening]:
    for action, outcome in done:
        if action.how is How.ANNOTATE or action.why is Why.GANG or outcome is None:
            continue
        to = "" if action.to is None else f" {'on' if action.how is How.EVICT else 'to'} {action.to}"
        told = "" if outcome is Outcome.DONE else f": {outcome}"
        why = "" if action.why is Why.OVER else f" ({action.why})"
        is_cut_short = action.how is How.FINISH and action.to is None
        said = "evicted {pod}: {text}" if is_cut_short else _SENTENCES[action.how]
        text = f"{said.format(pod=action.pod.name, to=to, text=action.text)}{why}{told}"
        yield Happening(at, "move", text, None if action.workload is None else _key(action.workload), action.pod.node)


def _key(workload: Workload) -> Key:
    return (workload.namespace, str(workload.kind), workload.name)


def _pods(count: int, one: str, many: str) -> str:
    return f"1 pod {one}" if count == 1 else f"{count} pods {many}"
