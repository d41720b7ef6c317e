"""Gives members of gangs their gate and their label, where no policy in the API server does: before Kubernetes 1.36.

A member that is created without its gate could never get one, and would start alone. So this is the one entry that may
refuse: if no answer comes, or none can be given, the member is not created, and its controller tries again. The entry's
`matchConditions` send it members alone. For gate and label it needs nothing but the pod. The same answer gives the
PriorityClass that preempts nobody: an entry for that, which goes by the label, may be asked before this one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from placement.decide import Reason
from placement.patch import gate_patch
from webhook.metrics import WebhookMetrics
from webhook.review import (
    AdmissionCall,
    MalformedReview,
    PodTooLarge,
    Verdict,
    answer,
    controller,
    is_in_group,
    is_oversized,
    left_out,
    parse,
)

PriorityOf = Callable[[AdmissionCall], list[dict[str, Any]]]
log = logging.getLogger(__name__)
# What a workload's pod is left alone for, and a member is not: whoever owns it, it may be one.
OF_ANY_OWNER = (None, Reason.GANG, Reason.NOT_A_WORKLOAD)


class GateReviewer:
    """From a review to its answer. Raises MalformedReview where it cannot be given.

    `priority` gives the part of the patch that is not constant. None: gangs are off, and nobody would take a gate off.
    """

    def __init__(self, metrics: WebhookMetrics, priority: PriorityOf | None) -> None:
        self._metrics = metrics
        self._priority = priority

    def answer(self, body: bytes, dropped: int = 0) -> bytes:
        try:
            if dropped or is_oversized(body):
                raise PodTooLarge(f"{len(body) + dropped} bytes")
            call = parse(body)
            verdict = Verdict(Reason.NOT_A_MEMBER) if self._priority is None else gated(call, self._priority)
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


def gated(call: AdmissionCall, priority: PriorityOf) -> Verdict:
    """The policy `spotweave-gang` says the same (manifests/components/gangs/gate.yaml)."""
    raw_pod = call.raw_pod
    owner = controller(raw_pod)
    is_of_daemon_set = owner is not None and (owner.kind, owner.api_group) == ("DaemonSet", "apps")
    if is_of_daemon_set or not is_in_group(raw_pod["metadata"]) or left_out(raw_pod, owner) not in OF_ANY_OWNER:
        return Verdict(Reason.NOT_A_MEMBER)
    return Verdict(Reason.GATED, patch=[*gate_patch(raw_pod), *priority(call)])
