"""Which paths the webhook answers: admission and hand-overs over TLS alone, probes and metrics on both ports.

Over plain HTTP, any client's review could use up slots. So that port has no route to them, however the path is written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from placement import names
from serving.messages import Answer, Request, Response, text
from serving.probes import exposed, probe_routes
from serving.routes import Routes
from webhook import peers
from webhook.evictions import EvictionReviewer
from webhook.gangs import GangReviewer
from webhook.gate import GateReviewer
from webhook.metrics import WebhookMetrics
from webhook.review import MalformedReview
from webhook.reviewer import Reviewer

JSON = b"application/json"
FORWARDED = peers.FORWARDED.encode()


@dataclass(frozen=True, slots=True)
class PortAnswers:
    """What is answered on each of the two."""

    tls: Answer
    plain: Answer


def ports(
    reviewer: Reviewer,
    metrics: WebhookMetrics,
    missing: Callable[[], str | None],
    evictions: EvictionReviewer | None = None,
    gangs: GangReviewer | None = None,
    gate: GateReviewer | None = None,
) -> PortAnswers:
    """`missing` gives what is missing until it is ready, or None."""
    probes = probe_routes(missing, lambda _request: exposed(metrics.text()))
    admission = AdmissionRoutes(reviewer)
    reviews = {names.WEBHOOK_PATH: {"POST": admission.mutate}, names.HAND_OVER_PATH: {"POST": admission.hand_over}}
    if evictions is not None:
        reviews[names.EVICTION_PATH] = {"POST": EvictionRoute(evictions).evict}
    if gangs is not None:
        reviews[names.GANG_PATH] = {"POST": GangRoute(gangs).review}
    if gate is not None:
        reviews[names.GATE_PATH] = {"POST": GangRoute(gate).review}
    return PortAnswers(Routes({**reviews, **probes}).answer, Routes(probes).answer)


class AdmissionRoutes:
    """From HTTP to the reviewer and back. The call may be refused, a pod never is."""

    def __init__(self, reviewer: Reviewer) -> None:
        self._reviewer = reviewer

    def mutate(self, request: Request) -> Response | Awaitable[Response]:
        if not request.headers.get(b"content-type", b"").lower().startswith(JSON):
            return _not_json(request)
        passed = request.headers.get(FORWARDED, b"").decode("latin-1")
        try:
            answer = self._reviewer.answer(request.body, passed.split(",") if passed else (), request.dropped)
        except MalformedReview as error:
            return text(400, str(error))
        return Response(200, answer) if isinstance(answer, bytes) else _later(answer)

    def hand_over(self, request: Request) -> Response | Awaitable[Response]:
        if not request.headers.get(b"content-type", b"").lower().startswith(JSON):
            return _not_json(request)
        return self._handed_over(request.body)

    async def _handed_over(self, body: bytes) -> Response:
        try:
            answer = await self._reviewer.hand_over(body)
        except MalformedReview as error:
            return text(400, str(error))
        return text(409, "this replica decides") if answer is None else Response(200, answer)


class EvictionRoute:
    """The same for evictions."""

    def __init__(self, reviewer: EvictionReviewer) -> None:
        self._reviewer = reviewer

    def evict(self, request: Request) -> Response | Awaitable[Response]:
        if not request.headers.get(b"content-type", b"").lower().startswith(JSON):
            return _not_json(request)
        passed = request.headers.get(FORWARDED, b"").decode("latin-1")
        try:
            answer = self._reviewer.answer(request.body, passed.split(",") if passed else ())
        except MalformedReview as error:
            return text(400, str(error))
        return Response(200, answer) if isinstance(answer, bytes) else _later(answer)


class GangRoute:
    """The same for members of gangs. Of those that get their gate here, a call that is refused refuses the pod."""

    def __init__(self, reviewer: GangReviewer | GateReviewer) -> None:
        self._reviewer = reviewer

    def review(self, request: Request) -> Response:
        if not request.headers.get(b"content-type", b"").lower().startswith(JSON):
            return _not_json(request)
        try:
            return Response(200, self._reviewer.answer(request.body, request.dropped))
        except MalformedReview as error:
            return text(400, str(error))


async def _later(answer: Awaitable[bytes]) -> Response:
    return Response(200, await answer)


def _not_json(request: Request) -> Response:
    return text(415, f"expected application/json, got {request.header('content-type').partition(';')[0]!r}")
