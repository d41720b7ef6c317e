"""One workload with its pods, as they stand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from placement import names
from placement.classes import Classes
from placement.intent import Intent
from placement.model import Class, Kind, NodeRequirement, NodeTerm, Pod, Pool, Quota, Template
from placement.plan.ground import Site, Sites
from placement.refusal import Hold
from placement.slots import Slots

NO_NODE_AT_ALL = NodeRequirement(names.NODE_NAME, "In")  # none of no names


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
    refused: Hold | None = None  # somebody refuses its pods with our patch: it is not moved for a while
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


def group_of(
    intent: Intent, cohorts: tuple[Cohort, ...], quotas: tuple[Quota, ...] = (), refused: Hold | None = None
) -> Group:
    asked = (intent.workload, intent.policy, intent.availability, intent.budgets, intent.mistakes)
    return Group(*asked, cohorts, quotas, refused)


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
    def stands(self) -> bool:
        """It serves, and its node is not leaving."""
        return self.pod.serves and self.site is not None and not self.site.is_leaving

    @property
    def is_available(self) -> bool:
        """It serves, and has been ready for long enough to stand in for another."""
        return self.stands and not self.is_new

    @property
    def still_serves(self) -> bool:
        """The same, also where its node leaves: until then it counts."""
        return self.pod.serves and self.site is not None and not self.is_new

    @property
    def pool(self) -> Pool | None:
        return self.site.pool if self.site is not None else None


def members_of(
    cohort: Cohort, group: Group, sites: Sites, classes: Classes, now: float, before: Iterable[Member] = ()
) -> list[Member]:
    """The live pods. Most are as they were `before`: their members are kept, which saves time and memory."""
    first = group.workload.first_ordinal if group.is_stateful else None
    kept = {id(each.pod): each for each in before if each.slot == each.written and not each.is_new}
    own: list[Member] = []
    for pod in cohort.pods:
        site, same = sites.get(pod.node), kept.get(id(pod))
        if same is not None and same.site is site:  # the very same pod, so it is live
            own.append(same)
        elif pod.is_live:
            own.append(_member(pod, site, first, classes))
    least = group.workload.min_ready_seconds
    return [member._replace(is_new=is_new(member.pod, least, now)) for member in own] if least else own


def is_new(pod: Pod, min_ready_seconds: int, now: float) -> bool:
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
    ours = _required_by_us(classes)
    return _merged(pod, [tuple(each for each in term if each not in ours) for term in pod.required_terms if term])


@lru_cache(maxsize=16)
def _required_by_us(classes: Classes) -> frozenset[NodeRequirement]:
    return frozenset(requirement for each in Class for term in classes.terms(each) for requirement in term)


def all_terms(pod: Pod) -> tuple[NodeTerm, ...]:
    """What is asked of its node, by whomever."""
    return _merged(pod, [term for term in pod.required_terms if term])


def _merged(pod: Pod, terms: list[NodeTerm]) -> tuple[NodeTerm, ...]:
    """With its node selector. A term that was empty from the start matches no node, so it is not among them."""
    if pod.required_terms and not terms:
        return ((NO_NODE_AT_ALL,),)
    selector = tuple(NodeRequirement(key, "In", (value,)) for key, value in pod.needs.node_selector.items())
    merged = tuple(selector + term for term in terms) or ((selector,) if selector else ())
    return () if any(not term for term in merged) else merged
