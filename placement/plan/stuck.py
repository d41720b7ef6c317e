"""The way out of our own constraint: pods that find no node because we require a class of them.

A pod is evidence if the scheduler has tried it and found no node, and it would fit on a node of the other class. Pods
that wait for their own reasons (a gate, a volume, a wrong node selector, a taken port) are no evidence. Evidence is
noted as an outage, and the pod is created once more, with the class preferred. Where moves are off or plan-only the
webhook does not require spot, so that needs no outage. None of this is a move: the pod never had a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from placement import names
from placement.model import Class, Pod
from placement.outage import LONGEST_SECONDS, Demand, Evidence, Outage, Shape, limited_to, without_zones
from placement.plan.actions import Action, Blocked, How, Why
from placement.plan.assess import Assessment, Stuck
from placement.plan.ground import Site
from placement.plan.losses import BY
from placement.plan.reach import Reach
from placement.plan.room import Room
from placement.plan.scene import AUTOSCALER_SECONDS, Scene, Target, demand_of, target

SHORTEST_OUTAGE_SECONDS = 30.0  # an outage that we noted does not end sooner, even if there seems to be room
MOST_TESTS = 32  # kinds of pods tested for a place per pass, shared by the namespaces
DENIED_SECONDS = 10.0  # a pod waits no longer if an autoscaler says that it can bring no node for it
REPLACE_SECONDS = 3.0  # a pod that is younger than this, and than the outage, is not replaced again
# The scheduler's message if node terms, and not claims, keep a pod with volumes or resource claims from nodes.
REFUSED_BY_TERMS = "node affinity/selector"
REFUSED_BY_CLAIMS = ("unbound", "not found", "resourceclaim", "resource claim")

Skip = Callable[[str, Why, Blocked], None]


@dataclass(slots=True)
class Freed:
    """What is done about stuck pods."""

    outages: list[Outage] = field(default_factory=list)
    replaced: list[Action] = field(default_factory=list)
    given_up: list[Action] = field(default_factory=list)  # moves whose newcomers find no node; no serving pod is lost


class WayOut:
    """Examines every stuck pod once per plan."""

    def __init__(self, scene: Scene, room: Room, skip: Skip) -> None:
        self._scene = scene
        self._room = room
        self._skip = skip
        self._classes = scene.ground.configuration.classes
        self._evidence: set[tuple[Class, Demand]] = set()
        # What many pods have in common is computed once: thousands may be stuck.
        self._demands: dict[tuple[object, ...], Demand] = {}
        self._out: dict[tuple[Class, Demand], bool] = {}
        self._fitting: dict[tuple[object, ...], bool] = {}
        self._tests: Counter[str] = (
            Counter()
        )  # by namespace: tests that found no place, each of which looked at every node
        self._most_tests = MOST_TESTS
        self._untested: set[str] = set()  # namespaces of pods that had no turn yet

    def freed(self) -> Freed:
        found = Freed()
        waiting = [each for each in self._scene.assessments if each.stuck]
        self._most_tests = max(1, MOST_TESTS // max(1, len({each.group.workload.namespace for each in waiting})))
        for each in _rotated(waiting, int(self._scene.now) * self._most_tests):
            for stuck in each.stuck:
                actions = self._one(stuck, found.outages)
                (found.given_up if stuck.undo else found.replaced).extend(actions)
        return found

    def _one(self, stuck: Stuck, outages: list[Outage]) -> Sequence[Action]:
        """Does nothing if the policy says to wait. Giving up a move needs no evidence: the old pod serves."""
        if not stuck.falls_back:
            return ()
        demand = self._demand(stuck.pod)
        is_required = stuck.group.policy.rebalance == "auto" or stuck.of is Class.ON_DEMAND  # of the next one, too
        is_out = is_required and self._is_out(stuck.of, demand)
        blocked = None if is_out else self._not_yet(stuck)
        if blocked is None:
            blocked = None if stuck.undo or self._has_way_out(stuck) else Blocked.NO_PLACE
        if blocked is not None:
            self._skip(stuck.group.workload.uid, Why.STUCK, blocked)
            return ()
        self._evidence.add((stuck.of, demand))
        if is_out:
            return self._while_out(stuck, demand, outages)
        if stuck.undo and not self.needs_probe(self._aim(stuck), demand):
            return stuck.undo
        if not is_required:
            return stuck.undo or (self._created_again(stuck),)
        outages.append(self._note(stuck, demand))  # after an outage, a failed probe shows that the class is still out
        return stuck.undo

    def _not_yet(self, stuck: Stuck) -> Blocked | None:
        """It may still be scheduled, or an autoscaler is adding a node."""
        waited = self._scene.now - stuck.since
        if waited < stuck.after and not (waited >= DENIED_SECONDS and self._scene.is_denied(stuck.pod)):
            return Blocked.WAITING
        return Blocked.AUTOSCALER if waited < AUTOSCALER_SECONDS and self._scene.is_coming(stuck.pod) else None

    def _while_out(self, stuck: Stuck, demand: Demand, outages: list[Outage]) -> Sequence[Action]:
        if stuck.undo or not self._is_old_enough(stuck):
            return stuck.undo
        if self._is_admitted_in_vain(stuck, self._since(stuck)):
            if self._is_admitted_in_vain(stuck, self._since(stuck, whole=True)):
                self._skip(stuck.group.workload.uid, Why.STUCK, Blocked.REFUSED)  # a note or another try would not help
            else:
                outages.append(self._note(stuck, Demand(demand.namespace)))
            return ()
        return (self._created_again(stuck),)

    def _demand(self, pod: Pod) -> Demand:
        key = (pod.namespace, id(pod.needs), id(pod.required_terms))
        if key not in self._demands:
            self._demands[key] = demand_of(pod, self._classes)
        return self._demands[key]

    def _is_out(self, of: Class, demand: Demand) -> bool:
        scene, key = self._scene, (of, demand)
        if key not in self._out:
            self._out[key] = scene.outages.stands(of, scene.ground.zones[of], demand, scene.now)
        return self._out[key]

    def _has_way_out(self, stuck: Stuck) -> bool:
        """It would fit on the other class now or, if an autoscaler adds nodes, on an empty node.

        Only the scheduler knows what is not modelled: its message must name our terms.
        """
        pod, other = stuck.pod, stuck.of.other
        if pod.needs.has_claims and not _is_refused_by_terms(pod):
            return self._has_proven_place(pod, other)
        is_scaled = self._classes.is_scaled or self._scene.is_coming(pod)
        is_plain = not (pod.needs.hard_spread or pod.needs.has_pod_affinity)
        owner = "" if is_plain else stuck.group.workload.uid
        key = (other, pod.namespace, id(pod.needs), pod.required_terms, is_scaled, owner)
        if key not in self._fitting:
            if self._tests[pod.namespace] >= self._most_tests:
                self._untested.add(pod.namespace)
                return False  # its turn comes with a later pass
            self._fitting[key] = self._room.fits(pod, other) or (is_scaled and self._room.fits_empty(pod, other))
            self._tests[pod.namespace] += not self._fitting[key]
        return self._fitting[key]

    def _has_proven_place(self, pod: Pod, of: Class) -> bool:
        """Each pod with a claim is a kind of its own, and costs a test."""
        if self._tests[pod.namespace] >= self._most_tests:
            self._untested.add(pod.namespace)
            return False
        fits = self._room.fits(pod, of, is_proven=True)
        self._tests[pod.namespace] += not fits
        return fits

    def _note(self, stuck: Stuck, demand: Demand) -> Outage:
        """For its own namespace and its own requests: it softens no other team's pods."""
        workload = stuck.group.workload
        return Outage(
            stuck.of,
            0.0,
            limited_to(self._scene.ground.zones[stuck.of], demand.own_terms),
            demand.shape,
            by=BY,
            namespace=demand.namespace,
            terms=without_zones(demand.own_terms),
            evidence=Evidence(str(stuck.pod.key), f"{workload.kind} {workload.key}"),
        )

    def _is_old_enough(self, stuck: Stuck) -> bool:
        """It was created before the outage was noted, or a while ago. A very new pod is not replaced again.

        A new pod can be stuck if its webhook has not read the outage yet.
        """
        created = stuck.pod.created
        return self._scene.now - created >= REPLACE_SECONDS or any(created < since for since in self._since(stuck))

    def _is_admitted_in_vain(self, stuck: Stuck, noted: Sequence[float]) -> bool:
        """It was created during these outages but not softened, because webhooks after ours made it request more.

        A note for its present shape and terms does not cover what it requested when it was admitted.
        """
        return bool(noted) and all(since + REPLACE_SECONDS < stuck.pod.created for since in noted)

    def _since(self, stuck: Stuck, *, whole: bool = False) -> list[float]:
        """When the outages that cover it were noted; with `whole`, only those that cover all requests."""
        demand = self._demand(stuck.pod)
        standing = self._scene.outages.standing(self._scene.now)
        covering = (each for each in standing if each.of is stuck.of and each.covers(demand))
        return [each.since for each in covering if not whole or each.is_whole]

    def _aim(self, stuck: Stuck) -> Target:
        return target(stuck.group, stuck.pod.slot, stuck.pod, self._scene.ground)

    def needs_probe(self, aim: Target, demand: Demand) -> bool:
        """No pod that preferred this pool has reached it since the class was last out for such a pod."""
        to, pool, shape = aim
        recent = (each for each in self._scene.outages.noted if self._scene.now < each.until + LONGEST_SECONDS)
        ends = [each.until for each in recent if each.of is to and each.covers(demand)]
        proofs = self._scene.proofs.items()
        proven = [at for (of, where, proof), at in proofs if (of, where) == (to, pool) and shape.covers(proof)]
        return bool(ends) and max(proven, default=float("-inf")) < max(ends)

    def _created_again(self, stuck: Stuck) -> Action:
        """Its Event names the mode: the pod is replaced although moves are off, plan-only or paused."""
        mode = f"{stuck.group.policy.rebalance}{', paused' if self._scene.is_paused else ''}"
        text = f"no {stuck.of} node can run it; recreated with {stuck.of} preferred (rebalance: {mode})"
        return Action(How.REPLACE, Why.STUCK, stuck.group.workload, stuck.pod, stuck.of, text=text, in_every_mode=True)

    # --- outages that are over ---------------------------------------------------------------------------------------

    def ended(self, new: Sequence[Outage]) -> Iterator[Outage]:
        """Outages that we noted and that are over: the evidence is gone, or the class has room and no pod waits for it.

        Evidence is gone when no covered pod waits for the class, was lost with it, or runs on the other class instead:
        the workload was deleted, scaled down, or has returned.
        """
        scene = self._scene
        lost = {gone.of for gone in scene.lost.values()} if any(each.lost for each in scene.assessments) else set()
        for outage in scene.outages.standing(scene.now):
            is_young = scene.now - outage.since < SHORTEST_OUTAGE_SECONDS
            if outage.by != BY or is_young or outage.of in lost or self._is_waited_for(outage, new):
                continue
            if not self._is_used(outage) or self._has_room(outage):
                yield outage

    def _is_waited_for(self, outage: Outage, new: Sequence[Outage]) -> bool:
        if outage.namespace in self._untested or (self._untested and not outage.namespace):
            return True
        return any(of is outage.of and outage.covers(demand) for of, demand in self._evidence) or any(
            each.of is outage.of and each.namespace in ("", outage.namespace) for each in new
        )

    def _is_used(self, outage: Outage) -> bool:
        """A pod that the note covers runs on the other class."""
        return any(
            member.of is outage.of.other
            and names.SOFT in member.pod.annotations
            and member.pod.labels.get(names.CLASS) == outage.of
            and outage.covers(self._demand(member.pod))
            for each in self._scene.assessments
            if outage.namespace in ("", each.group.workload.namespace)
            for member in each.members
        )

    def _has_room(self, outage: Outage) -> bool:
        """A node that the covered pods may use has room, taints excluded."""
        reach = Reach(outage.terms, ())
        return any(
            (not outage.zones or site.pool.zone in outage.zones)
            and reach.selects(site)
            and self._has_room_for(outage.shape, site)
            for site in self._room.targets(outage.of)
        )

    def _has_room_for(self, shape: Shape, site: Site) -> bool:
        free = self._room.free(site)
        return Shape(max(1, shape.cpu_millis), shape.memory_mib).covers(
            Shape(free.get("cpu", 0), free.get("memory", 0) // 1024**2)
        )


def _rotated(waiting: list[Assessment], by: int) -> list[Assessment]:
    """Each pass begins with another workload, so that all get their turn."""
    begin = by % len(waiting) if len(waiting) > MOST_TESTS else 0
    return [*waiting[begin:], *waiting[:begin]]


def _is_refused_by_terms(pod: Pod) -> bool:
    sentence = pod.unschedulable
    return REFUSED_BY_TERMS in sentence and not any(each in sentence for each in REFUSED_BY_CLAIMS)
