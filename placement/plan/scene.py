"""What a plan is made from, and what it asks of that in more than one place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from placement.classes import Classes
from placement.gang.candidate import Candidate, Claimant
from placement.gang.gang import Gang
from placement.model import Budget, Class, Key, Pod, Pool, Quota
from placement.observation import NOTHING_OBSERVED, Observed
from placement.outage import Demand, Outages, Shape
from placement.outcome import Outcome
from placement.plan.actions import How
from placement.plan.assess import Assessment, shape_of
from placement.plan.ground import Ground
from placement.plan.group import Group, own_terms
from placement.plan.losses import Lost
from placement.plan.marks import Evicted
from placement.plan.neighbours import Neighbours
from placement.plan.release import LeftBehind
from placement.plan.stock import Used
from placement.pools import preferred_pool

AUTOSCALER_SECONDS = 600.0  # for so long an autoscaler that is on it is waited for
CLOCKS_DIFFER_SECONDS = 60.0
Target = tuple[Class, Pool | None, Shape]  # what one probe stands for: the class, the pool that is preferred, the shape


@dataclass(frozen=True, slots=True)
class HeldBack:
    """What came of an action that failed a moment ago. `text`: it is held back for this reason alone; None: for any."""

    outcome: Outcome
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """What a plan is made from. `assessments` may leave out workloads that are in order."""

    assessments: Sequence[Assessment]
    ground: Ground
    used: Used
    now: float
    outages: Outages = field(default_factory=Outages)
    lost: Lost = field(default_factory=dict)
    budgets: Callable[[Pod], Sequence[Budget]] = lambda _pod: ()
    is_awaited: Callable[[Pod], float] = lambda _pod: float("-inf")  # when an autoscaler said that it is on it
    proofs: Mapping[Target, float] = field(default_factory=dict)  # when a move there last succeeded
    recent: int = 0  # moves begun within the last minute
    evicted: Mapping[str, Evicted] = field(default_factory=dict)  # by seat: what was evicted, for want of a release
    is_paused: bool = False
    waiting: Collection[Pod] = ()  # pods that have no node yet, of everybody
    held: Mapping[tuple[str, How], HeldBack] = field(default_factory=dict)  # by the pod's UID
    most_notes: int | None = None  # annotations at once; None: all
    sizes: Mapping[str, int] = field(default_factory=dict)  # by namespace: how many workloads we look after
    neighbours: Neighbours | None = None  # None: no place is proven for pods that look at others
    left_behind: Sequence[LeftBehind] = ()  # released pods that no assessment covers
    gathering: Collection[str] = ()  # nodes that have just begun to leave: others may follow
    is_denied: Callable[[Pod], bool] = lambda _pod: False  # an autoscaler last said that it can bring no node
    gangs: Sequence[Gang] = ()  # those that wait or start
    resting: Mapping[Key, str] = field(default_factory=dict)  # gangs that were tried a moment ago, and why they wait
    nominated: Collection[Pod] = ()  # pods of others for which a node is kept free
    strays: Collection[Pod] = ()  # pods with our gate that no gang will ever start
    candidates: Callable[[Claimant], Sequence[Candidate]] | None = None  # what may go for a gang; None: nothing may
    service_of: Callable[[Pod], Assessment | None] = lambda _pod: None  # the workload that a pod serves for
    observed: Observed = NOTHING_OBSERVED  # losses of spot pools
    marked: Sequence[Pod] = ()  # pods that are to make room for a gang
    marking: Collection[Key] = ()  # gangs for which such marks were written or removed, and that is not seen yet
    preempted: Mapping[str, int] = field(default_factory=dict)  # evicted for gangs this hour, by namespace; "": in all

    restarts: Mapping[Key, int] = field(default_factory=dict)  # of gangs that were restarted: how often in a row
    lost_for: Mapping[Key, float] = field(default_factory=dict)  # gangs that lack members: for how many seconds
    losses: Callable[[Gang], Sequence[str]] = lambda _gang: ()  # members that went: which, and why
    quotas: Callable[[str], Sequence[Quota]] = lambda _namespace: ()  # by namespace

    def is_coming(self, pod: Pod) -> bool:
        """An autoscaler reported recently that it adds a node. A report from the future is not trusted."""
        return -CLOCKS_DIFFER_SECONDS < self.now - self.is_awaited(pod) < AUTOSCALER_SECONDS


def demand_of(pod: Pod, classes: Classes) -> Demand:
    """What a pod asks of a class, as outages are noted."""
    return Demand(pod.namespace, own_terms(pod, classes), shape_of(pod))


def target(group: Group, slot: int | None, pod: Pod, ground: Ground) -> Target:
    """Where the replacement of a pod in this slot will try to go."""
    if slot is None:
        return Class.ON_DEMAND, None, shape_of(pod)
    pool = preferred_pool(slot, group.slots, group.workload, ground.spot_pools)
    return group.slots.class_of(slot), pool, shape_of(pod)
