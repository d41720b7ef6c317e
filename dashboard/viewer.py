"""Makes views of what the rebalancer knows, once for all clients, pages and Prometheus alike.

The loop's thread passes what it has (`Viewer.take`, a few references). The answering threads make a view of it on
request. A workload is computed again only when its assessment changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import Protocol

from placement.gang.gang import Gang
from placement.model import Key, Namespace, Pod
from placement.observation import NOTHING_OBSERVED, Observed
from placement.outage import Outages
from placement.pause import Pause, standing
from placement.plan.actions import Plan
from placement.plan.assess import Assessment
from placement.plan.ground import Ground
from placement.plan.losses import Lost
from placement.plan.storage import Storage
from placement.skipped import SkipCounts
from report.exposure import exposure
from report.held import Holding
from report.nodepools import Floor
from report.savings import Prices, Rate, Savings, savings, total
from report.view import HeldByWorkload, Taken, View, held_among
from report.workloadview import Totals, WorkloadView

NO_PRICES = Prices()
TAKE_SECONDS = 1.0
LASTS_SECONDS = 1.0  # a view lasts so long, however many passes there are


class Facts(Protocol):
    """What is asked of the rebalancer's index."""

    @property
    def version(self) -> int: ...
    @property
    def assessments(self) -> Mapping[str, Assessment]: ...
    @property
    def namespaces(self) -> Mapping[str, Namespace]: ...
    @property
    def ground(self) -> Ground: ...
    @property
    def lost(self) -> Lost: ...
    @property
    def failing(self) -> Collection[str]: ...
    @property
    def skipped(self) -> SkipCounts: ...
    @property
    def gangs(self) -> Mapping[Key, Gang]: ...
    @property
    def marked(self) -> Mapping[str, Pod]: ...
    def amounts(self) -> Mapping[str, Mapping[str, int]]: ...
    def pods(self) -> Mapping[str, Sequence[Pod]]: ...
    def storage(self) -> Storage: ...


@dataclass(frozen=True, slots=True)
class Around:
    """What is asked of the program around it."""

    is_leading: Callable[[], bool]
    is_synced: Callable[[], bool]
    outages: Callable[[], Outages]
    pause: Callable[[], Pause | None]
    now: Callable[[], float] = time.time
    observed: Callable[[], Observed] = lambda: NOTHING_OBSERVED


