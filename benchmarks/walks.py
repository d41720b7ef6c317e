"""Counts the rooms of walks through the code: what a newcomer enters who follows one review, or one event.

A room is a module of ours. It is entered by a call from another module of ours; consecutive entries of one module count
once. A return is entering a module that was entered before, with another one entered in between. Coming back to a
caller because a function has ended is no entry. Code runs through a loop many times that a reader reads once, so "ways
back" counts returns from one module to the same other one once. Not counted: packages of others, code that the
standard library writes (constructors of dataclasses), and what tests put in the place of the API server.

A review is followed from its bytes to the bytes of the answer, below HTTP, with one replica and a leader. The first pod
of a workload also walks through its policy; later ones of its kind find that worked out. What the program tells
admission (all is synced, outages, rates, a leader) comes from stand-ins: in production, look-ups of one line each in
`webhook.program`, `kube.informer` and `kube.leadership`. Several replicas add `webhook.ownership` and `webhook.peers`.

An event is followed from the store that an informer fills through index and plan until a release is written, which
takes several passes of the loop: slots first, then the move.
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
from tests.rebalancer.rebalancing import Rebalancer
from tests.rebalancer.simulation import Cluster
from tests.webhook.generate import CORPUS, adopted, review_of
from tests.webhook.world import World
from webhook.metrics import WebhookMetrics
from webhook.reviewer import Reviewer

ROOT = Path(__file__).parent.parent
OURS = tuple(f"{ROOT / each}/" for each in ("certs", "kube", "placement", "rebalancer", "report", "serving", "webhook"))
STAND_INS = f"{ROOT / 'tests'}/"
MOST_PASSES = 60


@dataclass(frozen=True)
class Walk:
    """The modules in the order in which they were entered, each entry that is not the same as the one before."""

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
        """Returns, of which those from one module to the same other one count once: a loop is read once."""
        ways, seen = list(pairwise(self.entered)), self.entered
        return len({way for number, way in enumerate(ways) if way[1] in seen[:number]})


class Walker:
    """Notes each call from one module of ours to another, while work is done."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self._inside: list[str | None] = [""]  # the module of each call under way; None: in a stand-in
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
        """Where this call leads: to where its caller is, unless it enters a module of ours, or a stand-in."""
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
        """A generator goes on: nobody enters it again."""
        if not frame.f_code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
            return False
        is_known = frame in self._resumed
        self._resumed.add(frame)
        return is_known


def walk_of(work: Callable[[], object]) -> Walk:
    """The walk of this work."""
    walker = Walker()
    walker.follow(work)
    return Walk.through(walker.entries)


# --- one Pod review --------------------------------------------------------------------------------------------------


def review_walks(pod: str) -> tuple[Walk, Walk]:
    """Of the first pod of a workload; and of one whose kind is known (each class has its own first pods)."""
    reviewer = Reviewer(World().admission, WebhookMetrics())
    *_, last = walks = [walk_of(lambda: reviewer.answer(body)) for body in _bodies(pod, 4)]  # noqa: B023
    return walks[0], last


def _bodies(pod: str, count: int) -> Iterable[bytes]:
    for number in range(count):
        review: dict[str, Any] = review_of(adopted(CORPUS[pod]), f"request-{number}")
        review["request"]["dryRun"] = False
        yield json.dumps(review).encode()


# --- a watch event ---------------------------------------------------------------------------------------------------


def event_walk() -> Walk:
    """A workload's ratio changes from 70 % to 30 %: its event, and all passes until a release is written."""
    cluster = Cluster()
    cluster.opt_in("shop")
    cluster.add_nodes(Class.SPOT, 6, "abc")
    cluster.add_nodes(Class.ON_DEMAND, 6, "abc")
    web = cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer = Rebalancer(cluster)
    cluster.run(30)
    changed = replace(cluster.again(web), annotations={names.SPOT_RATIO: "30%"})
    cluster.put(changed)
    cluster.actors.remove(rebalancer.act)
    walker = Walker()
    walker.follow(lambda: rebalancer.feed.stores["deployments"].put(changed))
    for _ in range(MOST_PASSES):
        walker.follow(rebalancer.loop.once)
        if rebalancer.count("release"):
            return Walk.through(walker.entries)
        cluster.run(1)
    raise RuntimeError("nothing was released")


def main() -> None:
    deployment, stateful_set = review_walks("deployment-plain"), review_walks("stateful-plain")
    walks = {
        "review, first pod of a Deployment": deployment[0],
        "review, later pod of a Deployment": deployment[1],
        "review, first pod of a StatefulSet": stateful_set[0],
        "review, later pod of a StatefulSet": stateful_set[1],
        "event → release": event_walk(),
    }
    table = Table("walk", "rooms", "returns", "ways back", "rooms, in the order of entering", title="Rooms and returns")
    for name, walk in walks.items():
        counts = (len(walk.rooms), walk.returns, walk.ways_back)
        table.add_row(name, *map(str, counts), " ".join(walk.rooms))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
