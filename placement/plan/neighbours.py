"""Whether a pod may join others on a node: required affinity and anti-affinity between pods.

It is judged as the scheduler does (its filter InterPodAffinity). A term is about the pods that it selects, and about
domains: the nodes that share a value of its topology key. A pod may join a node unless

- a pod in the domain is to be kept apart from it, by its own anti-affinity or by that pod's;
- a term of its affinity has no pod in the domain that all of its terms select. The first of its kind is let in
  everywhere: no pod in the cluster is selected by all of its terms, but the pod itself is.

Example: three replicas, each apart from `app=web` on `kubernetes.io/hostname`, on two of five hosts: one more may join
three hosts. Apart on `topology.kubernetes.io/zone`, with pods in two of three zones: it may join any host of the third.

Pods that are on their way out count until they are gone. Pods that have finished do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from placement.lack import Lack
from placement.model import FINISHED, NOTHING, Namespace, Pod, PodTerm
from placement.plan.census import Census
from placement.plan.ground import Ground, Site
from placement.plan.storage import Storage
from placement.selector import holds

FEW_NODES = 20  # in domains of so many, all pods are looked at; in larger ones, those of the namespace
NONE_GONE: frozenset[str] = frozenset()
EVERY = ""  # in place of a namespace: terms that select namespaces by their labels may be about any
Herd = tuple[str, tuple[PodTerm, ...]]  # pods of one namespace with the same required anti-affinity
Where = Mapping[str, set[str]]  # by node: the UIDs of pods


def is_on(pod: Pod) -> bool:
    """It takes room on its node."""
    return pod.is_on_node


class Averse:
    """Where pods with required anti-affinity are, by the namespaces of the pods that they may keep away.

    Siblings have the same terms, so that few terms are compared, however many pods there are.
    """

    def __init__(self) -> None:
        self._herds: dict[str, dict[Herd, dict[str, set[str]]]] = {}

    def add(self, pod: Pod, node: str) -> None:
        herd = (pod.namespace, pod.needs.anti_affinity)
        for namespace in _reached(herd):
            where = self._herds.setdefault(namespace, {}).setdefault(herd, {})
            where.setdefault(node, set()).add(pod.uid)

    def remove(self, pod: Pod, node: str) -> None:
        herd = (pod.namespace, pod.needs.anti_affinity)
        for namespace in _reached(herd):
            herds = self._herds.get(namespace, {})
            where = herds.get(herd, {})
            uids = where.get(node, set())
            uids.discard(pod.uid)
            if not uids:
                where.pop(node, None)
            if not where:
                herds.pop(herd, None)
            if not herds:
                self._herds.pop(namespace, None)

    def facing(self, namespace: str) -> Iterator[tuple[Herd, Where]]:
        """Those that may keep a pod of this namespace away."""
        yield from self._herds.get(namespace, {}).items()
        yield from self._herds.get(EVERY, {}).items()


def _reached(herd: Herd) -> set[str]:
    home, terms = herd
    reached: set[str] = set()
    for term in terms:
        if term.namespace_selector is not None:
            reached.add(EVERY)
        reached.update(term.namespaces or ((home,) if term.namespace_selector is None else ()))
    return reached


class Facing(NamedTuple):
    """Anti-affinity that is about a pod: its topology key, where the pods are that have it, and which have gone."""

    key: str
    where: Where
    gone: frozenset[str]


class Crowd:
    """Pods that will be on nodes: a plan has promised them a place, or they wait, and will get one."""

    def __init__(self) -> None:
        self.pods: dict[str, list[Pod]] = {}  # by node
        self.averse = Averse()

    def add(self, pod: Pod, node: str) -> None:
        self.pods.setdefault(node, []).append(pod)
        if pod.needs.anti_affinity:
            self.averse.add(pod, node)

    def copy(self) -> Crowd:
        copied = Crowd()
        for node, pods in self.pods.items():
            for pod in pods:
                copied.add(pod, node)
        return copied


@dataclass(frozen=True, slots=True)
class Tenants:
    """The pods that are on nodes, in the ways that are asked for."""

    pods_on: Mapping[str, Sequence[Pod]]  # by node
    namespaces: Mapping[str, Namespace]
    averse: Averse
    within: Callable[[str], Iterable[Pod]]  # by namespace
    storage: Storage | None = None  # None: nobody knows where volumes can be used


def tenants_in(
    pods_on: Mapping[str, Sequence[Pod]], namespaces: Mapping[str, Namespace], storage: Storage | None = None
) -> Tenants:
    """For a picture of the cluster that does not change."""
    averse = Averse()
    for node, pods in pods_on.items():
        for pod in pods:
            if pod.needs.anti_affinity and pod.phase not in FINISHED:
                averse.add(pod, node)
    found: dict[str, list[Pod]] = {}

    def within(namespace: str) -> Iterable[Pod]:
        if not found:
            for pods in pods_on.values():
                for pod in pods:
                    found.setdefault(pod.namespace, []).append(pod)
        return found.get(namespace, ())

    return Tenants(pods_on, namespaces, averse, within, storage)


class Neighbours:
    """Whom a pod would find beside it. Made for one plan: what is found out is kept, and nothing may change meanwhile.

    Pods whose UID is in `gone` are there, and do not count.
    """

    def __init__(self, ground: Ground, tenants: Tenants, gone: frozenset[str] = frozenset()) -> None:
        self.ground = ground
        self.census = Census(tenants.within, gone)
        self._tenants = tenants
        self._gone = gone
        self._keeping_away: dict[tuple[str, int], tuple[Mapping[str, str], list[Facing]]] = {}
        self._known: dict[tuple[str, tuple[PodTerm, ...], str, str], bool] = {}

    def without(self, gone: Iterable[str]) -> Neighbours:
        """The same as if pods with these UIDs had gone already."""
        return Neighbours(self.ground, self._tenants, self._gone.union(gone))

    @property
    def storage(self) -> Storage | None:
        return self._tenants.storage

    def within(self, namespace: str) -> Iterable[Pod]:
        """Pods of the namespace that have a node."""
        found = self._tenants.within(namespace)
        return (pod for pod in found if pod.uid not in self._gone) if self._gone else found

    def on(self, node: str) -> Iterator[Pod]:
        """Pods that take room there."""
        return (pod for pod in self._tenants.pods_on.get(node, ()) if pod.is_on_node and pod.uid not in self._gone)

    def knows(self, pod: Pod) -> bool:
        """It is among those that count."""
        return any(each.uid == pod.uid for each in self.on(pod.node))

    def judge(self, pod: Pod, crowd: Crowd) -> Newcomer | None:
        """Whether the pod may join a node, beside those that are there and the crowd; None: it may join any.

        Most pods have no terms, and no other pod's terms are about them: that is found out without a look at nodes.
        """
        facing = [*self._facing(pod), *self._selecting(crowd.averse, pod, NONE_GONE)]
        if not facing and not pod.needs.has_pod_affinity:
            return None
        return Newcomer(self, pod, crowd, facing)

    def _facing(self, pod: Pod) -> Sequence[Facing]:
        """Found out once for siblings: they share their labels."""
        alike = (pod.namespace, id(pod.labels))
        if alike not in self._keeping_away:
            found = list(self._selecting(self._tenants.averse, pod, self._gone))
            self._keeping_away[alike] = (pod.labels, found)
        return self._keeping_away[alike][1]

    def _selecting(self, averse: Averse, pod: Pod, gone: frozenset[str]) -> Iterator[Facing]:
        """Anti-affinity that is about the pod."""
        for (home, terms), where in averse.facing(pod.namespace):
            for term in terms:
                if self.selects((term,), home, pod):
                    yield Facing(term.topology_key, where, gone)

    def selects(self, terms: Iterable[PodTerm], home: str, pod: Pod) -> bool:
        """Whether all terms of a pod in the namespace `home` are about this pod."""
        return all(
            self._reaches(term, home, pod.namespace) and term.selector is not None and holds(term.selector, pod.labels)
            for term in terms
        )

    def _reaches(self, term: PodTerm, home: str, namespace: str) -> bool:
        if term.namespace_selector is None:
            return namespace in term.namespaces if term.namespaces else namespace == home
        known = self._tenants.namespaces.get(namespace)
        return namespace in term.namespaces or holds(
            term.namespace_selector, NOTHING if known is None else known.labels
        )

    def has_any(self, terms: tuple[PodTerm, ...], home: str, key: str, value: str) -> bool:
        """Whether a pod is in the domain that all terms are about."""
        asked = (home, terms, key, value)
        if asked not in self._known:
            self._known[asked] = self._is_on(self.ground.domain(key, value), terms, home)
        return self._known[asked]

    def has_any_at_all(self, terms: tuple[PodTerm, ...], home: str) -> bool:
        """The same of all nodes that are in a domain of one of the terms."""
        asked = (home, terms, "", "")
        if asked not in self._known:
            self._known[asked] = self._is_on(self.in_domains(terms, self.ground.sites), terms, home)
        return self._known[asked]

    def in_domains(self, terms: Iterable[PodTerm], nodes: Iterable[str]) -> frozenset[str]:
        keys = {term.topology_key for term in terms}
        return frozenset(name for name in nodes if not keys.isdisjoint(self.ground.sites[name].node.labels))

    def _is_on(self, nodes: frozenset[str], terms: tuple[PodTerm, ...], home: str) -> bool:
        return any(
            self.selects(terms, home, pod) and pod.phase not in FINISHED and pod.uid not in self._gone
            for pod in (self._beside(nodes) if len(nodes) <= FEW_NODES else self._within(nodes, terms, home))
        )

    def _beside(self, nodes: Iterable[str]) -> Iterator[Pod]:
        for node in nodes:
            yield from self._tenants.pods_on.get(node, ())

    def _within(self, nodes: frozenset[str], terms: Sequence[PodTerm], home: str) -> Iterator[Pod]:
        """A zone holds most of a cluster's pods, and a term is mostly about one namespace."""
        namespaces: Iterable[str] = terms[0].namespaces or (home,)
        if any(term.namespace_selector is not None for term in terms):
            namespaces = self._tenants.namespaces
        for namespace in namespaces:
            yield from (pod for pod in self._tenants.within(namespace) if pod.node in nodes)


