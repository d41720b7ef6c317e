"""What has become of a gang that has started: which run it is, how many of its members were lost, when its time is up.

All of it follows from the pods, their owners and the nodes. Example: a Job of 8 runs, with `19a2f/…/8/0` on each
member. One pod is deleted by hand: 7 are left, the run had 8, the Job wants 8, so one was lost. Were the Job's
parallelism 7, nothing was lost. Nor would it be if the pod had succeeded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from placement import names
from placement.gang.reservation import reservation_of
from placement.gang.run import Run, run_of
from placement.gang.terms import duration_of
from placement.model import FINISHED, NOTHING, Owner, Pod

COUNTED = ("Job", "ReplicaSet", "StatefulSet")  # owners that say how many pods they have
ONE_OF_SEVERAL = -1  # in place of an owner's number: other owners' pods belong to the gang, too

SizeOf = Callable[[Owner], int | None]  # how many pods an owner has; None: not known


@dataclass(frozen=True, slots=True)
class OwnerFacts:
    """What is known of an owner of members, beside its number of pods."""

    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)  # only ours
    root: str = ""  # the UID of the Deployment of a ReplicaSet
    suspends: Owner | None = None  # what is suspended to stop it: the Job itself, or its JobSet
    done: int = 0  # pods of it that have succeeded, some of which may be gone
    left: int | None = None  # how many it would create again, where that is not its number of pods
    pods: int = 0  # that it keeps at once, where its number says that it is one of several
    failures_left: int | None = None  # so many pods may fail before the Job does; None: an eviction is no failure


NO_FACTS = OwnerFacts()
FactsOf = Callable[[Owner], OwnerFacts]
FateOf = Callable[[str], str]  # by a node's name: why its pods count as lost; "": they do not


@dataclass(frozen=True, slots=True)
class Life:
    """A gang's run as it stands. `doomed` are members on nodes that are gone or will go, with the reason."""

    run: Run | None = None  # of those members that started last
    lost: int = 0  # members that the run lacks, and its owners want
    whole: int = 0  # so many members it has when it is whole; 0: not known
    doomed: tuple[tuple[Pod, str], ...] = ()
    remains: tuple[Pod, ...] = ()  # members that end, or have failed
    owners: Mapping[str, OwnerFacts] = field(default_factory=dict)  # by UID
    time_limit: timedelta | None = None
    expected_runtime: timedelta | None = None
    is_adrift: bool = False  # members run, and carry no run, or one with another number
    is_noticed: bool = False  # members carry a notice that a node will go

    @property
    def ends_at(self) -> float | None:
        """When its time limit is over."""
        if self.run is None or self.time_limit is None:
            return None
        return self.run.at + self.time_limit.total_seconds()

    @property
    def needs_care(self) -> bool:
        """Something is to be done, or will be when time has passed."""
        is_marked = self.run is not None and bool(self.run.mark)
        is_due = self.is_adrift or self.is_noticed or is_marked or self.time_limit is not None
        return bool(self.lost or self.doomed or is_due)


NO_LIFE = Life()


def life_of(
    pods: Sequence[Pod],
    needed: int,
    size_of: SizeOf,
    facts_of: FactsOf = lambda _owner: NO_FACTS,
    fate_of: FateOf = lambda _node: "",
) -> Life:
    """`pods` are all that say that they are members, living or not."""
    started = [pod for pod in pods if not pod.gates and not pod.terminating and pod.phase not in FINISHED]
    owned = {pod.owner.uid: pod.owner for pod in pods if pod.owner is not None and pod.phase not in FINISHED}
    owners = {uid: facts_of(owner) for uid, owner in owned.items()}
    remains = tuple(pod for pod in pods if (pod.terminating or pod.phase == "Failed") and run_of(pod) is not None)
    doomed = tuple((pod, why) for pod in started if pod.node and (why := fate_of(pod.node)))
    limit = _said(names.TIME_LIMIT, pods, owners)
    runtime = _said(names.EXPECTED_RUNTIME, pods, owners)
    is_noticed = any(names.GANG_NOTICE in pod.annotations for pod in started)
    run = max((found for pod in started if (found := run_of(pod)) is not None), key=lambda each: each.at, default=None)
    if run is None:
        is_adrift = any(pod.is_member and pod.node for pod in started)
        return Life(None, 0, 0, doomed, remains, owners, limit, runtime, is_adrift, is_noticed)
    of_run = [pod for pod in started if (found := run_of(pod)) is None or found.name == run.name]
    done = sum(
        pod.phase == "Succeeded" and (found := run_of(pod)) is not None and found.name == run.name for pod in pods
    )
    wanted = _wanted(of_run, owned, owners, size_of)
    expected = run.number - done if wanted is None else min(run.number - done, wanted)
    going = {pod.uid for pod, _ in doomed}
    safe = sum(pod.uid not in going for pod in of_run)
    whole = needed if wanted is None else min(needed, wanted + done)
    is_adrift = whole > 0 and run.number != whole and safe + done >= whole
    is_adrift = is_adrift or any(pod.is_member and pod.node and run_of(pod) is None for pod in started)
    return Life(run, max(0, expected - safe), whole, doomed, remains, owners, limit, runtime, is_adrift, is_noticed)


def _wanted(
    of_run: Iterable[Pod], owned: Mapping[str, Owner], owners: Mapping[str, OwnerFacts], size_of: SizeOf
) -> int | None:
    """How many pods the owners keep at once; None: not all of them say so. An owner that is not known wants none.

    While a Deployment rolls out, its new ReplicaSet does not make up for what the old one no longer wants.
    """
    if any(pod.owner is None or pod.owner.kind not in COUNTED for pod in of_run):
        return None
    running = {pod.owner.uid for pod in of_run if pod.owner is not None}
    roots = {owners[uid].root for uid in running} - {""}
    return sum(
        _left(owners[uid], size_of(owner))
        for uid, owner in owned.items()
        if owner.kind in COUNTED and (uid in running or owners[uid].root not in roots)
    )


def _left(facts: OwnerFacts, size: int | None) -> int:
    pods = facts.pods if size == ONE_OF_SEVERAL else size or 0
    return pods if facts.left is None else min(pods, facts.left)


def _said(annotation: str, pods: Iterable[Pod], owners: Mapping[str, OwnerFacts]) -> timedelta | None:
    """The owner's word first. Else what a member says in another way than most do: somebody has changed it there.

    Of several the longest counts. Example: 7 members say 2h, as their template does, and one says 4h: 4h.
    """
    of_owners = [found for each in owners.values() if (found := _read(annotation, each.annotations)) is not None]
    if of_owners:
        return max(of_owners)
    counts = Counter(
        found for pod in pods if pod.phase not in FINISHED and (found := _read(annotation, pod.annotations)) is not None
    )
    if len(counts) < 2:
        return next(iter(counts), None)
    most = max(counts.values())
    changed = [each for each, count in counts.items() if count < most]
    return max(changed or counts)


def _read(annotation: str, written: Mapping[str, str]) -> timedelta | None:
    return duration_of(written[annotation]) if annotation in written else None


def is_ended_by_us(pod: Pod) -> bool:
    """For its gang, or for another: its eviction does not show that somebody drains its node."""
    run, plan = run_of(pod), reservation_of(pod)
    is_marked = (run is not None and bool(run.mark)) or (plan is not None and plan.is_undone)
    return is_marked or names.PREEMPTED_BY in pod.annotations
