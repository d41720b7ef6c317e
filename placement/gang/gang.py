"""A gang: pods of one namespace with the same `pod-group`. Its state follows from its pods alone.

Example: a Job of 8 with `pod-group: train`. While the first 5 are there it is Assembling 5/8. With all 8 it is Waiting,
until a plan finds room for 8; then Reserved, for less than a second as a rule: each member has a node that is kept free
for it. As gates are taken off it is Placing, and with 8 on nodes Running. If one of them is lost, its replacement comes
with a gate, and starts as soon as there is room for it: the gang waits for 1 of 8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum

from placement import names
from placement.gang.belonging import SOLO, is_by_label, solo_key
from placement.gang.exclusive import mark_of, tolerates
from placement.gang.life import COUNTED, NO_FACTS, NO_LIFE, ONE_OF_SEVERAL, FactsOf, FateOf, Life, SizeOf, life_of
from placement.gang.podgroup import NoPodGroup, PodGroup
from placement.gang.reservation import Reservation, reservation_of, reserved
from placement.gang.terms import NOTHING_DECLARED, START, Declared, GangTerms, WaitTimeout, declared, terms_of
from placement.lack import Lack
from placement.model import FINISHED, NOTHING, Key, Pod

# Where nothing says how many there will be: those that are there once no new one has come for so long.
SETTLED_SECONDS = 2.0
MOST_ASSEMBLING_SECONDS = 15.0
WHOLE_SECONDS = 1.0  # times of creation are written in whole seconds


class State(StrEnum):
    """What a gang is about."""

    BLOCKED = "Blocked"  # it cannot start until somebody changes something
    ASSEMBLING = "Assembling"  # members are missing
    WAITING = "Waiting"  # for room
    EVICTING = "Evicting"  # others are evicted to make room for it
    RESERVED = "Reserved"  # every member has a node that is kept free for it
    PLACING = "Placing"  # members have started, and have no node yet
    ROLLING_BACK = "RollingBack"  # not all of them found a node: the plan is undone
    RESTARTING = "Restarting"  # a member was lost: the others are evicted, and the gang starts again
    FAILING = "Failing"  # its other members are ended, and it does not start again by itself
    RUNNING = "Running"


GroupOf = Callable[[Key], PodGroup | NoPodGroup]  # the PodGroup of that name


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang with its live members, as they stand."""

    key: Key
    declared: Declared = NOTHING_DECLARED
    needed: int = 0  # members that must run together; 0: not known, those that are there
    gated: tuple[Pod, ...] = ()  # with our gate
    starting: tuple[Pod, ...] = ()  # without it, and without a node
    running: tuple[Pod, ...] = ()  # on nodes
    done: int = 0  # members that have succeeded
    is_orphaned: bool = False  # what owns its members, and would say how many there are, is not known or wants none
    is_settled: bool = True  # False: writes of ours are not seen yet
    is_guarded: bool = False  # one pod without a gate: it starts by itself when there is room
    awaits: str = ""  # what would say how many there are, and is not there
    life: Life = NO_LIFE  # what has become of those that have started
    # Worked out once: thousands of gangs may wait, and are looked at in every plan.
    reservations: tuple[tuple[Pod, Reservation], ...] = field(init=False, compare=False, repr=False)
    begun: frozenset[str] = field(init=False, compare=False, repr=False)  # plans that have started members
    priority: int = field(init=False, compare=False, repr=False)  # the scheduler's: across namespaces nominations hold
    since: float = field(init=False, compare=False, repr=False)  # when its present members began to wait, or to run
    obstacle: str = field(init=False, compare=False)  # why it cannot start, whatever room there is; "": nothing

    def __post_init__(self) -> None:
        held = tuple((pod, found) for pod in self.gated if (found := reserved(pod)) is not None)
        object.__setattr__(self, "reservations", held)
        plans = (reservation_of(pod) for pod in self.started) if held else ()  # asked only beside reservations
        object.__setattr__(self, "begun", frozenset(found.plan for found in plans if found is not None))
        object.__setattr__(self, "priority", max((pod.needs.priority for pod in self.pods), default=0))
        object.__setattr__(self, "since", min((pod.created for pod in self.gated or self.pods), default=0.0))
        object.__setattr__(self, "obstacle", self.declared.obstacle or _obstacle(self))

    @property
    def terms(self) -> GangTerms:
        return self.declared.terms

    @property
    def started(self) -> tuple[Pod, ...]:
        return (*self.starting, *self.running)

    @property
    def pods(self) -> tuple[Pod, ...]:
        return (*self.gated, *self.starting, *self.running)

    @property
    def missing(self) -> int:
        """How many must start for the gang to be whole."""
        return max(0, self.needed - len(self.starting) - len(self.running) - self.done)

    @property
    def own_nodes(self) -> Mapping[str, str]:
        """The nodes that nobody else may use, each with the value of its taint."""
        if not self.terms.exclusive:
            return NOTHING
        kept = [found.node for _, found in self.reservations]
        nodes = [*kept, *(pod.node or pod.nominated for pod in self.started)]
        return {node: mark_of(self.key) for node in nodes if node}

    @property
    def is_restless(self) -> bool:
        """There is something to do, or to wait for."""
        return bool(self.gated or self.starting) or (bool(self.running) and self.life.needs_care)

    @property
    def wish(self) -> int:
        """What the annotation says. It orders the gangs of one namespace; no tenant can write itself above another."""
        return self.priority if self.terms.priority is None else self.terms.priority

    def least(self, now: float) -> int | None:
        """How many of its gated members must start together now; None: not all of them are there."""
        if self.awaits:
            return None
        newest, oldest = (of(pod.created for pod in self.gated) for of in (max, min))
        if self.needed and len(self.gated) >= self.missing:
            return max(1, self.missing)
        if self.needed:  # others may have ended, and be gone: whoever replaces one that was lost waits for none of them
            return len(self.gated) if self.running and now - oldest >= MOST_ASSEMBLING_SECONDS else None
        if self.is_orphaned:
            return None
        if self.started:
            return 1
        is_quiet = now - newest >= SETTLED_SECONDS + WHOLE_SECONDS
        return len(self.gated) if is_quiet or now - oldest >= MOST_ASSEMBLING_SECONDS else None

    def started_by(self, plan: str) -> list[Pod]:
        """Members that this plan has started."""
        return [pod for pod in self.started if (found := reservation_of(pod)) is not None and found.plan == plan]


