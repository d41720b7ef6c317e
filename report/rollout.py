"""What a rollout needs beforehand: free places, by class.

A new revision starts at slot 0, which is on-demand, while the old one leaves its on-demand slots last. At 70 %, 10
replicas have 3 on on-demand. With `maxSurge: 25%` there are 13 pods at most, and with 4 new and 9 old ones 2 + 3 = 5
of them are on on-demand: the rollout needs 2 more places there. Spot peaks elsewhere: 3 new and 10 old are 2 + 7 = 9
on spot, 2 more than its 7.
"""

from __future__ import annotations

from functools import lru_cache

from placement.model import Kind, Workload
from placement.policy import Policy, surge
from placement.slots import Mix, Slots

MOST_SPLITS = 5000  # of old and new pods that are tried; a mistyped spec.replicas must not block other workloads


def rollout_need(policy: Policy, workload: Workload) -> Mix:
    """How many places more than now a rollout takes at its peak, each class by itself.

    `Recreate` and StatefulSets replace pods in their places. Pods that take their time to end are not counted.
    """
    if workload.rollout.recreate or workload.kind is Kind.STATEFUL_SET:
        return Mix()
    n = workload.replicas
    return _need(policy.slots, n, n + surge(workload.rollout, n))


@lru_cache(maxsize=4096)
def _need(slots: Slots, replicas: int, pods: int) -> Mix:
    """The peaks over all splits of so many pods into old and new, above the mix of the replicas alone."""
    splits = [slots.mix(new) + slots.mix(min(replicas, pods - new)) for new in range(min(replicas, MOST_SPLITS) + 1)]
    now = slots.mix(replicas)
    return Mix(max(each.spot for each in splits) - now.spot, max(each.on_demand for each in splits) - now.on_demand)
