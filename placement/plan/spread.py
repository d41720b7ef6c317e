"""Hard topology spread: in which domains one more pod keeps within the skew.

As the scheduler counts (its filter PodTopologySpread). Domains are the values of the topology key on nodes that count:
those that have the keys of all hard rules of the pod, that its own node terms leave open, and if the rule says so,
whose taints it tolerates; whether or not they have room or are cordoned. Of pods those count that the selector selects
in the pod's own namespace, and that do not end. A selector that is empty counts none. Our own rules select by class,
so a pod that changes its class is counted among others (`as_class`).

Example: skew 1, three pods in zones a, a, b: one more may go to b. With an empty zone c, only there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from placement import names
from placement.model import Class, HardSpread, NodeRequirement, NodeTerm, Pod
from placement.selector import holds


def as_class(pod: Pod, of: Class) -> Pod:
    """The pod as admission would give it another class: with another label, and other pods that its rules count.

    It is the same pod if it has no rule that selects by class.
    """
    if not any(each.key == names.CLASS for rule in pod.needs.hard_spread for each in rule.selector or ()):
        return pod
    rules = tuple(replace(rule, selector=_of_class(rule.selector, of)) for rule in pod.needs.hard_spread)
    labels = {**pod.labels, names.CLASS: str(of)}
    return replace(pod, labels=labels, needs=replace(pod.needs, hard_spread=rules))


def _of_class(selector: NodeTerm | None, of: Class) -> NodeTerm | None:
    ours = NodeRequirement(names.CLASS, "In", (str(of),))
    return selector and tuple(ours if each.key == names.CLASS else each for each in selector)


class Domains(NamedTuple):
    """The domain of every node that counts. Many rules share them, so what they come to is found once."""

    by_node: Mapping[str, str]
    all_of_them: frozenset[str]


class SpreadCount:
    """What one rule counts for pods that are alike. The fewest in a domain is kept, not looked for each time."""

    def __init__(self, rule: HardSpread, selector: NodeTerm, domains: Domains, pods: Mapping[str, int]) -> None:
        """`pods` are how many of them are on which node."""
        self.rule = rule
        self.selector = selector
        self._domains = domains.by_node
        self.counts = dict.fromkeys(domains.all_of_them, 0)  # by domain
        for node, number in pods.items():
            if node in self._domains:
                self.counts[self._domains[node]] += number
        self._levels = Counter(self.counts.values())  # how many domains have so many
        self._least = min(self.counts.values(), default=0)

    def add(self, pod: Pod, node: str) -> None:
        """A pod of the namespace will be there."""
        domain = self._domains.get(node)
        if domain is None or not self.selector or not holds(self.selector, pod.labels):
            return
        before = self.counts[domain]
        self.counts[domain] = before + 1
        self._levels[before] -= 1
        self._levels[before + 1] += 1
        while not self._levels[self._least]:
            self._least += 1

    @property
    def domain_of(self) -> Mapping[str, str]:
        """By node; a node that does not count is left out."""
        return self._domains

    def selects(self, pod: Pod) -> bool:
        return bool(self.selector) and holds(self.selector, pod.labels)

    def left_by(self, old: Pod, *, goes_first: bool) -> str | None:
        """The domain that counts one less once the old pod goes. One that is released loses its revision's label."""
        is_released = not goes_first and any(each.key == names.POD_TEMPLATE_HASH for each in self.selector)
        if old.terminating or not (goes_first or is_released) or not self.selector:
            return None
        return self._domains.get(old.node) if holds(self.selector, old.labels) else None

    def is_open(self, domain: str | None, pod: Pod, left: str | None) -> bool:
        """Whether one more pod there keeps within the skew."""
        if domain is None:
            return False
        there = self.counts.get(domain, 0) - (domain == left)
        itself = holds(self.selector, pod.labels)
        return there + itself - self._fewest(left) <= self.rule.max_skew

    def _fewest(self, left: str | None) -> int:
        if len(self.counts) < self.rule.min_domains or not self.counts:
            return 0
        return self._least if left is None else min(self._least, self.counts[left] - 1)
