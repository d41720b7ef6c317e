"""How pods of a simulated cluster come to be: admission by the code that the webhook runs, and a plain scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from placement import names
from placement.autoratio import settled
from placement.availability import NO_BUDGETS, BudgetIndex
from placement.clusterstate import ClusterState, cluster_state
from placement.decide import Case, Decision, decide
from placement.model import (
    Class,
    HardSpread,
    Key,
    Needs,
    Node,
    NodeRequirement,
    NodeTerm,
    Pod,
    ReplicaSet,
    Toleration,
    Volume,
    Workload,
)
from placement.outage import Demand, Shape
from placement.patch import placed_pod
from placement.policy import resolve
from placement.revision import Revision
from placement.selector import requirements
from tests.placement.plainaffinity import may_join
from tests.rebalancer.simulation import Making, PodFacts, SimulatedCluster, owner_of

UNSCHEDULABLE = (
    "0/{} nodes are available: some didn't match Pod's node affinity/selector, others have no room or are not tolerated"
)


def create_pod(cluster: SimulatedCluster, creator: ReplicaSet | Workload, workload: Workload, name: str) -> bool:
    """What a controller asks for; False where the namespace's quota refuses it."""
    making = cluster.makings[workload.uid]
    if not cluster.has_quota(workload.namespace, making.needs):
        return False
    labels = dict(creator.template.labels)
    if isinstance(creator, Workload):
        labels[names.CONTROLLER_REVISION_HASH] = f"r{making.revision}"
    pod = Pod(
        workload.namespace,
        name,
        cluster.new_id("uid"),
        owner_of(creator),
        labels,
        dict(making.annotations),
        required_terms=making.own_terms,
        needs=making.needs,
        created=cluster.now,
        changed=cluster.now,
    )
    facts = PodFacts(start_seconds=making.start_seconds)
    if cluster.webhook_is_up:
        pod, facts = _admitted(cluster, pod, facts, creator, workload, making)
    cluster.facts[pod.uid] = facts
    cluster.put(pod)
    return True


# --- admission -------------------------------------------------------------------------------------------------------


def _admitted(
    cluster: SimulatedCluster,
    pod: Pod,
    facts: PodFacts,
    creator: ReplicaSet | Workload,
    workload: Workload,
    making: Making,
) -> tuple[Pod, PodFacts]:
    namespace = cluster.objects["namespaces"][_cluster_wide(workload.namespace)]
    if not namespace.is_opted_in or workload.is_opted_out:
        return pod, facts
    configuration = cluster.configuration
    limits = configuration.limits_of(namespace.labels)
    policy, _ = resolve(workload.annotations, namespace.annotations, configuration.defaults, limits)
    budgets = BudgetIndex(cluster.webhook.stores["budgets"].values()).of(workload)
    policy = settled(policy, workload, budgets, cluster.rates)
    revision = Revision(creator.uid, workload, policy, creator.replicas, creator.selector, creator.template)
    identity = cluster.new_id("decision")
    slot: int | None
    if isinstance(creator, Workload):
        slot = max(0, int(pod.name.rpartition("-")[2]) - workload.first_ordinal)
    else:
        asked = (creator.uid, identity, policy.slots, creator.replicas, _seen_class(cluster))
        slot = cluster.ledger.take(*asked, patient=True)
        if slot is None:  # its caches are behind: it waits for a moment
            cluster.webhook.deliver(float("inf"))
            slot = cluster.ledger.take(*asked)
    assert slot is not None
    terms = _own_terms(making)
    demand = Demand(workload.namespace, terms, Shape.asking(making.needs.requests))
    decision = decide(identity, slot, Case(revision, terms, _seen_by(cluster, demand)))
    raw: dict[str, Any] = {"metadata": {"labels": pod.labels, "annotations": pod.annotations}, "spec": {}}
    metadata = placed_pod(raw, decision)["metadata"]
    placed = replace(
        pod,
        labels=metadata.get("labels") or {},
        annotations={key: value for key, value in metadata["annotations"].items() if key != names.DECISION},
        decision=metadata["annotations"].get(names.DECISION, ""),
        required_terms=_required(making.own_terms, decision),
        needs=_with_decision(making.needs, decision),
    )
    return placed, replace(facts, preferred=decision.injection.preferred, is_soft=decision.soft)


def _cluster_wide(name: str) -> Key:
    return Key("", name)


