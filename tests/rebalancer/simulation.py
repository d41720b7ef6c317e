"""A small, honest cluster with a clock of its own: what is stored, who hears of it and when, what third parties do.

    cluster = Cluster()
    cluster.opt_in("shop")
    cluster.add_nodes(Class.SPOT, 3, zones="abc")
    web = cluster.deploy("web", 10, {names.SPOT_RATIO: "70%"})
    cluster.run(30)

A step lets the machines work, tells the programs what has happened, lets them act, and then the controllers and the
scheduler. Nothing sleeps; the same seed gives the same events. What is not simulated: preemption; of volumes, all but
where they can be used and how many a node attaches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any

from kube.resources import REPLICA_SETS_IN_USE
from kube.store import Store
from placement import names
from placement.configuration import Configuration
from placement.inject import Preference
from placement.model import (
    AttachLimits,
    Budget,
    Claim,
    Class,
    Job,
    Key,
    Kind,
    Namespace,
    Needs,
    Node,
    NodeTaint,
    NodeTerm,
    Owner,
    Pod,
    Quota,
    ReplicaSet,
    Rollout,
    Sign,
    Snapshot,
    Template,
    Volume,
    Workload,
)
from placement.observation import Rates
from placement.outage import Outages
from placement.selector import matches
from tests.builders.model import NEEDS, budget, namespace, node, workload
from webhook.ledger import Ledger

START = 1_750_000_000.0
STORES = (
    "namespaces",
    "nodes",
    "deployments",
    "stateful_sets",
    "replica_sets",
    "pods",
    "budgets",
    "quotas",
    "signs",
    "claims",
    "volumes",
    "limits",
    "jobs",
)
POD_NEEDS = replace(NEEDS, grace_seconds=30)
NODE_CPU = 8000
TERMINATION = NodeTaint("aws-node-termination-handler/spot-itn")
GC_SECONDS = 55.0  # Kubernetes' pod GC buries pods of a Node that is gone so much later
UNREACHABLE_SECONDS = 300.0
STOP_SECONDS = 2.0  # that a pod takes to end
NO_REQUESTS: Mapping[str, int] = {}


def store_of(thing: Any) -> str:
    if isinstance(thing, Workload):
        return "deployments" if thing.kind is Kind.DEPLOYMENT else "stateful_sets"
    return {
        Namespace: "namespaces",
        Node: "nodes",
        ReplicaSet: "replica_sets",
        Pod: "pods",
        Budget: "budgets",
        Quota: "quotas",
        Sign: "signs",
        Claim: "claims",
        Volume: "volumes",
        AttachLimits: "limits",
        Job: "jobs",
    }[type(thing)]


@dataclass
class PodFacts:
    """What the model of a pod does not say."""

    preferred: tuple[Preference, ...] = ()
    is_soft: bool = False
    start_seconds: float = 10.0
    ready_at: float = float("inf")
    dies_at: float = float("inf")


@dataclass
class Making:
    """How a workload's pods are made, and how far its controller is."""

    needs: Needs = POD_NEEDS
    own_terms: tuple[NodeTerm, ...] = ()
    start_seconds: float = 10.0
    revision: int = 1
    annotations: Mapping[str, str] = field(default_factory=dict)
    synced_replicas: int = -1


class Feed:
    """One program's informers: each resource arrives in its own order, a while after it happened.

    A sparing one keeps only ReplicaSets that are in use, as the rebalancer does.
    """

    def __init__(
        self, hears: Callable[[Any, Any], None], lag: Callable[[], float], *, is_sparing: bool = False
    ) -> None:
        self._is_sparing = is_sparing
        self.stores: dict[str, Store[Any]] = {name: Store() for name in STORES}
        self._lag = lag
        self._queues: dict[str, deque[tuple[float, Key, Any]]] = {name: deque() for name in STORES}
        for store in self.stores.values():
            store.subscribe(hears)

    def hear(self, name: str, key: Key, new: Any, now: float) -> None:
        self._queues[name].append((now + self._lag(), key, new))

    def deliver(self, now: float) -> None:
        for name, queue in self._queues.items():
            while queue and queue[0][0] <= now:
                _, key, new = queue.popleft()
                if new is None or not self._keeps(name, new):
                    self.stores[name].remove(key)
                else:
                    self.stores[name].put(new)

    def relist(self, objects: Mapping[str, Mapping[Key, Any]]) -> None:
        for name in STORES:
            self._queues[name].clear()
            self.stores[name].replace(each for each in objects[name].values() if self._keeps(name, each))

    def _keeps(self, name: str, each: Any) -> bool:
        return name != "replica_sets" or not self._is_sparing or bool(REPLICA_SETS_IN_USE.keeps(each))


