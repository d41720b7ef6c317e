"""Nodes that are gone, and what to do about the pods that were on them (design §4b).

Kubernetes leaves such pods "Ready" for most of a minute. They are buried early only with proof that the machine is
gone: a Node that is deleted and registered again within 40 s keeps its pods, and a kubelet may outlive its Node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter

from placement import names
from placement.configuration import Configuration
from placement.model import Class, Node, Pod, Sign, Workload
from placement.outage import Demand, Evidence, Outage, Outages, limited_to, without_zones
from placement.plan.actions import Action, How, Why
from placement.plan.assess import Assessment, shape_of
from placement.plan.group import Group, own_terms
from placement.plan.room import Room
from placement.plan.shortage import left_out

BY = "rebalancer"


@dataclass(frozen=True, slots=True)
class GoneNode:
    """A node that was there: as it was last seen, and what proves that its machine is gone ("": nothing)."""

    node: Node
    of: Class
    proof: str = ""


Lost = Mapping[str, GoneNode]  # by the node's name


def proof_of(last_seen: Node, leaving_taints: Collection[str], is_deleted_by_cloud: bool) -> str:
    """What proves that the machine of a Node that was deleted is gone ("": nothing).

    A termination taint, Karpenter's finalizer, or the cloud's Event about a Node that was not ready. An Event alone
    proves nothing, since its author is not authenticated; nor does a Node that was not ready alone: its kubelet may
    be cut off. A cordon, or a request to delete the Node, says nothing about the machine.
    """
    announced = next((taint.key for taint in last_seen.taints if taint.key in leaving_taints), "")
    if announced:
        return f"its removal was announced ({announced})"
    if last_seen.deleting and last_seen.outlives_machine:
        return "a finalizer held its deletion until its machine was gone"
    is_gone = is_deleted_by_cloud and not last_seen.ready
    return f"it was not ready, and the cloud deleted it ({names.SIGN_NODE_DELETED})" if is_gone else ""


def gone_node(last_seen: Node, configuration: Configuration, sign: Sign | None) -> GoneNode:
    """A Node that was deleted, with what the cloud said about a Node of that name, if anything."""
    of = configuration.classes.of_node(last_seen.labels) or Class.ON_DEMAND
    return GoneNode(last_seen, of, proof_of(last_seen, configuration.leaving_taints, is_deleted_by(sign, last_seen)))


def unseen_node(pod: Pod, beside: Iterable[Pod], configuration: Configuration, sign: Sign | None) -> GoneNode:
    """A Node that was gone before we came, as its pods show it.

    Kubernetes calls all pods of a Node not ready when the Node is not. A word of the cloud that is older than a pod is
    about another Node of that name.
    """
    node = Node(pod.node, ready=any(each.ready for each in beside), created=pod.created)
    label = pod.labels.get(names.CLASS, "")
    of = Class(label) if label in tuple(Class) else Class.ON_DEMAND
    return GoneNode(node, of, proof_of(node, configuration.leaving_taints, is_deleted_by(sign, node)))


def is_deleted_by(sign: Sign | None, node: Node) -> bool:
    """The Event says that its writer deletes this very node: names come again."""
    if sign is None:
        return False
    if node.uid and sign.uid not in ("", node.name):
        return sign.uid == node.uid
    return sign.at > node.created  # both are whole seconds: in doubt, it is another one's


def burials(assessments: Iterable[Assessment], lost: Lost) -> list[Action]:
    """Pods to bury, those of workloads furthest below min-available first, one of each in turn."""
    queue: list[tuple[int, int, Action]] = []  # no two have the same turn and order
    proven = {name: (gone.of, f"node {name} is gone: {gone.proof}") for name, gone in lost.items() if gone.proof}
    for order, each in enumerate(each for each in assessments if each.lost):
        spare = each.lasting.spot + each.lasting.on_demand - each.group.needed
        queue += [(spare + turn, order, action) for turn, action in enumerate(_burials(each, proven))]
    queue.sort(key=itemgetter(0, 1))
    return [action for *_, action in queue]


def _burials(assessment: Assessment, proven: Mapping[str, tuple[Class, str]]) -> Iterator[Action]:
    group = assessment.group
    if group.policy.rebalance == "off" or not is_replaced_fast(group):
        return
    for pod in assessment.lost:
        if pod.node in proven and not pod.needs.has_claims:
            of, text = proven[pod.node]
            yield Action(How.BURY, Why.LOST, group.workload, pod, of, text=text, in_every_mode=True)


def is_replaced_fast(group: Group) -> bool:
    """With `Recreate`, too: its pods must not run side by side, and one whose machine is gone runs no more."""
    default = "kubernetes" if group.is_stateful else "fast"
    return (group.policy.replace_lost_pods or default) == "fast"


Short = tuple[Class, Pod, Workload | None]  # a pod, of which workload, for whose replacement the class has no room


def left_behind(buried: Iterable[Action], room: Room) -> Iterator[Short]:
    """One of each kind whose class has no room for all that were lost, and that would fit on the other class.

    What would fit nowhere is no evidence: an outage would not help it. What has failed already was replaced when it
    did.
    """
    lost: dict[Class, dict[str, Action]] = {}
    for action in buried:
        if action.origin is not None and action.pod.phase != "Failed":
            lost.setdefault(action.origin, {})[action.pod.uid] = action
    for of, actions in lost.items():
        short = left_out((action.pod for action in actions.values()), room, of)
        for pod in {_kind(pod): pod for pod in _siblings_apart(short)}.values():
            if room.fits(pod, of.other):
                yield of, pod, actions[pod.uid].workload


def outages_of_loss(short: Iterable[Short], room: Room, outages: Outages, now: float) -> Iterator[Outage]:
    """Classes that have no room left for what was lost, or will be, with their nodes; noted once.

    Where only pods that are bound to some zones or nodes are left out, the class is out for these, and for no others.
    It is out for all namespaces if nothing but CPU and memory is short. What else a pod asks for (devices, distance
    from others) says nothing about others' pods.
    """
    classes, zones = room.ground.configuration.classes, room.ground.zones
    alike = {(of, *_kind(pod)): (of, pod, workload) for of, pod, workload in short}
    for of, pod, workload in alike.values():
        terms, shape = own_terms(pod, classes), shape_of(pod)
        namespace = "" if _asks_for_amounts_alone(pod) else pod.namespace
        if outages.stands(of, zones[of], Demand(namespace, terms, shape), now):
            continue
        where, owner = limited_to(zones[of], terms), "" if workload is None else f"{workload.kind} {workload.key}"
        evidence = Evidence(str(pod.key), owner)
        noted_terms = without_zones(terms)
        yield Outage(of, 0.0, where, shape, by=BY, namespace=namespace, terms=noted_terms, evidence=evidence)


def _siblings_apart(pods: Iterable[Pod]) -> Iterable[Pod]:
    """One for each template and namespace: siblings share what they ask for, and there may be thousands."""
    return {(id(pod.needs), id(pod.required_terms), pod.namespace): pod for pod in pods}.values()


def _kind(pod: Pod) -> tuple[object, ...]:
    """What decides whether it fits; with its namespace, where others' pods may fit all the same."""
    return id(pod.required_terms), id(pod.needs), "" if _asks_for_amounts_alone(pod) else pod.namespace


def _asks_for_amounts_alone(pod: Pod) -> bool:
    needs = pod.needs
    is_plain = not (needs.has_pod_affinity or needs.hard_spread or needs.host_ports)
    return is_plain and all(key in ("cpu", "memory") for key in needs.requests)
