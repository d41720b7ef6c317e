"""How a move begins: what stops any move, what it is charged for, and the action that it becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from placement.configuration import Configuration
from placement.model import Pod
from placement.plan.actions import Action, Blocked, How
from placement.plan.assess import Wish
from placement.plan.draft import Draft
from placement.plan.ground import Site
from placement.plan.release import release
from placement.policy import Policy

Obstacle = Callable[[Wish], Blocked | None]


def begun(draft: Draft, wishes: Iterable[Wish], obstacle: Obstacle) -> Iterator[Action]:
    """The moves that begin now; the others are skipped. `obstacle` says what else is in the way of one of them."""
    for wish in wishes:
        pod, workload = wish.member.pod, wish.group.workload
        blocked = draft.held(pod, wish.how) or _obstacle(draft, wish) or obstacle(wish)
        if blocked is None:
            draft.limits.promise(wish)
            yield _action(draft, wish)
        else:
            draft.skip(workload.uid, wish.why, blocked)


def _obstacle(draft: Draft, wish: Wish) -> Blocked | None:
    if wish.member.pod.decision_id is None:
        return Blocked.UNADOPTED  # the decision of a released pod names its ReplicaSet
    return draft.limits.refusal_of_quotas(wish)


def _action(draft: Draft, wish: Wish) -> Action:
    workload, pod, origin = wish.group.workload, wish.member.pod, wish.member.of
    if wish.how is How.EVICT:
        rests_on = tuple(each.pod for each in draft.siblings(wish) if each.pod.uid != pod.uid)
        text = f"to {wish.to}"
        return Action(How.EVICT, wish.why, workload, pod, origin, wish.to, text=text, rests_on=rests_on)
    timeout_seconds = draft.scene.ground.configuration.moves.timeout.total_seconds()
    until = draft.scene.now + timeout_seconds + workload.min_ready_seconds
    spared = spared_seconds(pod, wish.member.site, wish.group.policy, draft.scene.ground.configuration, draft.scene.now)
    return release(wish.group, pod, until, wish.why, origin, wish.to, spared_seconds=spared)


def spared_seconds(pod: Pod, site: Site | None, policy: Policy, configuration: Configuration, now: float) -> int:
    """For how long after its start Karpenter is to leave a pod alone that is released from a node that it removes.

    It would buy a node for it otherwise, and another one for its replacement. Karpenter counts from when the pod
    started; we know when it became ready, which is later. Example: `eviction-hold: 90s`, ready since 100 s, so 190 s
    after its start, which was at most 90 s from now. On a node whose end is announced, the pod keeps its grace period.
    """
    if site is None or not (site.node.deleting and site.node.outlives_machine and pod.ready and pod.changed):
        return 0
    hold, notice = policy.eviction_hold.total_seconds(), configuration.notice_seconds(site.node)
    left = hold if notice is None else min(hold, notice - pod.needs.grace_seconds)
    since = max(pod.changed, pod.created)  # who may write a pod's status must not hold up a node
    return int(now - since + left) if left > 0 else 0