class Newcomer:
    """A pod that looks for a node, and what was found out for it."""

    def __init__(self, neighbours: Neighbours, pod: Pod, crowd: Crowd, facing: Iterable[Facing]) -> None:
        self._neighbours = neighbours
        self._pod = pod
        self._crowd = crowd
        self._facing: dict[str, list[Facing]] = {}  # by topology key
        self._apart: dict[str, list[PodTerm]] = {}  # by topology key: its own anti-affinity
        for each in facing:
            self._facing.setdefault(each.key, []).append(each)
        for term in pod.needs.anti_affinity:
            self._apart.setdefault(term.topology_key, []).append(term)
        self._keys = self._facing.keys() | self._apart.keys()
        self._is_open: dict[tuple[str, str], bool] = {}  # by domain

    def joins(self, site: Site) -> bool:
        return self.lack(site) is None

    def lack(self, site: Site) -> Lack | None:
        labels = site.node.labels
        if not all(self._joins(key, labels[key]) for key in self._keys if key in labels):
            return Lack.APART
        return None if self._has_company(labels) else Lack.COMPANY

    def _joins(self, key: str, value: str) -> bool:
        if (key, value) not in self._is_open:
            self._is_open[key, value] = not self._is_kept_away(key, value) and not self._keeps_away(key, value)
        return self._is_open[key, value]

    def _is_kept_away(self, key: str, value: str) -> bool:
        domain = self._neighbours.ground.domain(key, value)
        return any(
            each.where[node] - each.gone for each in self._facing.get(key, ()) for node in each.where.keys() & domain
        )

    def _keeps_away(self, key: str, value: str) -> bool:
        return any(self._is_there((term,), key, value) for term in self._apart.get(key, ()))

    def _has_company(self, labels: Mapping[str, str]) -> bool:
        terms = self._pod.needs.affinity
        keys = {term.topology_key for term in terms}
        if not keys <= labels.keys():
            return False
        return all(self._is_there(terms, key, labels[key]) for key in keys) or self._is_first(terms)

    def _is_there(self, terms: tuple[PodTerm, ...], key: str, value: str) -> bool:
        domain = self._neighbours.ground.domain(key, value)
        return self._neighbours.has_any(terms, self._pod.namespace, key, value) or self._will_be_on(domain, terms)

    def _will_be_on(self, nodes: frozenset[str], terms: tuple[PodTerm, ...]) -> bool:
        """The smaller of both is walked through, up to the first that is found: a zone has thousands of nodes."""
        home, pods = self._pod.namespace, self._crowd.pods
        there = (node for node in nodes if node in pods) if len(nodes) < len(pods) else (n for n in pods if n in nodes)
        return any(self._neighbours.selects(terms, home, pod) for node in there for pod in pods[node])

    def _is_first(self, terms: tuple[PodTerm, ...]) -> bool:
        """Neither it nor its siblings could ever start if it had to wait for one of them."""
        home, near = self._pod.namespace, self._neighbours
        return (
            near.selects(terms, home, self._pod)
            and not near.has_any_at_all(terms, home)
            and not self._will_be_on(near.in_domains(terms, self._crowd.pods), terms)
        )
