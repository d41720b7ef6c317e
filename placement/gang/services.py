"""Services as victims: which of their pods may make room for a gang, each as a gang of one, and how many.

A pod of a Deployment or StatefulSet may go as long as `min-available` replicas serve without it, and if it runs on
on-demand, `min-on-demand` of them there. Budgets count as for everybody. A workload whose pods are on the move anyway
has none to spare.

Example: ten replicas, eight must serve, 6 ready on spot and 4 on on-demand with `min-on-demand: 3`. Two may go in all,
one of them at most from on-demand. Once one of them is not ready, one may go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from placement.gang.candidate import Allowance, Candidate, Claimant, WhyNot, effective_priority
from placement.gang.evictable import began, may_go
from placement.model import Class
from placement.plan.assess import Assessment
from placement.plan.group import Group


def of_services(assessments: Iterable[Assessment], claimant: Claimant) -> Iterator[Candidate]:
    """Their pods that serve. One that does not is no help: it is about to, and counts as spare already."""
    for found in assessments:
        if not _may_be_lower(found, claimant):
            continue
        pods = [member.pod for member in found.members if member.pod.serves and not member.pod.is_released]
        if not pods:
            continue
        is_movable = _is_movable(found.group)
        # Admission may have injected another class of priority: what most of the workload has counts.
        spec_priority = max(pod.needs.priority for pod in pods)
        for pod in pods:
            written = effective_priority(pod)
            priority = spec_priority if written == pod.needs.priority else written
            is_preemptible = is_movable and may_go((pod,))
            yield Candidate(pod.key, (pod,), priority, spec_priority, began(pod), is_preemptible=is_preemptible)


def _may_be_lower(found: Assessment, claimant: Claimant) -> bool:
    """By one of its pods: the highest counts, so most workloads need no other look. There may be ten thousand."""
    if not found.members:
        return False
    first = found.members[0].pod
    if first.needs.priority != claimant.spec_priority:
        return first.needs.priority < claimant.spec_priority
    return first.namespace == claimant.key.namespace and effective_priority(first) < claimant.priority


def spare(found: Assessment | None, of: Class | None, *, has_begun: bool = False) -> tuple[Allowance, ...]:
    """What the eviction of a pod of this workload draws on; `of` is the class of its node.

    Once its evictions for a gang have begun, it is not at rest because of them.
    """
    if found is None:
        return ()
    group, ready = found.group, found.lasting.spot + found.lasting.on_demand
    name = f"{group.workload.kind} {group.workload.key}"
    is_at_rest = has_begun or _is_at_rest(found)
    replicas = Allowance(WhyNot.SPARE, name, max(0, ready - group.needed) if is_at_rest else 0)
    if of is Class.SPOT:
        return (replicas,)
    floor = max(0, found.lasting.on_demand - group.slots.floor) if is_at_rest else 0
    return replicas, Allowance(WhyNot.SPARE, f"{name} on on-demand", floor)


def _is_movable(group: Group) -> bool:
    """Its policy lets us move its pods; and of a StatefulSet in order, one pod that waits would hold up all others."""
    return group.policy.rebalance == "auto" and not group.workload.ordered


def _is_at_rest(found: Assessment) -> bool:
    """Nobody else takes its pods away or brings others now, as far as is known."""
    group = found.group
    is_settled = group.workload.settled and all(cohort.settled for cohort in group.cohorts)
    return is_settled and not (group.is_rolling or found.under_way or found.lost)
