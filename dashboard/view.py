"""The view: what one pass of the rebalancer left, with what people ask of it worked out once.

The loop's thread hands over what it has (`Viewer.take`, some references); threads that answer make a view of it when
somebody asks, once for all who ask. A workload's status is worked out anew only when its assessment is another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from threading import Lock
from typing import NamedTuple, Protocol

from dashboard.floor import Floor
from placement.exposure import Domain, Place, places
from placement.model import NO_AMOUNTS, Namespace, Pod, Workload
from placement.observation import NOTHING_OBSERVED, Observed
from placement.outage import Outage, Outages
from placement.pause import Pause, standing
from placement.plan.actions import Plan
from placement.plan.assess import Assessment
from placement.plan.group import Cohort, Ground, moved
from placement.plan.lost import Lost
from placement.policy import Mistake
from placement.savings import Prices, Rate, Savings, savings
from placement.status import WorkloadStatus, pod_statuses, read_policy, status_of

NO_PRICES = Prices()
COPY_SECONDS = 1.0
LASTS_SECONDS = 1.0  # a view lasts so long, however many passes there are


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
    def amounts(self) -> Mapping[str, Mapping[str, int]]: ...


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
    used: Mapping[str, Mapping[str, int]]  # by node: what its pods ask for
    outages: tuple[Outage, ...]  # that stand


@dataclass(frozen=True)
class Seen:
    """A workload: what it needs, how it stands, and which losses it would not survive."""

    assessment: Assessment
    status: WorkloadStatus  # without its pods, of which there are too many to keep them all: `View.in_full`
    perils: tuple[Domain, ...]
    moved_at: float | None  # when one of its pods last took the place of another that was moved
    savings: Savings

    @property
    def key(self) -> tuple[str, str, str]:
        workload = self.status.workload
        return (workload.namespace, str(workload.kind), workload.name)

    @cached_property
    def tally(self) -> tuple[int, ...]:
        """What the overview sums up, in the order of `Totals`."""
        status, dreads = self.status, [domain in self.perils for domain in Domain]
        none = [False] * len(dreads)
        return (
            status.actual.spot,
            status.actual.on_demand,
            status.wanted.spot,
            status.wanted.on_demand,
            int(status.is_exact),
            status.soft,
            len(status.missed),
            int(bool(status.mistakes)),
            *(none if status.exposure.is_assumed else dreads),
            *(dreads if status.exposure.is_assumed else none),
        )

    @cached_property
    def peril(self) -> tuple[object, ...]:
        """Declared before assumed; the smaller the loss that is too much, the worse."""
        exposed = self.status.exposure
        return (exposed.is_assumed, list(Domain).index(self.perils[0]), exposed.headroom, self.key)


class Totals(NamedTuple):
    """Sums over all workloads."""

    spot: int = 0
    on_demand: int = 0
    wanted_spot: int = 0
    wanted_on_demand: int = 0
    exact: int = 0
    soft: int = 0
    missed: int = 0
    mistaken: int = 0
    declared: tuple[int, ...] = (0,) * len(Domain)  # would not survive the loss of a domain
    assumed: tuple[int, ...] = (0,) * len(Domain)

    @classmethod
    def of(cls, seen: Sequence[Seen]) -> Totals:
        if not seen:
            return cls()
        sums = list(map(sum, zip(*(each.tally for each in seen), strict=True)))
        plain, losses = sums[: -2 * len(Domain)], sums[-2 * len(Domain) :]
        return cls._make((*plain, tuple(losses[: len(Domain)]), tuple(losses[len(Domain) :])))


@dataclass(frozen=True)
class View:
    """All that is shown, as of one moment. Views of the same number differ in nothing but that moment."""

    number: int
    taken: Taken
    seen: tuple[Seen, ...]  # in the order of namespace, kind and name
    places: Mapping[str, Place]
    rates: Mapping[str, Rate]
    savings: Savings
    floor: Floor
    paused: Pause | None
    observed: Observed = NOTHING_OBSERVED

    def in_full(self, seen: Seen) -> WorkloadStatus:
        return replace(seen.status, pods=pod_statuses(_pods(seen.assessment), self.places))

    def used(self, node: str) -> Mapping[str, int]:
        return self.taken.used.get(node, NO_AMOUNTS)

    @cached_property
    def totals(self) -> Totals:
        return Totals.of(self.seen)

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
        self._copied_at = float("-inf")
        self._view: View | None = None
        self._seen: dict[str, Seen] = {}
        self._order: Sequence[str] = ()
        self._mistakes: dict[str, tuple[Mapping[str, str], Namespace, tuple[Mistake, ...]]] = {}
        self._savings: tuple[Mapping[str, Savings], Savings] = ({}, Savings())
        self._ground: Ground | None = None
        self._floor = Floor(Ground({}), {})
        self._places: Mapping[str, Place] = {}
        self._rates: Mapping[str, Rate] = {}
        self._lock = Lock()

    def take(self, plan: Plan, now: float) -> Taken:
        """On the loop's thread, after a pass. Workloads are copied once a second, however many passes there are."""
        board, before = self._board, self._taken
        is_fresh = abs(now - self._copied_at) < COPY_SECONDS  # clocks are set, and may go back
        kept = before if before is not None and is_fresh and not self._has_nodes_changed(before) else None
        self._copied_at = now if kept is None else self._copied_at
        self._taken = Taken(
            now,
            plan,
            dict(board.assessments) if kept is None else kept.assessments,
            dict(board.namespaces) if kept is None else kept.namespaces,
            board.ground,
            dict(board.lost),
            board.amounts() if kept is None else kept.used,
            self.around.outages().standing(now),
        )
        return self._taken

    def _has_nodes_changed(self, before: Taken) -> bool:
        return before.ground is not self._board.ground or before.lost != self._board.lost

    def view(self, lasts_seconds: float = LASTS_SECONDS) -> View | None:
        """The latest; None before the first pass: what was not read is not empty."""
        with self._lock:
            if self._taken is not None and self.current(lasts_seconds) is None:
                self._view = self._made(self._taken)
            return self._view

    def current(self, lasts_seconds: float = LASTS_SECONDS) -> View | None:
        """The same where nothing is to be made for it; None: another one is due. From any thread, and costs nothing."""
        taken, view = self._taken, self._view
        if view is None or taken is None:
            return None
        # Clocks are set, and may go back: what matters is that it is another moment.
        return view if taken is view.taken or abs(taken.at - view.taken.at) < lasts_seconds else None

    def renewed(self, lasts_seconds: float = LASTS_SECONDS) -> View | None:
        """The latest, if that costs next to nothing: none is due, or all is as it was. None: ask for `view`."""
        view = self.current(lasts_seconds)
        if view is not None or not self._lock.acquire(blocking=False):
            return view
        try:
            if self._view is not None and self._taken is not None and self._is_as_before(self._view, self._taken):
                view = self._view = replace(self._view, taken=self._taken)
            return view
        finally:
            self._lock.release()

    def _is_as_before(self, before: View, taken: Taken) -> bool:
        return before.paused == self._paused() and _is_same(before.taken, taken)

    def _paused(self) -> Pause | None:
        return standing(self.around.pause(), self.around.now())

    def _made(self, taken: Taken) -> View:
        before = self._view
        if before is not None and self._is_as_before(before, taken):
            return replace(before, taken=taken)
        self._survey(taken.ground)
        known = self._seen
        seen = {
            uid: old if (old := known.get(uid)) is not None and old.assessment is each else self._look(each, taken)
            for uid, each in taken.assessments.items()
        }
        if seen.keys() != self._seen.keys() or not self._order:
            self._order = sorted(seen, key=lambda uid: seen[uid].key)
            self._mistakes = {uid: known for uid, known in self._mistakes.items() if uid in seen}
        self._seen = seen
        return View(
            0 if before is None else before.number + 1,
            taken,
            tuple(seen[uid] for uid in self._order),
            self._places,
            self._rates,
            self._saved(),
            self._floor_of(taken),
            self._paused(),
            self.around.observed(),
        )

    def _floor_of(self, taken: Taken) -> Floor:
        if not self._floor.is_of(taken.ground, taken.used):
            self._floor = Floor(taken.ground, taken.used)
        return self._floor

    def _saved(self) -> Savings:
        """Of all workloads; most changes change nothing here."""
        each_saves = {uid: each.savings for uid, each in self._seen.items()}
        if each_saves != self._savings[0]:
            self._savings = (each_saves, sum(each_saves.values(), Savings()))
        return self._savings[1]

    def _survey(self, ground: Ground) -> None:
        """Places and rates of all nodes. Where a known node's rate is another one, everything is looked at anew."""
        if ground is self._ground:
            return
        before, self._ground = self._rates, ground
        self._places = places({name: each.node for name, each in ground.sites.items()}, ground.configuration)
        self._rates = self._prices.rates(ground.sites)
        if any(name in self._rates and self._rates[name] != rate for name, rate in before.items()):
            self._seen = {}

    def _mistakes_of(self, workload: Workload, taken: Taken) -> tuple[Mistake, ...]:
        """Read once for as long as nobody writes anything else: that costs as much as all the rest."""
        namespace = taken.namespaces[workload.namespace]
        known = self._mistakes.get(workload.uid)
        if known is not None and known[:2] == (workload.annotations, namespace):
            return known[2]
        _, mistakes = read_policy(workload, namespace, taken.ground.configuration)
        self._mistakes[workload.uid] = (workload.annotations, namespace, mistakes)
        return mistakes

    def _look(self, found: Assessment, taken: Taken) -> Seen:
        group = found.group
        status = status_of(
            group.workload,
            (group.policy, self._mistakes_of(group.workload, taken)),
            [cohort.replicas for cohort in group.cohorts if cohort.replicas],
            _pods(found),
            self._places,
            group.availability,
            self.around.observed(),
        )
        moments = [mark.at for member in found.members if (mark := moved(member.pod)) is not None]
        perils = tuple(domain for domain in Domain if not status.exposure.survives(domain))
        return Seen(found, replace(status, pods=()), perils, max(moments, default=None), savings(group, self._rates))


def _is_same(one: Taken, other: Taken) -> bool:
    """But for the moment. Most of what they hold are the same objects, which costs nothing to see."""
    compared = (each.name for each in fields(Taken) if each.name not in ("at", "ground"))
    return one.ground is other.ground and all(getattr(one, name) == getattr(other, name) for name in compared)


def _pods(found: Assessment) -> Iterator[Pod]:
    return (pod for cohort in found.group.cohorts for pod in (*cohort.pods, *_let_go(cohort)))


def _let_go(cohort: Cohort) -> Iterator[Pod]:
    """Released a moment ago: their ReplicaSet still owns them, so they still count as its pods."""
    return (pod for pod in cohort.released if pod.owner is not None and pod.owner.uid == cohort.uid)
