"""One gang in full: what it asks for, where each member is, its plan, and who makes room. For people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from placement import names
from placement.gang.claim import claim_of
from placement.gang.gang import GangStatus, State
from placement.gang.reservation import Reservation, reservation_of
from placement.gang.survival import survival
from placement.gang.terms import sentence
from placement.model import Pod
from placement.observation import NOTHING_OBSERVED, Observed
from placement.plan.ground import Sites
from report.queue import QueuedGang
from report.sentences import moment

MOST_MEMBERS = 500  # that are listed


@dataclass(frozen=True, slots=True)
class GangView:
    """A gang, the nodes, and the pods that are marked to make room for it."""

    queued: QueuedGang
    sites: Sites
    victims: Sequence[Pod] = ()
    observed: Observed = NOTHING_OBSERVED

    @property
    def _status(self) -> GangStatus:
        return self.queued.status

    @property
    def raw(self) -> dict[str, Any]:
        gang = self._status.gang
        return {
            **self.queued.raw,
            "missing": gang.missing,
            "terms": self._terms(),
            "pods": [self._member(pod) for pod in gang.pods[:MOST_MEMBERS]],
            "podsTotal": len(gang.pods),
            "plan": self._plan(),
            "victims": [_named(pod) for pod in self.victims],
            "preemptedFor": self._preempted_for(),
            "survival": self._survival(),
        }

    def _terms(self) -> dict[str, Any]:
        terms = self._status.gang.terms
        timeout, runtime = terms.wait_timeout, terms.expected_runtime
        return {
            "minMember": terms.min_member,
            "size": terms.size,
            "waitTimeoutSeconds": None if timeout is None else timeout.after.total_seconds(),
            "waitTimeoutThen": None if timeout is None else timeout.then,
            "expectedRuntimeSeconds": None if runtime is None else runtime.total_seconds(),
            "onPartialFailure": terms.on_partial_failure,
            "preemptible": terms.preemptible,
        }

    def _member(self, pod: Pod) -> dict[str, Any]:
        site, found = self.sites.get(pod.node), reservation_of(pod)
        return {
            "pod": pod.name,
            "owner": None if pod.owner is None else f"{pod.owner.kind}/{pod.owner.name}",
            "state": member_state(pod),
            "node": pod.node or None,
            "class": None if site is None else str(site.of),
            "zone": None if site is None else site.zone,
            "pool": (site.spot_pool or None) if site is not None else None,
            "reservedOn": pod.nominated or None,
            "plan": None if found is None else found.plan,
            "otherGates": [gate for gate in pod.gates if gate != names.GANG_GATE],
            "waitsFor": pod.why_pending or None,
        }

    def _plan(self) -> dict[str, Any] | None:
        found = self._latest
        if found is None:
            return None
        return {
            "id": found.plan,
            "at": datetime.fromtimestamp(found.at, UTC).isoformat(),
            "awaitsVictims": found.awaits_victims,
            "undone": found.is_undone,
        }

    @property
    def _latest(self) -> Reservation | None:
        found = (reservation_of(pod) for pod in self._status.gang.pods)
        return max((each for each in found if each is not None), key=lambda each: each.at, default=None)

    def _preempted_for(self) -> list[str]:
        claims = (claim_of(pod) for pod in self._status.gang.pods)
        return sorted({str(each.gang) for each in claims if each is not None})

    def _survival(self) -> dict[str, Any] | None:
        gang = self._status.gang
        there = [self.sites[pod.node] for pod in gang.running if pod.node in self.sites]
        if not there:
            return None
        found = survival(there, self.observed, gang.terms.expected_runtime)
        chance = None if found.chance is None else round(found.chance, 4)
        return {"lossesPer30Days": round(found.losses, 4), "chance": chance, "pools": list(found.pools)}

    @property
    def lines(self) -> Iterator[str]:
        status, gang = self._status, self._status.gang
        yield f"Gang {gang.key}: {status.state}, since {moment(gang.since)}"
        if status.reason:
            yield status.reason
        missing = f"; {gang.missing} must start for it to be whole" if gang.missing else ""
        yield f"{status.counts}{missing}"
        yield "; ".join(self._wishes())
        yield from (f"! {sentence(each)}" for each in gang.declared.mistakes)
        yield from self._plan_lines()
        yield from self._survival_lines()
        yield from (f"  {_member_line(raw)}" for raw in self.raw["pods"])
        if len(gang.pods) > MOST_MEMBERS:
            yield f"  and {len(gang.pods) - MOST_MEMBERS} more"

    def _wishes(self) -> Iterator[str]:
        gang = self._status.gang
        terms = gang.terms
        yield f"priority {gang.wish}" + (f" (spec {gang.priority})" if gang.wish != gang.priority else "")
        if terms.classes:
            yield f"runs on {', then '.join(terms.classes)}"
        if terms.wait_timeout is not None:
            late = ", which is over" if self._status.is_late else ""
            yield f"wait-timeout {terms.wait_timeout.after}{late}, then {terms.wait_timeout.then}"
        if terms.expected_runtime is not None:
            yield f"expected to run for {terms.expected_runtime}"
        yield f"on partial failure: {terms.on_partial_failure}"
        if not terms.preemptible:
            yield "never makes room for others"

    def _plan_lines(self) -> Iterator[str]:
        found = self._latest
        if found is not None:
            undone = ", and is undone" if found.is_undone else ""
            yield f"plan {found.plan} was made at {moment(found.at)}{undone}"
        if self.victims:
            ending = sum(pod.terminating for pod in self.victims)
            shown = ", ".join(str(pod.key) for pod in self.victims[:5]) + (" …" if len(self.victims) > 5 else "")
            yield f"waits for {len(self.victims)} pods that make room ({ending} end already): {shown}"
        for name in self._preempted_for():
            yield f"makes room for gang {name}"

    def _survival_lines(self) -> Iterator[str]:
        raw = self._survival()
        if raw is None:
            return
        chance = "" if raw["chance"] is None else f"; chance to keep all nodes for its run time: {raw['chance']:.1%}"
        yield f"losses expected in 30 days: {raw['lossesPer30Days']:.3g}{chance}"


def member_state(pod: Pod) -> str:
    """As `queue` counts it."""
    if pod.gates and not pod.node:
        return "reserved" if pod.nominated else "gated"
    return "bound" if pod.node else "starting"


def _named(pod: Pod) -> dict[str, Any]:
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "gang": pod.annotations.get(names.POD_GROUP),
        "node": pod.node or None,
        "terminating": pod.terminating,
    }


def _member_line(raw: dict[str, Any]) -> str:
    owner = f" of {raw['owner']}" if raw["owner"] else ""
    if raw["state"] == "bound":
        where = f"on {raw['node']}" + (
            f" ({raw['class']}, {raw['pool'] or raw['zone']})" if raw["class"] else ", which is gone"
        )
    elif raw["state"] == "reserved":
        where = f"gated; room is kept on {raw['reservedOn']}"
    else:
        where = raw["state"] + (f": {raw['waitsFor']}" if raw["state"] == "starting" and raw["waitsFor"] else "")
    others = f"; also has the gate {', '.join(raw['otherGates'])}" if raw["otherGates"] else ""
    return f"{raw['pod']}{owner}: {where}{others}"


def victims_of(status: GangStatus, marked: Iterable[Pod]) -> list[Pod]:
    """The pods that are marked to make room for it."""
    return [pod for pod in marked if (claim := claim_of(pod)) is not None and claim.gang == status.gang.key]


def is_calm(state: State) -> bool:
    """Nobody has to wait for it, or to do something about it."""
    return state in (State.RUNNING, State.EVICTING, State.RESERVED, State.PLACING)
