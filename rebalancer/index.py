"""The index: the cluster as the rebalancer knows it, kept up to date by differences, one workload at a time.

Stores tell what has changed; the index takes note in `drain`, and works out anew (`refresh`) only what the changes
touch. So the work for an event depends on the size of one workload, not on that of the cluster. One thread reads it:
the loop's. Who answers others (metrics, dashboard) keeps what that thread hands over after a pass.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from placement import names
from placement.availability import BudgetIndex
from placement.configuration import Configuration
from placement.intent import Readings, intent_of
from placement.model import (
    NO_AMOUNTS,
    Budget,
    Class,
    Kind,
    Namespace,
    Node,
    Pod,
    Quota,
    ReplicaSet,
    Sign,
    Workload,
)
from placement.observation import Rates
from placement.plan.actions import Action
from placement.plan.assess import Assessment, assess, stranded
from placement.plan.group import Cohort, Ground, Group, former_owner, ground_of, group_of
from placement.plan.losses import GoneNode, proof_of
from placement.plan.neighbours import Neighbours
from placement.plan.release import was_of
from rebalancer.drains import Drains
from rebalancer.multimap import discard, exclude, file, include, put
from rebalancer.occupancy import Occupancy, is_on
from rebalancer.remains import Remains
from rebalancer.signs import Signs

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.9  # the loop comes by every second
SCALED_DOWN = frozenset({names.SCALED_DOWN})  # leaving, because somebody wants fewer nodes
OF_NODES = frozenset({"DaemonSet", "Node"})  # owners of pods that every node has; the latter of static ones
OF_WORKLOADS = frozenset({"ReplicaSet", "StatefulSet"})
MOST_INTERRUPTED = 10_000  # that wait for somebody to count them


class Index:
    """What is there, and what each workload needs."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._terminating = frozenset(configuration.leaving_taints) - SCALED_DOWN
        self._changes: deque[tuple[Any, Any]] = deque()
        self.version = 0  # goes up whenever something may be another
        self._namespaces: dict[str, Namespace] = {}
        self._nodes: dict[str, Node] = {}
        self._workloads: dict[str, Workload] = {}  # by UID, as all that follow
        self._in_namespace: dict[str, set[str]] = {}
        self._sets: dict[str, ReplicaSet] = {}
        self._sets_of: dict[str, tuple[ReplicaSet, ...]] = {}  # by owner
        self._pods_of: dict[str, tuple[Pod, ...]] = {}  # by owner
        self._released_of: dict[str, tuple[Pod, ...]] = {}  # by former owner
        self._occupancy = Occupancy()
        self._pods_on: Mapping[str, tuple[Pod, ...]] = self._occupancy.pods
        self._waiting: dict[str, Pod] = {}  # by UID: pods that have no node yet
        self._budgets: dict[str, dict[str, Budget]] = {}
        self._budget_indexes: dict[str, BudgetIndex] = {}  # made when it is asked for
        self._quotas: dict[str, dict[str, Quota]] = {}
        self._signs = Signs()
        self._readings = Readings()
        self._rates = Rates()
        self._announced: set[str] = set()  # nodes whose termination was announced
        self._drains = Drains()
        self._now = 0.0  # of the last pass
        self._stranded: dict[str, Assessment] = {}  # opted-out workloads with pods that find no node because of us
        self.interrupted: deque[Node] = deque(maxlen=MOST_INTERRUPTED)  # spot nodes that the cloud took, each once
        self._dirty: set[str] = set()
        self._ground: Ground | None = None
        self.lost: dict[str, GoneNode] = {}
        self.assessments: dict[str, Assessment] = {}  # by the workload's UID
        self.failing: set[str] = set()  # workloads that could not be assessed
        self.sizes: Counter[str] = Counter()  # by namespace: workloads that are assessed
        self._restless: set[str] = set()
        self._remains = Remains(
            self._workloads,
            self._in_namespace,
            self._sets,
            self._sets_of,
            self._pods_of,
            self._released_of,
            self.assessments,
            self.failing,
            self._is_opted_in,
        )
        self._looked_at = float("-inf")
        self._takes: Mapping[type, Callable[[Any, Any], None]] = {
            Namespace: self._take_namespace,
            Node: self._take_node,
            Workload: self._take_workload,
            ReplicaSet: self._take_set,
            Pod: self._take_pod,
            Budget: self._take_budget,
            Quota: self._take_quota,
            Sign: self._take_sign,
            Rates: self._take_rates,
        }

    # --- changes -----------------------------------------------------------------------------------------------------

    def observe(self, old: Any, new: Any) -> None:
        """Follows a store; from any thread."""
        self._changes.append((old, new))

    def drain(self) -> int:
        """Takes note of all changes so far; how many they were."""
        count = 0
        while self._changes:
            old, new = self._changes.popleft()
            self._takes[type(new if new is not None else old)](old, new)
            count += 1
        self.version += count
        return count

    def _take_namespace(self, old: Namespace | None, new: Namespace | None) -> None:
        known = new or old
        assert known is not None
        put(self._namespaces, known.name, new)
        self._dirty.update(self._in_namespace.get(known.name, ()))

    def _take_node(self, old: Node | None, new: Node | None) -> None:
        known = new or old
        assert known is not None
        self._notice(old, new)
        old = self._nodes.get(known.name)
        if new is None:
            self._drains.forget(known.name)
            self._lose(known)
        else:
            new = self._drains.judged(new, self._now)
            self.lost.pop(new.name, None)
        if old is None or new is None or _differs(old, new):
            self._ground = None
            self._dirty.update(self._workloads_on(known.name))
        elif self._ground is not None and (old.allocatable, old.annotations) != (new.allocatable, new.annotations):
            self._ground = None
        put(self._nodes, known.name, new)

    def is_drained(self, node: str) -> bool:
        """From any thread."""
        return self._drains.is_drained(node)

    def _lose(self, node: Node) -> None:
        if self._pods_on.get(node.name):
            self.lost[node.name] = GoneNode(node, self._class_of(node), self._proof_of(node))

    def _proof_of(self, node: Node) -> str:
        return proof_of(node, self._configuration.leaving_taints, self._signs.is_deleted_by_cloud(node))

    def _notice(self, old: Node | None, new: Node | None) -> None:
        """Whether the cloud takes a spot node: it announces so, or the node is lost with proof.

        One that is first seen with its end announced was counted by whoever saw it before.
        """
        if new is not None and self._is_announced(new):
            if old is not None and new.name not in self._announced:
                self._interrupt(new)
            self._announced.add(new.name)
        elif old is not None:
            was_announced = old.name in self._announced
            self._announced.discard(old.name)
            if new is None and not was_announced and self._is_taken(old):
                self._interrupt(old)

    def _is_taken(self, node: Node) -> bool:
        """The cloud took it without a notice. A cordon, a deletion or a scale-down before is somebody's own wish."""
        is_marked = any(taint.key in self._configuration.leaving_taints for taint in node.taints)
        return not (node.unschedulable or node.deleting or is_marked) and bool(self._proof_of(node))

    def _is_announced(self, node: Node) -> bool:
        return not self._terminating.isdisjoint(taint.key for taint in node.taints)

    def _interrupt(self, node: Node) -> None:
        """Empty nodes go because nobody needs them."""
        pods = self._pods_on.get(node.name, ())
        is_used = any(is_on(pod) and (pod.owner is None or pod.owner.kind not in OF_NODES) for pod in pods)
        if is_used and self._class_of(node) is Class.SPOT:
            self.interrupted.append(node)

    def _class_of(self, node: Node) -> Class:
        return self._configuration.classes.of_node(node.labels) or Class.ON_DEMAND

    def _take_workload(self, old: Workload | None, new: Workload | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._workloads.pop(old.uid, None)
            discard(self._in_namespace, old.namespace, old.uid)
            self._dirty.add(old.uid)
        if new is not None:
            self._workloads[new.uid] = new
            self._in_namespace.setdefault(new.namespace, set()).add(new.uid)
            self._dirty.add(new.uid)

    def _take_set(self, old: ReplicaSet | None, new: ReplicaSet | None) -> None:
        """A Deployment may also let go of it."""
        if old is not None:
            self._sets.pop(old.uid, None)
            if old.owner is not None:
                exclude(self._sets_of, old.owner.uid, old.uid)
                self._dirty.add(old.owner.uid)
        if new is not None:
            self._sets[new.uid] = new
            if new.owner is not None:
                include(self._sets_of, new.owner.uid, new)
                self._dirty.add(new.owner.uid)

    def _take_pod(self, old: Pod | None, new: Pod | None) -> None:
        self._occupancy.change(old, new)
        if old is not None:
            self._unfile(old)
        if new is not None:
            self._file(new)
            if new.is_drained and not (old is not None and old.is_drained):
                self._drain(new.node)

    def _drain(self, name: str) -> None:
        """Somebody evicts from this node; a bare cordon becomes a drain."""
        self._drains.evict(name, self._now)
        node = self._nodes.get(name)
        if node is not None and node.unschedulable and not node.drained:
            self._take_node(node, node)

    def _file(self, pod: Pod) -> None:
        """Puts a pod where it belongs by what it is."""
        owner_uid = _owner_uid(pod)
        if owner_uid is not None:
            self._touch(owner_uid, pod)
            include(self._released_of if pod.is_released else self._pods_of, owner_uid, pod)
        if not pod.node and pod.phase == "Pending" and not pod.terminating:
            self._waiting[pod.uid] = pod

    def _unfile(self, pod: Pod) -> None:
        owner_uid = _owner_uid(pod)
        if owner_uid is not None:
            self._touch(owner_uid, pod)
            exclude(self._released_of if pod.is_released else self._pods_of, owner_uid, pod.uid)
        self._waiting.pop(pod.uid, None)

    def _touch(self, owner_uid: str, pod: Pod) -> None:
        """Its workload is looked at again; a released pod's also if its ReplicaSet is not known any more."""
        replica_set = self._sets.get(owner_uid)
        owner = replica_set.owner if replica_set is not None else pod.owner
        self._dirty.add(owner.uid if owner is not None else owner_uid)

    def _take_budget(self, old: Budget | None, new: Budget | None) -> None:
        known = new or old
        assert known is not None
        file(self._budgets, known.namespace, known.name, new)
        self._budget_indexes.pop(known.namespace, None)
        if old is None or new is None or old.asks != new.asks:
            self._dirty.update(self._in_namespace.get(known.namespace, ()))

    def _take_quota(self, old: Quota | None, new: Quota | None) -> None:
        known = new or old
        assert known is not None
        file(self._quotas, known.namespace, known.name, new)

    def _take_sign(self, old: Sign | None, new: Sign | None) -> None:
        """It may come after the Node that it is about is gone."""
        self._signs.take(old, new)
        gone = self.lost.get(new.about) if new is not None else None
        if gone is not None and not gone.proof and (proof := self._proof_of(gone.node)):
            self.lost[gone.node.name] = replace(gone, proof=proof)
            if self._is_taken(gone.node):
                self._interrupt(gone.node)

    def _take_rates(self, _old: Rates | None, new: Rates | None) -> None:
        """What `auto` goes by. They come in one key of a ConfigMap that changes for other reasons too."""
        if new is not None and new != self._rates:
            self._rates = new
            self._dirty.update(self._workloads)

    # --- what follows ------------------------------------------------------------------------------------------------

    @property
    def ground(self) -> Ground:
        if self._ground is None:
            self._ground = ground_of(self._nodes.values(), self._configuration)
        return self._ground

    def refresh(self, now: float, *, all_of_them: bool = False) -> None:
        """Assesses the workloads that changes have touched; and once a second, those for which time passes.

        Many may be blocked for long, and there may be many changes in a second: they must not cost their product.
        Pods and workloads carry what anybody wrote. Whatever one of them makes of our code ends here: it is told once,
        the workload is left alone until it changes or the next sweep, and all others go on.
        """
        self._now = now
        touched = set(self._workloads) if all_of_them else self._dirty
        if abs(now - self._looked_at) >= LOOK_SECONDS:  # clocks are set, and may go back
            touched = touched | self._restless | self._stranded.keys()
            self._looked_at = now
        self._dirty = set()
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
        self._forget_lost()

    def _assess(self, uid: str, ground: Ground, now: float) -> None:
        group = self._group(uid)
        if group is None:
            self._leave_alone(uid)
            self._strand(uid, ground, now)
            return
        self._stranded.pop(uid, None)
        found = assess(group, ground, now)
        self._note_lost(found)
        if uid not in self.assessments:
            self.sizes[group.workload.namespace] += 1
        self.assessments[uid] = found
        (self._restless.add if found.is_restless else self._restless.discard)(uid)

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

    def _name(self, uid: str) -> str:
        workload = self._workloads.get(uid)
        return uid if workload is None else f"{workload.kind} {workload.key}"

    @property
    def restless(self) -> list[Assessment]:
        """What there is to plan for, in a lasting order."""
        return [*(self.assessments[uid] for uid in sorted(self._restless)), *self._stranded.values()]

    def left_over(self) -> Iterator[Action]:
        """The ends of released pods that no assessment covers."""
        return self._remains.ends()

    @property
    def namespaces(self) -> Mapping[str, Namespace]:
        return self._namespaces

    @property
    def waiting(self) -> Collection[Pod]:
        """Pods of everybody that have no node yet, and will take room somewhere."""
        return self._waiting.values()

    def used(self, node: str) -> Mapping[str, int]:
        return self._occupancy.used.get(node, NO_AMOUNTS)

    def amounts(self) -> Mapping[str, Mapping[str, int]]:
        """The same of all nodes, as of now; whoever has it may read it later, from any thread."""
        return dict(self._occupancy.used)

    def pods(self) -> Mapping[str, tuple[Pod, ...]]:
        """By node; as of now, too."""
        return dict(self._pods_on)

    @property
    def neighbours(self) -> Neighbours:
        """Who is beside whom, for one plan."""
        return Neighbours(self.ground, self._occupancy.tenants(self._namespaces))

    def budgets_of(self, pod: Pod) -> tuple[Budget, ...]:
        return self._selecting(pod.namespace, pod.labels)

    def is_awaited(self, pod: Pod) -> float:
        """When an autoscaler last said that it brings a node for this pod."""
        return self._signs.is_awaited(pod)

    def _group(self, uid: str, *, opted_out: bool = False) -> Group | None:
        workload = self._workloads.get(uid)
        if workload is None or workload.is_opted_out is not opted_out or workload.template.is_placed_by_others:
            return None
        if not self._is_opted_in(workload.namespace):
            return None
        namespace = self._namespaces[workload.namespace]
        budgets = self._selecting(workload.namespace, workload.template.labels)
        intent = intent_of(workload, namespace, budgets, self._rates, self._configuration, self._readings.read)
        quotas = tuple(self._quotas.get(workload.namespace, NO_QUOTAS).values())
        return group_of(intent, self._cohorts(workload), quotas)

    def _cohorts(self, workload: Workload) -> tuple[Cohort, ...]:
        if workload.kind is Kind.STATEFUL_SET:
            pods = self._own(workload.uid, workload.namespace)
            return (Cohort(workload.uid, workload.replicas, workload.settled, workload.template, pods),)
        return tuple(self._cohort(each) for each in self._sets_of.get(workload.uid, ()) if self._is_active(each))

    def _own(self, uid: str, namespace: str) -> tuple[Pod, ...]:
        return tuple(
            pod for pod in self._pods_of.get(uid, ()) if pod.namespace == namespace
        )  # anybody may name an owner

    def _is_active(self, replica_set: ReplicaSet) -> bool:
        """It has or wants pods. Most revisions are old ones."""
        uid = replica_set.uid
        return bool(replica_set.replicas) or uid in self._pods_of or uid in self._released_of

    def _cohort(self, replica_set: ReplicaSet) -> Cohort:
        uid = replica_set.uid
        return Cohort(
            uid,
            replica_set.replicas,
            replica_set.settled,
            replica_set.template,
            self._own(uid, replica_set.namespace),
            tuple(pod for pod in self._released_of.get(uid, ()) if was_of(pod, replica_set)),
        )

    def _selecting(self, namespace: str, labels: Mapping[str, str]) -> tuple[Budget, ...]:
        if namespace not in self._budgets:
            return ()
        index = self._budget_indexes.get(namespace)
        if index is None:
            index = self._budget_indexes[namespace] = BudgetIndex(self._budgets[namespace].values())
        return index.selecting(namespace, labels)

    def _is_opted_in(self, namespace: str) -> bool:
        found = self._namespaces.get(namespace)
        return found is not None and found.is_opted_in

    def _workloads_on(self, node: str) -> Iterator[str]:
        for pod in self._pods_on.get(node, ()):
            uid = _owner_uid(pod) or ""
            replica_set = self._sets.get(uid)
            yield replica_set.owner.uid if replica_set is not None and replica_set.owner is not None else uid

    def _note_lost(self, found: Assessment) -> None:
        """Nodes that were gone before we came. Kubernetes calls all pods of a Node not ready when the Node is not.

        A word of the cloud that is older than a pod is about another Node of that name.
        """
        for pod in found.lost:
            if pod.node not in self.lost:
                was_ready = any(each.ready for each in self._pods_on[pod.node])
                node = Node(pod.node, ready=was_ready, created=pod.created)
                label = pod.labels.get(names.CLASS, "")
                of = Class(label) if label in tuple(Class) else Class.ON_DEMAND
                self.lost[pod.node] = GoneNode(node, of, self._proof_of(node))

    def _forget_lost(self) -> None:
        """Nodes whose last pod is gone."""
        for name in [name for name in self.lost if not self._pods_on.get(name)]:
            del self.lost[name]


NO_QUOTAS: Mapping[str, Quota] = {}


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


def _owner_uid(pod: Pod) -> str | None:
    """Of a released pod its former one's; none of what is no workload's: a Job may have thousands."""
    if pod.is_released:
        return former_owner(pod)
    return pod.owner.uid if pod.owner is not None and pod.owner.kind in OF_WORKLOADS else None
