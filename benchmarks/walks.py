"""Counts the rooms of walks through the code: the modules that a newcomer enters to follow one review or one event.

A room is a module of ours. It is entered by a call from another module of ours. Consecutive entries of one module count
once. A return is an entry of a module that was entered before, with another one in between. Returning to a caller
because a function has ended is no entry. Code runs through a loop many times, but a reader reads it once. So "ways
back" counts returns from one module to the same other module once. Not counted: packages of others, code that the
standard library generates (constructors of dataclasses), and what replaces the API server in tests.

A review is followed from its bytes to the bytes of the answer, below HTTP, with one replica and a leader. The first pod
of a workload also passes through its policy; later pods of the same kind find it computed. What the program passes to
admission (sync state, outages, rates, the leader) comes from stand-ins: in production, look-ups of one line each in
`webhook.program`, `kube.informer` and `kube.leadership`. Several replicas add `webhook.ownership` and `webhook.peers`.

An event is followed from the store that an informer fills through index and plan until a pod is evicted. That takes
several passes of the loop: slots first, then the release, and the eviction once the replacement serves. It is counted
twice. The whole walk enters everything that runs, also the planners that find nothing to do and every look-up. The path
is what leads from the event to the eviction: the calls that are open when the change is filed, when the workload's
intent, group, wish and actions are made or handed on, and when a write is handed to the API. Each such way is read
once, although several passes take it. The path is a definition of ours: it is what a reader follows who asks "why was
this pod evicted?" It leaves out look-ups that answer and return, such as the fit test. The whole walk is printed beside
it.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

from placement import names
from placement.model import Class
from tests.builders.api import raw_review
from tests.rebalancer.rebalancing import SimulatedRebalancer
from tests.rebalancer.simulation import SimulatedCluster
from tests.webhook.admissionharness import AdmissionHarness
from tests.webhook.generate import CORPUS, adopted
from webhook.metrics import WebhookMetrics
from webhook.reviewer import Reviewer

ROOT = Path(__file__).parent.parent
OURS = tuple(f"{ROOT / each}/" for each in ("certs", "kube", "placement", "rebalancer", "report", "serving", "webhook"))
STAND_INS = f"{ROOT / 'tests'}/"
MOST_PASSES = 60
WRITES = frozenset({"annotate", "hand_over", "evict"})
LEADS_ON = frozenset({"Intent", "Group", "Wish", "Action"})  # what is made on the way from an event to an eviction
HANDED_ON = frozenset({"Action"})  # a planner takes up what an assessment has made


@dataclass(frozen=True)
class Walk:
    """The modules in the order in which they were entered, without consecutive repetitions."""

    entered: tuple[str, ...]

    @classmethod
    def through(cls, entries: Iterable[str]) -> Walk:
        entered: list[str] = []
        for each in entries:
            if entered[-1:] != [each]:
                entered.append(each)
        return cls(tuple(entered))

    @property
    def rooms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.entered))

    @property
    def returns(self) -> int:
        return len(self.entered) - len(self.rooms)

    @property
    def ways_back(self) -> int:
        """Returns, counting those from one module to the same other module once: a loop is read once."""
        ways, seen = list(pairwise(self.entered)), self.entered
        return len({way for number, way in enumerate(ways) if way[1] in seen[:number]})


class Walker:
    """Records each call from one module of ours to another."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self._inside: list[str | None] = [""]  # the module of each active call; None: in a stand-in
        self._resumed: set[FrameType] = set()

    def follow(self, work: Callable[[], object]) -> None:
        sys.setprofile(self._notice)
        try:
            work()
        finally:
            sys.setprofile(None)
            self._inside = [""]

    def _notice(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            self._inside.append(self._room(frame))
        elif event == "return" and len(self._inside) > 1:
            self._inside.pop()

    def _room(self, frame: FrameType) -> str | None:
        """The room of this call: that of its caller, unless it enters a module of ours or a stand-in."""
        caller, file = self._inside[-1], frame.f_code.co_filename
        if caller is None or file.startswith(STAND_INS):
            return None
        if not file.startswith(OURS):
            return caller
        room = str(frame.f_globals["__name__"])
        if room != caller and not self._is_resumed(frame):
            self.entries.append(room)
        return room

    def _is_resumed(self, frame: FrameType) -> bool:
        """A generator continues; that is no new entry."""
        if not frame.f_code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
            return False
        is_known = frame in self._resumed
        self._resumed.add(frame)
        return is_known


class PathFinder(Walker):
    """Notes the modules whose calls are open whenever something is made or handed on that leads on, or is written."""

    def __init__(self) -> None:
        super().__init__()
        self._open: list[FrameType] = []
        self._ways: set[tuple[str, ...]] = set()  # that were noted, and how each begins

    def _notice(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "return" and self._open:
            if type(argument).__name__ in HANDED_ON:
                self._note()
            self._open.pop()
        elif event == "call":
            self._open.append(frame)
            if self._leads_on(frame):
                self._note()

    def _leads_on(self, frame: FrameType) -> bool:
        if frame.f_code.co_filename.startswith(STAND_INS):
            return frame.f_code.co_name in WRITES
        is_made = frame.f_code.co_name == "__init__" and type(frame.f_locals.get("self")).__name__ in LEADS_ON
        return is_made or frame.f_code.co_qualname == "Catalogue.take"

    def _note(self) -> None:
        ours = (each for each in self._open if each.f_code.co_filename.startswith(OURS))
        way = Walk.through(str(each.f_globals["__name__"]) for each in ours).entered
        begins = [way[:length] for length in range(1, len(way) + 1)]
        self.entries += [each[-1] for each in begins if each not in self._ways]
        self._ways.update(begins)


def walk_of(work: Callable[[], object]) -> Walk:
    """The walk of this work."""
    walker = Walker()
    walker.follow(work)
    return Walk.through(walker.entries)


# --- one Pod review --------------------------------------------------------------------------------------------------


def review_walks(pod: str) -> tuple[Walk, Walk]:
    """The walks of a workload's first pod, and of a pod of a known kind (each class has its own first pods)."""
    reviewer = Reviewer(AdmissionHarness().admission, WebhookMetrics())
    *_, last = walks = [walk_of(lambda: reviewer.answer(body)) for body in _bodies(pod, 4)]  # noqa: B023
    return walks[0], last


def _bodies(pod: str, count: int) -> Iterable[bytes]:
    for number in range(count):
        review: dict[str, Any] = raw_review(adopted(CORPUS[pod]), f"request-{number}")
        review["request"]["dryRun"] = False
        yield json.dumps(review).encode()


# --- a watch event ---------------------------------------------------------------------------------------------------


def event_walk(walker: Walker) -> Walk:
    """A workload's ratio changes from 70 % to 30 %: its event, and all passes until a released pod is evicted."""
    cluster = SimulatedCluster()
    cluster.opt_in("shop")
    cluster.add_nodes(Class.SPOT, 6, "abc")
    cluster.add_nodes(Class.ON_DEMAND, 6, "abc")
    web = cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(30)
    changed = replace(cluster.again(web), annotations={names.SPOT_RATIO: "30%"})
    cluster.put(changed)
    cluster.actors.remove(rebalancer.act)
    walker.follow(lambda: rebalancer.feed.stores["deployments"].put(changed))
    for _ in range(MOST_PASSES):
        walker.follow(rebalancer.loop.once)
        if rebalancer.count("finish"):
            return Walk.through(walker.entries)
        cluster.run(1)
    raise RuntimeError("nothing was evicted")


def main() -> None:
    deployment, stateful_set = review_walks("deployment-plain"), review_walks("stateful-plain")
    walks = {
        "review, first pod of a Deployment": deployment[0],
        "review, later pod of a Deployment": deployment[1],
        "review, first pod of a StatefulSet": stateful_set[0],
        "review, later pod of a StatefulSet": stateful_set[1],
        "event → eviction, the path": event_walk(PathFinder()),
        "event → eviction, all that runs": event_walk(Walker()),
    }
    table = Table("walk", "rooms", "returns", "ways back", "rooms, in the order of entering", title="Rooms and returns")
    for name, walk in walks.items():
        counts = (len(walk.rooms), walk.returns, walk.ways_back)
        table.add_row(name, *map(str, counts), " ".join(walk.rooms))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
