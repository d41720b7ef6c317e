"""Which class a node is of, which classes a pod's own terms allow, and the node terms that mean a class.

On-demand is "not known to be spot", so that unlabelled nodes count and are usable as on-demand: `NotIn [spot values]`,
ANDed over all configured labels. Spot is one ORed term per configured label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from placement import names
from placement.model import Class, NodeRequirement, NodeTerm, Pod


@dataclass(frozen=True, slots=True)
class SpotTaint:
    """A taint that spot nodes carry and spot pods tolerate, whatever its effect."""

    key: str
    value: str = ""

    @property
    def toleration(self) -> dict[str, str]:
        if not self.value:
            return {"key": self.key, "operator": "Exists"}
        return {"key": self.key, "operator": "Equal", "value": self.value}


@dataclass(frozen=True, slots=True)
class ClassLabel:
    """A node label that defines the class, and the taints that go with it."""

    key: str
    spot: tuple[str, ...]
    on_demand: tuple[str, ...] = ()
    taints: tuple[SpotTaint, ...] = ()
    # Who buys nodes buys them by our preferences: no pool is preferred, and the built-in spread does not bind it.
    buys_by_preference: bool = False
    is_scaled: bool = False  # an autoscaler brings nodes, which takes minutes
    notice_seconds: int = 120  # how long before the end of a spot node the cloud announces it


PRESETS: Mapping[str, ClassLabel] = {
    "default": ClassLabel(names.CAPACITY, ("spot",), ("on-demand",), (SpotTaint(names.CAPACITY, "spot"),)),
    "karpenter": ClassLabel(
        "karpenter.sh/capacity-type", ("spot",), ("on-demand", "reserved"), buys_by_preference=True, is_scaled=True
    ),
    "eks": ClassLabel("eks.amazonaws.com/capacityType", ("SPOT",), ("ON_DEMAND",), is_scaled=True),
    "gke": ClassLabel(
        "cloud.google.com/gke-spot",
        ("true",),
        ("false",),
        (SpotTaint("cloud.google.com/gke-spot", "true"),),
        is_scaled=True,
        notice_seconds=30,
    ),
    "aks": ClassLabel(
        "kubernetes.azure.com/scalesetpriority",
        ("spot",),
        ("regular",),
        (SpotTaint("kubernetes.azure.com/scalesetpriority", "spot"),),
        is_scaled=True,
        notice_seconds=30,
    ),
}


@dataclass(frozen=True, slots=True)
class Classes:
    """The configured class labels together."""

    labels: tuple[ClassLabel, ...] = field(default=(PRESETS["default"],))

    def of_node(self, node_labels: Mapping[str, str]) -> Class | None:
        """The class that a node's labels name; None if there is none: the node counts as on-demand and is reported."""
        if any(node_labels.get(label.key) in label.spot for label in self.labels):
            return Class.SPOT
        if any(node_labels.get(label.key) in label.on_demand for label in self.labels):
            return Class.ON_DEMAND
        return None

    def terms(self, wanted: Class) -> tuple[NodeTerm, ...]:
        """The ORed node terms that mean this class."""
        return _terms(self.labels, wanted)

    def allowed(self, terms: Iterable[NodeTerm]) -> frozenset[Class]:
        """The classes that ORed terms leave possible; no terms at all leave both."""
        return _allowed(self.labels, tuple(terms) or ((),))

    def of_pod(self, pod: Pod, node_labels: Mapping[str, str] | None) -> Class | None:
        """The class that a pod is of: its node's, else the only one that its own terms allow, else unknown."""
        if node_labels is not None:
            return self.of_node(node_labels) or Class.ON_DEMAND
        allowed = self.allowed(pod.required_terms)
        return next(iter(allowed)) if len(allowed) == 1 else None

    @property
    def buys_by_preference(self) -> bool:
        return any(label.buys_by_preference for label in self.labels)

    def notice_seconds(self, node_labels: Mapping[str, str]) -> int:
        """What the node's own labels say; the shortest if it has none of them."""
        own = [label.notice_seconds for label in self.labels if label.key in node_labels]
        return min(own or (label.notice_seconds for label in self.labels))

    @property
    def is_scaled(self) -> bool:
        return any(label.is_scaled for label in self.labels)

    @property
    def tolerations(self) -> tuple[dict[str, str], ...]:
        """What spot pods tolerate."""
        return tuple(taint.toleration for label in self.labels for taint in label.taints)


# A cluster has few class labels and few kinds of terms, and each pod asks: the answers are remembered.


@lru_cache(maxsize=64)
def _terms(labels: tuple[ClassLabel, ...], wanted: Class) -> tuple[NodeTerm, ...]:
    if wanted is Class.SPOT:
        return tuple((NodeRequirement(label.key, "In", label.spot),) for label in labels)
    return (tuple(NodeRequirement(label.key, "NotIn", label.spot) for label in labels),)


@lru_cache(maxsize=4096)
def _allowed(labels: tuple[ClassLabel, ...], own_terms: tuple[NodeTerm, ...]) -> frozenset[Class]:
    return frozenset(
        wanted
        for wanted in Class
        if any(_satisfiable(labels, own + ours) for own in own_terms for ours in _terms(labels, wanted))
    )


def _satisfiable(labels: tuple[ClassLabel, ...], term: NodeTerm) -> bool:
    """Whether some value of each class label satisfies all that the term says of it. Gt and Lt say nothing of it."""
    judged = tuple(requirement for requirement in term if requirement.operator not in ("Gt", "Lt"))
    return all(
        any(
            all(requirement.allows(value) for requirement in judged if requirement.key == label.key)
            for value in _possible_values(label, judged)
        )
        for label in labels
    )


def _possible_values(label: ClassLabel, term: NodeTerm) -> set[str | None]:
    mentioned = {value for requirement in term if requirement.key == label.key for value in requirement.values}
    return {None, "any other value", *label.spot, *label.on_demand, *mentioned}
