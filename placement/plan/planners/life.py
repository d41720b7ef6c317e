"""Gangs that have started: what becomes of the rest when a member is lost, and the end of their time.

What `on-partial-failure` says is done in steps that the next leader can go on with:

1. The run of a gang ends: `restart` or `fail` is written on all members that are left (`placement.gang.run`).
2. When all marks are visible, the members are evicted. To restart, that is all: their owners create them again, with
   the gate, and the gang starts as any other.
3. To fail, Jobs and JobSets are suspended, which takes their pods away, and pods that nothing owns are deleted. For
   others a note on one of the new pods keeps the gang from starting; that is written before the old ones are evicted.

What still is on a node that will go counts as lost at once. `repair` evicts only that; `continue` evicts nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from placement import names
from placement.gang.gang import Gang, GangStatus, State
from placement.gang.reservation import reservation_of
from placement.gang.run import FAIL, RESTART, Run, run_of
from placement.gang.terms import CONTINUE, FAIL_GANG, REPAIR, RESTART_GANG
from placement.model import Budget, Key, Pod
from placement.plan.actions import Action, Blocked, How, Why
from placement.plan.draft import Draft
from placement.plan.planners.ending import annotated, deleted, evicted, noted, suspended_for, suspending, tell, way_back
from placement.plan.planners.overdue import is_over, timed_out, unstarted
from placement.plan.planners.writing import unreserved

SETTLING_SECONDS = 2.0  # a scale-down shows on the pods before it shows on the owner
REPLACED_SECONDS = 30.0  # for a replacement to come, which carries the note that its gang has failed
STALE_SECONDS = 600.0  # a mark that has evicted nobody for so long means nothing any more
REFUSED_SECONDS = 90.0  # for so long evictions are tried that budgets refuse; then those that are left stay
ADOPTED = "adopted"  # the run of a gang that started without one, under an earlier version
MOST_NAMED = 3
HOW_TO_IGNORE = "let its podFailurePolicy ignore DisruptionTarget"


def plan(draft: Draft) -> Iterator[Action]:
    for gang in draft.scene.gangs:
        if gang.is_settled:
            yield from _cared_for(draft, gang)


def _cared_for(draft: Draft, gang: Gang) -> list[Action]:
    _warn(draft, gang)
    marks = {run.mark for run in _runs_of(gang.started) if run.mark}
    if marks:
        return _failing(draft, gang) if FAIL in marks else _restarting(draft, gang)
    if not gang.started:
        return _note_late(draft, gang) or unstarted(draft, gang)
    told = [*_noticed(draft, gang), *_adopted(draft, gang)]
    if draft.scene.is_paused or _is_moving(gang):
        return told
    ended = timed_out(draft, gang) if is_over(draft, gang) else []
    if ended or not gang.life.lost:
        return ended or told
    if gang.life.doomed or _lasts(draft, gang):
        ended = _lost(draft, gang)
        ending = {action.pod.uid for action in ended}
        return [*ended, *(action for action in told if action.pod.uid not in ending)]
    if gang.terms.on_partial_failure != REPAIR:  # a replacement may be there already, and must not join meanwhile
        draft.gangs[gang.key] = replace(draft.gangs[gang.key], state=State.RUNNING, reason="members are missing")
    return told


def _warn(draft: Draft, gang: Gang) -> None:
    """A Job may fail by what is done to its gang. Said while it waits, so that it can be changed in time."""
    owners = {pod.owner.uid: pod.owner for pod in gang.gated if pod.owner is not None}
    for uid, owner in owners.items():
        facts = gang.life.owners.get(uid)
        if facts is not None and facts.failures_left is not None:
            text = f"{owner.kind} {owner.name} counts each eviction of a member as a failure"
            tell(draft, gang, names.EVENT_GANG_MISTAKE, f"{text}: {HOW_TO_IGNORE}")


def _runs_of(pods: Iterable[Pod]) -> Iterator[Run]:
    for pod in pods:
        found = run_of(pod)
        if found is not None:
            yield found


def _is_moving(gang: Gang) -> bool:
    """It starts, or a start of it is undone, or it makes room for another: its members are not complete anyway."""
    going = (pod for pod in gang.life.remains if pod.terminating)
    if gang.starting or any(names.PREEMPTED_BY in pod.annotations for pod in (*gang.running, *going)):
        return True
    plans = [found for pod in gang.running if (found := reservation_of(pod)) is not None]
    return any(found.is_undone for found in plans) or any(found.plan in gang.begun for _, found in gang.reservations)


def _lasts(draft: Draft, gang: Gang) -> bool:
    return draft.scene.lost_for.get(gang.key, 0.0) >= SETTLING_SECONDS


# --- a member is lost ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Remedy:
    """What is done about a loss; `why` explains where it is not what was declared."""

    policy: str
    why: str = ""


def remedy_of(gang: Gang) -> Remedy:
    """As declared, unless the gang would not come back from it."""
    declared = gang.terms.on_partial_failure
    if declared != RESTART_GANG:
        return Remedy(declared)
    bare = next((pod for pod in gang.started if pod.owner is None), None)
    if bare is not None:
        return Remedy(REPAIR, f"pod {bare.name} has no owner and would not come back, so the others go on")
    for uid, facts in gang.life.owners.items():
        own = [pod for pod in gang.started if pod.owner is not None and pod.owner.uid == uid]
        if own and facts.failures_left is not None and facts.failures_left <= len(own):  # the loss may not count yet
            text = f"the Job would count {len(own)} evictions as failures, beyond its backoffLimit, so the others go on"
            return Remedy(REPAIR, f"{text}; {HOW_TO_IGNORE}")
    return Remedy(RESTART_GANG)


def forbidden_by(budgets_of: Callable[[Pod], Sequence[Budget]], pods: Iterable[Pod]) -> str:
    """The PodDisruptionBudget that does not allow all of these evictions together; "": none.

    A pod under two budgets cannot be evicted. One whose containers have not started draws on none.
    """
    draws: Counter[Key] = Counter()
    allowed: dict[Key, int] = {}
    for pod in pods:
        budgets = budgets_of(pod) if pod.phase != "Pending" else ()
        if len(budgets) > 1:
            return " and ".join(sorted(str(each.key) for each in budgets))
        for each in budgets:
            draws[each.key] += 1
            allowed[each.key] = each.allowed if each.settled else 0
    return next((str(key) for key, count in draws.items() if count > allowed[key]), "")


def _lost(draft: Draft, gang: Gang) -> list[Action]:
    remedy, buried = remedy_of(gang), _buried(draft, gang)
    budget = forbidden_by(draft.scene.budgets, gang.started) if remedy.policy == RESTART_GANG else ""
    if budget:
        text = f"the PodDisruptionBudget {budget} does not allow all evictions together, so the others go on"
        remedy = Remedy(REPAIR, text)
    what = _what(draft, gang)
    then = {
        RESTART_GANG: "the others are evicted, and it starts again",
        FAIL_GANG: "the others are ended, and it does not start again by itself",
        CONTINUE: "the others go on; no replacement starts before they have ended",
        REPAIR: "a replacement starts when there is room for it",
    }[remedy.policy]
    text = f"{what}; {remedy.why or then} ({names.ON_PARTIAL_FAILURE.removeprefix(names.PREFIX)}: {remedy.policy})"
    if remedy.policy in (RESTART_GANG, FAIL_GANG):
        mark, state = (RESTART, State.RESTARTING) if remedy.policy == RESTART_GANG else (FAIL, State.FAILING)
        draft.gangs[gang.key] = replace(draft.gangs[gang.key], state=state, reason=what)
        tell(draft, gang, names.EVENT_GANG_LOST, text)
        return _marked(draft, gang, mark, what)
    tell(draft, gang, names.EVENT_GANG_LOST, text)
    if remedy.policy == CONTINUE:
        draft.gangs[gang.key] = replace(draft.gangs[gang.key], state=State.RUNNING, reason=f"{what}; {then}")
        return buried
    gone = {action.pod.uid for action in buried}
    going = [(pod, why) for pod, why in gang.life.doomed if pod.uid not in gone and pod.owner is not None]
    return [*buried, *(evicted(pod, f"{why}; its replacement joins the gang") for pod, why in going)]


def _marked(draft: Draft, gang: Gang, mark: str, what: str) -> list[Action]:
    """All that have started, in one run or another: they end together."""
    now, notice = draft.scene.now, _notice(draft, gang)
    latest = gang.life.run
    assert latest is not None
    actions = []
    for pod in gang.started:
        run = run_of(pod) or latest
        if not run.mark:
            written = {names.GANG_RUN: run.ending(mark, now).text(), **notice}
            actions.append(annotated(pod, written, what))
    return actions


def _what(draft: Draft, gang: Gang) -> str:
    """Which members were lost, and why."""
    of_doomed = [f"pod {pod.name}: {why}" for pod, why in gang.life.doomed]
    count = gang.life.lost
    gone = draft.scene.losses(gang)[-max(1, count - len(of_doomed)) :] if count > len(of_doomed) else ()
    named = [*of_doomed, *gone][:MOST_NAMED]
    said = f"{count} of its {gang.life.run.number if gang.life.run is not None else count} members "
    said += "was lost" if count == 1 else "were lost"
    return f"{said} ({'; '.join(named)})" if named else said


def _buried(draft: Draft, gang: Gang) -> list[Action]:
    """Pods whose machine is gone, with proof: else their owners wait for a minute before they replace them."""
    actions = []
    for pod, why in gang.life.doomed:
        gone = draft.scene.lost.get(pod.node)
        is_ordinal = pod.owner is not None and pod.owner.kind == "StatefulSet"  # Kubernetes itself replaces those
        if gone is not None and gone.proof and not pod.needs.has_claims and not is_ordinal:
            text = f"{why}: {gone.proof}"
            actions.append(Action(How.BURY, Why.GANG, None, pod, gone.of, text=text, in_every_mode=True))
    return actions


# --- a run that ends -------------------------------------------------------------------------------------------------


def _unmarked(gang: Gang, mark: str) -> list[Action]:
    """Those that do not carry the mark yet, such as one that joined in the same moment."""
    ending = next(run for run in _runs_of(gang.started) if run.mark == mark)
    unmarked = [pod for pod in gang.started if (found := run_of(pod)) is None or not found.mark]
    return [annotated(pod, {names.GANG_RUN: ending.text()}, "its gang ends") for pod in unmarked]


def _restarting(draft: Draft, gang: Gang) -> list[Action]:
    back = [unreserved(pod, "its gang starts again") for pod in gang.gated if pod.nominated]
    draft.gangs[gang.key] = GangStatus(gang, State.RESTARTING, _kept_reason(draft, gang))
    unmarked = _unmarked(gang, RESTART)
    if unmarked:
        return back + unmarked
    if _is_stale(draft, gang):
        return back + [
            annotated(pod, {names.GANG_RUN: _stayed(gang, pod).text()}, "all are there") for pod in gang.started
        ]
    if _must_stay(draft, gang):
        return back + [annotated(pod, {names.GANG_RUN: _stayed(gang, pod).text()}, "it stays") for pod in gang.started]
    return back + _ended(draft, gang, gang.started, "a member of its gang was lost, and all of them start again")


def _is_stale(draft: Draft, gang: Gang) -> bool:
    """It was marked long ago, and none has gone: its namespace had opted out meanwhile, or nobody led."""
    since = min(run.marked_at for pod in gang.started if (run := run_of(pod)) is not None)
    return draft.scene.now - since > STALE_SECONDS and not gang.life.lost


def _stayed(gang: Gang, pod: Pod) -> Run:
    """Others join it when there is room: nothing is lost from here on."""
    run = run_of(pod)
    assert run is not None
    return replace(run, number=len(gang.started), mark="", marked_at=0.0)


def _must_stay(draft: Draft, gang: Gang) -> bool:
    """Budgets have kept all that are left for long. Else the gang would never be whole again."""
    since = min(run.marked_at for pod in gang.started if (run := run_of(pod)) is not None)
    if draft.scene.now - since < REFUSED_SECONDS:
        return False
    refused = (Blocked.BUDGET, Blocked.REFUSED)
    return all(draft.held(pod, How.ROLL_BACK) in refused for pod in gang.started)


def _kept_reason(draft: Draft, gang: Gang) -> str:
    """What it said when it began, for as long as it goes on."""
    known = draft.scene.losses(gang)
    return f"{'; '.join(known[-MOST_NAMED:])}; the others are evicted" if known else "its members are evicted"


def _ended(draft: Draft, gang: Gang, pods: Iterable[Pod], text: str) -> list[Action]:
    buried = _buried(draft, gang)
    gone = {action.pod.uid for action in buried}
    return [*buried, *(evicted(pod, text) for pod in pods if pod.uid not in gone)]


# --- a gang that fails -----------------------------------------------------------------------------------------------


def _failing(draft: Draft, gang: Gang) -> list[Action]:
    """Its Jobs first: they would create new pods for those that go."""
    draft.gangs[gang.key] = GangStatus(gang, State.FAILING, _kept_reason(draft, gang))
    unmarked = _unmarked(gang, FAIL)
    if unmarked:
        return unmarked
    why = _short_reason(draft, gang)
    waiting = [pod for pod in gang.gated if suspended_for(gang, pod) is None]
    if waiting and not _is_noted(gang):
        return [*suspending(gang, why), noted(draft, waiting[0], why)]
    tell(draft, gang, names.EVENT_GANG_FAILED, f"{why}; it does not start again by itself: {way_back(gang)}")
    rest = [pod for pod in gang.started if suspended_for(gang, pod) is None]
    bare = [deleted(pod, why) for pod in rest if pod.owner is None]
    owned = [pod for pod in rest if pod.owner is not None]
    since = max(run.marked_at for run in _runs_of(gang.started) if run.mark == FAIL)
    is_late = draft.scene.now - since > REPLACED_SECONDS
    may_go = _is_noted(gang) or is_late
    gone = _ended(draft, gang, owned, "its gang has failed") if may_go else _buried(draft, gang)
    return [*suspending(gang, why), *bare, *gone]


def _short_reason(draft: Draft, gang: Gang) -> str:
    known = draft.scene.losses(gang)
    return "; ".join(known[-MOST_NAMED:]) if known else "a member was lost"


def _note_late(draft: Draft, gang: Gang) -> list[Action]:
    """Its pods went before a new one was there to carry the note."""
    ended = [pod for pod in gang.life.remains if pod.terminating]
    if not any(run.mark == FAIL for run in _runs_of(ended)) or _is_noted(gang):
        return []
    waiting = [pod for pod in gang.gated if suspended_for(gang, pod) is None]
    return [noted(draft, pod, _short_reason(draft, gang)) for pod in waiting[:1]]


def _is_noted(gang: Gang) -> bool:
    return any(names.GANG_FAILED in pod.annotations for pod in gang.gated)


# --- what members carry ----------------------------------------------------------------------------------------------


def _noticed(draft: Draft, gang: Gang) -> list[Action]:
    """All members are told that a node of their gang will go, whatever becomes of the gang then."""
    notice = _notice(draft, gang)
    if not notice:  # the node stays after all
        stale = [pod for pod in gang.running if names.GANG_NOTICE in pod.annotations and not gang.life.doomed]
        return [annotated(pod, {names.GANG_NOTICE: None}, "no node of its gang will go") for pod in stale]
    told = [pod for pod in gang.running if names.GANG_NOTICE not in pod.annotations]
    if told:
        pod, why = gang.life.doomed[0]
        tell(draft, gang, names.EVENT_GANG_NOTICE, f"pod {pod.name}: {why}")
    return [annotated(pod, notice, "a node of its gang will go") for pod in told]


def _notice(draft: Draft, gang: Gang) -> Mapping[str, str | None]:
    node = next((pod.node for pod, _ in gang.life.doomed if pod.node in draft.scene.ground.sites), "")
    return {names.GANG_NOTICE: f"{draft.scene.now:.0f}/{node}"} if node else {}


def _adopted(draft: Draft, gang: Gang) -> list[Action]:
    """A gang that is whole, and carries no run, or a run with another number since it was scaled."""
    if not gang.life.is_adrift or gang.gated or gang.starting or gang.life.lost:
        return []
    run = gang.life.run
    if run is None:
        if len(gang.running) + gang.done < gang.needed:
            return []
        begun = [planned.at for pod in gang.running if (planned := reservation_of(pod)) is not None]
        number = min(gang.needed or len(gang.running), len(gang.running))
        run = Run(ADOPTED, min(begun, default=draft.scene.now), number)
    else:
        run = replace(run, number=gang.life.whole or run.number)
    text = run.text()
    of_run = [pod for pod in gang.running if (found := run_of(pod)) is None or found.name == run.name]
    return [
        annotated(pod, {names.GANG_RUN: text}, "its run is noted")
        for pod in of_run
        if pod.annotations.get(names.GANG_RUN) != text and pod.is_member
    ]
