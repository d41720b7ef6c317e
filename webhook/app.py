"""The Flask application: every route of the webhook."""

from __future__ import annotations

import asyncio
import logging
import time
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor

import msgspec
from flask import Flask, Response, request

from placement import names
from placement.decide import Reason
from placement.model import Owner
from webhook.admission import Admission, Found, NotYet, owner_uid
from webhook.metrics import Metrics
from webhook.peers import Estate, Question
from webhook.review import MalformedReview, Request, TooLarge, Verdict, answer, parse, unchanged
from webhook.tenure import Tenure

log = logging.getLogger(__name__)

LARGEST_BODY = 7 * 1024 * 1024  # a 3 MiB object, its old version and the review around them
PATIENCE_SECONDS = 0.25
PAUSE_SECONDS = 0.005
ELSEWHERE_SECONDS = 1.5  # for other replicas to answer, all together; then the pod is decided on here, whoever owns it


class Door:
    """Answers admission calls. It never refuses a pod: whatever goes wrong, the pod is allowed unchanged."""

    def __init__(
        self, admission: Admission, metrics: Metrics, executor: Executor | None = None, tenure: Tenure | None = None
    ) -> None:
        self._admission = admission
        self._metrics = metrics
        self._executor = executor
        self._tenure = tenure

    def answer(self, body: bytes) -> bytes:
        """Answers at once, from what is known now."""
        call = parse(body)
        return self._open(call, lambda: self._admission.place(call))

    async def answer_patiently(self, body: bytes) -> bytes:
        """Answers when the caches have caught up with this pod; they are milliseconds behind, if at all."""
        answer = self.answer_or_wait(body)
        return answer if isinstance(answer, bytes) else await answer

    def answer_or_wait(self, body: bytes, passed: Sequence[str] = ()) -> bytes | Awaitable[bytes]:
        """The answer, or something to wait for: another replica, or the caches. Most calls need neither.

        `passed` are the replicas that have passed the call on to this one.
        """
        started = time.monotonic()
        call = parse(body)
        if self._may_decide(call, passed):
            try:
                return self._open(call, lambda: self._admission.place(call, patient=True), started)
            except NotYet:
                pass
        return self._wait(call, body, passed, started)

    async def hand_over(self, body: bytes) -> bytes | None:
        """What another replica has to know before it decides on a ReplicaSet; None where it is not to decide."""
        try:
            question = msgspec.json.decode(body, type=Question)
        except msgspec.DecodeError as error:
            raise MalformedReview(str(error)) from error
        estate = Estate() if self._tenure is None else await self._tenure.hand_over(question.uid, question.asker)
        return None if estate is None else msgspec.json.encode(estate)

    def _may_decide(self, call: Request, passed: Sequence[str]) -> bool:
        """Good until the next time that we wait for something."""
        uid = owner_uid(call.raw_pod) if self._tenure is not None else None
        return self._tenure is None or uid is None or self._tenure.holds(uid, passed)

    async def _elsewhere(self, call: Request, body: bytes, passed: Sequence[str], deadline: float) -> bytes | None:
        """The answer of the replica that owns it; None where that is this one, or time is up: decide at once."""
        while not self._may_decide(call, passed):
            if (left := deadline - time.monotonic()) <= 0:
                log.warning("request %s: decided on here, since the replica that owns it did not answer", call.uid)
                break
            tenure, uid = self._tenure, owner_uid(call.raw_pod)
            assert tenure is not None
            assert uid is not None
            peer = tenure.peers.owner(uid, passed) or await tenure.acquire(uid)
            if peer is None:
                continue
            answer = await tenure.peers.forward(peer, body, passed, left)
            self._metrics.forwarded(answer is not None)
            if answer is not None:
                return answer
        return None

    async def _wait(self, call: Request, body: bytes, passed: Sequence[str], started: float) -> bytes:
        """Waits for the owner's answer; or for the caches, then looks up what they lack, then decides all the same."""
        deadline, patience, owner = started + ELSEWHERE_SECONDS, float("inf"), None
        while time.monotonic() < patience:
            told = await self._elsewhere(call, body, passed, deadline)
            if told is not None:
                return told
            try:
                return self._open(call, lambda: self._admission.place(call, patient=True), started)
            except NotYet as behind:
                owner = behind.owner
            patience = min(patience, time.monotonic() + PATIENCE_SECONDS)
            await asyncio.sleep(PAUSE_SECONDS)
        found = await self._found(call, owner)
        told = await self._elsewhere(call, body, passed, deadline)

        def place() -> Verdict:
            self._admission.learn(found.result())
            return self._admission.place(call)

        return told if told is not None else self._open(call, place, started)

    async def _found(self, call: Request, owner: Owner | None) -> Future[Found]:
        """A look-up that is done, also where it failed: to fail open is the door's business."""
        loop = asyncio.get_running_loop()
        if owner is None:
            nothing: Future[Found] = loop.create_future()
            nothing.set_result(())
            return nothing
        found = loop.run_in_executor(self._executor, self._admission.find, owner, call.namespace)
        await asyncio.wait([found])
        return found

    def _open(self, call: Request, place: Callable[[], Verdict], started: float | None = None) -> bytes:
        """One of the program's two boundaries: an error of ours must not cost anybody a pod."""
        began = time.monotonic() if started is None else started
        try:
            verdict = place()
            text = answer(call, verdict)
        except NotYet:
            raise
        except TooLarge as error:
            log.warning("request %s: left alone, since it is close to what can be stored: %s", call.uid, error)
            verdict, text = Verdict(Reason.TOO_LARGE), unchanged(call.uid)
        except Exception:  # the boundary
            log.exception("request %s: allowed unchanged", call.uid)
            self._metrics.fail_open.inc()
            verdict, text = Verdict(Reason.ERROR), unchanged(call.uid)
        self._metrics.count(verdict)
        self._metrics.seconds.observe(time.monotonic() - began)
        _log(call, verdict)
        return text