class Viewer:
    """Makes views of what the rebalancer knows: one for all who ask, pages and Prometheus alike."""

    def __init__(self, facts: Facts, around: Around, prices: Prices = NO_PRICES) -> None:
        self._facts = facts
        self._prices = prices
        self.around = around
        self._taken: Taken | None = None
        self._view: View | None = None
        self._number = -1  # of the latest view
        self._seen: dict[str, WorkloadView] = {}
        self._totals = Totals()
        self._order: Sequence[str] = ()
        self._savings: tuple[Mapping[str, Savings], Savings] = ({}, Savings())
        self._ground: Ground | None = None
        self._observed = NOTHING_OBSERVED
        self._floor = Floor(Ground({}), {})
        self._rates: Mapping[str, Rate] = {}
        self._lock = Lock()

    def take(self, plan: Plan, now: float) -> Taken:
        """On the loop's thread, after a pass: once a second, however many there are, and sooner where nodes change.

        Only references are copied, and only where the index has changed: 0.1 ms for 1,500 workloads on 500 nodes.
        """
        facts, before = self._facts, self._taken
        if before is not None and abs(now - before.at) < TAKE_SECONDS and not _has_nodes_changed(before, facts):
            return before  # clocks are set, and may go back: hence abs()
        outages = self.around.outages().standing(now)
        if before is not None and before.version == facts.version:
            self._taken = replace(before, at=now, plan=plan, outages=outages)
        else:
            self._taken = Taken(
                now,
                plan,
                outages,
                facts.version,
                dict(facts.assessments),
                dict(facts.namespaces),
                facts.ground,
                dict(facts.lost),
                facts.amounts(),
                len(facts.failing),
                facts.pods(),
                facts.skipped,
                facts.storage(),
                dict(facts.gangs),
                dict(facts.marked),
            )
        return self._taken

    def view(self, lasts_seconds: float = LASTS_SECONDS) -> View | None:
        """The latest; None before the first pass: what was not read is not empty."""
        with self._lock:
            if self._taken is not None and self.current(lasts_seconds) is None:
                self._view = self._made(self._taken)
            return self._view

    def current(self, lasts_seconds: float = LASTS_SECONDS) -> View | None:
        """The present view; None if a new one is due. Callable from any thread, and cheap.

        Changes of nodes make a new view due at once.
        """
        taken, view = self._taken, self._view
        if view is None or taken is None:
            return None
        is_quiet = taken.ground is view.taken.ground and taken.outages == view.taken.outages
        lasts = lasts_seconds if is_quiet else min(lasts_seconds, LASTS_SECONDS)
        return view if taken is view.taken or abs(taken.at - view.taken.at) < lasts else None

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
        return (
            before.paused == self._paused()
            and before.observed is self.around.observed()
            and _is_same(before.taken, taken)
            and before.held == self._held(before.seen, taken)
        )

    def _held(self, seen: Iterable[WorkloadView], taken: Taken) -> HeldByWorkload:
        """Holds also end by time alone."""
        return held_among(seen, Holding.on(taken.ground, taken.at, is_paused=self._paused() is not None))

    def _paused(self) -> Pause | None:
        return standing(self.around.pause(), self.around.now())

    def _made(self, taken: Taken) -> View:
        before = self._view
        if before is not None and self._is_as_before(before, taken):
            return replace(before, taken=taken)
        self._number += 1
        before = self._view = None  # it holds much that is not needed any more, and must not be there twice
        self._survey(taken.ground)
        self._look_again(taken)
        seen = tuple(self._seen[uid] for uid in self._order)
        return View(
            self._number,
            taken,
            seen,
            self._totals,
            self._rates,
            self._saved(),
            self._floor_of(taken),
            self._paused(),
            self._observed,
            self._held(seen, taken),
        )

    def _look_again(self, taken: Taken) -> None:
        """At workloads whose assessment is another one."""
        seen, totals, gone, new = self._seen, self._totals, [], []
        self._seen, self._totals = {}, Totals()  # were one of them to fail, the next view begins from nothing
        count = len(seen)
        for uid, each in taken.assessments.items():
            old = seen.get(uid)
            if old is None or old.assessment is not each:
                gone += [] if old is None else [old.tally]
                seen[uid] = old = self._look(each)
                new.append(old.tally)
        removed = [uid for uid in seen if uid not in taken.assessments] if len(seen) > len(taken.assessments) else []
        gone += [seen.pop(uid).tally for uid in removed]
        if removed or len(seen) > count or len(self._order) != len(seen):
            self._order = sorted(seen, key=lambda uid: seen[uid].key)
        self._seen, self._totals = seen, totals.changed(new, gone)

    def _floor_of(self, taken: Taken) -> Floor:
        if not self._floor.is_of(taken.ground, taken.used):
            self._floor = Floor(taken.ground, taken.used)
        return self._floor

    def _saved(self) -> Savings:
        """Of all workloads; most changes change nothing here."""
        each_saves = {uid: each.savings for uid, each in self._seen.items()}
        known, saved = self._savings
        if each_saves != known:
            saved = total(each_saves.values())
        self._savings = (each_saves, saved)  # also if they are equal: the old ones would be kept beside the new
        return saved

    def _survey(self, ground: Ground) -> None:
        """The rates of all nodes. If the rate of a known node changes, or pools have new observations,
        everything is computed again.
        """
        before, observed = self._rates, self.around.observed()
        if ground is not self._ground:
            self._ground = ground
            self._rates = self._prices.rates(ground.sites)
        is_dearer = any(name in self._rates and self._rates[name] != rate for name, rate in before.items())
        if is_dearer or observed is not self._observed:
            self._observed = observed
            self._seen, self._totals = {}, Totals()

    def _look(self, found: Assessment) -> WorkloadView:
        group = found.group
        seen = exposure(found.standing, group.availability, self._observed)
        return WorkloadView(found, seen, savings(group, self._rates))


def _has_nodes_changed(before: Taken, facts: Facts) -> bool:
    return before.ground is not facts.ground or before.lost != facts.lost


def _is_same(one: Taken, other: Taken) -> bool:
    """Equal except for the time, and for pods that are not shown: only drills use which pods share a node.

    Most fields are identical objects, so the comparison is cheap.
    """
    compared = (each.name for each in fields(Taken) if each.name not in ("at", "version", "ground", "pods"))
    return one.ground is other.ground and all(getattr(one, name) == getattr(other, name) for name in compared)