def _seen_class(cluster: SimulatedCluster) -> Any:
    nodes = cluster.webhook.stores["nodes"]

    def class_of(pod: Pod) -> Class | None:
        node = nodes.get(_cluster_wide(pod.node))
        return cluster.configuration.classes.of_pod(pod, None if node is None else node.labels)

    return class_of


def _own_terms(making: Making) -> tuple[NodeTerm, ...]:
    selector = tuple(NodeRequirement(key, "In", (value,)) for key, value in making.needs.node_selector.items())
    if not making.own_terms:
        return (selector,) if selector else ()
    return tuple(selector + term for term in making.own_terms)


def _required(own: tuple[NodeTerm, ...], decision: Decision) -> tuple[NodeTerm, ...]:
    if not decision.injection.required:
        return own
    return tuple(term + ours for term in own or ((),) for ours in decision.injection.required)


def _with_decision(needs: Needs, decision: Decision) -> Needs:
    added = tuple(
        Toleration(each["key"], each.get("operator", "Equal"), each.get("value", ""))
        for each in decision.injection.tolerations
    )
    hard = tuple(
        HardSpread(
            each["topologyKey"],
            each["maxSkew"],
            requirements(each["labelSelector"]),
            honors_taints=each.get("nodeTaintsPolicy") == "Honor",
            match_label_keys=tuple(each.get("matchLabelKeys", ())),
        )
        for each in decision.injection.spread
        if each["whenUnsatisfiable"] == "DoNotSchedule"
    )
    return replace(
        needs,
        tolerations=needs.tolerations + added,
        hard_spread=needs.hard_spread + hard,
        priority_class=decision.injection.priority_class or needs.priority_class,
    )


def _seen_by(cluster: SimulatedCluster, demand: Demand) -> ClusterState:
    """The cluster, as the webhook sees it for such a pod.

    Without the taints that soft pods tolerate: a scheduler that has its own reasons is one of the stories.
    """
    nodes, classes = tuple(cluster.nodes.values()), cluster.priority_classes
    state = cluster_state(nodes, classes, NO_BUDGETS, cluster.configuration)
    return replace(state, shunned={}).with_outages(cluster.outages, demand, cluster.now)


# --- the scheduler ---------------------------------------------------------------------------------------------------


