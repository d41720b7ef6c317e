"""A release and its ends, as actions: what is written when a pod is released, put back, or no longer wanted.

No Kubernetes controller scales or rolls a released pod. So we end the release, in every mode, when its Deployment is
scaled down, rolled out, paused or gone. The pod is put back only if its ReplicaSet would not delete it at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from placement import names
from placement.backoff import doubled
from placement.model import Class, Kind, Owner, Pod, ReplicaSet, Workload
from placement.plan.actions import Action, How, Why
from placement.plan.annotate import ADOPTED, LEAVES_FIRST
from placement.plan.group import Cohort, Group, Member
from placement.plan.marks import Moved, Released, Undone, former_owner, former_slot, policy_mark, released, undone
from placement.policy import surge

UNDONE_SECONDS = 300.0
MISSED_SECONDS = 30.0  # the same if admission missed the replacement; it doubles, so the wait grows with the gap
LONGEST_UNDONE_SECONDS = 3600.0


# --- the beginning ---------------------------------------------------------------------------------------------------


def has_way_back(workload: Workload, pod: Pod) -> bool:
    """Its ReplicaSet is named after its Deployment and its hash label. The undo and the fence rely on that name.

    An adopted ReplicaSet may have another name and pods without the label. Its controller would not release them.
    """
    template_hash = pod.labels.get(names.POD_TEMPLATE_HASH, "")
    return bool(template_hash) and pod.owner is not None and pod.owner.name == f"{workload.name}-{template_hash}"


def can_be_released(workload: Workload, pod: Pod) -> bool:
    """A second pod can and may run beside it, and its owner gives it up."""
    rollout, needs = workload.rollout, pod.needs
    is_alone = workload.kind is not Kind.DEPLOYMENT or rollout.recreate or not surge(rollout, workload.replicas)
    return not (is_alone or needs.has_claims or needs.host_ports) and has_way_back(workload, pod)


def release(
    group: Group, pod: Pod, until: float, why: Why, origin: Class | None, to: Class, *, spared_seconds: int = 0
) -> Action:
    """Its ReplicaSet loses the pod, and its Deployment owns it. Karpenter leaves it alone for so long since its start.

    Revisions are assigned to workloads by the UID in their controller reference, so the workload's UID is that one.
    """
    workload, marks_safe = group.workload, names.SAFE_TO_EVICT not in pod.annotations
    marks_spared = spared_seconds > 0 and names.DO_NOT_DISRUPT not in pod.annotations
    template_hash = pod.labels.get(names.POD_TEMPLATE_HASH, "")
    replicas = next((each.replicas for each in group.cohorts if pod.owner and each.uid == pod.owner.uid), None)
    note = Released(until, template_hash, replicas, marks_safe, marks_spared)
    written = {names.RELEASED: note.text()}
    if marks_safe:
        written[names.SAFE_TO_EVICT] = "true"
    if marks_spared:
        written[names.DO_NOT_DISRUPT] = f"{spared_seconds}s"
    return Action(
        How.RELEASE,
        why,
        workload,
        pod,
        origin,
        to,
        annotations=written,
        labels={names.POD_TEMPLATE_HASH: f"{names.RELEASED_HASH}{template_hash}"[:63]},
        text=f"to {to}",
        owner=Owner(str(Kind.DEPLOYMENT), workload.name, workload.uid),
    )


# --- the replacement serves ------------------------------------------------------------------------------------------


def finish(
    group: Group,
    pod: Pod,
    replacement: Member,
    origin: Class | None,
    now: float,
    *,
    at_once: bool = False,
    in_every_mode: bool = False,
) -> Iterator[Action]:
    """Marks the replacement, so that it is not moved back soon; then the old pod is evicted.

    The eviction waits for the next pass, which sees the mark: without it there would be no cool-down. On a leaving node
    the pod is evicted at once.
    """
    workload, new = group.workload, replacement.pod
    if origin is not None and names.MOVED not in new.annotations:
        mark = {names.MOVED: Moved(str(origin), policy_mark(group.slots), now).text()}
        text = f"replaces {pod.name}"
        yield Action(How.ANNOTATE, Why.OVER, workload, new, annotations=mark, text=text, in_every_mode=in_every_mode)
        if not at_once:
            return
    text = f"replaced by {new.name}"
    yield Action(
        How.FINISH,
        Why.OVER,
        workload,
        pod,
        origin,
        replacement.of,
        text=text,
        rests_on=(new,),
        in_every_mode=in_every_mode,
    )


# --- it goes back ----------------------------------------------------------------------------------------------------


def undo(
    group: Group,
    cohort: Cohort,
    pod: Pod,
    replacement: Member | None,
    now: float | None,
    text: str = "its node no longer leaves",
    *,
    has_strayed: bool = False,
    in_every_mode: bool = False,
) -> Iterator[Action]:
    """Marks the newcomer to leave first, then returns the old pod to its ReplicaSet, which then has one too many.

    `now` is noted, so that the move is not tried again soon; None means that nothing failed and the move is no longer
    needed. Nothing is put back if the ReplicaSet already has too many pods: it would delete what it gets back.
    """
    if not takes_back(cohort.replicas, cohort.live):
        return
    if replacement is not None and not cohort.template.has_deletion_cost:
        yield from _leaves_first(group.workload, replacement.pod, in_every_mode)
    written = _without_release(pod)
    if now is not None:
        tries = (undone(pod) or Undone(0, 0)).tries
        first, text = _failure(replacement, has_strayed)
        written[names.UNDONE] = Undone(tries + 1, now + doubled(first, tries, LONGEST_UNDONE_SECONDS)).text()
    state = released(pod)
    template_hash = state.template_hash if state is not None else cohort.template.labels.get(names.POD_TEMPLATE_HASH)
    yield Action(
        How.UNDO,
        Why.OVER,
        group.workload,
        pod,
        annotations=written,
        labels={names.POD_TEMPLATE_HASH: template_hash},
        text=text,
        owner=Owner("ReplicaSet", f"{group.workload.name}-{template_hash}", former_owner(pod)),
        in_every_mode=in_every_mode,
    )


def takes_back(replicas: int, live: Sequence[Pod]) -> bool:
    """A ReplicaSet with these replicas and live pods deletes no pod, or only the newcomer, when it gets one back."""
    return 0 < replicas >= len(live)


def put_back_to(pod: Pod, replica_set: ReplicaSet, text: str) -> Action:
    """The same for a pod without a workload."""
    known = replica_set.template.labels.get(names.POD_TEMPLATE_HASH, "")
    state = released(pod) or Released(0.0, known)
    return Action(
        How.UNDO,
        Why.OVER,
        None,
        pod,
        annotations=_without_release(pod),
        labels={names.POD_TEMPLATE_HASH: state.template_hash},
        text=text,
        owner=Owner("ReplicaSet", replica_set.name, replica_set.uid),
        in_every_mode=True,
    )


def _leaves_first(workload: Workload | None, newcomer: Pod, in_every_mode: bool) -> Iterator[Action]:
    cost = {names.DELETION_COST: LEAVES_FIRST}
    if not _carries(newcomer, cost):
        text = "is removed first on scale-down"
        yield Action(
            How.ANNOTATE, Why.OVER, workload, newcomer, annotations=cost, text=text, in_every_mode=in_every_mode
        )


def _carries(pod: Pod, annotations: Mapping[str, str]) -> bool:
    return all(pod.annotations.get(key) == value for key, value in annotations.items())


def _without_release(pod: Pod) -> dict[str, str | None]:
    """Removes what the release wrote. What is not ours, or was changed to another kind of word since, stays."""
    state, written = released(pod), pod.annotations
    removed: dict[str, str | None] = {names.RELEASED: None}
    if state is not None and state.marks_safe and written.get(names.SAFE_TO_EVICT) == "true":
        removed[names.SAFE_TO_EVICT] = None
    if state is not None and state.marks_spared and written.get(names.DO_NOT_DISRUPT) not in (None, "true"):
        removed[names.DO_NOT_DISRUPT] = None
    return removed


def _failure(replacement: Member | None, has_strayed: bool) -> tuple[float, str]:
    """How long to wait before the first retry of a move, and what went wrong.

    Without a webhook, a replacement may land anywhere. That says nothing about the class, and may be over soon.
    """
    if replacement is None or not replacement.is_available:
        return UNDONE_SECONDS, "the replacement did not become ready in time"
    if (replacement.pod.decision_id or ADOPTED).startswith(ADOPTED):
        return MISSED_SECONDS, "admission missed the replacement"
    if has_strayed:
        return UNDONE_SECONDS, "the replacement runs on the wrong node"
    return UNDONE_SECONDS, "a budget or unready replicas blocked its eviction for too long"


def was_of(pod: Pod, revision: ReplicaSet) -> bool:
    """A released pod belongs to its Deployment, or has no owner any more. A pod with another owner is a copy."""
    parent = revision.owner.uid if revision.owner is not None else ""
    is_theirs = pod.owner is None or pod.owner.uid in (revision.uid, parent)
    return is_theirs and pod.namespace == revision.namespace


# --- it is not wanted any more ---------------------------------------------------------------------------------------


def is_too_many(group: Group, cohort: Cohort, pod: Pod, *, is_vacant: bool) -> bool:
    """Its Deployment was scaled down or rolled out since: its revision wants fewer pods, or does not need its slot."""
    state = released(pod)
    is_smaller = state is not None and state.replicas is not None and cohort.replicas < state.replicas
    return is_smaller or is_vacant or group.is_rolling or not cohort.replicas


def why_cut_short(group: Group, pod: Pod, *, leaves: bool) -> str:
    """Why the pod is put back before its time is over; "" if it is not.

    The ReplicaSet of a paused Deployment still replaces pods, so a move off a leaving node continues.
    """
    if pod.owner is None:
        return "it has no controller"
    return "its Deployment is paused" if group.workload.rollout.paused and not leaves else ""


def unwanted(
    workload: Workload | None, pod: Pod, origin: Class | None = None, rests_on: tuple[Pod, ...] = ()
) -> Action:
    """It is one too many: evicted as budgets allow, or deleted like all others if no pods are wanted at all."""
    if workload is not None and not workload.replicas:
        text = "its workload is scaled to 0"
        return Action(How.DELETE, Why.OVER, workload, pod, origin, text=text, in_every_mode=True)
    text = "no longer needed"
    return Action(How.FINISH, Why.OVER, workload, pod, origin, text=text, rests_on=rests_on, in_every_mode=True)


# --- no workload of ours answers for it ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A released pod that is in no revision of our workloads, and what still exists of its owners."""

    pod: Pod
    revision: ReplicaSet | None  # that the pod was taken from; None: gone, or scaled to 0 without pods
    siblings: tuple[Pod, ...] = ()  # live pods of that revision
    workload: Workload | None = None  # None: gone
    serving: tuple[Pod, ...] = ()  # the workload's serving pods
    is_ours: bool = False  # the workload is opted in
    may_evict: bool = True  # the namespace is opted in


