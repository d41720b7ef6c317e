"""Places one pod, from what the caches know. No I/O on this path, one bounded look-up apart."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cachetools import LRUCache, TTLCache

from kube import resources
from kube.election import Terms
from kube.following import Stores
from kube.store import Store
from placement import names
from placement.availability import BudgetIndex
from placement.configuration import Configuration
from placement.decide import Reason, Revision, Surroundings, pool_order, shunned_by_class
from placement.intent import intent_of
from placement.model import (
    DEFAULT_SCHEDULER,
    Budget,
    Class,
    Key,
    Kind,
    Namespace,
    Node,
    Owner,
    Pod,
    PriorityClass,
    ReplicaSet,
    Workload,
)
from placement.observation import Rates
from placement.outage import Outages, reachable
from placement.policy import Mistake
from webhook.decisioncache import Batch, Batches
from webhook.ledger import Ledger
from webhook.mistakes import Mistakes, nobody
from webhook.review import AdmissionCall, Verdict

log = logging.getLogger(__name__)

LOOKED_UP_SECONDS = 10.0
LookUp = Callable[[Owner, str], ReplicaSet | Workload | None]
Found = tuple[ReplicaSet | Workload, ...]
Placeable = tuple[Revision, tuple[Mistake, ...]]  # and the mistakes in its policy
MadeOf = tuple[Namespace, ReplicaSet | Workload, Workload]  # of a revision; the second is what creates the pods
MOST_REVISIONS = 4096  # that are remembered
GIVEN_UP_SECONDS = Terms().duration_seconds  # a leader that has not renewed for so long leads no more
UNLED_SECONDS = 60.0  # longer than any hand-over takes


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches that admission reads."""

    namespaces: Store[Namespace] = field(default_factory=Store)
    nodes: Store[Node] = field(default_factory=Store)
    pods: Store[Pod] = field(default_factory=Store)
    replica_sets: Store[ReplicaSet] = field(default_factory=Store)
    deployments: Store[Workload] = field(default_factory=Store)
    stateful_sets: Store[Workload] = field(default_factory=Store)
    priority_classes: Store[PriorityClass] = field(default_factory=Store)
    budgets: Store[Budget] = field(default_factory=Store)

    @classmethod
    def of(cls, stores: Stores) -> Caches:
        """Those that informers fill."""
        return cls(
            namespaces=stores.of(resources.NAMESPACES),
            nodes=stores.of(resources.NODES),
            pods=stores.of(resources.PODS),
            replica_sets=stores.of(resources.REPLICA_SETS),
            deployments=stores.of(resources.DEPLOYMENTS),
            stateful_sets=stores.of(resources.STATEFUL_SETS),
            priority_classes=stores.of(resources.PRIORITY_CLASSES),
            budgets=stores.of(resources.BUDGETS),
        )


class NotYet(Exception):
    """The caches do not know enough yet. `owner` is what to look up if they still do not after a while."""

    def __init__(self, owner: Owner | None = None) -> None:
        super().__init__(owner)
        self.owner = owner


