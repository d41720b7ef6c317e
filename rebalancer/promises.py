"""Keeps the promise of `spot-ratio: auto`: observes what losses cost each workload, and chooses its ratio.

Only the leader chooses. It notes its choices in `spotweave-state`, where webhooks and rebalancers read them. A workload
is looked at every minute, and at every pass while a loss of it is not over. A new choice is written at once, but not
within ten seconds of the last one; what was observed, four times an hour.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice

from kube.configmaps import ObservedMemory
from kube.errors import ApiError
from placement import autostate, names
from placement.autoratio import STEPS
from placement.autostate import MOST_WORKLOADS, NOTHING_CHOSEN, AutoState, WorkloadRecord, key_of, parse_autostate
from placement.bursts import hazard
from placement.incident import Incident
from placement.model import Node, NodeTerm
from placement.observation import Observed
from placement.plan.assess import Assessment
from placement.plan.ground import Ground
from placement.plan.group import own_terms
from placement.plan.reach import term_holds
from placement.promise import DAY_SECONDS, LARGEST, AutoStanding, Hazard, Service, decided, passed
from placement.slots import Mix, Slots
from rebalancer.index import Index

log = logging.getLogger(__name__)

LOOK_SECONDS = 60.0
MOST_AT_ONCE = 300  # workloads
MOST_TOLD = 10  # entries that cannot be read
SOONEST_SECONDS = 10.0  # between two writes
REGULAR_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Noted:
    """What is read back from the cluster: observations of pools, choices, and whether all programs can read these."""

    observed: Observed
    text: str  # of the choices
    is_there: bool

    @classmethod
    def of(cls, memory: ObservedMemory) -> Noted:
        return cls(memory.current, memory.auto_text, memory.is_auto_noted)

    @property
    def state(self) -> AutoState:
        try:
            found = parse_autostate(self.text) if self.text else NOTHING_CHOSEN
        except ValueError as error:
            log.warning("%s: %s; starting from empty", names.STATE_MAP, error)
            return NOTHING_CHOSEN
        for each in found.unreadable[:MOST_TOLD]:
            log.warning("%s: %s: a workload starts from empty: %s", names.STATE_MAP, autostate.KEY, each)
        return found


class Promises:
    """The workloads on `auto`."""

    def __init__(
        self,
        index: Index,
        is_leading: Callable[[], bool],
        noted: Callable[[], Noted],
        write: Callable[[AutoState], bool],  # False if it is too large
    ) -> None:
        self._index = index
        self._is_leading = is_leading
        self._noted = noted
        self._write = write
        self._leads = False
        self._records: dict[str, WorkloadRecord] = {}  # by `key_of`
        self._incidents: dict[str, Incident] = {}  # by UID
        self._due: dict[str, float] = {}  # by UID
        self._version = 0
        self._written = 0.0
        self._is_changed = False  # a choice that is not written yet
        self._is_too_large = False  # what was to be written last
        self._pools: tuple[Ground | None, dict[tuple[NodeTerm, ...], tuple[str, ...]]] = (None, {})

    def hear(self, node: Node, now: float, workloads: Mapping[str, int]) -> None:
        """A spot node was lost, or its end announced, with so many pods of these workloads."""
        for uid, pods in workloads.items():
            found = self._index.assessments.get(uid)
            if found is None or not is_auto(found):
                continue
            wanted = min(found.group.workload.replicas, _total(found.lasting) + pods)
            nodes, known = frozenset((node.name,)), self._incidents.get(uid)
            self._incidents[uid] = Incident(now, wanted, nodes) if known is None else known.joined(nodes, wanted)

    def look(self, now: float) -> None:
        """Called after every pass, on the loop's thread."""
        if not self._is_leading():
            self._leads, self._incidents = False, {}
            return
        if not self._leads:
            self._take_over(now)
        for uid in list(self._workloads(now)):
            self._look_at(uid, now)
        self._write_down(now)

    def _take_over(self, now: float) -> None:
        """Goes on from what the last leader noted."""
        state = self._noted().state
        self._leads, self._version = True, state.version
        self._records = dict(islice(state.workloads.items(), MOST_WORKLOADS))
        self._due, self._written, self._is_changed = {}, now, False

    def _workloads(self, now: float) -> Iterator[str]:
        """Those with a loss, and some of those whose time has come: many at once would hold up the next pass."""
        yield from self._incidents
        due = (uid for uid in self._index.assessments if now >= self._due.get(uid, 0.0) and uid not in self._incidents)
        yield from islice(due, MOST_AT_ONCE)

    def _look_at(self, uid: str, now: float) -> None:
        found, key = self._index.assessments.get(uid), key_of(uid)
        if found is None or not is_auto(found) or (key not in self._records and _is_too_small(found)):
            self._incidents.pop(uid, None)
            self._due[uid] = now + LOOK_SECONDS
            return
        record = self._records.get(key) or _first(found, now)
        incident = self._incidents.get(uid)
        if incident is None:
            record = _counted(found, record, now, was_short=False)
        else:
            record = self._follow(uid, incident, found, record, now)
        self._choose(key, found, record, now)
        self._due[uid] = now + LOOK_SECONDS

    def _follow(
        self, uid: str, incident: Incident, found: Assessment, record: WorkloadRecord, now: float
    ) -> WorkloadRecord:
        is_short = _total(found.actual) < found.group.needed
        record = _counted(found, record, incident.began, was_short=False)
        record = _counted(found, record, now, was_short=is_short)
        sites = self._index.ground.sites
        is_gone = any(node not in sites or not sites[node].node.ready for node in incident.nodes)
        incident = incident.seen(now, elsewhere=_total(found.lasting), is_gone=is_gone)
        if not incident.is_over(now, is_short=is_short):
            self._incidents[uid] = incident
            return record
        del self._incidents[uid]
        return incident.noted_in(record, now)

    def _choose(self, key: str, found: Assessment, record: WorkloadRecord, now: float) -> None:
        standing, limit = decided(record.standing, _service(found, record), self._hazard(found, now))
        before = self._records.get(key)
        if before is None and len(self._records) >= MOST_WORKLOADS:
            return  # it keeps the first estimate
        self._is_changed |= before is None or standing.step != before.standing.step
        if standing.step != record.standing.step:
            workload = found.group.workload
            log.info("auto: %s %s: %s", workload.kind, workload.key, _told(standing, str(limit)))
        self._records[key] = replace(record, standing=standing, limit=limit)

    def _hazard(self, found: Assessment, now: float) -> Hazard:
        observed = self._noted().observed
        pools = {pool: observed.of(pool).rate for pool in self._usable(found)}
        return hazard(pools, observed.bursts, now)

    def _usable(self, found: Assessment) -> tuple[str, ...]:
        """The live spot pools that the workload's own selector and affinity leave it."""
        ground = self._index.ground
        if self._pools[0] is not ground:
            self._pools = (ground, {})
        pod = next((pod for cohort in found.group.cohorts for pod in cohort.pods), None)
        terms = () if pod is None else own_terms(pod, ground.configuration.classes)
        known = self._pools[1].get(terms)
        if known is None:
            known = self._pools[1][terms] = tuple(sorted(_pools(ground, terms)))
        return known

    def _write_down(self, now: float) -> None:
        """If the note was deleted, it is written again, so that no ratio jumps."""
        is_lost = bool(self._records) and not self._noted().is_there
        since = now - self._written
        if since < (SOONEST_SECONDS if self._is_changed or is_lost else REGULAR_SECONDS):
            return
        self._written = now
        self._due = {uid: at for uid, at in self._due.items() if uid in self._index.assessments}
        kept = self._kept(now)
        if not kept:
            return
        try:
            is_written = self._write(AutoState(self._version + 1, kept))
        except (ApiError, TimeoutError) as error:
            log.warning("cannot write what auto has chosen: %s", error)
            return
        if not is_written and not self._is_too_large:
            log.warning("what auto has chosen for %d workloads is too large for a note; the last one stays", len(kept))
        self._is_too_large, self._is_changed = not is_written, False
        if is_written:
            self._records, self._version = kept, self._version + 1

    def _kept(self, now: float) -> dict[str, WorkloadRecord]:
        """Of workloads that there are, even if they were not looked at for a day; of others for a day."""
        live = {key_of(uid) for uid in self._index.assessments}
        known = self._records.items()
        return {key: each for key, each in known if key in live or now < each.standing.at + DAY_SECONDS}


