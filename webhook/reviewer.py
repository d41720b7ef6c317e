"""Answers admission calls: at once where all is known, else as soon as other replicas or the caches know more."""

from __future__ import annotations

import asyncio
import logging
import time
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor

import msgspec

from placement.decide import Reason
from placement.model import Owner
from webhook.admission import Admission, Found, NotYet
from webhook.metrics import WebhookMetrics
from webhook.ownership import Tenure
from webhook.peers import Estate, Question
from webhook.review import (
    AdmissionCall,
    MalformedReview,
    PodTooLarge,
    Verdict,
    answer,
    is_oversized,
    owner_uid,
    parse,
    uid_of,
    unchanged,
    weight,
)

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 0.25
PAUSE_SECONDS = 0.005
ELSEWHERE_SECONDS = 1.5  # for other replicas to answer, all together; then this one decides, owner or not
LONGEST_SECONDS = 2.5  # for a look-up to be done, counted from the call: the API server gives up after 3
MOST_LOOK_UPS = 64  # at once: whoever forges reviews must not make us flood the API server
MOST_WAITING_BYTES = 64 * 1024**2  # of reviews that wait; a burst of 200 pods takes a fifth of it


class Reviewer:
    """Answers admission calls. It never refuses a pod: whatever goes wrong, the pod is allowed unchanged."""

    def __init__(
        self,
        admission: Admission,
        metrics: WebhookMetrics,
        executor: Executor | None = None,
        tenure: Tenure | None = None,
    ) -> None:
        self._admission = admission
        self._metrics = metrics
        self._executor = executor
        self._tenure = tenure
        self._look_ups: dict[str, Future[Found]] = {}  # under way, by the owner's UID
        self._waiting_bytes = 0

    def answer(self, body: bytes, passed: Sequence[str] = (), dropped: int = 0) -> bytes | Awaitable[bytes]:
        """The answer, or something to wait for: another replica, or the caches. Most calls need neither.

        `passed` are the replicas that have passed the call on to this one. `dropped` bytes of the body were not kept.
        """
        started = time.monotonic()
        call = self._read(body, dropped)
        if isinstance(call, bytes):
            return call
        if self._may_decide(call, passed):
            try:
                return self._open(call, lambda: self._admission.place(call, patient=True), started)
            except NotYet:
                pass
        if self._waiting_bytes + weight(body) > MOST_WAITING_BYTES:
            return self._open(call, lambda: self._admission.place(call), started)
        return self._wait(call, body, passed, started)

    def _read(self, body: bytes, dropped: int) -> AdmissionCall | bytes:
        """The call; or its answer, where it makes no sense but says whose it is. Else raises MalformedReview."""
        try:
            if dropped or is_oversized(body):
                return self._left(uid_of(body), len(body) + dropped)
            return parse(body)
        except MalformedReview as error:
            log.warning("request %s: malformed review: %s", error.uid or "without a uid", error)
            self._metrics.count(Verdict(Reason.MALFORMED))
            if error.uid:
                return unchanged(error.uid, error.version)
            raise

    def _left(self, uid: str, size: int) -> bytes:
        """The answer to a review that is not worth reading."""
        log.warning("request %s: left unchanged because the review is too large: %d bytes", uid, size)
        self._metrics.count(Verdict(Reason.TOO_LARGE))
        return unchanged(uid)

    async def hand_over(self, body: bytes) -> bytes | None:
        """What another replica has to know before it decides on a ReplicaSet; None where it is not to decide."""
        try:
            question = msgspec.json.decode(body, type=Question)
        except msgspec.DecodeError as error:
            raise MalformedReview(str(error)) from error
        estate = Estate() if self._tenure is None else await self._tenure.hand_over(question.uid, question.asker)
        return None if estate is None else msgspec.json.encode(estate)

    def _may_decide(self, call: AdmissionCall, passed: Sequence[str]) -> bool:
        """Good until the next time that we wait for something."""
        uid = owner_uid(call.raw_pod) if self._tenure is not None else None
        return self._tenure is None or uid is None or self._tenure.holds(uid, passed)

    async def _elsewhere(
        self, call: AdmissionCall, body: bytes, passed: Sequence[str], deadline: float
    ) -> bytes | None:
        """The answer of the replica that owns it; None where that is this one, or time is up: decide at once."""
        loop = asyncio.get_running_loop()
        while not self._may_decide(call, passed):
            if (left := deadline - loop.time()) <= 0:
                log.warning("request %s: decided here because the owning replica did not answer", call.uid)
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

    async def _wait(self, call: AdmissionCall, body: bytes, passed: Sequence[str], started: float) -> bytes:
        """An answer that takes a while, observed as such wherever it comes from; and never none."""
        held = weight(body)
        self._waiting_bytes += held
        try:
            return await self._answer_later(call, body, passed, started)
        except Exception:  # the boundary, as in `_open`
            log.exception("request %s: allowed unchanged", call.uid)
            return self._failed(call, started)
        finally:
            self._waiting_bytes -= held

    async def _answer_later(self, call: AdmissionCall, body: bytes, passed: Sequence[str], started: float) -> bytes:
        """Waits for the owner's answer; or for the caches, then looks up what they lack, then decides all the same."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        elsewhere, patience, owner = began + ELSEWHERE_SECONDS, float("inf"), None
        while loop.time() < patience:
            told = await self._elsewhere(call, body, passed, elsewhere)
            if told is not None:
                return self._told(told, started)
            try:
                return self._open(call, lambda: self._admission.place(call, patient=True), started)
            except NotYet as behind:
                owner = behind.owner
            patience = min(patience, loop.time() + PATIENCE_SECONDS)
            await asyncio.sleep(PAUSE_SECONDS)
        found = None if owner is None else await self._found(call, owner, began + LONGEST_SECONDS)
        told = await self._elsewhere(call, body, passed, elsewhere)

        def place() -> Verdict:
            if found is not None:
                self._admission.learn(found.result())
            return self._admission.place(call)

        return self._told(told, started) if told is not None else self._open(call, place, started)

    async def _found(self, call: AdmissionCall, owner: Owner, deadline: float) -> Future[Found] | None:
        """A look-up that is done, also where it failed (to fail open is the reviewer's business); None: not in time.

        Pods of one owner share it: a burst must not queue behind as many look-ups as it has pods.
        """
        loop = asyncio.get_running_loop()
        found = self._look_ups.get(owner.uid)
        if found is None and len(self._look_ups) >= MOST_LOOK_UPS:
            log.warning("request %s: %s %s is not looked up: too many others are", call.uid, owner.kind, owner.name)
            return None
        if found is None:
            found = loop.run_in_executor(self._executor, self._admission.find, owner, call.namespace)
            self._look_ups[owner.uid] = found
            found.add_done_callback(lambda _: self._look_ups.pop(owner.uid, None))
        await asyncio.wait([found], timeout=max(0.0, deadline - loop.time()))
        if found.done():
            return found
        log.warning("request %s: the look-up of %s %s took too long", call.uid, owner.kind, owner.name)
        return None

    def _told(self, answer: bytes, started: float) -> bytes:
        """What another replica answered. It counts the decision, we count the time that the API server waited."""
        self._metrics.seconds.observe(time.monotonic() - started)
        return answer

    def _open(self, call: AdmissionCall, place: Callable[[], Verdict], started: float | None = None) -> bytes:
        """One of the program's two boundaries: an error of ours must not stop a pod."""
        began = time.monotonic() if started is None else started
        try:
            verdict = place()
            text = answer(call, verdict)
        except NotYet:
            raise
        except PodTooLarge as error:
            log.warning("request %s: left unchanged because the pod is close to the size limit: %s", call.uid, error)
            verdict, text = Verdict(Reason.TOO_LARGE), unchanged(call.uid)
        except Exception:  # the boundary
            log.exception("request %s: allowed unchanged", call.uid)
            return self._failed(call, began)
        if verdict.reason is Reason.NOT_READY:
            self._metrics.fail_open.inc()
        self._metrics.count(verdict)
        self._metrics.seconds.observe(time.monotonic() - began)
        _log(call, verdict)
        return text

    def _failed(self, call: AdmissionCall, began: float) -> bytes:
        self._metrics.fail_open.inc()
        self._metrics.count(Verdict(Reason.ERROR))
        self._metrics.seconds.observe(time.monotonic() - began)
        return unchanged(call.uid)


def _log(call: AdmissionCall, verdict: Verdict) -> None:
    warnings = verdict.warnings
    if not warnings and not log.isEnabledFor(logging.DEBUG):
        return
    decision = verdict.decision
    name = call.raw_pod["metadata"].get("name") or f"{call.raw_pod['metadata'].get('generateName', '')}…"
    why = decision.explanation if decision else verdict.reason
    log.debug("request %s: pod %s/%s: %s: %s", call.uid, call.namespace, name, verdict.reason, why)
    for warning in warnings:
        log.info("request %s: pod %s/%s: %s", call.uid, call.namespace, name, warning)
