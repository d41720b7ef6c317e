"""Gives members of gangs their gate and their label, where no policy in the API server does: before Kubernetes 1.36.

A member that is created without its gate could never get one, and would start alone. So this is the one entry that may
refuse: if no answer comes, or none can be given, the member is not created, and its controller tries again. The entry's
`matchConditions` send it members alone. For gate and label it needs nothing but the pod. The same answer gives the
PriorityClass that preempts nobody: an entry for that, which goes by the label, may be asked before this one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from placement import names
from placement.decide import Reason
from placement.gang.bare import copied
from placement.gang.settings import Gangs
from placement.model import Owner
from placement.patch import annotations_patch, gate_patch
from webhook.metrics import WebhookMetrics
from webhook.review import (
    AdmissionCall,
    MalformedReview,
    PodTooLarge,
    Verdict,
    answer,
    controller,
    is_in_group,
    is_of_daemon_set,
    is_oversized,
    left_out,
    parse,
)

WITHOUT_BARE = Gangs()
AdditionsOf = Callable[[AdmissionCall], list[dict[str, Any]]]
log = logging.getLogger(__name__)
# What a workload's pod is left alone for, and a member is not: whoever owns it, it may be one.
OF_ANY_OWNER = (None, Reason.GANG, Reason.NOT_A_WORKLOAD)


class GateReviewer:
    """From a review to its answer. Raises MalformedReview where it cannot be given.

    `additions` gives the part of the patch that is not constant. None: gangs are off, and nobody would take a gate off.
    """

    def __init__(self, metrics: WebhookMetrics, additions: AdditionsOf | None, gangs: Gangs = WITHOUT_BARE) -> None:
        self._metrics = metrics
        self._additions = additions
        self._gangs = gangs

    def answer(self, body: bytes, dropped: int = 0) -> bytes:
        try:
            if dropped or is_oversized(body):
                raise PodTooLarge(f"{len(body) + dropped} bytes")
            call = parse(body)
            verdict = Verdict(Reason.NOT_A_MEMBER)
            if self._additions is not None:
                verdict = gated(call, self._additions, self._gangs)
            text = answer(call, verdict)
        except PodTooLarge as error:
            self._metrics.count(Verdict(Reason.TOO_LARGE))
            raise MalformedReview(f"the pod is too large for a member of a gang: {error}") from None
        except MalformedReview as error:
            log.warning("request %s: malformed review: %s", error.uid or "without a uid", error)
            self._metrics.count(Verdict(Reason.MALFORMED))
            raise
        self._metrics.count(verdict)
        return text


def gated(call: AdmissionCall, additions: AdditionsOf, gangs: Gangs = WITHOUT_BARE) -> Verdict:
    """The policies `spotweave-gang` and `spotweave-gang-bare` say the same (manifests/components/gangs*/gate.yaml)."""
    raw_pod, owner = call.raw_pod, controller(call.raw_pod)
    is_mapped = gangs.bare_annotations and raw_pod["spec"].get("schedulerName") in gangs.scheduler_names
    if is_of_daemon_set(owner) or _left_out(raw_pod, owner, is_mapped=is_mapped) not in OF_ANY_OWNER:
        return Verdict(Reason.NOT_A_MEMBER)
    added = copied(raw_pod["metadata"].get("annotations") or {}) if gangs.bare_annotations else {}
    if is_mapped or is_in_group(raw_pod["metadata"]) or names.POD_GROUP in added:
        return Verdict(Reason.GATED, patch=[*gate_patch(raw_pod, added), *additions(_with(call, added))])
    return Verdict(Reason.NOT_A_MEMBER, patch=annotations_patch(raw_pod, added))


def _with(call: AdmissionCall, annotations: Mapping[str, str]) -> AdmissionCall:
    metadata = call.raw_pod["metadata"]
    together = {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}}
    return msgspec.structs.replace(call, raw_pod={**call.raw_pod, "metadata": together})


def _left_out(raw_pod: Mapping[str, Any], owner: Owner | None, *, is_mapped: bool) -> Reason | None:
    """Its scheduler does not count where it is to get another one."""
    return left_out({**raw_pod, "spec": {**raw_pod["spec"], "schedulerName": ""}} if is_mapped else raw_pod, owner)
