"""The Flask application: every route of the webhook."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from flask import Flask, Response, request

from placement import names
from placement.decide import Reason
from placement.model import Owner
from webhook.admission import Admission, NotYet, owner_uid
from webhook.metrics import Metrics
from webhook.peers import FORWARD_SECONDS, Peers
from webhook.review import MalformedReview, Request, TooLarge, Verdict, answer, parse, unchanged

log = logging.getLogger(__name__)

LARGEST_BODY = 7 * 1024 * 1024  # a 3 MiB object, its old version and the review around them
PATIENCE_SECONDS = 0.25
PAUSE_SECONDS = 0.005
SETTLE_SECONDS = 0.1  # for the last decisions of a replica that has just gone to be seen


class Door:
    """Answers admission calls. It never refuses a pod: whatever goes wrong, the pod is allowed unchanged."""

    def __init__(
        self, admission: Admission, metrics: Metrics, executor: Executor | None = None, peers: Peers | None = None
    ) -> None:
        self._admission = admission
        self._metrics = metrics
        self._executor = executor
        self._peers = peers

    def answer(self, body: bytes) -> bytes:
        """Answers at once, from what is known now."""
        call = parse(body)
        return self._open(call, lambda: self._admission.place(call))

    async def answer_patiently(self, body: bytes) -> bytes:
        """Answers when the caches have caught up with this pod; they are milliseconds behind, if at all."""
        answer = self.answer_or_wait(body)
        return answer if isinstance(answer, bytes) else await answer

    def answer_or_wait(self, body: bytes, *, forwarded: bool = False) -> bytes | Awaitable[bytes]:
        """The answer, or something to wait for: another replica, or the caches. Most calls need neither.

        A call that another replica has `forwarded` is decided on here, whoever owns it.
        """
        started = time.monotonic()
        call = parse(body)
        uid = owner_uid(call.raw_pod)
        if self._peers is not None and uid is not None:
            peer = None if forwarded else self._peers.owner(uid)
            if peer is not None:
                return self._forward(call, body, uid, started)
            if not self._peers.is_settled:
                return self._wait(call, None, started, SETTLE_SECONDS)
        try:
            return self._open(call, lambda: self._admission.place(call, patient=True), started)
        except NotYet as behind:
            return self._wait(call, behind.owner, started)

    async def _forward(self, call: Request, body: bytes, uid: str, started: float) -> bytes:
        """Asks the owner, then the next in rank; decides here where none of them answers."""
        assert self._peers is not None
        while time.monotonic() < started + FORWARD_SECONDS and (peer := self._peers.owner(uid)) is not None:
            answer = await self._peers.forward(peer, body)
            self._metrics.forwarded(answer is not None)
            if answer is not None:
                return answer
        return await self._wait(call, None, started, SETTLE_SECONDS)

    async def _wait(self, call: Request, owner: Owner | None, started: float, first: float = PAUSE_SECONDS) -> bytes:
        """Waits for the caches, then looks the owner up, then decides with what is known."""
        patience, pause = time.monotonic() + PATIENCE_SECONDS, first
        while time.monotonic() < patience:
            await asyncio.sleep(pause)
            pause = PAUSE_SECONDS
            try:
                return self._open(call, lambda: self._admission.place(call, patient=True), started)
            except NotYet as behind:
                owner = behind.owner
        if owner is None:
            return self._open(call, lambda: self._admission.place(call), started)
        loop = asyncio.get_running_loop()
        found = loop.run_in_executor(self._executor, self._admission.find, owner, call.namespace)
        await asyncio.wait([found])

        def place() -> Verdict:
            self._admission.learn(found.result())
            return self._admission.place(call)

        return self._open(call, place, started)

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
