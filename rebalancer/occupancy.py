"""What is on each node: its pods, and what they ask for. Kept up to date by differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from placement.model import NO_AMOUNTS, Namespace, Pod
from placement.plan.neighbours import Averse, Tenants, is_on
from placement.plan.stock import host_ports
from placement.plan.storage import Storage
from rebalancer.multimap import exchange, exclude, file, include, put


class Occupancy:
    """Pods that have a node, by what is asked about them."""

    def __init__(self) -> None:
        self.pods: dict[str, tuple[Pod, ...]] = {}  # by node
        self.used: dict[str, dict[str, int]] = {}  # by node; replaced, never changed
        self._averse = Averse()
        self._within: dict[str, dict[str, Pod]] | None = None  # by namespace and UID; None: not asked for yet

    def change(self, old: Pod | None, new: Pod | None) -> None:
        """A pod came, changed or went."""
        if old is None or new is None or _takes_other(old, new):
            self._count(old, -1)
            self._count(new, 1)
        if old is not None and new is not None and old.node and (old.node, old.uid) == (new.node, new.uid):
            exchange(self.pods, new.node, new)
            self._file(new, new)
            return
        if old is not None and old.node:
            exclude(self.pods, old.node, old.uid)
            self._file(old, None)
        if new is not None and new.node:
            include(self.pods, new.node, new)
            self._file(new, new)

    def tenants(self, namespaces: Mapping[str, Namespace], storage: Storage | None = None) -> Tenants:
        """For plans: as of now, until the next change."""
        return Tenants(self.pods, namespaces, self._averse, self._pods_within, storage)

    def _count(self, pod: Pod | None, sign: int) -> None:
        """What a pod uses of its node, and which pods it keeps away from there, until it is finished."""
        if pod is None or not is_on(pod):
            return
        used = dict(self.used.get(pod.node, NO_AMOUNTS))
        ports = ((key, 1) for key in host_ports(pod.needs))
        for key, amount in (*pod.needs.requests.items(), *ports, ("pods", 1)):
            used[key] = used.get(key, 0) + sign * amount
        put(self.used, pod.node, used if used["pods"] else None)
        if pod.needs.anti_affinity:
            (self._averse.add if sign > 0 else self._averse.remove)(pod, pod.node)

    def _pods_within(self, namespace: str) -> Iterable[Pod]:
        """Asked for in large domains alone, such as zones. A cluster without such terms is spared the memory."""
        if self._within is None:
            self._within = {}
            for pods in self.pods.values():
                for pod in pods:
                    self._within.setdefault(pod.namespace, {})[pod.uid] = pod
        return self._within.get(namespace, {}).values()

    def _file(self, pod: Pod, value: Pod | None) -> None:
        if self._within is not None:
            file(self._within, pod.namespace, pod.uid, value)


def _takes_other(old: Pod, new: Pod) -> bool:
    """A StatefulSet's pod comes back under the same name."""
    return new.needs is not old.needs or new.node != old.node or is_on(new) != is_on(old) or new.uid != old.uid
