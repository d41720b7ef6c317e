"""The pod that takes another's place, as admission would make it: for what is foretold and not done.

Example: a pod of slot 1 that runs on on-demand is to go to spot. Its replacement requires spot, tolerates the taints of
spot nodes, keeps what its owner asks of nodes, and spreads as the policy says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from placement import names
from placement.classes import Classes
from placement.clusterstate import ClusterState
from placement.decide import Case, Decision, decide
from placement.inject import Injection
from placement.model import Class, HardSpread, Needs, NodeTerm, Pod, Toleration
from placement.outage import Outages
from placement.plan.group import Group, own_terms
from placement.plan.scene import demand_of
from placement.revision import Revision
from placement.selector import requirements

# What a replacement does not take over from the pod before it.
OF_THE_OLD = frozenset((names.LEFT_ALONE, names.MOVED, names.RELEASED, names.SOFT, names.UNDONE))


@dataclass(slots=True)
class Replacements:
    """What admission would decide. Pods that are alike share their needs, as those that the API server sends do."""

    state: ClusterState
    outages: Outages
    _needs: dict[tuple[object, ...], tuple[Needs, Needs]] = field(default_factory=dict)

    def of(self, pod: Pod, group: Group, slot: int, uid: str, now: float) -> tuple[Pod, Decision]:
        """It has no node yet, and is as old as the moment."""
        assert pod.owner is not None
        classes, workload = self.state.configuration.classes, group.workload
        revision = Revision(
            pod.owner.uid, workload, group.policy, workload.replicas, workload.selector, workload.template
        )
        state = self.state.with_outages(self.outages, demand_of(pod, classes), now)
        decision = decide(uid, slot, Case(revision, own_terms(pod, classes), state))
        kept = {key: text for key, text in pod.annotations.items() if key not in OF_THE_OLD}
        placed = {} if decision.placed is None else {names.CLASS: str(decision.placed)}
        made = replace(
            pod,
            uid=uid,
            labels={**pod.labels, **placed},
            annotations={**kept, names.SLOT: str(slot), **_marks(decision)},
            decision=f"{pod.owner.uid}/{uid}",
            required_terms=_required(pod, classes, decision.injection),
            needs=self._needs_of(pod.needs, workload.uid, decision),
            node="",
            created=now,
            changed=now,
        )
        return made, decision

    def _needs_of(self, needs: Needs, workload_uid: str, decision: Decision) -> Needs:
        """The old needs are kept beside the new ones, so that no other object gets their identity."""
        key = (id(needs), workload_uid, decision.placed, decision.soft)
        if key not in self._needs:
            self._needs[key] = (needs, _injected(needs, decision.injection))
        return self._needs[key][1]


def _marks(decision: Decision) -> dict[str, str]:
    cost = {} if decision.deletion_cost is None else {names.DELETION_COST: str(decision.deletion_cost)}
    soft = {names.SOFT: "true"} if decision.soft else {}
    alone = {names.LEFT_ALONE: "true"} if decision.placed is None else {}
    return {names.REASON: decision.explanation, **cost, **soft, **alone}


def _required(pod: Pod, classes: Classes, injection: Injection) -> tuple[NodeTerm, ...]:
    """What its owner requires of nodes, and the class."""
    ours = {requirement for each in Class for term in classes.terms(each) for requirement in term}
    terms = tuple(tuple(each for each in term if each not in ours) for term in pod.required_terms)
    own = () if any(not term for term in terms) else terms
    return tuple(term + added for term in own or ((),) for added in injection.required) if injection.required else own


def _injected(needs: Needs, injection: Injection) -> Needs:
    tolerated = (Toleration(**each) for each in injection.tolerations)
    rules = (
        HardSpread(
            each["topologyKey"],
            each["maxSkew"],
            requirements(each["labelSelector"]),
            honors_taints=each.get("nodeTaintsPolicy") == "Honor",
            match_label_keys=tuple(each.get("matchLabelKeys", ())),
        )
        for each in injection.spread
        if each["whenUnsatisfiable"] == "DoNotSchedule"
    )
    return replace(
        needs,
        tolerations=_joined(needs.tolerations, tolerated),
        hard_spread=(*needs.hard_spread, *_further(needs.hard_spread, rules)),
        priority_class=injection.priority_class or needs.priority_class,
    )


def _joined(known: tuple[Toleration, ...], added: Iterable[Toleration]) -> tuple[Toleration, ...]:
    return (*known, *(each for each in added if each not in known))


def _further(known: tuple[HardSpread, ...], added: Iterable[HardSpread]) -> tuple[HardSpread, ...]:
    """A user's own rule for a topology stands for ours."""
    keys = {each.topology_key for each in known}
    return tuple(each for each in added if each.topology_key not in keys)