def ends_of(left: LeftBehind) -> Iterator[Action]:
    """Put back if its ReplicaSet exists and wants it. Otherwise deleted with its owner, or evicted when all serve.

    If a workload of ours does not count the pod's ReplicaSet as a revision, that was rolled out or orphaned.
    """
    pod, workload, revision = left.pod, left.workload, left.revision
    if revision is not None and not left.is_ours and takes_back(revision.replicas, left.siblings):
        newcomers = [each for each in left.siblings if former_slot(each) == former_slot(pod)]
        for newcomer in sorted(newcomers, key=lambda each: each.created)[-1:]:
            yield from _leaves_first(workload, newcomer, True)
        text = (
            "its workload is opted out" if workload is not None else "its Deployment is gone, but its ReplicaSet is not"
        )
        yield put_back_to(pod, revision, text)
    elif workload is None and (revision is None or not revision.replicas):
        if left.may_evict:
            yield Action(How.DELETE, Why.OVER, None, pod, text="its workload is gone", in_every_mode=True)
    elif workload is None or not workload.replicas:
        yield unwanted(workload, pod)
    elif len(left.serving) >= workload.replicas:
        yield _superfluous(left, workload)


def _superfluous(left: LeftBehind, workload: Workload) -> Action:
    """All wanted pods serve without it. Even where no eviction is allowed any more, our releases still end."""
    how, text = How.FINISH if left.may_evict else How.DELETE, "its ReplicaSet is gone or no longer needs it"
    return Action(how, Why.OVER, workload, left.pod, text=text, rests_on=left.serving, in_every_mode=True)