class SimulatedCluster:
    """Everything that is there."""

    def __init__(self, seed: int = 0, configuration: Configuration | None = None, step_seconds: float = 1.0) -> None:
        self.now = START
        self.step_seconds = step_seconds
        self.random = Random(seed)
        self.configuration = configuration or Configuration()
        self.objects: dict[str, dict[Key, Any]] = {name: {} for name in STORES}
        self.facts: dict[str, PodFacts] = {}
        self.makings: dict[str, Making] = {}
        self.feeds: list[Feed] = []
        self.outages = Outages()
        self.priority_classes: tuple[str, ...] = (names.OVERFLOW_PRIORITY,)
        self.rates = Rates()  # what `auto` goes by
        self.webhook_is_up = True
        self.webhook_lag = 0.0
        self.ledger = Ledger(timer=lambda: self.now)
        self.webhook = Feed(self._webhook_hears, lambda: self.webhook_lag * self.random.random())
        self.feeds.append(self.webhook)
        self.gone_at: dict[str, float] = {}
        self.disowned: set[str] = set()  # pods whose owner was taken from them
        self.unproven: set[str] = set()  # nodes that were deleted while their machines may be there
        self.unready_at: dict[str, float] = {}
        self.forgotten: dict[str, Pod] = {}  # by UID: gated pods for which the scheduler keeps no room as they are
        self.actors: list[Callable[[], None]] = []  # programs: rebalancers
        self.third_parties: list[Callable[[], None]] = []  # autoscaler, drainer
        self.onlookers: list[Callable[[], None]] = []
        self._ids = count(1)

    def _webhook_hears(self, old: Any, new: Any) -> None:
        if isinstance(new if new is not None else old, Pod):
            self.ledger.observe(old, new)

    def restart_scheduler(self) -> None:
        """As up to 1.36: it does not know for which gated pods room was kept, until they change."""
        self.forgotten = {pod.uid: pod for pod in self.pods if pod.gates and pod.nominated}

    # --- the store ---------------------------------------------------------------------------------------------------

    def put(self, thing: Any) -> None:
        name = store_of(thing)
        if self.objects[name].get(thing.key) != thing:
            self.objects[name][thing.key] = thing
            for feed in self.feeds:
                feed.hear(name, thing.key, thing, self.now)

    def remove(self, thing: Any) -> None:
        name = store_of(thing)
        if self.objects[name].pop(thing.key, None) is not None:
            for feed in self.feeds:
                feed.hear(name, thing.key, None, self.now)

    def new_id(self, prefix: str) -> str:
        return f"{prefix}-{next(self._ids)}"

    @property
    def pods(self) -> list[Pod]:
        return list(self.objects["pods"].values())

    @property
    def nodes(self) -> dict[str, Node]:
        return {key.name: node for key, node in self.objects["nodes"].items()}

    @property
    def workloads(self) -> list[Workload]:
        return [*self.objects["deployments"].values(), *self.objects["stateful_sets"].values()]

    def snapshot(self) -> Snapshot:
        """As the command line would read it."""
        namespaces = {key.name: each for key, each in self.objects["namespaces"].items()}
        others = (each for name in ("claims", "volumes", "limits") for each in self.objects[name].values())
        return Snapshot(namespaces, self.nodes, tuple(self.workloads), pods=tuple(self.pods), others=tuple(others))

    def pod(self, key: Key, uid: str = "") -> Pod | None:
        found: Pod | None = self.objects["pods"].get(key)
        return found if found is not None and uid in ("", found.uid) else None

    def again(self, workload: Workload) -> Workload:
        """As it is now."""
        found = self.objects[store_of(workload)][workload.key]
        assert isinstance(found, Workload)
        return found

    def sets_of(self, workload: Workload) -> list[ReplicaSet]:
        sets = self.objects["replica_sets"].values()
        return [each for each in sets if each.owner is not None and each.owner.uid == workload.uid]

    def owned(self, uid: str) -> list[Pod]:
        return [pod for pod in self.pods if pod.owner is not None and pod.owner.uid == uid]

    def pods_of(self, workload: Workload) -> list[Pod]:
        """All that its Service would select, released ones included."""
        return [pod for pod in self.pods if pod.namespace == workload.namespace and pod.labels["app"] == workload.name]

    def serving(self, workload: Workload) -> list[Pod]:
        nodes = self.nodes
        return [pod for pod in self.pods_of(workload) if is_serving(pod, nodes)]

    def class_of(self, pod: Pod) -> Class | None:
        node = self.nodes.get(pod.node)
        return None if node is None else self.configuration.classes.of_node(node.labels) or Class.ON_DEMAND

    # --- what people and clouds do -----------------------------------------------------------------------------------

    def opt_in(self, name: str, **annotations: str) -> None:
        self.put(replace(namespace(name), annotations=annotations))

    def opt_out(self, name: str) -> None:
        self.put(Namespace(name))

    def add_nodes(
        self, of: Class, number: int, zones: str = "a", types: tuple[str, ...] = ("m",), cpu: int = NODE_CPU
    ) -> list[Node]:
        """So many nodes, over the zones and types in turn."""
        made = []
        for index in range(number):
            zone, kind = zones[index % len(zones)], types[index // len(zones) % len(types)]
            made.append(self.add_node(of, zone, kind, cpu))
        return made

    def add_node(self, of: Class, zone: str = "a", kind: str = "m", cpu: int = NODE_CPU, name: str = "") -> Node:
        name = name or self.new_id(str(of))
        made = node(name, of, zone, cpu, kind, created=self.now)
        self.gone_at.pop(name, None)
        self.put(made)
        return made

    def deploy(
        self,
        name: str,
        replicas: int,
        annotations: Mapping[str, str] | None = None,
        *,
        namespace: str = "shop",
        rollout: Rollout | None = None,
        making: Making | None = None,
    ) -> Workload:
        return self._create(Kind.DEPLOYMENT, name, replicas, annotations, namespace, rollout or Rollout(), making)

    def deploy_stateful(
        self,
        name: str,
        replicas: int,
        annotations: Mapping[str, str] | None = None,
        *,
        namespace: str = "shop",
        ordered: bool = False,
        making: Making | None = None,
    ) -> Workload:
        made = self._create(Kind.STATEFUL_SET, name, replicas, annotations, namespace, Rollout(), making)
        made = replace(made, ordered=ordered)
        self.put(made)
        return made

    def _create(
        self,
        kind: Kind,
        name: str,
        replicas: int,
        annotations: Mapping[str, str] | None,
        namespace: str,
        rollout: Rollout,
        making: Making | None,
    ) -> Workload:
        labels = {"app": name}
        made = workload(
            name,
            replicas,
            kind,
            namespace=namespace,
            uid=self.new_id("uid"),
            annotations=dict(annotations or {}),
            selector={"matchLabels": labels},
            template=Template(labels=labels),
            rollout=rollout,
            settled=False,
        )
        self.makings[made.uid] = making or Making()
        self.put(made)
        return made

    def change(self, workload: Workload, **changes: Any) -> Workload:
        changed = replace(self.again(workload), settled=False, **changes)
        self.put(changed)
        return changed

    def annotate(self, workload: Workload, **annotations: str) -> Workload:
        """`spot_ratio="30%"`; "" removes one."""
        written = dict(self.again(workload).annotations)
        for key, value in annotations.items():
            full = names.PREFIX + key.replace("_", "-")
            if value:
                written[full] = value
            else:
                written.pop(full, None)
        return self.change(workload, annotations=written)

    def delete(self, workload: Workload, *, orphan: bool = False) -> None:
        """Its ReplicaSets and pods go with it, a moment later; with `orphan` they are left behind."""
        for replica_set in self.sets_of(workload) if orphan else ():
            self.put(replace(replica_set, owner=None))
        for pod in self.owned(workload.uid):
            self.disown(pod) if orphan else self.delete_pod(pod)
        self.remove(self.again(workload))

    def disown(self, pod: Pod) -> Pod:
        """Its owner is gone, or let go of it: as the garbage collector orphans it."""
        self.disowned.add(pod.uid)
        orphan = replace(pod, owner=None)
        self.put(orphan)
        return orphan

    def roll_out(self, workload: Workload) -> None:
        self.makings[workload.uid].revision += 1
        self.change(workload)

    def budget(self, workload: Workload, **amounts: int | str) -> None:
        """`min_available="100%"` or `max_unavailable=1`."""
        made: Any = amounts
        self.put(budget(workload.name, namespace=workload.namespace, selector=workload.selector, settled=False, **made))

    def cordon(self, name: str, *taints: NodeTaint) -> None:
        """With taints it is the cloud's notice, else a person's cordon."""
        node = self.nodes[name]
        self.put(replace(node, taints=(*node.taints, *taints), unschedulable=not taints))

    def uncordon(self, name: str) -> None:
        node = self.nodes[name]
        self.put(replace(node, taints=tuple(t for t in node.taints if t != TERMINATION), unschedulable=False))

    def unready(self, name: str) -> None:
        """The node controller has not heard from it for a while: its pods are not ready."""
        self.put(replace(self.nodes[name], ready=False))
        self.unready_at[name] = self.now
        for pod in self.pods:
            if pod.node == name and pod.ready:
                self.put(replace(pod, ready=False, changed=self.now))

    def lose(self, name: str, *, proof: bool = True) -> None:
        """As a cloud does it: NotReady, a `DeletingNode` Event, the Node deleted; without proof, deleted only."""
        if proof:
            self.unready(name)
            self.put(Sign("default", self.new_id("event"), "DeletingNode", name, self.now, kind="Node"))
        self.delete_node(name)

    def delete_node(self, name: str) -> None:
        node = self.nodes[name]
        is_announced = any(taint.key in self.configuration.leaving_taints for taint in node.taints)
        signs = self.objects["signs"].values()
        is_said = any(sign.reason == "DeletingNode" and sign.about == name and sign.at > node.created for sign in signs)
        if is_announced or (is_said and not node.ready):
            self.unproven.discard(name)
        else:
            self.unproven.add(name)
        self.remove(node)
        self.unready_at.pop(name, None)
        self.gone_at[name] = self.now

    def crash(self, pod: Pod, seconds: float = 10.0) -> None:
        """Its container ends and is started again."""
        if pod.ready:
            self.facts[pod.uid].ready_at = self.now + seconds
            self.put(replace(pod, ready=False, changed=self.now))

    # --- what the API server does ------------------------------------------------------------------------------------

    def delete_pod(self, pod: Pod, grace_seconds: float | None = None) -> None:
        facts = self.facts[pod.uid]
        grace = min(STOP_SECONDS, pod.needs.grace_seconds) if grace_seconds is None else grace_seconds
        if grace == 0 or not pod.node:
            self.remove(pod)
            return
        facts.dies_at = min(facts.dies_at, self.now + grace)
        self.put(replace(pod, terminating=True))

    def evict(self, pod: Pod) -> str:
        """ "" where it is let go, else what forbids it: `429` or `500`."""
        if pod.terminating:
            return ""
        budgets = [each for each in self.objects["budgets"].values() if _selects(each, pod)]
        if pod.phase != "Pending" and budgets:
            if len(budgets) > 1:
                return "500"
            refused = self._charge(budgets[0], pod)
            if refused:
                return refused
        self.delete_pod(pod)
        return ""

    def _charge(self, budget: Budget, pod: Pod) -> str:
        if not pod.ready and budget.healthy >= budget.desired > 0:
            return ""  # IfHealthyBudget
        if not budget.settled or budget.allowed < 1:
            return "429"
        self.put(replace(budget, allowed=budget.allowed - 1))
        return ""

    def has_quota(self, namespace: str, needs: Needs) -> bool:
        asked = {"pods": 1, **{f"requests.{key}": amount for key, amount in needs.requests.items()}}
        used = self.used_quota(namespace)
        quotas = (each for each in self.objects["quotas"].values() if each.namespace == namespace)
        return all(used.get(key, 0) + asked.get(key, 0) <= hard for quota in quotas for key, hard in quota.hard.items())

    def used_quota(self, namespace: str) -> dict[str, int]:
        used: dict[str, int] = {"pods": 0}
        for pod in self.pods:
            if pod.namespace == namespace and pod.phase not in ("Failed", "Succeeded"):
                used["pods"] += 1
                for key, amount in pod.needs.requests.items():
                    used[f"requests.{key}"] = used.get(f"requests.{key}", 0) + amount
        return used

    # --- time --------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        from tests.rebalancer import controllers, scheduling

        self.now += self.step_seconds
        controllers.machines(self)
        controllers.tables(self)
        self._watch()
        self._deliver()
        for act in self.actors:
            act()
            self._watch()
        for act in self.third_parties:
            act()
        self._deliver()
        controllers.controllers(self)
        scheduling.schedule(self)
        controllers.tables(self)
        self._watch()

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / self.step_seconds)):
            self.step()

    def run_until(self, condition: Callable[[], bool], seconds: float = 600.0) -> float:
        """How long it took."""
        began = self.now
        while not condition():
            assert self.now - began < seconds, f"not within {seconds:.0f} s"
            self.step()
        return self.now - began

    def _deliver(self) -> None:
        for feed in self.feeds:
            feed.deliver(self.now)

    def _watch(self) -> None:
        for watch in self.onlookers:
            watch()


def _selects(budget: Budget, pod: Pod) -> bool:
    return budget.namespace == pod.namespace and matches(budget.selector, pod.labels)


def is_serving(pod: Pod, nodes: Mapping[str, Node]) -> bool:
    return pod.ready and not pod.terminating and pod.phase == "Running" and pod.node in nodes


def is_active(pod: Pod) -> bool:
    """It counts for its controller."""
    return not pod.terminating and pod.phase not in ("Failed", "Succeeded")


def owner_of(thing: ReplicaSet | Workload) -> Owner:
    return Owner("ReplicaSet" if isinstance(thing, ReplicaSet) else str(thing.kind), thing.name, thing.uid)


def selecting(cluster: SimulatedCluster, budget: Budget) -> Iterator[Pod]:
    for pod in cluster.pods:
        if _selects(budget, pod):
            yield pod