def is_auto(found: Assessment) -> bool:
    return found.group.policy.spot_ratio is None


def _is_too_small(found: Assessment) -> bool:
    """Nothing of it could be on spot. The first estimate goes by its size, so a choice waits until it has grown."""
    group = found.group
    return Slots(Fraction(LARGEST, STEPS), group.policy.min_on_demand).spot(group.workload.replicas) == 0


def _pools(ground: Ground, terms: tuple[NodeTerm, ...]) -> set[str]:
    spot = (site for site in ground.sites.values() if site.is_target and site.spot_pool)
    return {site.spot_pool for site in spot if not terms or any(term_holds(term, site) for term in terms)}


def _total(mix: Mix) -> int:
    return mix.spot + mix.on_demand


def _service(found: Assessment, record: WorkloadRecord) -> Service:
    group = found.group
    replicas, policy = group.workload.replicas, group.policy
    target = float(policy.availability_target)
    return Service(replicas, group.needed, policy.min_on_demand, target, record.missed_seconds)


def _counted(found: Assessment, record: WorkloadRecord, now: float, *, was_short: bool) -> WorkloadRecord:
    """With the time up to now."""
    return replace(record, standing=passed(record.standing, _service(found, record), now, was_short=was_short))


def _first(found: Assessment, now: float) -> WorkloadRecord:
    """It begins with the ratio that its pods got until now, so that it does not jump."""
    step = min(LARGEST, int(found.group.policy.ratio * STEPS))
    return WorkloadRecord(AutoStanding(now, now, step=step))


def _told(standing: AutoStanding, limit: str) -> str:
    return f"{100 * (standing.step or 0) // STEPS}% spot: {limit}"