def _log(call: Request, verdict: Verdict) -> None:
    warnings = verdict.warnings
    if not warnings and not log.isEnabledFor(logging.DEBUG):
        return
    decision = verdict.decision
    name = call.raw_pod["metadata"].get("name") or f"{call.raw_pod['metadata'].get('generateName', '')}…"
    why = decision.explanation if decision else verdict.reason
    log.debug("request %s: pod %s/%s: %s: %s", call.uid, call.namespace, name, verdict.reason, why)
    for warning in warnings:
        log.info("request %s: pod %s/%s: %s", call.uid, call.namespace, name, warning)


def create_app(door: Door, metrics: Metrics, is_ready: Callable[[], str | None]) -> Flask:
    """`is_ready` gives None, or what is missing."""
    app = Flask("webhook")
    app.config["MAX_CONTENT_LENGTH"] = LARGEST_BODY

    @app.post(names.WEBHOOK_PATH)
    def mutate() -> Response:
        if request.mimetype != "application/json":
            return Response(f"expected application/json, got {request.mimetype!r}\n", 415, mimetype="text/plain")
        return Response(door.answer(request.get_data()), mimetype="application/json")

    @app.errorhandler(MalformedReview)
    def malformed(error: MalformedReview) -> Response:
        log.warning("malformed review: %s", error)
        return Response(f"{error}\n", 400, mimetype="text/plain")

    @app.get("/healthz")
    def healthz() -> Response:
        return Response("ok\n", mimetype="text/plain")

    @app.get("/readyz")
    def readyz() -> Response:
        missing = is_ready()
        return Response(
            f"not ready: {missing}\n" if missing else "ok\n", 503 if missing else 200, mimetype="text/plain"
        )

    @app.get("/metrics")
    def exposed() -> Response:
        return Response(metrics.text(), mimetype="text/plain; version=0.0.4")

    return app
