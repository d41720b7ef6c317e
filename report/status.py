"""What each opted-in workload wants, what is there, and why they differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from placement import names
from placement.availability import BudgetIndex
from placement.configuration import Configuration
from placement.intent import Intent, intent_of
from placement.model import Class, Kind, Pod, ReplicaSet, Snapshot, Workload
from placement.observation import NOTHING_OBSERVED, Observed
from placement.plan.ground import Site, Sites, sites_of
from placement.policy import Mistake, Policy
from placement.refusal import UNPATCHED
from placement.slots import Mix
from report.exposure import Exposure, exposure
from report.held import HeldEviction, Holding

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PodStatus:
    """One pod of a workload: where it is, and why."""

    pod: Pod
    node_class: Class | None  # of its node; None while it has none, or the node is gone
    given: Class | None  # by a decision of ours
    reason: str
    site: Site | None = None  # its node, as node_class

    @property
    def stands(self) -> bool:
        """It serves and is to stay: neither released nor on a node that is leaving. Headroom counts these alone."""
        return self.serves and self.pod.is_live and self.site is not None and not self.site.is_leaving

    @property
    def serves(self) -> bool:
        """On a node that exists."""
        return self.pod.serves and self.node_class is not None

    @property
    def is_missed(self) -> bool:
        return self.pod.is_live and self.pod.decision_id is None

    @property
    def is_pending(self) -> bool:
        return self.pod.is_live and not self.serves

    @property
    def is_starting(self) -> bool:
        """On its way, and nothing is known to be in it: it waits for no node, and is on none that is gone."""
        is_lost = bool(self.pod.node) and self.node_class is None
        return self.is_pending and not self.pod.why_pending and not is_lost

    @property
    def belongs(self) -> Class:
        """The class that it is counted as while it does not serve."""
        return self.given or self.node_class or Class.ON_DEMAND


@dataclass(frozen=True, slots=True)
class WorkloadStatus:
    """A workload's wanted and actual mix. `actual` counts pods that serve, by the class of their existing node."""

    workload: Workload
    policy: Policy
    mistakes: tuple[Mistake, ...]
    revisions: int  # that have or want pods
    wanted: Mix
    actual: Mix
    pending: Mix
    missed: tuple[str, ...]
    soft: int
    pods: tuple[PodStatus, ...]
    reason: str
    exposure: Exposure
    held: tuple[HeldEviction, ...] = ()  # evictions by others that wait now

    @property
    def is_exact(self) -> bool:
        return self.actual == self.wanted


def statuses(
    snapshot: Snapshot,
    configuration: Configuration,
    observed: Observed = NOTHING_OBSERVED,
    now: float | None = None,
    *,
    is_paused: bool = False,
) -> tuple[WorkloadStatus, ...]:
    """Every workload that is opted in, in the order of namespace, kind and name; without holds if `now` is None."""
    pods_by_owner = _grouped((pod.owner.uid, pod) for pod in snapshot.pods if pod.owner)
    revisions_by_owner = _grouped((each.owner.uid, each) for each in snapshot.replica_sets if each.owner)
    ordered = sorted(snapshot.workloads, key=lambda each: (each.namespace, each.kind, each.name))
    sites = sites_of(snapshot.nodes.values(), configuration)
    holding = None if now is None else Holding(configuration, sites, now, is_paused)
    around = _Around(snapshot, configuration, pods_by_owner, sites, BudgetIndex(snapshot.budgets), observed, holding)
    return tuple(
        _status(workload, revisions_by_owner.get(workload.uid, []), around)
        for workload in ordered
        if _is_placed(workload, snapshot, configuration)
    )


@dataclass(frozen=True, slots=True)
class _Around:
    """What all workloads of a snapshot are judged by, made once."""

    snapshot: Snapshot
    configuration: Configuration
    pods_by_owner: Mapping[str, list[Pod]]
    sites: Sites
    budgets: BudgetIndex
    observed: Observed
    holding: Holding | None


def _is_placed(workload: Workload, snapshot: Snapshot, configuration: Configuration) -> bool:
    namespace = snapshot.namespaces.get(workload.namespace)
    is_gang = configuration.gangs.enabled and workload.template.is_gang
    left_out = workload.is_opted_out or workload.template.is_placed_by_others or is_gang
    return namespace is not None and namespace.is_opted_in and not left_out


