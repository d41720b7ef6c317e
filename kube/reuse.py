"""What a changed pod has in common with the one that it was is kept once.

Siblings share what they have in common, as long as it was read lately (`kube.interning`). Of 10,000 workloads one has
news now and then, long after that. Each of its pods would then get labels, needs and so on of its own: a cache of
150,000 pods that is followed for days would grow to several times its size. And what is the same object need not be
compared or added up again, such as what a pod asks for (`rebalancer.occupancy`).
"""

from __future__ import annotations

from typing import TypeVar

from kube.fastfrozen import mint
from placement.model import Pod

T = TypeVar("T")
_Pod = mint(Pod)


def reusing(old: Pod, new: Pod) -> Pod:
    """Equal to the new pod, made of parts of the old one where they are equal."""
    return _Pod(  # by position, as in `kube.convert`; flags, and what is interned there, need no comparison
        new.namespace,
        _same(old.name, new.name),
        _same(old.uid, new.uid),
        _same(old.owner, new.owner),
        _same(old.labels, new.labels),
        _same(old.annotations, new.annotations),
        new.node,
        new.phase,
        new.ready,
        new.terminating,
        _same(old.unschedulable, new.unschedulable),
        _same(old.required_terms, new.required_terms),
        _same(old.needs, new.needs),
        _same(old.created, new.created),
        _same(old.changed, new.changed),
        _same(old.decision, new.decision),
        new.waits,
        new.evicted,
        new.gates,
        new.nominated,
        _same(old.gang_plan, new.gang_plan),
        new.disrupted,
    )


def _same(old: T, new: T) -> T:
    return old if old is new or old == new else new  # dictionaries and dataclasses compare all they hold, even if same
