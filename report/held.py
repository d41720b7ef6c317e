"""Evictions by others that are held now: of which pod, since when, until when at the latest, and who asked. Pure.

The webhook decides by the same rule (`placement.eviction.judged`), so people are shown what it would answer now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from placement import names
from placement.configuration import Configuration
from placement.eviction import EvictionCase, LetGo, asked, company, judged
from placement.intent import Intent
from placement.model import Node, Pod
from placement.plan.ground import Ground, Sites
from report.sentences import moment

MOST_NAMED = 2  # pods, and users, in a sentence


@dataclass(frozen=True, slots=True)
class HeldEviction:
    """One pod whose eviction waits."""

    pod: str
    uid: str
    since: float  # when it was first asked for
    until: float  # at the latest
    by: str

    @property
    def raw(self) -> dict[str, Any]:
        return {"pod": self.pod, "since": self.since, "until": self.until, "by": self.by}


@dataclass(frozen=True, slots=True)
class Holding:
    """What decides on all holds of a moment."""

    configuration: Configuration
    sites: Sites
    now: float
    is_paused: bool = False

    @classmethod
    def on(cls, ground: Ground, now: float, *, is_paused: bool = False) -> Holding:
        return cls(ground.configuration, ground.sites, now, is_paused)

    def of(self, intent: Intent, pods: Sequence[Pod]) -> tuple[HeldEviction, ...]:
        """The evictions that are held, of all pods of a workload, released ones included; in the order of names."""
        found = (self._held(intent, pod, pods) for pod in noted(pods))
        return tuple(sorted((each for each in found if each is not None), key=lambda each: each.pod))

    def _held(self, intent: Intent, pod: Pod, pods: Sequence[Pod]) -> HeldEviction | None:
        site = self.sites.get(pod.node)
        if site is None:
            return None
        workload = intent.workload
        case = EvictionCase(
            pod,
            workload,
            intent.policy,
            intent.availability,
            self.now,
            company(pods, pod, (), workload.min_ready_seconds, self.now),
            is_paused=self.is_paused,
            node_ends=self._end(site.node, pod),
        )
        verdict = judged(case)
        if isinstance(verdict, LetGo) or verdict.asked is None:
            return None
        return HeldEviction(pod.name, pod.uid, verdict.asked.at, verdict.until, verdict.asked.by)

    def _end(self, node: Node, pod: Pod) -> float | None:
        """The webhook knows when the end was announced. Here it is taken to be when the eviction was asked for."""
        notice, question = self.configuration.notice_seconds(node), asked(pod)
        return None if notice is None or question is None else question.at + notice


def noted(pods: Iterable[Pod]) -> Iterator[Pod]:
    """Those whose eviction somebody has asked for. Few are."""
    return (pod for pod in pods if names.EVICTION_ASKED in pod.annotations)


def held_sentence(held: Sequence[HeldEviction]) -> str:
    """`eviction held since …, until … at the latest: web-4; asked for by alice`; "" where none is held."""
    if not held:
        return ""
    since, until = min(each.since for each in held), max(each.until for each in held)
    what = "eviction" if len(held) == 1 else f"{len(held)} evictions"
    pods, users = _listed([each.pod for each in held]), _listed(sorted({each.by for each in held}))
    when = f"since {moment(since)}, until {moment(until)} at the latest"
    return f"{what} held {when}: {pods}; asked for by {users}"


def _listed(texts: Sequence[str]) -> str:
    first, more = ", ".join(texts[:MOST_NAMED]), len(texts) - MOST_NAMED
    return f"{first} and {more} more" if more > 0 else first