def _grouped(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def _status(workload: Workload, revisions: list[ReplicaSet], around: _Around) -> WorkloadStatus:
    namespace, configuration = around.snapshot.namespaces[workload.namespace], around.configuration
    owners = [workload.uid] if workload.kind is Kind.STATEFUL_SET else [revision.uid for revision in revisions]
    budgets = around.budgets.of(workload)
    intent = intent_of(workload, namespace, budgets, around.observed.rates, configuration)
    owned = [pod for owner in owners for pod in around.pods_by_owner.get(owner, [])]
    active = [revision.replicas for revision in revisions if revision.replicas]
    found = status_of(intent, active, owned, around.sites, around.observed)
    if around.holding is None:
        return found
    let_go = around.pods_by_owner.get(workload.uid, []) if workload.uid not in owners else []
    return replace(found, held=around.holding.of(intent, (*owned, *let_go)))  # what is held is mostly released


def status_of(
    intent: Intent,
    active: list[int],
    owned: Iterable[Pod],
    sites: Sites,
    observed: Observed = NOTHING_OBSERVED,
) -> WorkloadStatus:
    """One workload, with its pods and the replicas of each revision that wants any."""
    workload = intent.workload
    pods = tuple(_pod_status(pod, sites.get(pod.node)) for pod in sorted(owned, key=_slot_order))
    wanted = intent.wanted(active)
    actual = Mix.of(each.node_class for each in pods if each.serves and each.node_class)
    return WorkloadStatus(
        workload,
        intent.policy,
        intent.mistakes,
        max(1, len(active)),
        wanted,
        actual,
        pending=Mix.of(each.belongs for each in pods if each.is_pending),
        missed=tuple(each.pod.name for each in pods if each.is_missed),
        soft=sum(each.pod.is_live and names.SOFT in each.pod.annotations for each in pods),
        pods=pods,
        reason="; ".join(_differences(intent, len(active), pods)) if actual != wanted else "",
        exposure=exposure((each.site for each in pods if each.stands and each.site), intent.availability, observed),
    )


def _slot_order(pod: Pod) -> tuple[int, str]:
    return (1_000_000 if pod.slot is None else pod.slot, pod.name)


def _pod_status(pod: Pod, site: Site | None) -> PodStatus:
    node_class = None if site is None else site.of
    label = pod.labels.get(names.CLASS, "")
    given = Class(label) if pod.slot is not None and not _is_alone(pod) and label in tuple(Class) else None
    reason = pod.annotations.get(names.REASON, "") if pod.decision_id else "missed by admission"
    return PodStatus(pod, node_class, given, reason, site)


def _differences(intent: Intent, active: int, pods: tuple[PodStatus, ...]) -> Iterator[str]:
    """Why the mix is not what is wanted, the most telling first."""
    workload = intent.workload
    live = [each for each in pods if each.pod.is_live]
    unplaced = list(_unplaced(live))
    yield from unplaced
    if active > 1:
        yield f"a rollout is under way ({active} revisions)"
    stuck = [each for each in live if each.pod.why_pending]
    if stuck:
        yield f"{_pods(len(stuck))} unschedulable: {stuck[0].pod.why_pending}"
    if lost := sum(bool(each.pod.node) and each.node_class is None for each in live):
        yield f"{_pods(lost)} on nodes that are gone"
    if starting := sum(each.is_starting for each in live):
        yield f"{_pods(starting)} not ready yet"
    if elsewhere := sum(_is_elsewhere(each, intent) for each in live):
        yield f"{_pods(elsewhere)} not on the class of their slot"
    if len(live) != workload.replicas and active < 2:
        yield f"{len(live)} of {workload.replicas} pods exist"
    if not any((unplaced, stuck, lost, starting, elsewhere)) and len(live) == workload.replicas:
        yield "two pods have the same slot; the rebalancer rewrites it"


def _is_elsewhere(each: PodStatus, intent: Intent) -> bool:
    """By what admission gave it, or by its slot: an adopted pod has a slot, and nothing was given to it."""
    if not each.serves or each.pod.slot is None or _is_alone(each.pod):
        return False
    of_slot = intent.policy.slots.class_of(each.pod.slot)
    return each.given not in (None, each.node_class) or of_slot is not each.node_class


def _unplaced(live: list[PodStatus]) -> Iterator[str]:
    """What admission gave no class to, and why."""
    if missed := sum(each.is_missed for each in live):
        yield f"{_pods(missed)} missed by admission"
    if unpatched := sum(UNPATCHED in each.reason for each in live):
        yield f"{_pods(unpatched)} {UNPATCHED} (see the workload's Events)"
    if alone := sum(_is_alone(each.pod) for each in live):
        yield f"{_pods(alone)} left alone: own node selector or affinity excludes the class"


def _is_alone(pod: Pod) -> bool:
    return pod.decision_id is not None and names.LEFT_ALONE in pod.annotations


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
