"""Places one pod, from what the caches know. No I/O on this path, one bounded look-up apart.

Read `place` first: owner and policy → slot → decision and patch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeGuard

from cachetools import LRUCache, TTLCache

from kube import resources
from kube.election import Terms
from kube.following import Stores
from kube.store import Store
from placement import names
from placement.availability import Availability, BudgetIndex
from placement.clusterstate import ClusterState, cluster_state
from placement.configuration import Configuration
from placement.decide import Decision, Reason
from placement.intent import intent_of
from placement.model import (
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
from placement.outage import Outages
from placement.policy import Mistake
from placement.refusal import PatchRefusal
from placement.revision import Revision
from placement.slots import Slots
from webhook.decisioncache import Batch, Batches
from webhook.ledger import Ledger
from webhook.mistakes import Mistakes, write_nothing
from webhook.refusals import Flavour, Given, Refusals
from webhook.review import AdmissionCall, Verdict, controller, decided_slot, is_of_daemon_set, keep_priority, left_out

LOOKED_UP_SECONDS = 10.0
LookUp = Callable[[Owner, str], ReplicaSet | Workload | None]
Found = tuple[ReplicaSet | Workload, ...]
MOST_REVISIONS = 4096  # that are remembered
GIVEN_UP_SECONDS = Terms().duration_seconds  # a leader that has not renewed for so long leads no more
UNLED_SECONDS = 60.0  # longer than any hand-over takes


class Owners(NamedTuple):
    """Where a pod comes from, as far as the caches know; a StatefulSet is its own creator."""

    namespace: Namespace | None
    creator: ReplicaSet | Workload | None
    workload: Workload | None


class Placeable(NamedTuple):
    """A revision whose pods are placed, with what its workload's annotations come to."""

    revision: Revision
    slots: Slots
    availability: Availability
    mistakes: tuple[Mistake, ...]
    warnings: tuple[str, ...]


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
        refusals: Refusals | None = None,
        guard: Callable[[AdmissionCall], Sequence[Any]] = keep_priority,  # of a pod without a gang
    ) -> None:
        self._stores = stores
        self._configuration = configuration
        self._is_synced = is_synced
        self._outages = outages
        self._now = now
        self._look_up = look_up
        self._mistakes = mistakes or Mistakes(write_nothing)
        self._looked_up: TTLCache[str, ReplicaSet | Workload] = TTLCache(1000, LOOKED_UP_SECONDS)
        self._revisions: LRUCache[str, tuple[Owners, Placeable | Reason]] = LRUCache(MOST_REVISIONS)
        self._unled_seconds = unled_seconds
        self._rates = rates
        self._guard = guard
        self._settled_by = Rates()  # what the revisions that ask for `auto` were worked out with
        self._budgets = BudgetIndex(())
        self._is_outdated = True  # the same for budgets
        self._batches = Batches()
        self._is_stale = True  # the cluster's state, which is worked out again when a store has changed
        self._cluster = ClusterState(configuration)
        self.ledger = Ledger()
        self._refusals = refusals or Refusals(lambda _owner, _namespace: "")
        stores.pods.subscribe(self.ledger.observe)
        stores.pods.subscribe(self._refusals.observe)
        stores.replica_sets.subscribe(self._refusals.observe_owner)
        stores.stateful_sets.subscribe(self._refusals.observe_owner)
        stores.nodes.subscribe(self._mark_stale)
        stores.priority_classes.subscribe(self._mark_stale)
        stores.budgets.subscribe(self._mark_budgets)

    def place(self, request: AdmissionCall, *, patient: bool = False) -> Verdict:
        """What becomes of the pod. A patient caller gets NotYet where waiting a moment may help."""
        if not self._is_synced():
            return Verdict(Reason.NOT_READY)
        owner = controller(request.raw_pod)
        reason = left_out(request.raw_pod, owner, leaves_gangs=self._configuration.gangs.enabled)
        if reason is not None:
            return self._untouched(request, owner, reason)
        assert owner is not None  # left_out has seen to it
        decided = decided_slot(request.raw_pod, owner.uid)
        found = self._placeable(owner, request.namespace, patient)
        if isinstance(found, Reason):
            return self._untouched(request, owner, found)
        slot = self._slot(request, found, decided, patient)
        if found.mistakes:
            self._mistakes.report(found.revision.workload, found.mistakes, dry_run=request.dry_run)
        if slot == decided and not found.revision.template.carries_decision:
            return Verdict(Reason.DECIDED, None, found.mistakes, found.warnings)
        return self._verdict(request, owner, slot, found)

    def _untouched(self, request: AdmissionCall, owner: Owner | None, reason: Reason) -> Verdict:
        is_solo = reason is Reason.NOT_A_WORKLOAD and not is_of_daemon_set(owner)
        return Verdict(reason, patch=self._guard(request) if is_solo else ())

    def _slot(self, request: AdmissionCall, found: Placeable, decided: int | None, patient: bool) -> int:
        """The ordinal's; or the one that an earlier call decided on; or the lowest free one, which is then taken."""
        revision = found.revision
        if revision.workload.kind is Kind.STATEFUL_SET:
            return max(0, ordinal(request.raw_pod["metadata"]["name"]) - revision.workload.first_ordinal)
        if decided is not None:
            return decided
        slot = self.ledger.take(
            revision.uid,
            request.uid,
            found.slots,
            revision.replicas,
            self._class_of,
            keep=not request.dry_run,
            patient=patient,
        )
        if slot is None:
            raise NotYet
        return slot

    def _verdict(self, request: AdmissionCall, owner: Owner, slot: int, found: Placeable) -> Verdict:
        batch = self._batches.find(found.revision, request.raw_pod["spec"])
        decision, patch = batch.place(request.uid, slot, request.raw_pod, self._cluster_for(batch))
        warnings = found.warnings
        refusal = self._refusal(request, owner, decision, found)
        if refusal is not None:
            return Verdict(Reason.REFUSED, None, found.mistakes, (*warnings, refusal.sentence))
        if decision.placed is None:
            warnings = (*warnings, decision.explanation)
        guard = () if decision.injection.priority_class else self._guard(request)
        return Verdict(decision.reason, decision, found.mistakes, warnings, [*patch, *guard] if guard else patch)

    def _refusal(
        self, request: AdmissionCall, owner: Owner, decision: Decision, found: Placeable
    ) -> PatchRefusal | None:
        """Who refuses pods with this patch, if anybody does. Whatever is given is noted, a dry run apart."""
        now, refusals = self._now(), self._refusals
        flavour = Flavour(decision.placed, decision.soft, decision.injection.priority_class)
        refusal = refusals.standing.get((owner.uid, flavour)) if refusals.standing else None
        is_patched = refusal is None or not refusal.lets_in(now)
        if not request.dry_run:
            workload = found.revision.workload
            refusals.given.append(Given(owner, flavour, workload, request.uid, now, is_patched))
            if not is_patched:
                self.ledger.give_back(owner.uid, request.uid)
        return None if is_patched else refusal

    # --- pods that exist ---------------------------------------------------------------------------------------------

    def pod(self, key: Key) -> Pod | None:
        return self._stores.pods.get(key)

    def node(self, name: str) -> Node | None:
        return self._stores.nodes.get(Key("", name))

    def placeable(self, pod: Pod) -> Placeable | Reason:
        """What is known of a pod's workload. A released pod belongs to its Deployment."""
        owner = pod.owner
        if not self._is_synced():
            return Reason.NOT_READY
        if owner is None or owner.api_group != "apps":
            return Reason.NOT_A_WORKLOAD
        if not is_deployment(owner):
            return self._placeable(owner, pod.namespace, patient=False)
        workload = self._known(self._stores.deployments, owner, pod.namespace) if pod.is_released else None
        namespace = self._stores.namespaces.get(Key("", pod.namespace))
        if workload is None or namespace is None or not namespace.is_opted_in:
            return Reason.UNKNOWN_OWNER
        self._forget_outdated()
        return self._worked_out(namespace, workload, workload)

    def pods_of(self, workload: Workload) -> list[Pod]:
        """All of them, released ones included."""
        sets = self._stores.replica_sets.within(workload.namespace)
        own = (each.uid for each in sets if each.owner is not None and each.owner.uid == workload.uid)
        owners = {workload.uid, *own}
        pods = self._stores.pods.within(workload.namespace)
        return [pod for pod in pods if pod.owner is not None and pod.owner.uid in owners]

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

    # --- owners and policy -------------------------------------------------------------------------------------------

    def _placeable(self, owner: Owner, namespace: str, patient: bool) -> Placeable | Reason:
        """Worked out again when a namespace, ReplicaSet or workload has changed, or what `auto` goes by."""
        self._forget_outdated()
        owners = self._owners(owner, namespace)
        known = self._revisions.get(owner.uid)
        if known is not None and known[0] == owners:
            return known[1]
        reason = self._unplaceable(owner, owners, patient)
        if reason is not None:
            return reason
        assert owners.creator is not None  # _unplaceable has seen to both
        assert owners.workload is not None
        found = self._worked_out(owners.namespace or _opted_in(namespace), owners.creator, owners.workload)
        if owners.namespace is not None:
            self._revisions[owner.uid] = (owners, found)
        return found

    def _owners(self, owner: Owner, name: str) -> Owners:
        namespace = self._stores.namespaces.get(Key("", name))
        if owner.kind != "ReplicaSet":
            workload = self._known(self._stores.stateful_sets, owner, name)
            return Owners(namespace, workload, workload)
        replica_set = self._known(self._stores.replica_sets, owner, name)
        above = replica_set.owner if replica_set is not None else None
        workload = self._known(self._stores.deployments, above, name) if is_deployment(above) else None
        return Owners(namespace, replica_set, workload)

    def _known(self, store: Store[Any], owner: Owner, namespace: str) -> Any:
        """The owner from the cache, if it is the same object and not another one of that name; else as looked up."""
        found = store.get(Key(namespace, owner.name))
        return found if found is not None and found.uid == owner.uid else self._looked_up.get(owner.uid)

    def _unplaceable(self, owner: Owner, owners: Owners, patient: bool) -> Reason | None:
        """Why its pods are left alone. A namespace that we have not seen is opted in: we were asked by its label."""
        namespace, creator, workload = owners
        if namespace is None or not namespace.is_opted_in:
            if patient:
                raise NotYet  # the label that we were asked by may not have been seen yet
            if namespace is not None:
                return Reason.NOT_OPTED_IN
        if isinstance(creator, ReplicaSet) and not is_deployment(creator.owner):
            return Reason.NOT_A_WORKLOAD
        if workload is None and patient:
            raise NotYet(owner)
        return Reason.UNKNOWN_OWNER if workload is None else None

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
        warnings = tuple(map(str, intent.mistakes))
        return Placeable(revision, intent.policy.slots, intent.availability, intent.mistakes, warnings)

    def _forget_outdated(self) -> None:
        """What was worked out with other budgets or other rates."""
        rates = self._rates()
        before = self._settled_by
        if self._is_outdated or (rates is not before and rates.pools != before.pools):  # mostly the very same
            self._is_outdated = False  # first, so that a change while we read is not lost
            self._budgets = BudgetIndex(self._stores.budgets.values())
            self._revisions.clear()
            self._is_stale = True
        elif rates is not before and rates.chosen != before.chosen:
            self._forget_chosen(before, rates)
        self._settled_by = rates

    def _forget_chosen(self, before: Rates, now: Rates) -> None:
        """The revisions of workloads for which `auto` has chosen anew."""
        for uid, (owners, _) in list(self._revisions.items()):
            known = "" if owners.workload is None else owners.workload.uid
            if before.chosen_for(known) != now.chosen_for(known):
                del self._revisions[uid]

    # --- the cluster -------------------------------------------------------------------------------------------------

    def _cluster_for(self, batch: Batch) -> ClusterState:
        if self._is_stale:
            self._is_stale = False  # first, so that a change while we read is not lost
            classes = (each.name for each in self._stores.priority_classes.values())
            self._cluster = cluster_state(self._stores.nodes.values(), classes, self._budgets, self._configuration)
        cluster, outages = self._led(batch), self._outages()
        return cluster.with_outages(outages, batch.demand, self._now()) if outages.noted else cluster

    def _led(self, batch: Batch) -> ClusterState:
        """The cluster, outages apart, and whether a rebalancer leads that frees pods that get stuck.

        A leader that has not renewed in the time of its Lease may come back, or be followed. So until none has led
        for a minute a class is preferred only where there is no node of it: such a pod would be stuck for sure.
        """
        unled = self._unled_seconds()
        if unled < GIVEN_UP_SECONDS:
            return self._cluster
        classes = self._cluster.missing(batch.own_terms) if unled < UNLED_SECONDS else frozenset(Class)
        return replace(self._cluster, unled=classes) if classes else self._cluster

    def _class_of(self, pod: Pod) -> Class | None:
        node = self._stores.nodes.get(Key("", pod.node))
        return self._configuration.classes.of_pod(pod, None if node is None else node.labels)

    def _mark_budgets(self, old: Budget | None, new: Budget | None) -> None:
        """Their status changes with every pod, and is not looked at."""
        if old is None or new is None or old.asks != new.asks:
            self._is_outdated = True

    def _mark_stale(self, _old: object, _new: object) -> None:
        self._is_stale = True


def is_deployment(owner: Owner | None) -> TypeGuard[Owner]:
    return owner is not None and owner.kind == Kind.DEPLOYMENT and owner.api_group == "apps"


def ordinal(name: str) -> int:
    """A StatefulSet pod's ordinal: the end of its name."""
    return int(name.rpartition("-")[2])


def _opted_in(namespace: str) -> Namespace:
    return Namespace(namespace, {names.PLACEMENT: names.ENABLED})