class Admission:
    """Decides on pods. Called from one thread; the stores are filled by others."""

    def __init__(
        self,
        stores: Caches,
        configuration: Configuration,
        *,
        is_synced: Callable[[], bool],
        outages: Callable[[], Outages],
        now: Callable[[], float],
        look_up: LookUp,
        mistakes: Mistakes | None = None,
        rates: Callable[[], Rates] = Rates,
        unled_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._stores = stores
        self._configuration = configuration
        self._is_synced = is_synced
        self._outages = outages
        self._now = now
        self._look_up = look_up
        self._mistakes = mistakes or Mistakes(nobody)
        self._looked_up: TTLCache[str, ReplicaSet | Workload] = TTLCache(1000, LOOKED_UP_SECONDS)
        self._revisions: LRUCache[str, tuple[MadeOf, Placeable | Reason]] = LRUCache(MOST_REVISIONS)
        self._unled_seconds = unled_seconds
        self._rates = rates
        self._settled_by = Rates()  # what the revisions that ask for `auto` were worked out with
        self._budgets = BudgetIndex(())
        self._is_outdated = True  # the same for budgets
        self._batches = Batches()
        self._is_stale = True  # pools and priority classes, which are worked out again when a store has changed
        self._calm = Surroundings(configuration)
        self._zones: dict[Class, frozenset[str]] = {}
        self.ledger = Ledger()
        stores.pods.subscribe(self.ledger.observe)
        stores.nodes.subscribe(self._mark_stale)
        stores.priority_classes.subscribe(self._mark_stale)
        stores.budgets.subscribe(self._mark_budgets)

    def place(self, request: AdmissionCall, *, patient: bool = False) -> Verdict:
        """What becomes of the pod. A patient caller gets NotYet where waiting a moment may help."""
        if not self._is_synced():
            return Verdict(Reason.NOT_READY)
        owner = controller(request.raw_pod)
        reason = left_out(request.raw_pod, owner)
        if reason is not None:
            return Verdict(reason)
        assert owner is not None  # left_out has seen to it
        namespace = self._namespace(request.namespace, patient)
        found = self._revision(owner, namespace, patient)
        if isinstance(found, Reason):
            return Verdict(found)
        return self._verdict(request, *found, patient=patient)

    def find(self, owner: Owner, namespace: str) -> Found:
        """Asks the API server for an owner that the caches do not know. Blocks, for a bounded time; any thread."""
        found = self._look_up(owner, namespace)
        if found is None:
            return ()
        above = found.owner if isinstance(found, ReplicaSet) else None
        if above is None or self._known(self._stores.deployments, above, namespace) is not None:
            return (found,)
        return (found, *self.find(above, namespace))

    def learn(self, found: Found) -> None:
        """Takes in what `find` has found, for as long as the caches do not know it themselves."""
        self._looked_up.update({each.uid: each for each in found})

    def _verdict(
        self, request: AdmissionCall, revision: Revision, mistakes: tuple[Mistake, ...], *, patient: bool
    ) -> Verdict:
        slot = self._slot(request, revision, patient)
        self._mistakes.tell(revision.workload, mistakes, dry_run=request.dry_run)
        if is_decided(request.raw_pod, revision, slot):
            return Verdict(Reason.DECIDED, mistakes=mistakes)
        batch = self._batches.find(revision, request.raw_pod["spec"])
        decision, spec_patch = batch.decide(request.uid, slot, self._surroundings(batch))
        return Verdict(decision.reason, decision, mistakes, spec_patch)

    def _slot(self, request: AdmissionCall, revision: Revision, patient: bool) -> int:
        """The ordinal's, or the lowest free one, which is then taken."""
        if revision.workload.kind is Kind.STATEFUL_SET:
            return max(0, ordinal(request.raw_pod) - revision.workload.first_ordinal)
        written = decided_slot(request.raw_pod, revision.uid)
        if written is not None:
            return written
        slot = self.ledger.take(
            revision.uid,
            request.uid,
            revision.policy.slots,
            revision.replicas,
            self._class_of,
            keep=not request.dry_run,
            patient=patient,
        )
        if slot is None:
            raise NotYet
        return slot

    # --- owners ------------------------------------------------------------------------------------------------------

    def _namespace(self, name: str, patient: bool) -> Namespace:
        """A namespace that we have not seen is opted in: the API server asked us by its label."""
        found = self._stores.namespaces.get(Key("", name))
        if found is None and patient:
            raise NotYet
        return found or Namespace(name, {names.PLACEMENT: names.ENABLED})

    def _revision(self, owner: Owner, namespace: Namespace, patient: bool) -> Placeable | Reason:
        if not namespace.is_opted_in:
            if patient:
                raise NotYet  # the API server asked us by its label, which we may not have seen yet
            return Reason.NOT_OPTED_IN
        replica_set = None
        if owner.kind == "ReplicaSet":
            replica_set = self._known(self._stores.replica_sets, owner, namespace.name)
            if replica_set is None:
                return self._unknown(owner, patient)
            if not is_deployment(replica_set.owner):
                return Reason.NOT_A_WORKLOAD
        workload_owner = owner if replica_set is None else replica_set.owner
        assert workload_owner is not None
        store = self._stores.stateful_sets if replica_set is None else self._stores.deployments
        workload = self._known(store, workload_owner, namespace.name)
        if workload is None:
            return self._unknown(owner, patient)
        return self._remembered((namespace, replica_set or workload, workload))

    def _remembered(self, made_of: MadeOf) -> Placeable | Reason:
        """Worked out anew when one of the three has changed, or what `auto` goes by."""
        uid = made_of[1].uid
        rates = self._rates()
        if self._is_outdated or (rates is not self._settled_by and rates != self._settled_by):  # mostly the very same
            self._is_outdated = False  # first, so that a change while we read is not lost
            self._budgets = BudgetIndex(self._stores.budgets.values())
            self._revisions.clear()
            self._is_stale = True
        self._settled_by = rates
        known = self._revisions.get(uid)
        if known is None or known[0] != made_of:
            known = self._revisions[uid] = (made_of, self._worked_out(*made_of))
        return known[1]

    def _worked_out(
        self, namespace: Namespace, creator: ReplicaSet | Workload, workload: Workload
    ) -> Placeable | Reason:
        if workload.is_opted_out:
            return Reason.OPTED_OUT
        # One that wants no pods creates none: it was scaled up a moment ago, and its ReplicaSet tells how far.
        sized = workload if workload.replicas else replace(workload, replicas=creator.replicas)
        budgets = self._budgets.of(workload)
        intent = intent_of(sized, namespace, budgets, self._settled_by, self._configuration)
        revision = Revision(creator.uid, workload, intent.policy, creator.replicas, creator.selector, creator.template)
        return revision, intent.mistakes

    def _unknown(self, owner: Owner, patient: bool) -> Reason:
        if patient:
            raise NotYet(owner)
        return Reason.UNKNOWN_OWNER

    def _known(self, store: Store[Any], owner: Owner, namespace: str) -> Any:
        """The owner from the cache, if it is the same object and not another one of that name; else as looked up."""
        found = store.get(Key(namespace, owner.name))
        return found if found is not None and found.uid == owner.uid else self._looked_up.get(owner.uid)

    # --- surroundings ------------------------------------------------------------------------------------------------

    def _surroundings(self, batch: Batch) -> Surroundings:
        if self._is_stale:
            self._is_stale = False  # first, so that a change while we read is not lost
            self._look_around()
        around, outages = self._led(batch), self._outages()
        if not outages.noted:
            return around
        now, demand = self._now(), batch.demand
        out = frozenset(each for each in Class if outages.stands(each, self._zones[each], demand, now))
        left = outages.zones_left(Class.SPOT, reachable(self._zones[Class.SPOT], demand.own_terms), demand, now)
        pools = tuple(pool for pool in self._calm.spot_pools if pool.zone in left) or self._calm.spot_pools
        return replace(around, spot_pools=pools, out=out)

    def _led(self, batch: Batch) -> Surroundings:
        """What is there, outages apart, and whether somebody leads who frees pods that get stuck.

        A leader that has not renewed in the time of its Lease may come back, or be followed. So until nobody has led
        for a minute a class is preferred only where there is no node of it: such a pod would be stuck for sure.
        """
        unled = self._unled_seconds()
        if unled < GIVEN_UP_SECONDS:
            return self._calm
        if unled < UNLED_SECONDS:
            missing = frozenset(each for each in Class if not reachable(self._zones[each], batch.own_terms))
            return replace(self._calm, unled=missing) if missing else self._calm
        return replace(self._calm, unled=frozenset(Class))

    def _look_around(self) -> None:
        nodes = self._stores.nodes.values()
        targets = [node for node in nodes if self._is_target(node)]
        by_class = {each: [node for node in targets if self._node_class(node) is each] for each in Class}
        spot = {node.pool for node in by_class[Class.SPOT]}
        self._zones = {each: frozenset(node.pool.zone for node in there) for each, there in by_class.items()}
        self._calm = Surroundings(
            self._configuration,
            pool_order(spot),
            frozenset(each.name for each in self._stores.priority_classes.values()),
            node_classes={
                name: self._node_class(node)
                for node in nodes
                for name in (node.name, node.labels.get(names.HOSTNAME, ""))
            },
            budgets=self._budgets,
            shunned=shunned_by_class(by_class, self._configuration.leaving_taints),
        )

    def _class_of(self, pod: Pod) -> Class | None:
        node = self._stores.nodes.get(Key("", pod.node))
        return self._configuration.classes.of_pod(pod, None if node is None else node.labels)

    def _node_class(self, node: Node) -> Class:
        return self._configuration.classes.of_node(node.labels) or Class.ON_DEMAND

    def _is_target(self, node: Node) -> bool:
        """A live node that takes pods and is not leaving."""
        return node.ready and not node.unschedulable and not self._configuration.is_leaving(node)

    def _mark_budgets(self, old: Budget | None, new: Budget | None) -> None:
        """Their status changes with every pod, and is not looked at."""
        if old is None or new is None or old.asks != new.asks:
            self._is_outdated = True

    def _mark_stale(self, _old: object, _new: object) -> None:
        self._is_stale = True


# --- what the raw pod says -------------------------------------------------------------------------------------------


def left_out(raw_pod: Mapping[str, Any], owner: Owner | None) -> Reason | None:
    """Why this pod is none of ours, from the pod alone."""
    metadata, spec = raw_pod["metadata"], raw_pod["spec"]
    if names.MIRROR in (metadata.get("annotations") or {}):
        return Reason.MIRROR
    if spec.get("nodeName"):
        return Reason.PRESET_NODE
    if (spec.get("schedulerName") or DEFAULT_SCHEDULER) != DEFAULT_SCHEDULER:
        return Reason.FOREIGN_SCHEDULER
    if (metadata.get("labels") or {}).get(names.PLACEMENT) == names.DISABLED:
        return Reason.OPTED_OUT
    if owner is None or owner.api_group != "apps" or owner.kind not in ("ReplicaSet", Kind.STATEFUL_SET):
        return Reason.NOT_A_WORKLOAD
    return None


def controller(raw_pod: Mapping[str, Any]) -> Owner | None:
    reference = _controller_reference(raw_pod)
    if reference is None:
        return None
    group = str(reference.get("apiVersion") or "").rpartition("/")[0]
    kind, name, uid = reference.get("kind"), reference.get("name"), reference.get("uid")
    return Owner(str(kind or ""), str(name or ""), str(uid or ""), group)


def owner_uid(raw_pod: Mapping[str, Any]) -> str | None:
    """The UID of the ReplicaSet that slots are counted for; None for pods whose slot needs no counting."""
    reference = _controller_reference(raw_pod)
    return str(reference.get("uid") or "") if reference is not None and reference.get("kind") == "ReplicaSet" else None


def _controller_reference(raw_pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The reference that says so. Asked before anything is known of the pod, so nothing is taken for granted."""
    references = raw_pod["metadata"].get("ownerReferences")
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, dict) and reference.get("controller") is True:
            return reference
    return None


def is_deployment(owner: Owner | None) -> bool:
    return owner is not None and owner.kind == Kind.DEPLOYMENT and owner.api_group == "apps"


def ordinal(raw_pod: Mapping[str, Any]) -> int:
    """A StatefulSet pod's ordinal: the end of its name."""
    return int(raw_pod["metadata"]["name"].rpartition("-")[2])


def decided_slot(raw_pod: Mapping[str, Any], controller_uid: str) -> int | None:
    """The slot that a decision of ours for this very pod gave it (a second call for one request)."""
    written = raw_pod["metadata"].get("annotations") or {}
    if names.DECISION not in written:
        return None
    decision = written[names.DECISION]
    return Pod("", "", owner=Owner("", "", controller_uid), annotations=written, decision=decision).slot


def is_decided(raw_pod: Mapping[str, Any], revision: Revision, slot: int) -> bool:
    """Whether it carries our decision already. A StatefulSet's UID outlives revisions, so the slot must fit too."""
    return not revision.template.carries_decision and decided_slot(raw_pod, revision.uid) == slot
