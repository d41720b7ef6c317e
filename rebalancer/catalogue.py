"""The catalogue: what is there, filed in the ways that it is asked for, and which workloads changes have touched.

It holds facts alone. What follows from them is worked out in `placement.plan`, for `rebalancer.index`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from placement import names
from placement.availability import BudgetIndex
from placement.configuration import Configuration
from placement.gang.gang import Gang
from placement.gang.life import NO_FACTS, ONE_OF_SEVERAL, OwnerFacts, is_ended_by_us
from placement.gang.podgroup import PodGroup
from placement.model import (
    NOTHING,
    AttachLimits,
    Budget,
    Claim,
    Job,
    Namespace,
    Node,
    Owner,
    Pod,
    Quota,
    ReplicaSet,
    Sign,
    Subject,
    Volume,
    Workload,
)
from placement.observation import Rates
from placement.plan.ground import Ground, ground_of
from placement.plan.marks import former_owner
from placement.plan.relations import Relations
from rebalancer.departures import Departures
from rebalancer.drains import Drains
from rebalancer.gangs import GangMembers
from rebalancer.multimap import discard, exchange, exclude, file, include, put
from rebalancer.occupancy import Occupancy
from rebalancer.podgroups import PodGroups
from rebalancer.signs import Signs
from rebalancer.skipped import SkippedPods
from rebalancer.volumes import Volumes

OF_WORKLOADS = frozenset({"ReplicaSet", "StatefulSet"})
_VERSIONS = {"apps": "apps/v1", "batch": "batch/v1"}
NO_QUOTAS: Mapping[str, Quota] = {}


class Catalogue:
    """Objects by what they are asked for. `touched` are UIDs of workloads to be looked at again."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self.now = 0.0  # of the last pass
        self.touched: set[str] = set()
        self.namespaces: dict[str, Namespace] = {}
        self._nodes: dict[str, Node] = {}
        self.workloads: dict[str, Workload] = {}  # by UID, as all that follow
        self._in_namespace: dict[str, set[str]] = {}
        self._sets: dict[str, ReplicaSet] = {}
        self._sets_of: dict[str, tuple[ReplicaSet, ...]] = {}  # by owner
        self._pods_of: dict[str, tuple[Pod, ...]] = {}  # by owner
        self._released_of: dict[str, tuple[Pod, ...]] = {}  # by former owner
        self.relations = Relations(
            self.namespaces,
            self.workloads,
            self._in_namespace,
            self._sets,
            self._sets_of,
            self._pods_of,
            self._released_of,
            configuration.gangs.enabled,
        )
        self.gangs = GangMembers(is_on=configuration.gangs.enabled)
        self._jobs: dict[str, Job] = {}  # by UID
        self.pod_groups = PodGroups()
        self.occupancy = Occupancy()
        self.skipped = SkippedPods()
        self.waiting: dict[str, Pod] = {}  # by UID: pods that have no node yet
        self._budgets: dict[str, dict[str, Budget]] = {}
        self._budget_indexes: dict[str, BudgetIndex] = {}  # made when it is asked for
        self._quotas: dict[str, dict[str, Quota]] = {}
        self.volumes = Volumes()
        self.signs = Signs()
        self.rates = Rates()
        self.drains = Drains()
        self.departures = Departures(configuration, self.signs, self.occupancy.pods)
        self._ground: Ground | None = None
        self._takes: Mapping[type, Callable[[Any, Any], None]] = {
            Namespace: self._take_namespace,
            Node: self._take_node,
            Workload: self._take_workload,
            ReplicaSet: self._take_set,
            Pod: self._take_pod,
            Budget: self._take_budget,
            Quota: self._take_quota,
            Claim: self.volumes.take,
            Volume: self.volumes.take,
            AttachLimits: self.volumes.take,
            Sign: self._take_sign,
            Job: self._take_job,
            PodGroup: self._take_pod_group,
            Rates: self._take_rates,
        }

    # --- what is asked -----------------------------------------------------------------------------------------------

    @property
    def ground(self) -> Ground:
        if self._ground is None:
            self._ground = ground_of(self._nodes.values(), self._configuration)
        return self._ground

    def quotas_in(self, namespace: str) -> tuple[Quota, ...]:
        return tuple(self._quotas.get(namespace, NO_QUOTAS).values())

    def budgets_for(self, namespace: str, labels: Mapping[str, str]) -> tuple[Budget, ...]:
        """Those that select pods with these labels."""
        if namespace not in self._budgets:
            return ()
        index = self._budget_indexes.get(namespace)
        if index is None:
            index = self._budget_indexes[namespace] = BudgetIndex(self._budgets[namespace].values())
        return index.selecting(namespace, labels)

    # --- what has changed --------------------------------------------------------------------------------------------

    def take(self, old: Any, new: Any) -> None:
        """An object came (`old` is None), changed, or went (`new` is None)."""
        self._takes[type(new if new is not None else old)](old, new)

    def _take_namespace(self, old: Namespace | None, new: Namespace | None) -> None:
        known = new or old
        assert known is not None
        put(self.namespaces, known.name, new)
        self.gangs.touch_namespace(known.name)
        self.touched.update(self._in_namespace.get(known.name, ()))

    def _take_node(self, old: Node | None, new: Node | None) -> None:
        known = new or old
        assert known is not None
        self.departures.see(old, new)
        old = self._nodes.get(known.name)
        if new is None:
            self.drains.forget(known.name)
            self.departures.lose(known)
        else:
            new = self.drains.judged(new, self.now)
            self.departures.come_back(new.name)
        if old is None or new is None or _differs(old, new):
            self._ground = None
            self.touched.update(self._workloads_on(known.name))
            self.gangs.touch_members(self.occupancy.pods.get(known.name, ()))
        elif self._ground is not None and (old.allocatable, old.annotations) != (new.allocatable, new.annotations):
            self._ground = None
        if old is None or new is None or (old.allocatable, _differs(old, new)) != (new.allocatable, False):
            self.gangs.freed += 1
        put(self._nodes, known.name, new)

    def _take_workload(self, old: Workload | None, new: Workload | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self.workloads.pop(old.uid, None)
            discard(self._in_namespace, old.namespace, old.uid)
            self.touched.add(old.uid)
        if new is not None:
            self.workloads[new.uid] = new
            self.gangs.touch_owner(new.uid)
            if old is not None and old.annotations != new.annotations:
                for each in self._sets_of.get(new.uid, ()):
                    self.gangs.touch_owner(each.uid)
            self._in_namespace.setdefault(new.namespace, set()).add(new.uid)
            self.touched.add(new.uid)

    def _take_set(self, old: ReplicaSet | None, new: ReplicaSet | None) -> None:
        """A Deployment may also let go of it."""
        if old is not None:
            self._sets.pop(old.uid, None)
            self.touched.add(old.uid if old.owner is None else old.owner.uid)
            if old.owner is not None:
                exclude(self._sets_of, old.owner.uid, old.uid)
        if new is not None:
            self._sets[new.uid] = new
            self.gangs.touch_owner(new.uid)
            self.touched.add(new.uid if new.owner is None else new.owner.uid)
            if new.owner is not None:
                include(self._sets_of, new.owner.uid, new)

    def _take_pod(self, old: Pod | None, new: Pod | None) -> None:
        self.occupancy.change(old, new)
        self.gangs.change(old, new)
        if old is not None and new is not None and _belongs_as_before(old, new):
            self._refile(new)
        else:
            self._unfile(old)
            self._file(new)
        self.skipped.change(old, new)
        was_drained = old is not None and old.is_drained
        if new is not None and new.is_drained and not was_drained and not is_ended_by_us(new):
            self._drain(new.node)

    def _drain(self, name: str) -> None:
        """Somebody evicts from this node; a bare cordon becomes a drain."""
        self.drains.evict(name, self.now)
        node = self._nodes.get(name)
        if node is not None and node.unschedulable and not node.drained:
            self._take_node(node, node)

    def _file(self, pod: Pod | None) -> None:
        """Puts a pod where it belongs by what it is."""
        if pod is None:
            return
        owner_uid = _owner_uid(pod)
        if owner_uid is not None:
            self._touch(owner_uid, pod)
            include(self._released_of if pod.is_released else self._pods_of, owner_uid, pod)
        if _waits(pod):
            self.waiting[pod.uid] = pod

    def _refile(self, pod: Pod) -> None:
        """As most changes leave it: of the same owner."""
        owner_uid = _owner_uid(pod)
        if owner_uid is not None:
            self._touch(owner_uid, pod)
            exchange(self._released_of if pod.is_released else self._pods_of, owner_uid, pod)
        put(self.waiting, pod.uid, pod if _waits(pod) else None)

    def _unfile(self, pod: Pod | None) -> None:
        if pod is None:
            return
        owner_uid = _owner_uid(pod)
        if owner_uid is not None:
            self._touch(owner_uid, pod)
            exclude(self._released_of if pod.is_released else self._pods_of, owner_uid, pod.uid)
        self.waiting.pop(pod.uid, None)

    def _touch(self, owner_uid: str, pod: Pod) -> None:
        """Its workload is looked at again; a released pod's also if its ReplicaSet is not known any more."""
        replica_set = self._sets.get(owner_uid)
        owner = replica_set.owner if replica_set is not None else pod.owner
        self.touched.add(owner.uid if owner is not None else owner_uid)

    def _take_job(self, old: Job | None, new: Job | None) -> None:
        known = new or old
        assert known is not None
        put(self._jobs, known.uid, new)
        self.gangs.touch_owner(known.uid)

    def _take_pod_group(self, old: PodGroup | None, new: PodGroup | None) -> None:
        self.gangs.touched.add(self.pod_groups.take(old, new))

    def size_of(self, owner: Owner) -> int | None:
        """How many pods an owner has at once; None: it is not known, or has no number."""
        match owner.kind:
            case "Job":
                job = self._jobs.get(owner.uid)
                return None if job is None else ONE_OF_SEVERAL if job.is_part else job.wanted
            case "ReplicaSet":
                revision = self._sets.get(owner.uid)
                return None if revision is None else revision.replicas
            case "StatefulSet":
                workload = self.workloads.get(owner.uid)
                return None if workload is None else workload.replicas
        return None

    def facts_of(self, owner: Owner) -> OwnerFacts:
        """What else is known of it."""
        match owner.kind:
            case "Job":
                job = self._jobs.get(owner.uid)
                if job is None:
                    return NO_FACTS
                left = None if job.ignores_disruption else max(0, job.backoff_limit - job.failed)
                return OwnerFacts(
                    job.annotations,
                    suspends=_suspends(job),
                    done=job.succeeded,
                    left=job.left,
                    pods=job.wanted,
                    failures_left=left,
                )
            case "ReplicaSet":
                revision = self._sets.get(owner.uid)
                root = revision.owner.uid if revision is not None and revision.owner is not None else ""
                deployment = self.workloads.get(root)
                return OwnerFacts(NOTHING if deployment is None else deployment.annotations, root)
            case "StatefulSet":
                workload = self.workloads.get(owner.uid)
                return OwnerFacts(NOTHING if workload is None else workload.annotations)
        return NO_FACTS

    def fate_of(self, name: str) -> str:
        """Why pods on this node count as lost: it will go, or its machine is gone, with proof. "": they do not."""
        site = self.ground.sites.get(name)
        if site is not None:
            is_leaving = site.node.is_leaving(self._configuration.taints_at_once)
            return f"its node {name} will go" if is_leaving else ""
        lost = self.departures.lost.get(name)
        return f"its node {name} is gone" if lost is not None and lost.proof else ""

    def losses_of(self, gang: Gang) -> Sequence[str]:
        return self.gangs.ends.of(gang, self.occupancy.pods)

    def subject_of(self, pod: Pod) -> Subject:
        """Where people look for what is said about a pod: its owner, a Deployment rather than its ReplicaSet."""
        owner = pod.owner
        if owner is None:
            return Subject("Pod", pod.namespace, pod.name, pod.uid, "v1")
        revision = self._sets.get(owner.uid)
        if revision is not None and revision.owner is not None:
            owner = revision.owner
        return Subject(owner.kind, pod.namespace, owner.name, owner.uid, _VERSIONS.get(owner.api_group, "v1"))

    def _take_budget(self, old: Budget | None, new: Budget | None) -> None:
        known = new or old
        assert known is not None
        file(self._budgets, known.namespace, known.name, new)
        self._budget_indexes.pop(known.namespace, None)
        if old is None or new is None or old.asks != new.asks:
            self.touched.update(self._in_namespace.get(known.namespace, ()))

    def _take_quota(self, old: Quota | None, new: Quota | None) -> None:
        known = new or old
        assert known is not None
        file(self._quotas, known.namespace, known.name, new)

    def _take_sign(self, old: Sign | None, new: Sign | None) -> None:
        if new is not None and new.reason == names.SIGN_PREEMPTED:
            self.gangs.ends.hear(new)
        self.signs.take(old, new)
        if new is not None:
            self.departures.hear(new)
            self.gangs.touch_members(self.occupancy.pods.get(new.about, ()) if new.kind == "Node" else ())
            if new.uid in self.workloads:
                self.touched.add(new.uid)

    def _take_rates(self, _old: Rates | None, new: Rates | None) -> None:
        """What `auto` goes by. They come in one key of a ConfigMap that changes for other reasons too."""
        if new is None or new == self.rates:
            return
        before, self.rates = self.rates, new
        if new.pools != before.pools:
            self.touched.update(self.workloads)
        else:
            self.touched.update(uid for uid in self.workloads if new.chosen_for(uid) != before.chosen_for(uid))

    def workloads_on(self, node: str) -> Counter[str]:
        """How many pods of which workloads are on a node, by UID."""
        return Counter(self._workloads_on(node))

    def _workloads_on(self, node: str) -> Iterator[str]:
        for pod in self.occupancy.pods.get(node, ()):
            uid = _owner_uid(pod) or ""
            replica_set = self._sets.get(uid)
            yield replica_set.owner.uid if replica_set is not None and replica_set.owner is not None else uid


def _suspends(job: Job) -> Owner:
    """A JobSet resumes the Jobs that it owns, so it is suspended itself."""
    if job.owner is not None and job.owner.kind == "JobSet":
        return job.owner
    return Owner("Job", job.name, job.uid, "batch")


def _differs(old: Node, new: Node) -> bool:
    """In anything that moves look at, beside how much it has."""
    return (old.labels, old.taints, old.unschedulable, old.ready, old.deleting, old.drained) != (
        new.labels,
        new.taints,
        new.unschedulable,
        new.ready,
        new.deleting,
        new.drained,
    )


def _belongs_as_before(old: Pod, new: Pod) -> bool:
    return (old.uid, old.owner, old.is_released) == (new.uid, new.owner, new.is_released) and (
        old.decision == new.decision or not new.is_released
    )


def _waits(pod: Pod) -> bool:
    """For a node, wherever that is: not one that has a gate, nor one for which a node is kept free."""
    return not (pod.node or pod.gates or pod.nominated) and pod.phase == "Pending" and not pod.terminating


def _owner_uid(pod: Pod) -> str | None:
    """Of a released pod its former one's; none of what is no workload's: a Job may have thousands."""
    if pod.is_released:
        return former_owner(pod)
    return pod.owner.uid if pod.owner is not None and pod.owner.kind in OF_WORKLOADS else None
