"""What is written on pods that were released, moved or put back: annotations of ours, read and written here alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from placement import names
from placement.backoff import doubled
from placement.model import Pod, Workload
from placement.slots import Slots

LONGEST_COOL_DOWN = 86_400.0


@dataclass(frozen=True, slots=True)
class Released:
    """Until when a pod is released, and what was so before: its label, its ReplicaSet's replicas, marks of ours."""

    until: float
    template_hash: str
    replicas: int | None = None
    marks_safe: bool = False  # the release wrote safe-to-evict, so the undo removes it
    marks_spared: bool = False  # the same for Karpenter's do-not-disrupt

    def text(self) -> str:
        replicas = "" if self.replicas is None else str(self.replicas)
        marks = [names.RELEASED_SAFE * self.marks_safe, names.RELEASED_SPARED * self.marks_spared]
        return "/".join([moment(self.until), self.template_hash, replicas, *marks]).rstrip("/")


def released(pod: Pod) -> Released | None:
    written = pod.annotations.get(names.RELEASED)
    if not written:
        return None
    until, _, rest = written.partition("/")
    template_hash, _, rest = rest.partition("/")
    replicas, _, rest = rest.partition("/")
    safe, _, spared = rest.partition("/")
    at = parse_moment(until)
    if at is None or not template_hash:
        return None
    is_safe, is_spared = safe == names.RELEASED_SAFE, spared == names.RELEASED_SPARED
    return Released(at, template_hash, _number(replicas), is_safe, is_spared)


def former_owner(pod: Pod) -> str:
    """The UID of the ReplicaSet that a released pod belonged to: its decision names it."""
    return pod.decision.partition("/")[0]


def has_left(pod: Pod) -> bool:
    """It is released, and no pod of its ReplicaSet any more."""
    return pod.is_released and (pod.owner is None or pod.owner.uid != former_owner(pod))


def word_on_eviction(pod: Pod) -> str | None:
    """What is written on the pod about its being safe to evict, by whom it may concern: not by a release of ours."""
    word, state = pod.annotations.get(names.SAFE_TO_EVICT), released(pod)
    return None if word == "true" and state is not None and state.marks_safe else word


def former_slot(pod: Pod) -> int | None:
    return _number(pod.annotations.get(names.SLOT, ""))


def _number(text: str) -> int | None:
    """Of at most nine digits: anybody may write anything on a pod."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


@dataclass(frozen=True, slots=True)
class Moved:
    """Where a pod's predecessor was moved away from, under which ratio and floor, when, and how often in vain."""

    origin: str
    policy: str
    at: float
    tries: int = 0

    def text(self) -> str:
        return f"{self.origin}/{self.policy}/{moment(self.at)}" + (f"/{self.tries}" if self.tries else "")


def moved(pod: Pod) -> Moved | None:
    written = pod.annotations.get(names.MOVED)
    if not written:
        return None
    origin, _, rest = written.partition("/")
    policy, _, rest = rest.partition("/")
    at, _, tries = rest.partition("/")
    when = parse_moment(at)
    return Moved(origin, policy, when, _number(tries) or 0) if when is not None else None


@dataclass(frozen=True, slots=True)
class Evicted:
    """A pod that was evicted for want of a release: from where, under which policy, when, how often in a row."""

    origin: str
    policy: str
    at: float
    tries: int = 0
    uid: str = ""  # of the pod itself

    def is_too_soon(self, policy: str, cool_down_seconds: float, now: float) -> bool:
        """Its successor is left where it came out; each time that it did not help for twice as long, a day at most."""
        return self.policy == policy and now < self.at + doubled(cool_down_seconds, self.tries, LONGEST_COOL_DOWN)


def evicted(pod: Pod) -> Evicted | None:
    """What is written on a successor about its predecessor."""
    before = moved(pod)
    return None if before is None else Evicted(before.origin, before.policy, before.at, before.tries)


def seat(workload: Workload, pod: Pod) -> str:
    """What a pod and its successor have in common where the one goes before the other comes: workload and slot."""
    return f"{workload.uid}/{pod.annotations.get(names.SLOT, pod.name)}"


def policy_mark(slots: Slots) -> str:
    """Ratio and floor in a few characters: a changed policy may move a pod back at once."""
    return f"{slots.ratio.numerator}of{slots.ratio.denominator}min{slots.floor}"


@dataclass(frozen=True, slots=True)
class Undone:
    """How often a pod's move was undone, and when it may be tried again."""

    tries: int
    until: float

    def text(self) -> str:
        return f"{self.tries}/{moment(self.until)}"


def undone(pod: Pod) -> Undone | None:
    written = pod.annotations.get(names.UNDONE)
    if not written:
        return None  # as most are: that must cost nothing
    tries, _, until = written.partition("/")
    when, times = parse_moment(until), _number(tries)
    return Undone(times, when) if when is not None and times is not None else None


def moment(at: float) -> str:
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_moment(text: str) -> float | None:
    if not text:
        return None  # as most are: that must cost nothing
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
