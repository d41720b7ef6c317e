"""One workload with its pods, as they stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from placement import names
from placement.backoff import doubled
from placement.classes import Classes
from placement.configuration import Configuration
from placement.intent import Intent
from placement.model import Class, Kind, Node, NodeRequirement, NodeTerm, Pod, Pool, Quota, Template, Workload
from placement.pools import pool_order
from placement.slots import Slots

LONGEST_COOL_DOWN = 86_400.0
NO_NODES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Site:
    """A node as moves look at it."""

    node: Node
    of: Class
    pool: Pool
    is_leaving: bool
    is_only_cordoned: bool = False  # it leaves because the configuration says so, and for no other reason

    @property
    def is_target(self) -> bool:
        return self.node.ready and not self.node.unschedulable and not self.is_leaving


Sites = Mapping[str, Site]  # by the node's name


@dataclass(frozen=True, slots=True)
class Ground:
    """What all workloads stand on: the nodes, the live spot pools in `pool_order`, the configuration.

    What every plan asks of all nodes is worked out once, when the nodes change.
    """

    sites: Sites
    spot_pools: tuple[Pool, ...] = ()
    configuration: Configuration = field(default_factory=Configuration)
    targets: Mapping[Class, tuple[Site, ...]] = field(init=False, compare=False, repr=False)
    zones: Mapping[Class, frozenset[str]] = field(init=False, compare=False, repr=False)  # those of targets
    _domains: dict[str, dict[str, frozenset[str]]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        there = [site for site in self.sites.values() if site.is_target]
        targets = {of: tuple(site for site in there if site.of is of) for of in Class}
        zones = {of: frozenset(site.pool.zone for site in targets[of]) for of in Class}
        object.__setattr__(self, "targets", targets)
        object.__setattr__(self, "zones", zones)

    def domain(self, key: str, value: str) -> frozenset[str]:
        """The nodes whose label has this value. Those of all values are found out when the first is asked for."""
        if key not in self._domains:
            found: dict[str, set[str]] = {}
            for name, site in self.sites.items():
                if key in site.node.labels:
                    found.setdefault(site.node.labels[key], set()).add(name)
            self._domains[key] = {each: frozenset(nodes) for each, nodes in found.items()}
        return self._domains[key].get(value, NO_NODES)


def ground_of(nodes: Iterable[Node], configuration: Configuration) -> Ground:
    sites = {node.name: site_of(node, configuration) for node in nodes}
    spot = {site.pool for site in sites.values() if site.is_target and site.of is Class.SPOT}
    return Ground(sites, pool_order(spot), configuration)


def site_of(node: Node, configuration: Configuration) -> Site:
    of = configuration.classes.of_node(node.labels) or Class.ON_DEMAND
    is_leaving = node.is_leaving(configuration.leaving_taints)
    is_only_cordoned = not is_leaving and configuration.empties(node)
    return Site(node, of, node.pool, is_leaving or is_only_cordoned, is_only_cordoned)


@dataclass(frozen=True, slots=True)
class Cohort:
    """The pods of one revision: a ReplicaSet's, or all of a StatefulSet's."""

    uid: str
    replicas: int
    settled: bool  # its controller has done what was asked of it
    template: Template
    pods: tuple[Pod, ...] = ()  # that it owns
    released: tuple[Pod, ...] = ()  # that it owned

    @property
    def live(self) -> tuple[Pod, ...]:
        return tuple(pod for pod in self.pods if pod.is_live)

    @property
    def let_go(self) -> tuple[Pod, ...]:
        """Released a moment ago: their ReplicaSet still owns them, so they still count as its pods."""
        if not self.released:
            return ()
        return tuple(pod for pod in self.released if pod.owner is not None and pod.owner.uid == self.uid)


@dataclass(frozen=True, slots=True)
class Group(Intent):
    """A workload that is opted in, with what it is to have, and its pods by revision."""

    cohorts: tuple[Cohort, ...] = ()  # those that have or want pods
    quotas: tuple[Quota, ...] = ()  # of its namespace
    slots: Slots = field(init=False, compare=False, repr=False)  # the policy's, made once

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", self.policy.slots)

    @property
    def revisions(self) -> list[int]:
        """The replicas of each revision that wants any."""
        return [cohort.replicas for cohort in self.cohorts if cohort.replicas]

    @property
    def is_stateful(self) -> bool:
        return self.workload.kind is Kind.STATEFUL_SET

    @property
    def is_rolling(self) -> bool:
        """More than one revision has pods, and the older ones are on their way out.

        A StatefulSet's controller takes the next pod as soon as all serve, as we do: together that would be two less.
        """
        if self.is_stateful:
            rollout, first = self.workload.rollout, self.workload.first_ordinal
            return not rollout.on_delete and any(
                self.is_outdated(pod) and ordinal(pod) - first >= rollout.partition
                for cohort in self.cohorts
                for pod in cohort.pods
            )
        return sum(bool(cohort.replicas or cohort.pods) for cohort in self.cohorts) > 1

    def would_change_revision(self, pod: Pod) -> bool:
        """A StatefulSet's pod that is created anew: under OnDelete it gets what its owner has not let it have yet.

        Below a partition that was raised after an update it gets the older revision back.
        """
        rollout, is_outdated = self.workload.rollout, self.is_outdated(pod)
        if rollout.on_delete or not rollout.partition:
            return rollout.on_delete and is_outdated
        is_held_back = ordinal(pod) - self.workload.first_ordinal < rollout.partition
        siblings = (each for cohort in self.cohorts for each in cohort.pods)
        return is_held_back and not is_outdated and any(map(self.is_outdated, siblings))

    def is_outdated(self, pod: Pod) -> bool:
        """A StatefulSet's pod is of another revision than the newest."""
        shown, newest = pod.labels.get(names.CONTROLLER_REVISION_HASH), self.workload.revision
        return bool(newest) and shown not in (None, newest)


