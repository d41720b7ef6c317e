"""What kubelets, pod GC and the controllers of Kubernetes do to a simulated cluster, one step at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from placement import names
from placement.model import Budget, Kind, Pod, ReplicaSet, Template, Workload
from placement.policy import part_of, surge, unavailable
from placement.selector import matches
from tests.rebalancer.scheduling import create_pod
from tests.rebalancer.simulation import (
    GC_SECONDS,
    UNREACHABLE_SECONDS,
    SimulatedCluster,
    is_active,
    is_serving,
    owner_of,
    selecting,
)

HISTORY = 2


def machines(cluster: SimulatedCluster) -> None:
    """Kubelets start and end pods; what is on no Node for long is buried, what is on an unreachable one is deleted."""
    nodes, now = cluster.nodes, cluster.now
    for pod in cluster.pods:
        node = nodes.get(pod.node)
        if node is not None and node.ready:
            _kubelet(cluster, pod)
        elif node is not None:
            if not pod.terminating and now - cluster.unready_at[node.name] >= UNREACHABLE_SECONDS:
                cluster.put(replace(pod, terminating=True))
        elif pod.node and now - cluster.gone_at.get(pod.node, now) >= GC_SECONDS:
            cluster.remove(pod)


def _kubelet(cluster: SimulatedCluster, pod: Pod) -> None:
    facts, now = cluster.facts[pod.uid], cluster.now
    if pod.terminating:
        if now >= facts.dies_at:
            cluster.remove(pod)
    elif pod.phase == "Pending":
        cluster.put(replace(pod, phase="Running", ready=now >= facts.ready_at, changed=now))
    elif not pod.ready and pod.phase == "Running" and now >= facts.ready_at:
        cluster.put(replace(pod, ready=True, changed=now))


def tables(cluster: SimulatedCluster) -> None:
    """The status of budgets and quotas."""
    for budget in list(cluster.objects["budgets"].values()):
        cluster.put(_counted(cluster, budget))
    for quota in list(cluster.objects["quotas"].values()):
        used = cluster.used_quota(quota.namespace)
        cluster.put(replace(quota, used={key: used.get(key, 0) for key in quota.hard}))


def _counted(cluster: SimulatedCluster, budget: Budget) -> Budget:
    """As the disruption controller counts: shares of what the pods' controllers want; a Deployment's are one scale."""
    pods = [pod for pod in selecting(cluster, budget) if pod.phase not in ("Failed", "Succeeded")]
    healthy = sum(pod.ready and not pod.terminating for pod in pods)
    scale = _scale(cluster, pods)
    if budget.max_unavailable is not None:
        expected, desired = scale, max(0, scale - _up(budget.max_unavailable, scale))
    elif isinstance(budget.min_available, int):
        expected, desired = len(pods), budget.min_available
    else:
        expected, desired = scale, _up(budget.min_available or 0, scale)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    return replace(budget, healthy=healthy, desired=desired, expected=expected, allowed=allowed, settled=True)


def _scale(cluster: SimulatedCluster, pods: Sequence[Pod]) -> int:
    sets = {each.uid: each for each in cluster.objects["replica_sets"].values()}
    workloads = {each.uid: each for each in cluster.workloads}
    owners = set()
    for pod in pods:
        if pod.owner is not None:
            owner = sets.get(pod.owner.uid)
            owners.add(owner.owner.uid if owner is not None and owner.owner is not None else pod.owner.uid)
    return sum(workloads[uid].replicas for uid in owners if uid in workloads)


def _up(amount: int | str, replicas: int) -> int:
    part = part_of(amount, replicas)
    return -(-part.numerator // part.denominator)


def controllers(cluster: SimulatedCluster) -> None:
    for replica_set in list(cluster.objects["replica_sets"].values()):
        replica_set_controller(cluster, replica_set)
    for workload in cluster.workloads:
        if workload.kind is Kind.STATEFUL_SET:
            stateful_set_controller(cluster, workload)
        else:
            deployment_controller(cluster, workload)


# --- ReplicaSets -----------------------------------------------------------------------------------------------------


def replica_set_controller(cluster: SimulatedCluster, replica_set: ReplicaSet) -> None:
    """Adopts, lets go, creates, deletes."""
    if replica_set.owner is None:  # left behind: it goes on, but nobody creates pods in this simulation then
        _claim(cluster, replica_set)
        active = [pod for pod in cluster.owned(replica_set.uid) if is_active(pod)]
        for pod in leaving_order(cluster, active)[: max(0, len(active) - replica_set.replicas)]:
            cluster.delete_pod(pod)
        return
    workload = next((each for each in cluster.workloads if each.uid == _parent(replica_set)), None)
    if workload is None:
        for pod in cluster.owned(replica_set.uid):
            cluster.delete_pod(pod)
        cluster.remove(replica_set)
        return
    _claim(cluster, replica_set)
    active = [pod for pod in cluster.owned(replica_set.uid) if is_active(pod)]
    missing = replica_set.replicas - len(active)
    for _ in range(missing):
        if not create_pod(cluster, replica_set, workload, replica_set.name + "-" + cluster.new_id("p")):
            break
    if missing < 0:
        for pod in leaving_order(cluster, active)[:-missing]:
            cluster.delete_pod(pod)
    cluster.put(replace(replica_set, settled=True, observed=len(active)))


def _claim(cluster: SimulatedCluster, replica_set: ReplicaSet) -> None:
    """Lets go of pods that its selector does not match any more, and adopts those without an owner that it matches."""
    owner = owner_of(replica_set)
    for pod in cluster.pods:
        if pod.namespace != replica_set.namespace:
            continue
        is_its = matches(replica_set.selector, pod.labels)
        if pod.owner == owner and not is_its:
            cluster.put(replace(pod, owner=None))
        elif pod.owner is None and is_its and is_active(pod):
            cluster.put(replace(pod, owner=owner))


def _parent(replica_set: ReplicaSet) -> str:
    return replica_set.owner.uid if replica_set.owner is not None else ""


def leaving_order(cluster: SimulatedCluster, pods: Sequence[Pod]) -> list[Pod]:
    """Who goes first: unassigned, pending, not ready, lowest cost, doubled on a node, ready for the shortest time."""
    on_node = Counter(pod.node for pod in pods)
    ranks = {"Pending": 0, "Unknown": 1}

    def rank(pod: Pod) -> tuple[object, ...]:
        cost = int(pod.annotations.get(names.DELETION_COST, "0"))
        return (
            bool(pod.node),
            ranks.get(pod.phase, 2),
            pod.ready,
            cost,
            -on_node[pod.node],
            -pod.changed,
            -pod.created,
            pod.name,
        )

    return sorted(pods, key=rank)


# --- Deployments -----------------------------------------------------------------------------------------------------


def deployment_controller(cluster: SimulatedCluster, workload: Workload) -> None:
    making = cluster.makings[workload.uid]
    template_hash = f"r{making.revision}"
    sets = cluster.sets_of(workload)
    new = next((each for each in sets if each.name == f"{workload.name}-{template_hash}"), None)
    olds = [each for each in sets if each is not new]
    if workload.rollout.paused:
        _scale_active(cluster, workload, new, olds)
    elif new is None:
        waits = workload.rollout.recreate and any(each.replicas or cluster.owned(each.uid) for each in olds)
        if waits:
            for old in olds:
                _set_replicas(cluster, old, 0)
            return
        cluster.put(_new_set(cluster, workload, template_hash, 0 if olds else workload.replicas))
    elif not any(old.replicas for old in olds):
        _set_replicas(cluster, new, workload.replicas)
    elif making.synced_replicas not in (-1, workload.replicas):
        _scale_active(cluster, workload, new, olds)
    else:
        _roll(cluster, workload, new, olds)
    making.synced_replicas = workload.replicas
    _forget_old(cluster, olds)
    now = cluster.again(workload)
    cluster.put(replace(now, settled=True, rolled_out=_rolled_out(cluster, now, template_hash)))


def _rolled_out(cluster: SimulatedCluster, workload: Workload, template_hash: str) -> float:
    """When its rollout ended, which is written once; 0 while one is under way, and for the first revision."""
    sets = [each for each in cluster.sets_of(workload) if each.replicas or cluster.owned(each.uid)]
    if template_hash == "r1" or [each.name for each in sets] != [f"{workload.name}-{template_hash}"]:
        return 0.0
    is_over = workload.rolled_out or _available(cluster, workload, sets[0]) == workload.replicas
    return (workload.rolled_out or cluster.now) if is_over else 0.0


def _new_set(cluster: SimulatedCluster, workload: Workload, template_hash: str, replicas: int) -> ReplicaSet:
    labels = {**workload.template.labels, names.POD_TEMPLATE_HASH: template_hash}
    return ReplicaSet(
        workload.namespace,
        f"{workload.name}-{template_hash}",
        cluster.new_id("uid"),
        owner_of(workload),
        replicas,
        {"matchLabels": labels},
        Template(labels=labels),
        settled=False,
    )


def _set_replicas(cluster: SimulatedCluster, replica_set: ReplicaSet, replicas: int) -> None:
    if replica_set.replicas != replicas:
        cluster.put(replace(replica_set, replicas=replicas, settled=False))


def _scale_active(
    cluster: SimulatedCluster, workload: Workload, new: ReplicaSet | None, olds: Sequence[ReplicaSet]
) -> None:
    """The difference to the revision that has most."""
    active = [each for each in (new, *olds) if each is not None and each.replicas]
    if not active:
        if new is not None:
            _set_replicas(cluster, new, workload.replicas)
        return
    missing = workload.replicas - sum(each.replicas for each in active)
    before = cluster.makings[workload.uid].synced_replicas
    if before in (-1, workload.replicas):
        return
    for each in sorted(active, key=lambda each: -each.replicas):
        changed = max(0, each.replicas + missing)
        missing -= changed - each.replicas
        _set_replicas(cluster, each, changed)


def _roll(cluster: SimulatedCluster, workload: Workload, new: ReplicaSet, olds: Sequence[ReplicaSet]) -> None:
    n = workload.replicas
    if workload.rollout.recreate:
        for old in olds:
            _set_replicas(cluster, old, 0)
        return
    total = new.replicas + sum(old.replicas for old in olds)
    most = n + surge(workload.rollout, n)
    if new.replicas != n and (new.replicas > n or total < most):
        _set_replicas(cluster, new, min(n, new.replicas + max(0, most - total)))
        return
    least = n - unavailable(workload.rollout, n)
    spare = total - least - (new.replicas - _available(cluster, workload, new))
    left = {old.uid: old.replicas for old in olds}
    for old in olds:  # those that do not serve go first
        gone = max(0, min(spare, left[old.uid] - _available(cluster, workload, old)))
        left[old.uid] -= gone
        spare -= gone
    older = sum(min(left[old.uid], _available(cluster, workload, old)) for old in olds)
    surplus = _available(cluster, workload, new) + older - least
    for old in olds:
        gone = max(0, min(surplus, left[old.uid])) if spare > 0 else 0
        left[old.uid] -= gone
        surplus -= gone
        _set_replicas(cluster, old, left[old.uid])


def _available(cluster: SimulatedCluster, workload: Workload, replica_set: ReplicaSet) -> int:
    """Ready for as long as the workload asks for."""
    owned = (pod for pod in cluster.owned(replica_set.uid) if is_active(pod) and pod.ready)
    return sum(cluster.now - pod.changed >= workload.min_ready_seconds for pod in owned)


def _forget_old(cluster: SimulatedCluster, olds: Sequence[ReplicaSet]) -> None:
    empty = [old for old in olds if not old.replicas and not cluster.owned(old.uid)]
    for old in empty[: max(0, len(empty) - HISTORY)]:
        cluster.remove(old)


# --- StatefulSets ----------------------------------------------------------------------------------------------------


def stateful_set_controller(cluster: SimulatedCluster, workload: Workload) -> None:
    making = cluster.makings[workload.uid]
    nodes = cluster.nodes
    by_name = {pod.name: pod for pod in cluster.owned(workload.uid)}
    wanted = [f"{workload.name}-{workload.first_ordinal + index}" for index in range(workload.replicas)]
    is_whole = True
    for name in wanted:
        pod = by_name.get(name)
        if pod is not None and pod.phase == "Failed" and not pod.terminating:
            cluster.delete_pod(pod, 0)
            pod = None
        if pod is None and name not in {each.name for each in cluster.pods}:
            create_pod(cluster, workload, workload, name)
        if pod is None or not is_serving(pod, nodes):
            is_whole = False
            if workload.ordered:
                break
    condemned = sorted((pod for name, pod in by_name.items() if name not in wanted), key=_ordinal, reverse=True)
    for pod in condemned[: 1 if workload.ordered else None]:
        if is_active(pod):
            cluster.delete_pod(pod)
    stale = [pod for pod in by_name.values() if pod.labels[names.CONTROLLER_REVISION_HASH] != f"r{making.revision}"]
    if is_whole and not condemned and stale:
        cluster.delete_pod(max(stale, key=_ordinal))
    cluster.put(replace(cluster.again(workload), settled=True, revision=f"r{making.revision}"))


def _ordinal(pod: Pod) -> int:
    return int(pod.name.rpartition("-")[2])