class NodeUsage:
    """What is taken of each node, and by whose pods."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.nodes = cluster.nodes
        self.namespaces = {key.name: each for key, each in cluster.objects["namespaces"].items()}
        self.pods: list[Pod] = []
        self._has_terms = any(pod.needs.has_pod_affinity for pod in cluster.pods)
        self.used: dict[str, Counter[str]] = {name: Counter() for name in self.nodes}
        self.siblings: dict[str, Counter[str]] = {}
        for pod in cluster.pods:
            if pod.node in self.used and pod.phase not in ("Failed", "Succeeded"):
                self.add(pod, pod.node)

    def add(self, pod: Pod, node: str) -> None:
        self.used[node].update({**pod.needs.requests, "pods": 1, **dict.fromkeys(map(str, pod.needs.host_ports), 1)})
        self.pods.append(replace(pod, node=node))
        if pod.owner is not None:
            self.siblings.setdefault(pod.owner.uid, Counter())[node] += 1

    def has_room(self, pod: Pod, node: Node) -> bool:
        used = self.used[node.name]
        asked = {**pod.needs.requests, "pods": 1}
        if any(used[str(port)] for port in pod.needs.host_ports):
            return False
        return all(used[key] + amount <= node.allocatable.get(key, 0) for key, amount in asked.items())

    def may_join(self, pod: Pod, node: Node) -> bool:
        return not self._has_terms or may_join(pod, node, self.nodes, self.pods, self.namespaces)

    def can_attach(self, pod: Pod, node: Node) -> bool:
        """Its volumes can be used there, and are not too many with those of others. Each is of its driver."""
        own = list(self._volumes_of(pod))
        if any(volume.terms and not any(_holds(term, node.labels) for term in volume.terms) for volume in own):
            return False
        limits = self._cluster.objects["limits"].get(_cluster_wide(node.name))
        there = [volume for each in self.pods if each.node == node.name for volume in self._volumes_of(each)]
        return limits is None or all(
            len({each.name for each in (*there, *own) if each.driver == volume.driver}) <= limits.most[volume.driver]
            for volume in own
        )

    def _volumes_of(self, pod: Pod) -> Iterator[Volume]:
        for claim in pod.needs.claims:
            name = self._cluster.objects["claims"][Key(pod.namespace, claim.replace("*", pod.name))].volume
            yield self._cluster.objects["volumes"][_cluster_wide(name)]

    def by(self, pod: Pod, key: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for name, number in self.siblings.get(pod.owner.uid if pod.owner else "", Counter()).items():
            found[self.nodes[name].labels.get(key, "")] += number
        return found


def schedule(cluster: SimulatedCluster) -> None:
    waiting = [pod for pod in cluster.pods if not pod.node and not pod.terminating and not pod.gates]
    if not waiting:
        return
    occupancy, actual = NodeUsage(cluster), NodeUsage(cluster)
    nominated = [pod for pod in cluster.pods if not pod.node and not pod.terminating and pod.nominated in cluster.nodes]
    kept = [pod for pod in nominated if cluster.forgotten.get(pod.uid) != pod]
    for pod in kept:  # room is kept for them, against pods of the same priority
        occupancy.add(pod, pod.nominated)
    for pod in sorted(waiting, key=lambda each: (each.created, each.uid)):
        if pod in kept and not actual.has_room(pod, cluster.nodes[pod.nominated]):
            continue  # what is kept for it is not free yet
        if pod in kept and cluster.nodes[pod.nominated].ready:
            actual.add(pod, pod.nominated)
            cluster.facts[pod.uid].ready_at = cluster.now + cluster.facts[pod.uid].start_seconds
            cluster.put(replace(pod, node=pod.nominated, nominated="", unschedulable="", changed=cluster.now))
            continue
        fitting = [node for node in cluster.nodes.values() if _fits(pod, node, occupancy)]
        fitting = _evenly(pod, fitting, occupancy)
        if not fitting:
            if not pod.unschedulable:
                text = UNSCHEDULABLE.format(len(cluster.nodes))
                cluster.put(replace(pod, unschedulable=text, changed=cluster.now))
            continue
        facts = cluster.facts[pod.uid]
        scores = {node.name: _score(pod, node, occupancy, facts) + cluster.random.random() / 100 for node in fitting}
        chosen = max(scores, key=lambda name: scores[name])
        occupancy.add(pod, chosen)
        facts.ready_at = cluster.now + facts.start_seconds
        cluster.put(replace(pod, node=chosen, unschedulable="", changed=cluster.now))


def _fits(pod: Pod, node: Node, occupancy: NodeUsage) -> bool:
    if not node.ready or node.unschedulable or node.deleting:
        return False
    if any(not any(each.tolerates(taint) for each in pod.needs.tolerations) for taint in node.taints):
        return False
    if any(node.labels.get(key) != value for key, value in pod.needs.node_selector.items()):
        return False
    if pod.required_terms and not any(_holds(term, node.labels) for term in pod.required_terms):
        return False
    return occupancy.has_room(pod, node) and occupancy.may_join(pod, node) and occupancy.can_attach(pod, node)


def _holds(term: NodeTerm, labels: Mapping[str, str]) -> bool:
    return all(each.allows(labels.get(each.key)) for each in term)


def _evenly(pod: Pod, fitting: Sequence[Node], occupancy: NodeUsage) -> list[Node]:
    """Those that keep within the skew of hard constraints."""
    for rule in pod.needs.hard_spread:
        counts = occupancy.by(pod, rule.topology_key)
        domains = {node.labels.get(rule.topology_key, "") for node in occupancy.nodes.values() if node in fitting}
        least = min((counts[domain] for domain in domains), default=0)
        fitting = [n for n in fitting if counts[n.labels.get(rule.topology_key, "")] + 1 - least <= rule.max_skew]
    return list(fitting)


def _score(pod: Pod, node: Node, occupancy: NodeUsage, facts: PodFacts) -> float:
    """Preferences first, then few siblings on the host and in the zone, then much that is free."""
    preferred = sum(each.weight for each in facts.preferred if _holds(each.term, node.labels))
    most = sum(each.weight for each in facts.preferred) or 1
    hosts, zones = occupancy.by(pod, names.HOSTNAME), occupancy.by(pod, names.ZONE)
    crowd = hosts[node.name] / max(1, *hosts.values(), 1) + zones[node.pool.zone] / max(1, *zones.values(), 1)
    free = 1 - occupancy.used[node.name]["cpu"] / max(1, node.allocatable["cpu"])
    return 2 * preferred / most - crowd * (0.1 if facts.is_soft else 1.0) + free