def _obstacle(gang: Gang) -> str:
    for pod in gang.gated:
        if names.GANG_FAILED in pod.annotations:
            why = pod.annotations[names.GANG_FAILED].partition("/")[2]
            return f"Failed: {why}; delete its waiting pods to start it again"
        foreign = [gate for gate in pod.gates if gate != names.GANG_GATE]
        if foreign:
            return f"ForeignGate: pod {pod.name} has the scheduling gate {foreign[0]}"
        if pod.needs.unmodelled is Lack.UNKNOWN_CLAIMS:
            return f"ResourceClaims: pod {pod.name} has resource claims, for which no room can be reserved"
    intolerant = [pod for pod in gang.gated if gang.terms.exclusive and not tolerates(pod, gang.key)]
    if intolerant:
        return f"Intolerant: pod {intolerant[0].name} was created while no webhook gave it the toleration of its nodes"
    strangers = [pod for pod in gang.starting if reservation_of(pod) is None]
    timeout = gang.terms.wait_timeout
    if gang.gated and strangers and not (timeout is not None and timeout.then == START):
        return f"Ungated: pod {strangers[0].name} was created without the gate, and has no node"
    return ""


def no_pod_groups(_key: Key) -> NoPodGroup:
    return NoPodGroup.UNSERVED


def gang_of(
    key: Key,
    pods: Iterable[Pod],
    size_of: SizeOf,
    group_of: GroupOf = no_pod_groups,
    *,
    facts_of: FactsOf = lambda _owner: NO_FACTS,
    fate_of: FateOf = lambda _node: "",
) -> Gang | None:
    """None where none of them lives.

    How many start together: the annotation says it, else the PodGroup, else the size, else the one owner of all.
    """
    of_all = list(pods)
    live = [pod for pod in of_all if not pod.terminating and pod.phase not in FINISHED]
    if not live:
        return None
    gated = tuple(sorted((pod for pod in live if pod.gates and not pod.node), key=lambda pod: pod.name))
    said = declared(pod.annotations for pod in gated or live)
    group = group_of(key) if any(map(is_by_label, live)) else NoPodGroup.UNSERVED
    if isinstance(group, PodGroup):
        said = replace(said, terms=_as_grouped(said.terms, group))
    owners = {pod.owner.uid: pod.owner for pod in live if pod.owner is not None}
    ended = Counter(pod.owner.uid for pod in of_all if pod.phase == "Succeeded" and pod.owner is not None)
    needed = 1 if key.name.startswith(SOLO) and said.terms.needed is None else said.terms.needed
    size = _size(live, size_of) if needed is None else None
    return Gang(
        key,
        said,
        needed or size or 0,
        gated,
        tuple(pod for pod in live if not pod.node and not pod.gates),
        tuple(pod for pod in live if pod.node),
        sum(max(ended[uid], facts_of(owner).done) for uid, owner in owners.items()),
        needed is None and size == 0,
        group is not NoPodGroup.UNREAD or said.terms.min_member is not None,
        awaits=_awaited(group, said.terms, live),
        life=life_of(of_all, needed or size or 0, size_of, facts_of, fate_of),
    )


