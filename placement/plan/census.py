"""How many pods a selector selects, by node. Found out once for a plan, and kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from placement.model import FINISHED, NodeTerm, Pod
from placement.selector import holds

Within = Callable[[str], Iterable[Pod]]  # by namespace: the pods that have a node


class Census:
    """The pods of a namespace, counted as topology spread does: without those that end or have finished."""

    def __init__(self, within: Within, gone: frozenset[str] = frozenset()) -> None:
        self._within = within
        self._gone = gone
        self._counts: dict[tuple[str, NodeTerm], Counter[str]] = {}
        self._by_label: dict[tuple[str, str], dict[str, list[Pod]]] = {}

    def by_node(self, namespace: str, selector: NodeTerm) -> Mapping[str, int]:
        key = (namespace, selector)
        if key not in self._counts:
            likely = self._likely(namespace, selector)
            self._counts[key] = Counter(
                pod.node for pod in likely if self._is_there(pod) and holds(selector, pod.labels)
            )
        return self._counts[key]

    def _is_there(self, pod: Pod) -> bool:
        return not pod.terminating and pod.phase not in FINISHED and pod.uid not in self._gone

    def _likely(self, namespace: str, selector: NodeTerm) -> Iterable[Pod]:
        """Most selectors name one value of a label, such as `app`: only pods that have it are looked at."""
        named = next((each for each in selector if each.operator == "In" and len(each.values) == 1), None)
        if named is None:
            return self._within(namespace)
        key = (namespace, named.key)
        if key not in self._by_label:
            found: dict[str, list[Pod]] = {}
            for pod in self._within(namespace):
                if named.key in pod.labels:
                    found.setdefault(pod.labels[named.key], []).append(pod)
            self._by_label[key] = found
        return self._by_label[key].get(named.values[0], ())
