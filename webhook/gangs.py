"""Answers admission calls for members of gangs: each gets the PriorityClass that preempts nobody, if it is there.

Members of gangs with nodes of their own tolerate the taint of those nodes, and keep apart.

The API server has given them gate and label before it calls. Nothing is kept, and nothing is waited for: where anything
is in doubt, the member stays as it is, and the rebalancer starts its gang into free room only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kube.store import Store
from placement import names
from placement.decide import Reason
from placement.gang.belonging import SOLO, group_name
from placement.gang.exclusive import BY_GANG, BY_POD, taint_of
from placement.gang.twins import NEVER, AskedPriority, NoTwin, ScopedQuota, chosen_twin
from placement.model import Key, PriorityClass
from placement.patch import exclusive_patch, priority_patch
from webhook.metrics import WebhookMetrics
from webhook.review import (
    AdmissionCall,
    MalformedReview,
    PodTooLarge,
    Verdict,
    answer,
    is_gated_member,
    is_oversized,
    parse,
    uid_of,
    unchanged,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GangCaches:
    """What the answers rest on."""

    priority_classes: Store[PriorityClass]
    quotas: Store[ScopedQuota]
    is_synced: Callable[[], bool]  # both of them


class GangAdmission:
    """Decides on members."""

    def __init__(self, caches: GangCaches) -> None:
        self._caches = caches

    def place(self, call: AdmissionCall) -> Verdict:
        is_member = is_gated_member(call.raw_pod)
        alone = self.exclusive(call) if is_member else []
        if not self._caches.is_synced():
            return Verdict(Reason.NOT_READY, patch=alone)
        if not is_member:
            return Verdict(Reason.NOT_A_MEMBER)
        written = self.priority(call)
        return Verdict(Reason.TWIN if written else Reason.NO_TWIN, patch=[*written, *alone])

    def additions(self, call: AdmissionCall) -> list[dict[str, Any]]:
        """All of a member's patch but gate and label."""
        return [*self.priority(call), *self.exclusive(call)]

    def exclusive(self, call: AdmissionCall) -> list[dict[str, Any]]:
        """The part of it for nodes of its gang's own. A gang of one has a name only if its pod has."""
        metadata = call.raw_pod["metadata"]
        annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
        kind = annotations.get(names.EXCLUSIVE_NODE)
        name = group_name(annotations, labels) or (SOLO + metadata["name"] if metadata.get("name") else "")
        if kind not in (BY_POD, BY_GANG) or not name:
            return []
        taint = taint_of(Key(call.namespace, name))
        return exclusive_patch(call.raw_pod["spec"], taint, per_pod=kind == BY_POD)

    def priority(self, call: AdmissionCall) -> list[dict[str, Any]]:
        """The part of a member's patch that gives it the twin of its PriorityClass; nothing where it keeps its own."""
        spec = call.raw_pod["spec"]
        asked = asked_priority(spec)
        found = NoTwin.UNKNOWN if asked is None else self._chosen(asked, call.namespace)
        if isinstance(found, NoTwin):
            log.debug("request %s: a member keeps its PriorityClass: %s", call.uid, found)
            return []
        return priority_patch(spec, found.name)

    def _chosen(self, asked: AskedPriority, namespace: str) -> PriorityClass | NoTwin:
        caches = self._caches
        if not caches.is_synced():
            return NoTwin.UNKNOWN
        is_scoped = any(each.by_priority for each in caches.quotas.within(namespace))
        return chosen_twin(asked, lambda name: caches.priority_classes.get(Key("", name)), is_scoped=is_scoped)


def asked_priority(raw_spec: Mapping[str, Any]) -> AskedPriority | None:
    """None where it is not as the API server writes it."""
    name, value = raw_spec.get("priorityClassName") or "", raw_spec.get("priority", 0)
    if not isinstance(name, str) or not isinstance(value, int) or isinstance(value, bool):
        return None
    return AskedPriority(name, value, raw_spec.get("preemptionPolicy") == NEVER)


class GangReviewer:
    """From a review to its answer. It refuses no pod."""

    def __init__(self, admission: GangAdmission, metrics: WebhookMetrics) -> None:
        self._admission = admission
        self._metrics = metrics

    def answer(self, body: bytes, dropped: int = 0) -> bytes:
        """Raises MalformedReview where the call does not even say whose it is. `dropped` bytes were not kept."""
        began = time.monotonic()
        try:
            if dropped or is_oversized(body):
                self._metrics.count(Verdict(Reason.TOO_LARGE))
                return unchanged(uid_of(body))
            call = parse(body)
        except MalformedReview as error:
            log.warning("request %s: malformed review: %s", error.uid or "without a uid", error)
            self._metrics.count(Verdict(Reason.MALFORMED))
            if error.uid:
                return unchanged(error.uid, error.version)
            raise
        verdict, text = self._answered(call)
        if verdict.reason in (Reason.NOT_READY, Reason.ERROR):
            self._metrics.fail_open.inc()
        self._metrics.count(verdict)
        self._metrics.seconds.observe(time.monotonic() - began)
        return text

    def _answered(self, call: AdmissionCall) -> tuple[Verdict, bytes]:
        try:
            verdict = self._admission.place(call)
            return verdict, answer(call, verdict)
        except PodTooLarge:
            return Verdict(Reason.TOO_LARGE), unchanged(call.uid)
        except Exception:  # the boundary: an error of ours must not stop a pod
            log.exception("request %s: allowed unchanged", call.uid)
            return Verdict(Reason.ERROR), unchanged(call.uid)
