"""What time does to a gang: its time limit, its wait-timeout, and members that a quota keeps from being created."""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat

from placement import names
from placement.gang.gang import Gang, GangStatus, State
from placement.gang.terms import FAIL
from placement.plan.actions import Action
from placement.plan.draft import Draft
from placement.plan.limits import short_quota
from placement.plan.planners.ending import deleted, noted, suspendable, suspended_for, suspending, tell, way_back

MOST_MISSING = 10_000
QUOTA_SECONDS = 4.0  # without a new member: until then a quota may be ahead of the pods
MOST_AHEAD_SECONDS = 900.0  # a time limit is announced a tenth of it before, at most 15 minutes


def unstarted(draft: Draft, gang: Gang) -> list[Action]:
    """It waits: for longer than it may, or for members that a quota refuses."""
    status = draft.gangs[gang.key]
    if status.state in (State.ASSEMBLING, State.WAITING) and _has_waited_enough(draft, gang):
        why = f"it waited for longer than its {names.POD_GROUP_WAIT_TIMEOUT}: {status.reason}"
        news = ((names.EVENT_GANG_FAILED, f"{why}; it does not start by itself any more: {way_back(gang)}"),)
        draft.gangs[gang.key] = GangStatus(gang, State.FAILING, why, is_late=True, news=news)
        waiting = [pod for pod in gang.gated if suspended_for(gang, pod) is None]
        return [*suspending(gang, why), *(noted(draft, pod, why) for pod in waiting[:1])]
    short = _quota_short(draft, gang) if status.state is State.ASSEMBLING else ""
    if short:
        draft.gangs[gang.key] = replace(status, state=State.BLOCKED, reason=short)
    return []


def _has_waited_enough(draft: Draft, gang: Gang) -> bool:
    timeout = gang.terms.wait_timeout
    if timeout is None or timeout.then != FAIL or draft.scene.is_paused or gang.reservations:
        return False
    return draft.scene.now - gang.since > timeout.after.total_seconds()


def _quota_short(draft: Draft, gang: Gang) -> str:
    """QuotaShort: so many members are missing, and a quota of the namespace has no room for as many like those there.

    Example: a quota of 6 CPUs, 6 members of 1 CPU are there, 2 are missing: their owner tries in vain to create them.
    """
    missing = gang.missing - len(gang.gated)
    if missing <= 0 or not gang.gated or draft.scene.now - max(pod.created for pod in gang.gated) < QUOTA_SECONDS:
        return ""
    quota = short_quota(draft.scene.quotas(gang.key.namespace), repeat(gang.gated[0], min(missing, MOST_MISSING)))
    if quota is None:
        return ""
    members = "1 more member" if missing == 1 else f"{missing} more members"
    return f"QuotaShort: ResourceQuota {quota.name} has no room for {members}"


def is_over(draft: Draft, gang: Gang) -> bool:
    """Its time limit. Shortly before that, an Event says so."""
    ends_at, limit = gang.life.ends_at, gang.life.time_limit
    if ends_at is None or limit is None:
        return False
    left, seconds = ends_at - draft.scene.now, limit.total_seconds()
    if 0 < left <= min(MOST_AHEAD_SECONDS, seconds / 10):
        of = names.TIME_LIMIT
        tell(draft, gang, names.EVENT_GANG_LIMIT, f"its {of} of {_shown(seconds)} is over soon; {_at_its_end(gang)}")
    return left <= 0


def _at_its_end(gang: Gang) -> str:
    what = sorted({f"{each.kind} {each.name} is suspended" for each in suspendable(gang).values()})
    if any(pod.owner is None for pod in gang.started):
        what.append("pods without an owner are deleted")
    return " and ".join(what) if what else "nothing is done to its pods"


def timed_out(draft: Draft, gang: Gang) -> list[Action]:
    """Pods of Deployments and StatefulSets go on: such owners have no end."""
    limit = gang.life.time_limit
    assert limit is not None
    why = f"its {names.TIME_LIMIT} of {_shown(limit.total_seconds())} is over"
    tell(draft, gang, names.EVENT_GANG_LIMIT, f"{why}; {_at_its_end(gang)}")
    return [*suspending(gang, why), *(deleted(pod, why) for pod in gang.started if pod.owner is None)]


def _shown(seconds: float) -> str:
    """7,260 seconds: 2h1m."""
    parts, left = [], int(seconds)
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts)
