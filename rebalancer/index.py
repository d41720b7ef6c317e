"""The index: the cluster as the rebalancer knows it, kept up to date by differences, one workload at a time.

Stores report what has changed; the index takes note in `drain` (`rebalancer.catalogue`), and assesses again in
`refresh` only what the changes touch. So the work for an event depends on the size of one workload, not on that of the
cluster. One thread reads it: the loop's. What answers others (metrics, dashboard) keeps what that thread hands over
after a pass.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from placement.configuration import Configuration
from placement.gang.belonging import is_guarded
from placement.gang.candidate import Candidate, Claimant, is_lower
from placement.gang.evictable import of_gangs, of_solo
from placement.gang.exclusive import TaintChange, kept_apart, taint_changes
from placement.gang.gang import Gang, guarded_gang
from placement.gang.podgroup import GroupStatus, PodGroup, status_for
from placement.gang.services import of_services
from placement.intent import Readings, intent_of
from placement.model import NO_AMOUNTS, Budget, Key, Namespace, Node, Pod, Quota, Subject
from placement.plan.assess import Assessment, assess, stranded
from placement.plan.ground import Ground
from placement.plan.group import Group, group_of
from placement.plan.losses import GoneNode
from placement.plan.neighbours import Neighbours
from placement.plan.release import LeftBehind
from placement.plan.remains import left_behind
from placement.plan.storage import Storage
from placement.skipped import SkipCounts
from rebalancer.catalogue import Catalogue
from rebalancer.multimap import put

log = logging.getLogger(__name__)

LEFT_BEHIND_SECONDS = 60.0  # a gate that nothing needs is taken off after ten seconds
LOOK_SECONDS = 0.9  # the loop comes by every second


class Index:
    """What is there, and what each workload needs."""

    def __init__(
        self, configuration: Configuration, are_pod_groups_served: Callable[[], bool | None] = lambda: False
    ) -> None:
        """`are_pod_groups_served` gives None while that is not known."""
        self._configuration = configuration
        self._are_pod_groups_served = are_pod_groups_served
        self._catalogue = Catalogue(configuration)
        self._changes: deque[tuple[Any, Any]] = deque()
        self.version = 0  # goes up whenever something may be another
        self._readings = Readings()
        self.assessments: dict[str, Assessment] = {}  # by the workload's UID
        self.failing: set[str] = set()  # workloads that could not be assessed
        self.sizes: Counter[str] = Counter()  # by namespace: workloads that are assessed
        self._restless: set[str] = set()
        self._stranded: dict[str, Assessment] = {}  # opted-out workloads with pods that find no node because of us
        self._looked_at = float("-inf")
        self.gangs: dict[Key, Gang] = {}  # those that are looked after
        self._waiting_gangs: set[Key] = set()  # those with something to do, or to wait for
        self._grouped: set[str] = set()  # UIDs of PodGroups that have had members
        self._exclusive_gangs: set[Key] = set()  # those with nodes of their own

    # --- changes -----------------------------------------------------------------------------------------------------

    def observe(self, old: Any, new: Any) -> None:
        """Follows a store; from any thread."""
        self._changes.append((old, new))

    def drain(self) -> int:
        """Takes note of all changes so far; how many they were."""
        count, known = 0, self._catalogue
        are_served = self._are_pod_groups_served()  # first: what it rests on is among the changes
        if known.pod_groups.are_served is not are_served:
            known.pod_groups.are_served = are_served
            known.gangs.touch_all()
        while self._changes:
            known.take(*self._changes.popleft())
            count += 1
        self.version += count
        return count

    def refresh(self, now: float, *, all_of_them: bool = False) -> None:
        """Assesses the workloads that changes have touched; and once a second, those for which time passes.

        Many may be blocked for long, and there may be many changes in a second: they must not cost their product.
        Pods and workloads carry what anybody wrote. Whatever one of them makes of our code ends here: it is logged
        once, the workload is left alone until it changes or the next sweep, and all others go on.
        """
        catalogue = self._catalogue
        catalogue.now = now
        touched = catalogue.touched.union(catalogue.workloads) if all_of_them else catalogue.touched
        if abs(now - self._looked_at) >= LOOK_SECONDS:  # clocks are set, and may go back
            touched = touched | self._restless | self._stranded.keys()
            self._looked_at = now
        catalogue.touched = set()
        self.version += len(touched)
        ground = self.ground
        for uid in touched:
            try:
                self._assess(uid, ground, now)
                self.failing.discard(uid)
            except Exception:  # a boundary: one workload is not to stop all others
                self._leave_alone(uid)
                if uid not in self.failing:
                    log.exception("cannot assess %s; it is left alone", self._name(uid))
                self.failing.add(uid)
        catalogue.departures.forget()
        self._refresh_gangs(all_of_them=all_of_them)

    def _assess(self, uid: str, ground: Ground, now: float) -> None:
        group = self._group(uid)
        self._catalogue.skipped.look(uid, self._catalogue.relations)
        if group is None:
            self._leave_alone(uid)
            self._strand(uid, ground, now)
            return
        self._stranded.pop(uid, None)
        before = self.assessments.get(uid)
        found = assess(group, ground, now, () if before is None else before.members)
        self._catalogue.departures.note(found.lost)
        if before is None:
            self.sizes[group.workload.namespace] += 1
        self.assessments[uid] = found
        (self._restless.add if found.is_restless else self._restless.discard)(uid)

    def _refresh_gangs(self, *, all_of_them: bool) -> None:
        known, members = self._catalogue, self._catalogue.gangs
        if all_of_them:
            members.touch_all()
        self.version += len(members.touched)
        for key in members.touched:
            is_ours = known.relations.is_opted_in(key.namespace)
            found = None
            if is_ours:
                found = members.gang(key, known.size_of, known.pod_groups.find, known.facts_of, known.fate_of)
            put(self.gangs, key, found)
            is_waiting = found is not None and found.is_restless
            (self._waiting_gangs.add if is_waiting else self._waiting_gangs.discard)(key)
            is_exclusive = found is not None and bool(found.terms.exclusive)
            (self._exclusive_gangs.add if is_exclusive else self._exclusive_gangs.discard)(key)
        members.touched = set()

    def _strand(self, uid: str, ground: Ground, now: float) -> None:
        """An opted-out workload: nothing is done but to free pods that wait because of what we required of them."""
        group = self._group(uid, opted_out=True)
        put(self._stranded, uid, None if group is None else stranded(group, ground, now))

    def _leave_alone(self, uid: str) -> None:
        before = self.assessments.pop(uid, None)
        if before is not None:
            namespace = before.group.workload.namespace
            put(self.sizes, namespace, self.sizes[namespace] - 1 or None)
        self._restless.discard(uid)

    def _group(self, uid: str, *, opted_out: bool = False) -> Group | None:
        known = self._catalogue
        workload = known.relations.looked_after(uid, opted_out=opted_out)
        if workload is None:
            return None
        namespace = known.namespaces[workload.namespace]
        budgets = known.budgets_for(workload.namespace, workload.template.labels)
        intent = intent_of(workload, namespace, budgets, known.rates, self._configuration, self._readings.read)
        cohorts, quotas = known.relations.cohorts(workload), known.quotas_in(workload.namespace)
        return group_of(intent, cohorts, quotas, known.signs.hold_of(workload))

    def _name(self, uid: str) -> str:
        workload = self._catalogue.workloads.get(uid)
        return uid if workload is None else f"{workload.kind} {workload.key}"

    # --- what is asked -----------------------------------------------------------------------------------------------

    @property
    def ground(self) -> Ground:
        return self._catalogue.ground

    def restless(self, also: Collection[str] = ()) -> list[Assessment]:
        """What there is to plan for, in a lasting order; also these workloads, by their UIDs, if they are known."""
        planned = self._restless.union(uid for uid in also if uid in self.assessments) if also else self._restless
        return [*(self.assessments[uid] for uid in sorted(planned)), *self._stranded.values()]

    def left_behind(self) -> list[LeftBehind]:
        """Released pods that no assessment covers."""
        return list(left_behind(self._catalogue.relations, self.assessments, self.failing))

    @property
    def lost(self) -> dict[str, GoneNode]:
        """By name: nodes that are gone, and still have pods."""
        return self._catalogue.departures.lost

    @property
    def interrupted(self) -> deque[Node]:
        """Spot nodes that the cloud took, each once. What counts them takes them away."""
        return self._catalogue.departures.interrupted

    def workloads_on(self, node: str) -> Mapping[str, int]:
        """How many pods of which workloads are on a node, by UID."""
        return self._catalogue.workloads_on(node)

    @property
    def namespaces(self) -> Mapping[str, Namespace]:
        return self._catalogue.namespaces

    @property
    def waiting(self) -> Collection[Pod]:
        """Pods of everybody that have no node yet, and will take room somewhere."""
        return self._catalogue.waiting.values()

    def restless_gangs(self) -> list[Gang]:
        """Those that wait or start, in a lasting order."""
        return [self.gangs[key] for key in sorted(self._waiting_gangs)]

    def gang_members(self, key: Key) -> Collection[Pod]:
        """All that are there, those that have ended among them."""
        return self._catalogue.gangs.members(key)

    def guarded_gangs(self) -> list[Gang]:
        """Pods without a gang that the scheduler finds no node for, or for which room is being made."""
        if not self._configuration.gangs.guard_solo:
            return []
        known = self._catalogue
        waiting = (pod for pod in known.waiting.values() if pod.unschedulable)
        reserved = (pod for pod in known.gangs.nominated.values() if pod.gang_plan)
        found = [pod for pod in (*waiting, *reserved) if is_guarded(pod) and known.relations.is_opted_in(pod.namespace)]
        return [guarded_gang(pod) for pod in sorted(found, key=lambda pod: pod.key)]

    @property
    def taint_changes(self) -> list[TaintChange]:
        """Nodes that are to be a gang's own, or not any more."""
        gangs = [self.gangs[key] for key in sorted(self._exclusive_gangs)]
        taints = {name: site.node.taints for name, site in self.ground.sites.items()}
        own = {node: mark for gang in gangs for node, mark in gang.own_nodes.items()}
        reserved = {found.node for gang in gangs for _, found in gang.reservations}
        return taint_changes(kept_apart(own, reserved, taints), taints)

    @property
    def nominated(self) -> Collection[Pod]:
        """Pods for which a node is kept free, without the members of gangs that are looked after."""
        others = self._catalogue.gangs.nominated_beside(self.gangs)
        is_guarding = self._configuration.gangs.guard_solo
        return [pod for pod in others if not (is_guarding and pod.gang_plan and is_guarded(pod))]

    def group_changes(self) -> Iterator[tuple[PodGroup, GroupStatus]]:
        """PodGroups that have members, or had some, and what they are to say of them. Others are another tool's."""
        known = self._catalogue
        for group in known.pod_groups:
            if group.is_over or not known.relations.is_opted_in(group.namespace):
                continue
            members = known.gangs.members(group.key)
            if members:
                self._grouped.add(group.uid)
            if group.uid in self._grouped:
                yield group, status_for(group, members)

    def candidates(self, claimant: Claimant) -> list[Candidate]:
        """What may go for this gang by its priority, in opted-in namespaces."""
        known = self._catalogue
        solo = [
            pod
            for name, there in known.gangs.solo.items()
            if known.relations.is_opted_in(name)
            for pod in there.values()
        ]
        services = of_services(self.assessments.values(), claimant)
        return [
            each
            for each in chain(of_gangs(self.gangs.values()), of_solo(solo), services)
            if each.key != claimant.key and is_lower(each, claimant)
        ]

    def service_of(self, pod: Pod) -> Assessment | None:
        """Of the Deployment or StatefulSet that has the pod, if it is ours to look after."""
        if pod.owner is None:
            return None
        revision = self._catalogue.relations.sets.get(pod.owner.uid)
        owner = pod.owner if revision is None else revision.owner
        return None if owner is None else self.assessments.get(owner.uid)

    @property
    def marked(self) -> Mapping[str, Pod]:
        """By UID: pods that are to make room for a gang. Where nobody is opted in any more, nothing is written."""
        known = self._catalogue
        return {uid: pod for uid, pod in known.gangs.marked.items() if known.relations.is_opted_in(pod.namespace)}

    @property
    def gated(self) -> int:
        """How many pods have the gate of gangs."""
        return self._catalogue.gangs.gated

    def left_behind_gates(self, now: float) -> int:
        """Strays that should have lost their gate by now."""
        return sum(now - pod.created > LEFT_BEHIND_SECONDS for pod in self.strays)

    @property
    def strays(self) -> Collection[Pod]:
        """Pods with our gate that belong to no gang that is looked after."""
        return self._catalogue.gangs.strays(self.gangs)

    def losses_of(self, gang: Gang) -> Sequence[str]:
        """Members of its run that went: which, and why."""
        return self._catalogue.losses_of(gang)

    def quotas_in(self, namespace: str) -> tuple[Quota, ...]:
        return self._catalogue.quotas_in(namespace)

    def subject_of(self, pod: Pod) -> Subject:
        return self._catalogue.subject_of(pod)

    @property
    def freed(self) -> int:
        """Goes up when room may have become free."""
        return self._catalogue.gangs.freed

    @property
    def skipped(self) -> SkipCounts:
        """Pods of opted-in namespaces that are not placed, by namespace and reason."""
        return self._catalogue.skipped.counts(self._catalogue.relations.is_opted_in)

    def used(self, node: str) -> Mapping[str, int]:
        return self._catalogue.occupancy.used.get(node, NO_AMOUNTS)

    def amounts(self) -> Mapping[str, Mapping[str, int]]:
        """The same of all nodes, as of now; it may be read later, from any thread."""
        return dict(self._catalogue.occupancy.used)

    def pods(self) -> Mapping[str, tuple[Pod, ...]]:
        """By node; as of now, too."""
        return dict(self._catalogue.occupancy.pods)

    @property
    def neighbours(self) -> Neighbours:
        """Who is beside whom, for one plan."""
        known = self._catalogue
        return Neighbours(self.ground, known.occupancy.tenants(known.namespaces, known.volumes.storage))

    def storage(self) -> Storage:
        """Where volumes can be used; as of now."""
        return self._catalogue.volumes.copy()

    def budgets_of(self, pod: Pod) -> tuple[Budget, ...]:
        return self._catalogue.budgets_for(pod.namespace, pod.labels)

    def is_awaited(self, pod: Pod) -> float:
        """When an autoscaler last said that it brings a node for this pod."""
        return self._catalogue.signs.is_awaited(pod)

    def is_denied(self, pod: Pod) -> bool:
        """An autoscaler last said that it can bring no node for this pod."""
        keys = [label.key for label in self.ground.configuration.classes.labels]
        return self._catalogue.signs.is_denied(pod, keys)

    def is_planned(self, node: Node) -> bool:
        """An autoscaler said that it removes this node by its own plan."""
        return self._catalogue.signs.is_planned(node)

    def is_drained(self, node: str) -> bool:
        """From any thread."""
        return self._catalogue.drains.is_drained(node)
