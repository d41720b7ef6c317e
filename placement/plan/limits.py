"""How much may be under way at once: per workload, node, namespace, in all, per minute, per quota and budget.

One plan has one `MoveLimits`, which all planners ask and charge. What is under way when the plan begins counts already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from placement.model import Budget, Class, Pod, Quota
from placement.outage import Shape
from placement.plan.actions import DEPARTING, Blocked, How
from placement.plan.assess import Assessment, Wish
from placement.plan.ends import asks_to_be_kept
from placement.plan.marks import former_slot
from placement.plan.scene import Scene, Target, target


class MoveLimits:
    """What is under way, and what was promised so far in this plan."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._moves = scene.ground.configuration.moves
        self._per_workload: Counter[str] = Counter()
        self._per_namespace: Counter[str] = Counter()
        self._per_node: Counter[str] = Counter()
        self._in_all = self._begun = 0
        self._probes: Counter[tuple[str, Target]] = Counter()  # by namespace: a tenant waits for its own probes alone
        self._disrupted: Counter[str] = Counter()  # by budget
        self._quota_taken: dict[str, Counter[str]] = {}  # by namespace
        for each in scene.assessments:
            self._count_under_way(each)

    def refusal(self, wish: Wish) -> Blocked | None:
        """The limit that leaves no room for one more move."""
        workload, moves = wish.group.workload, self._moves
        if self._per_workload[workload.uid] >= max(1, moves.per_workload.of(workload.replicas)):
            return Blocked.PER_WORKLOAD
        if self._per_node[wish.member.pod.node] >= moves.per_node:
            return Blocked.PER_NODE
        if self._per_namespace[workload.namespace] >= moves.per_namespace:
            return Blocked.PER_NAMESPACE
        if self._in_all >= moves.at_once:
            return Blocked.IN_ALL
        return Blocked.PER_MINUTE if self._scene.recent + self._begun >= moves.per_minute else None

    def refusal_of_quotas(self, wish: Wish) -> Blocked | None:
        """A release needs room for one pod more in every quota of the namespace; an eviction, that it may come back."""
        taken = self._quota_taken.setdefault(wish.group.workload.namespace, Counter())
        asked = _asked(wish.member.pod)
        if wish.how is How.EVICT:
            asked = dict.fromkeys(asked, 0)
        if any(not _has_quota(quota, asked, taken) for quota in wish.group.quotas):
            return Blocked.QUOTA
        return None

    def refusal_of_budgets(self, budgets: Sequence[Budget]) -> Blocked | None:
        """An eviction takes one of what each budget allows."""
        is_used_up = any(budget.allowed - self._disrupted[str(budget.key)] < 1 for budget in budgets)
        return Blocked.BUDGET if is_used_up else None

    def promise(self, wish: Wish) -> None:
        """The move is in the plan: it counts from now on.

        What departs anyway does not count for others, or a tenant whose pods are evicted again and again, or who writes
        so on them, would slow down everybody.
        """
        workload, pod = wish.group.workload, wish.member.pod
        self._per_workload[workload.uid] += 1
        self._per_node[pod.node] += 1
        self._probes[workload.namespace, target(wish.group, wish.member.slot, pod, self._scene.ground)] += 1
        if wish.why not in DEPARTING:
            self._per_namespace[workload.namespace] += 1
            self._in_all += 1
            self._begun += 1
        if wish.how is How.RELEASE:
            self._quota_taken.setdefault(workload.namespace, Counter()).update(_asked(pod))

    def promise_victim(self, workload_uid: str) -> None:
        """One of its pods makes room for a gang: that counts for its own workload, as a move would."""
        self._per_workload[workload_uid] += 1

    def promise_to(self, budgets: Sequence[Budget]) -> None:
        """One pod that these budgets select is evicted."""
        self._disrupted.update(str(budget.key) for budget in budgets)

    def is_moving(self, workload_uid: str) -> bool:
        return self._per_workload[workload_uid] > 0

    # --- probes ------------------------------------------------------------------------------------------------------

    def is_probed(self, namespace: str, aim: Target) -> bool:
        """A move of the namespace to this very target is under way."""
        return self._probes[namespace, aim] > 0

    def is_probed_for(self, namespace: str, of: Class, shape: Shape) -> bool:
        """A move of the namespace to the class, of a pod of this shape, is under way."""
        return any(
            count and where == namespace and to is of and each == shape
            for (where, (to, _, each)), count in self._probes.items()
        )

    def is_trying(self, namespace: str) -> bool:
        """Any move of the namespace is under way."""
        return any(count for (where, _), count in self._probes.items() if where == namespace)

    # --- what is under way -------------------------------------------------------------------------------------------

    def _count_under_way(self, each: Assessment) -> None:
        workload = each.group.workload
        self._per_workload[workload.uid] += each.under_way
        # Others' evictions count for their workload alone, and a namespace for no more than it may move at once.
        moving = min(each.moving, max(0, self._moves.per_namespace - self._per_namespace[workload.namespace]))
        self._per_namespace[workload.namespace] += moving
        self._in_all += moving
        for cohort in each.group.cohorts:
            for pod in cohort.released:
                if asks_to_be_kept(pod, self._scene.ground.configuration) is not None:
                    continue  # its end is the drainer's, whenever that comes
                aim = target(each.group, former_slot(pod), pod, self._scene.ground)
                self._probes[workload.namespace, aim] += 1
                self._per_node[pod.node] += 1


def short_quota(quotas: Iterable[Quota], pods: Iterable[Pod]) -> Quota | None:
    """The quota that has no room for all of these new pods; None: there is none. Scoped ones are not asked."""
    asking = [each for each in quotas if not each.is_scoped]
    taken: Counter[str] = Counter()
    for pod in pods if asking else ():
        asked = _asked(pod)
        short = next((quota for quota in asking if not _has_quota(quota, asked, taken)), None)
        if short is not None:
            return short
        taken.update(asked)
    return None


def _asked(pod: Pod) -> dict[str, int]:
    """What one pod more counts for, in the words of quotas."""
    requests, limits = pod.needs.requests, pod.needs.limits
    return {
        "pods": 1,
        "count/pods": 1,
        **{f"requests.{key}": amount for key, amount in requests.items()},
        **{f"limits.{key}": amount for key, amount in limits.items()},
        **{key: requests[key] for key in ("cpu", "memory", "ephemeral-storage") if key in requests},
    }


def _has_quota(quota: Quota, asked: Mapping[str, int], taken: Mapping[str, int]) -> bool:
    return all(
        quota.used.get(key, 0) + taken.get(key, 0) + amount <= quota.hard[key]
        for key, amount in asked.items()
        if key in quota.hard
    )