def guarded_gang(pod: Pod) -> Gang:
    """A guarded pod, as a gang of one. It asks for nothing but its priority."""
    priority = terms_of(pod.annotations)[0].priority
    return Gang(solo_key(pod), Declared(GangTerms(priority=priority)), 1, (pod,), is_guarded=True)


def _as_grouped(terms: GangTerms, group: PodGroup) -> GangTerms:
    """What annotations say comes first."""
    timeout = WaitTimeout(timedelta(seconds=group.timeout_seconds)) if group.timeout_seconds > 0 else None
    least = group.min_member if group.min_member > 0 else None
    return replace(
        terms,
        min_member=least if terms.min_member is None else terms.min_member,
        wait_timeout=terms.wait_timeout or timeout,
    )


def _awaited(group: PodGroup | NoPodGroup, terms: GangTerms, live: Iterable[Pod]) -> str:
    """A PodGroup may come after its members. Where they run already, replacements need not wait for it."""
    if isinstance(group, PodGroup) or terms.min_member is not None:
        return ""
    return "" if group is NoPodGroup.MISSING and any(pod.node for pod in live) else group.value


def _size(live: Sequence[Pod], size_of: SizeOf) -> int | None:
    """What the one owner of all of them says. None: there is none, or such owners have no number; 0: it is not known.

    A Job that is deleted goes before its pods do. What is left of them is not to start. The Jobs of a JobSet come one
    after the other, so none of them stands for the gang.
    """
    owner = live[0].owner
    if owner is None or any(pod.owner is None or pod.owner.uid != owner.uid for pod in live):
        return None
    size = (size_of(owner) or 0) if owner.kind in COUNTED else None
    return None if size == ONE_OF_SEVERAL else size


@dataclass(frozen=True, slots=True)
class GangStatus:
    """What a gang is about now, and why. `tried`: a place was looked for in this plan, and not found."""

    gang: Gang
    state: State
    reason: str = ""
    was_tried: bool = False
    is_late: bool = False  # its wait-timeout is over
    was_given_up: bool = False  # the room that was being made for it
    lack: Lack | None = None  # what its members lacked, where a place was looked for and not found
    chance: float | None = None  # that it survives its expected run time where it is about to go
    news: tuple[tuple[str, str], ...] = ()  # Events beside those of its state: reason and text

    @property
    def counts(self) -> str:
        gang = self.gang
        return f"{len(gang.running) + gang.done} of {gang.needed or len(gang.pods)} on nodes, {len(gang.gated)} gated"


def status_of(gang: Gang, now: float) -> GangStatus:
    """As far as its pods alone say; whether there is room, a plan says."""
    if not gang.gated:
        undone = any((found := reservation_of(pod)) is not None and found.is_undone for pod in gang.started)
        state = State.ROLLING_BACK if undone else State.PLACING if gang.starting else State.RUNNING
        return GangStatus(gang, state, _unplaced(gang) if gang.starting else "")
    if gang.obstacle:
        return GangStatus(gang, State.BLOCKED, gang.obstacle)
    held = gang.reservations
    if any(found.plan in gang.begun for _, found in held):
        return GangStatus(gang, State.PLACING, _unplaced(gang))
    least = gang.least(now)
    if least is None:
        return GangStatus(gang, State.ASSEMBLING, _assembling(gang))
    if any(found.awaits_victims for _, found in held):
        return GangStatus(gang, State.EVICTING, f"room is made for {len(held)} members")
    if len(held) >= least:
        return GangStatus(gang, State.RESERVED, f"room is kept for {len(held)} members")
    return GangStatus(gang, State.WAITING, _waiting(gang, least))


def _unplaced(gang: Gang) -> str:
    there = len(gang.running) + gang.done
    return f"{there} of {max(gang.needed, there + len(gang.starting))} members have a node"


def _assembling(gang: Gang) -> str:
    if gang.awaits:
        return gang.awaits
    if gang.is_orphaned:
        return "their owner is gone, is not known yet, or wants no pods"
    if not gang.needed:
        return f"{len(gang.gated)} members so far; nothing says how many there will be"
    there = len(gang.gated) + len(gang.started) + gang.done
    return f"{there} of {gang.needed} members exist"


def _waiting(gang: Gang, least: int) -> str:
    if gang.started:
        return f"{len(gang.gated)} members wait to join {len(gang.started)} that have started"
    return f"{least} members wait to start together"