def group_of(intent: Intent, cohorts: tuple[Cohort, ...], quotas: tuple[Quota, ...] = ()) -> Group:
    return Group(intent.workload, intent.policy, intent.availability, intent.budgets, intent.mistakes, cohorts, quotas)


class Member(NamedTuple):
    """A live pod: its slot, where it is, and of which class it is (None: nothing tells).

    A tuple, because there is one for every pod, made anew each time, and a frozen dataclass takes three times as long.
    """

    pod: Pod
    slot: int | None
    of: Class | None
    site: Site | None
    written: int | None = None  # the slot that its annotations tell; None: no decision of ours
    is_new: bool = False  # ready, but not for its workload's minReadySeconds yet

    @property
    def serves(self) -> bool:
        return self.pod.ready and self.site is not None and not self.site.is_leaving

    @property
    def is_available(self) -> bool:
        """It serves, and has been ready for long enough to stand in for another."""
        return self.serves and not self.is_new

    @property
    def still_serves(self) -> bool:
        """The same, also where its node leaves: until then it counts."""
        return self.pod.ready and self.site is not None and not self.is_new

    @property
    def pool(self) -> Pool | None:
        return self.site.pool if self.site is not None else None


def members_of(cohort: Cohort, group: Group, sites: Sites, classes: Classes, now: float) -> list[Member]:
    first = group.workload.first_ordinal if group.is_stateful else None
    own = [_member(pod, sites.get(pod.node), first, classes) for pod in cohort.pods if pod.is_live]
    least = group.workload.min_ready_seconds
    return [member._replace(is_new=_is_new(member.pod, least, now)) for member in own] if least else own


def _is_new(pod: Pod, min_ready_seconds: int, now: float) -> bool:
    """Times are written in whole seconds: ready at 10.9 reads as 10, so one second more is waited."""
    return pod.ready and now - pod.changed < min_ready_seconds + 1


def _member(pod: Pod, site: Site | None, first_ordinal: int | None, classes: Classes) -> Member:
    written = pod.slot
    slot = written if first_ordinal is None else max(0, ordinal(pod) - first_ordinal)
    of = site.of if site is not None else _given(pod, classes)
    return Member(pod, slot, of, site, written)


def _given(pod: Pod, classes: Classes) -> Class | None:
    """The class of a pod that has no node: required, or none as yet."""
    return None if pod.node or names.SOFT in pod.annotations else classes.of_pod(pod, None)


def ordinal(pod: Pod) -> int:
    end = pod.name.rpartition("-")[2]
    return int(end) if end.isdecimal() else 0


def own_terms(pod: Pod, classes: Classes) -> tuple[NodeTerm, ...]:
    """What the pod's owner asks of nodes: its selector and terms, without what admission has added."""
    ours = {requirement for each in Class for term in classes.terms(each) for requirement in term}
    terms = [tuple(each for each in term if each not in ours) for term in pod.required_terms]
    selector = tuple(NodeRequirement(key, "In", (value,)) for key, value in pod.needs.node_selector.items())
    merged = tuple(selector + term for term in terms) or ((selector,) if selector else ())
    return () if any(not term for term in merged) else merged


# --- what is written on pods that were released, moved or put back ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class Released:
    """Until when a pod is released, and what was so before: its label, its ReplicaSet's replicas, a mark of ours."""

    until: float
    template_hash: str
    replicas: int | None = None
    marks_safe: bool = False  # the release wrote safe-to-evict, so the undo removes it

    def text(self) -> str:
        replicas = "" if self.replicas is None else str(self.replicas)
        parts = [moment(self.until), self.template_hash, replicas, names.RELEASED_SAFE if self.marks_safe else ""]
        return "/".join(parts).rstrip("/")


def released(pod: Pod) -> Released | None:
    written = pod.annotations.get(names.RELEASED)
    if not written:
        return None
    until, _, rest = written.partition("/")
    template_hash, _, rest = rest.partition("/")
    replicas, _, mark = rest.partition("/")
    at = parse_moment(until)
    if at is None or not template_hash:
        return None
    return Released(at, template_hash, _number(replicas), mark == names.RELEASED_SAFE)


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
