"""The view: what one pass of the rebalancer left, with what people ask of it worked out once.

The loop's thread hands over what it has (`Viewer.take`, some references); threads that answer make a view of it when
somebody asks, once for all who ask. A workload's status is worked out anew only when its assessment is another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Protocol

from placement.exposure import Domain, Place, places
from placement.model import Namespace, Pod
from placement.observation import NOTHING_OBSERVED, Observed
from placement.outage import Outage, Outages
from placement.pause import Pause, standing
from placement.plan.actions import Plan
from placement.plan.assess import Assessment
from placement.plan.group import Cohort, Ground, moved
from placement.plan.lost import Lost
from placement.savings import Prices, Rate, Savings, savings
from placement.status import WorkloadStatus, read_policy, status_of

NO_PRICES = Prices()
SHORTEST_SECONDS = 1.0  # a view lasts so long, however many passes there are


class Board(Protocol):
    """What is asked of the rebalancer's board."""

    @property
    def assessments(self) -> Mapping[str, Assessment]: ...
    @property
    def namespaces(self) -> Mapping[str, Namespace]: ...
    @property
    def ground(self) -> Ground: ...
    @property
    def lost(self) -> Lost: ...
    def used(self, node: str) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True)
class Around:
    """What is asked of the program around it."""

    is_leading: Callable[[], bool]
    is_synced: Callable[[], bool]
    outages: Callable[[], Outages]
    pause: Callable[[], Pause | None]
    now: Callable[[], float] = time.time
    observed: Callable[[], Observed] = lambda: NOTHING_OBSERVED


@dataclass(frozen=True, slots=True)
class Taken:
    """What a pass left, as of one moment."""

    at: float
    plan: Plan
    assessments: Mapping[str, Assessment]  # by the workload's UID
    namespaces: Mapping[str, Namespace]
    ground: Ground
    lost: Lost
    outages: tuple[Outage, ...]  # that stand


@dataclass(frozen=True, slots=True)
class Seen:
    """A workload: what it needs, how it stands, and which losses it would not survive."""

    assessment: Assessment
    status: WorkloadStatus
    perils: tuple[Domain, ...]
    moved_at: float | None  # when one of its pods last took the place of another that was moved
    savings: Savings

    @property
    def key(self) -> tuple[str, str, str]:
        workload = self.status.workload
        return (workload.namespace, str(workload.kind), workload.name)


@dataclass(frozen=True)
class View:
    """All that is shown, as of one moment."""

    taken: Taken
    used: Callable[[str], Mapping[str, int]]
    seen: tuple[Seen, ...]  # in the order of namespace, kind and name
    places: Mapping[str, Place]
    rates: Mapping[str, Rate]
    paused: Pause | None
    observed: Observed = NOTHING_OBSERVED

    @cached_property
    def by_key(self) -> Mapping[tuple[str, str, str], Seen]:
        return {each.key: each for each in self.seen}


class Viewer:
    """Makes views of what the rebalancer knows."""

    def __init__(self, board: Board, around: Around, prices: Prices = NO_PRICES) -> None:
        self._board = board
        self._prices = prices
        self.around = around
        self._taken: Taken | None = None
        self._view: View | None = None
        self._seen: dict[str, Seen] = {}
        self._ground: Ground | None = None
        self._places: Mapping[str, Place] = {}
        self._rates: Mapping[str, Rate] = {}
        self._lock = Lock()

    def take(self, plan: Plan, now: float) -> Taken:
        """On the loop's thread, after a pass."""
        board = self._board
        self._taken = Taken(
            now,
            plan,
            dict(board.assessments),
            dict(board.namespaces),
            board.ground,
            dict(board.lost),
            self.around.outages().standing(now),
        )
        return self._taken

    def view(self) -> View | None:
        """The latest; None before the first pass: what was not read is not empty."""
        with self._lock:
            taken = self._taken
            if taken is None or (self._view is not None and taken.at < self._view.taken.at + SHORTEST_SECONDS):
                return self._view
            self._view = self._made(taken)
            return self._view

    def _made(self, taken: Taken) -> View:
        self._survey(taken.ground)
        self._seen = {uid: self._look(uid, each, taken) for uid, each in taken.assessments.items()}
        return View(
            taken,
            self._board.used,
            tuple(sorted(self._seen.values(), key=lambda each: each.key)),
            self._places,
            self._rates,
            standing(self.around.pause(), self.around.now()),
            self.around.observed(),
        )

    def _survey(self, ground: Ground) -> None:
        """Places and rates of all nodes. Where a known node's rate is another one, everything is looked at anew."""
        if ground is self._ground:
            return
        before, self._ground = self._rates, ground
        self._places = places({name: each.node for name, each in ground.sites.items()}, ground.configuration)
        self._rates = self._prices.rates(ground.sites)
        if any(name in self._rates and self._rates[name] != rate for name, rate in before.items()):
            self._seen = {}

    def _look(self, uid: str, found: Assessment, taken: Taken) -> Seen:
        before = self._seen.get(uid)
        if before is not None and before.assessment is found:
            return before
        group = found.group
        namespace = taken.namespaces[group.workload.namespace]
        _, mistakes = read_policy(group.workload, namespace, taken.ground.configuration)
        status = status_of(
            group.workload,
            (group.policy, mistakes),
            [cohort.replicas for cohort in group.cohorts if cohort.replicas],
            (pod for cohort in group.cohorts for pod in (*cohort.pods, *_let_go(cohort))),
            self._places,
            group.availability,
            self.around.observed(),
        )
        moments = [mark.at for member in found.members if (mark := moved(member.pod)) is not None]
        perils = tuple(domain for domain in Domain if not status.exposure.survives(domain))
        return Seen(found, status, perils, max(moments, default=None), savings(group, self._rates))


def _let_go(cohort: Cohort) -> Iterator[Pod]:
    """Released a moment ago: their ReplicaSet still owns them, so they still count as its pods."""
    return (pod for pod in cohort.released if pod.owner is not None and pod.owner.uid == cohort.uid)
