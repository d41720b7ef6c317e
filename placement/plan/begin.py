"""How a move begins: what stops any move, what it is charged for, and the action that it becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from placement.plan.actions import Action, Blocked, How
from placement.plan.assess import Wish
from placement.plan.draft import Draft
from placement.plan.release import release

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
    return release(wish.group, pod, until, wish.why, origin, wish.to)
