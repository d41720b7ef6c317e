"""Required affinity between pods, judged in the plainest way: the scheduler's own steps, over all pods, for every node.

What `placement.plan.neighbours` finds out with indexes is held to this, and the simulated scheduler goes by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from placement.model import Namespace, Node, NodeTerm, Pod, PodTerm

Pairs = set[tuple[str, str]]  # topology key and value


def may_join(
    pod: Pod, node: Node, nodes: Mapping[str, Node], pods: Iterable[Pod], namespaces: Mapping[str, Namespace]
) -> bool:
    """Whether the scheduler's filter would let the pod onto the node, beside these pods."""
    there = [each for each in pods if each.node in nodes and each.phase not in ("Failed", "Succeeded")]
    own = Pairs(node.labels.items())
    repelling = _pairs_of_others(pod, there, nodes, namespaces)
    repelled = _pairs(pod, there, nodes, namespaces)
    attracting = _pairs_of_company(pod, there, nodes, namespaces)
    asked = [(term.topology_key, node.labels.get(term.topology_key)) for term in pod.needs.affinity]
    if own & repelling or own & repelled or any(value is None for _, value in asked):
        return False
    return all(pair in attracting for pair in asked) or (not attracting and _selects_all(pod, pod, namespaces))


def _pairs_of_others(
    pod: Pod, there: Collection[Pod], nodes: Mapping[str, Node], namespaces: Mapping[str, Namespace]
) -> Pairs:
    return {
        pair
        for other in there
        for term in other.needs.anti_affinity
        if _selects(term, other, pod, namespaces)
        for pair in _domain(term, other, nodes)
    }


def _pairs(pod: Pod, there: Collection[Pod], nodes: Mapping[str, Node], namespaces: Mapping[str, Namespace]) -> Pairs:
    return {
        pair
        for term in pod.needs.anti_affinity
        for other in there
        if _selects(term, pod, other, namespaces)
        for pair in _domain(term, other, nodes)
    }


def _pairs_of_company(
    pod: Pod, there: Collection[Pod], nodes: Mapping[str, Node], namespaces: Mapping[str, Namespace]
) -> Pairs:
    return {
        pair
        for other in there
        if _selects_all(pod, other, namespaces)
        for term in pod.needs.affinity
        for pair in _domain(term, other, nodes)
    }


def _domain(term: PodTerm, pod: Pod, nodes: Mapping[str, Node]) -> Iterator[tuple[str, str]]:
    value = nodes[pod.node].labels.get(term.topology_key)
    if value is not None:
        yield term.topology_key, value


def _selects_all(pod: Pod, other: Pod, namespaces: Mapping[str, Namespace]) -> bool:
    return all(_selects(term, pod, other, namespaces) for term in pod.needs.affinity)


def _selects(term: PodTerm, owner: Pod, other: Pod, namespaces: Mapping[str, Namespace]) -> bool:
    """A term of the owner's is about the other pod."""
    named = set(term.namespaces)
    if not named and term.namespace_selector is None:
        named = {owner.namespace}
    is_within = other.namespace in named or _holds(term.namespace_selector, namespaces[other.namespace].labels)
    return is_within and _holds(term.selector, other.labels)


def _holds(asked: NodeTerm | None, labels: Mapping[str, str]) -> bool:
    return asked is not None and all(each.allows(labels.get(each.key)) for each in asked)
