"""Answers evictions by others: allowed, or "not now" (429) while the replacement comes up. Never an error.

`placement.eviction` decides. The first replica that is asked writes on the pod when that was and by whom, before it
answers; without that note nothing is held for more than a few seconds, because nobody would know for how long. Where
the number of replicas that serve decides, one webhook replica counts for all, as it does for slots; if it does not
answer in time, the eviction is allowed. `retryAfterSeconds` is left out on purpose: with it, clients of Kubernetes
retry inside the call, and the drainer sees nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import msgspec
from cachetools import TTLCache

from kube.errors import ApiError
from placement import names
from placement.configuration import Configuration
from placement.eviction import (
    RELEASE_SECONDS,
    Company,
    EvictionAsked,
    EvictionCase,
    EvictionHold,
    LetGo,
    company,
    judged,
    legible,
    not_held,
    sentence,
    sentence_of_turn,
    stays,
)
from placement.model import Key, Pod, Workload
from placement.plan.release import can_be_released
from webhook.admission import GIVEN_UP_SECONDS, Admission, Placeable
from webhook.evictionledger import OWNED, EvictionLedger
from webhook.metrics import WebhookMetrics
from webhook.nodeends import NodeEnds
from webhook.nodeturns import NodeTurns
from webhook.ownership import Tenure
from webhook.review import API_VERSION, MalformedReview, is_uid, review_text

log = logging.getLogger(__name__)

TOO_MANY_REQUESTS = 429
NOTE_SECONDS = 0.65  # that an answer waits for the note: the API server waits for one second in all
REMEMBERED_SECONDS = 60.0
MOST_REMEMBERED = 10_000
MOST_NOTES = 512  # at once: as many as threads can write in that time
ELSEWHERE_SECONDS = 0.3  # for the replica that counts to answer
Note = Callable[[Pod, str], str | None]  # writes the annotation, unless there is one; gives what is there now
LET_GO = (LetGo.BUDGET, LetGo.TIME_UP, LetGo.NODE_ENDS)  # pods that serve, and count for nobody from now on


class EvictionCall(msgspec.Struct, frozen=True):
    """One call: a pod is to be evicted."""

    uid: str
    pod: Key
    user: str
    pod_uid: str = ""  # the pod that is meant, if the caller says so
    is_dry_run: bool = False


class _Preconditions(msgspec.Struct):
    uid: str | None = None


class _DeleteOptions(msgspec.Struct, rename="camel"):
    dry_run: list[str] | None = None
    preconditions: _Preconditions | None = None


class _Eviction(msgspec.Struct, rename="camel"):
    delete_options: _DeleteOptions | None = None


class _Asker(msgspec.Struct):
    username: str | None = None


class _EvictionRequest(msgspec.Struct, rename="camel"):
    uid: str = ""
    name: str | None = None
    namespace: str | None = None
    sub_resource: str | None = None
    user_info: _Asker | None = None
    dry_run: bool | None = None
    object: _Eviction | None = None


class _EvictionReview(msgspec.Struct, rename="camel"):
    api_version: str | None = None
    request: _EvictionRequest | None = None


_READER = msgspec.json.Decoder(_EvictionReview)


def parse_eviction(body: bytes) -> EvictionCall:
    """Raises MalformedReview that says what is wrong."""
    try:
        review = _READER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedReview(f"not a review of an eviction: {str(error)[:100]}") from error
    asked = review.request
    if review.api_version != API_VERSION or asked is None or not is_uid(asked.uid):
        raise MalformedReview(f"expected an AdmissionReview of {API_VERSION} with a request and its uid")
    if asked.sub_resource != "eviction" or not asked.name or not asked.namespace:
        raise MalformedReview("expected the eviction of a pod, with its name and namespace", asked.uid)
    options = (asked.object.delete_options if asked.object is not None else None) or _DeleteOptions()
    meant = options.preconditions.uid if options.preconditions is not None else None
    user = asked.user_info.username if asked.user_info is not None else None
    # `kubectl drain --dry-run=server` says so in the Eviction alone.
    is_dry_run = bool(asked.dry_run or options.dry_run)
    return EvictionCall(asked.uid, Key(asked.namespace, asked.name), user or "", meant or "", is_dry_run)


class EvictionReviewer:
    """Answers evictions. Lives on the event loop; notes are written by threads of `executor`."""

    def __init__(
        self,
        admission: Admission,
        metrics: WebhookMetrics,
        configuration: Configuration,
        note: Note,
        *,
        executor: Executor | None = None,
        ledger: EvictionLedger | None = None,
        tenure: Tenure | None = None,
        node_ends: NodeEnds | None = None,
        is_paused: Callable[[float], bool] = lambda _now: False,
        unled_seconds: Callable[[], float] = lambda: 0.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._admission = admission
        self._metrics = metrics
        self._configuration = configuration
        self._note = note
        self._executor = executor
        self._ledger = ledger or EvictionLedger()
        self._tenure = tenure
        self._node_ends = node_ends or NodeEnds(configuration)
        self._is_paused = is_paused
        self._unled_seconds = unled_seconds
        self._now = now
        self._noting = 0
        self._turns = NodeTurns(self._is_there, now)
        self._late: TTLCache[str, float] = TTLCache(MOST_REMEMBERED, REMEMBERED_SECONDS, now)  # by UID: asked when

    def answer(self, body: bytes, passed: Sequence[str] = ()) -> bytes | Awaitable[bytes]:
        """The answer, or something to wait for: the note, or another replica. `passed` are those that passed it on.

        A boundary: an error of ours must not stop a drain.
        """
        try:
            call = parse_eviction(body)
        except MalformedReview as error:
            if not error.uid:
                raise
            return self._let_go(error.uid, LetGo.ERROR)
        try:
            return self._judged(call, body, passed)
        except Exception:  # the boundary
            log.exception("eviction of %s: allowed", call.pod)
            return self._let_go(call.uid, LetGo.ERROR)

    def _judged(self, call: EvictionCall, body: bytes, passed: Sequence[str]) -> bytes | Awaitable[bytes]:
        case = self._case(call, passed)
        if isinstance(case, LetGo):
            return self._let_go(call.uid, case)
        verdict = judged(case)
        if verdict is LetGo.UNCOUNTED:
            return self._elsewhere(call, body, passed, case)
        return self._settled(call, case, verdict)

    def _settled(
        self, call: EvictionCall, case: EvictionCase, verdict: EvictionHold | LetGo
    ) -> bytes | Awaitable[bytes]:
        if isinstance(verdict, LetGo):
            if verdict in LET_GO and not call.is_dry_run:
                self._ledger.note(_owned(case), case.pod.uid)
            return self._let_go(call.uid, verdict)
        if not verdict.needs_note or call.is_dry_run:
            return self._hold(call.uid, verdict, case)
        if self._noting >= MOST_NOTES:
            return self._let_go(call.uid, LetGo.UNMARKED)
        if case.node_stays and can_be_released(case.workload, case.pod):
            turn = self._turns.before(case.pod, case.policy.eviction_hold.total_seconds())
            if turn is not None:
                return self._refused(call.uid, "queued", sentence_of_turn(case.pod, *turn))
        return self._noted(call, case, verdict)

    def _case(self, call: EvictionCall, passed: Sequence[str]) -> EvictionCase | LetGo:
        """What is known of the eviction, here and now."""
        pod = self._admission.pod(call.pod)
        if pod is None or call.pod_uid not in ("", pod.uid):
            return LetGo.UNKNOWN
        if pod.is_member:
            return LetGo.NOT_OURS
        found = self._admission.placeable(pod)
        if not isinstance(found, Placeable):
            return LetGo.NOT_OURS
        now, workload = self._now(), found.revision.workload
        owned = f"{OWNED}{workload.uid}"
        case = EvictionCase(
            pod,
            workload,
            found.revision.policy,
            found.availability,
            now,
            counts_here=self._tenure is None or self._tenure.holds(owned, passed),
            is_led=self._unled_seconds() < GIVEN_UP_SECONDS,
            is_paused=self._is_paused(now),
            cool_down_seconds=self._configuration.moves.cool_down.total_seconds(),
            node_stays=stays(self._admission.node(pod.node), self._configuration.leaving_taints),
            leaving_since=self._node_ends.leaving_since(pod.node),
            node_ends=self._node_ends.end_of(pod.node),
        )
        reason = not_held(case)  # then nobody need be counted
        return reason or replace(case, company=self._company(case))

    def _company(self, case: EvictionCase) -> Company:
        gone, workload = self._ledger.of(_owned(case)), case.workload
        return company(self._reachable(workload), case.pod, gone, workload.min_ready_seconds, case.now)

    def _is_there(self, pod: Pod) -> bool:
        known = self._admission.pod(pod.key)
        return known is not None and known.uid == pod.uid and not known.terminating

    def _reachable(self, workload: Workload) -> Iterator[Pod]:
        """Its pods on nodes that are there and ready. Others are shown as ready for most of a minute."""
        for pod in self._admission.pods_of(workload):
            node = self._admission.node(pod.node)
            if node is not None and node.ready:
                yield pod

    async def _elsewhere(self, call: EvictionCall, body: bytes, passed: Sequence[str], case: EvictionCase) -> bytes:
        """The answer of the replica that counts; or ours, if it turns out to be this one."""
        tenure, owned = self._tenure, _owned(case)
        assert tenure is not None  # else we had counted ourselves
        try:
            async with asyncio.timeout(ELSEWHERE_SECONDS):
                peer = tenure.peers.owner(owned, passed) or await tenure.acquire(owned)
                told = None if peer is None else await tenure.peers.pass_eviction(peer, body, passed)
            if told is not None:
                self._metrics.count_eviction("passed-on")
                return told
            again = self._case(call, passed) if peer is None else LetGo.UNCOUNTED
            answer = self._settled(call, again, judged(again)) if isinstance(again, EvictionCase) else again
        except TimeoutError:
            answer = LetGo.UNCOUNTED
        except Exception:  # the boundary, as in `answer`
            log.exception("eviction of %s: allowed", call.pod)
            answer = LetGo.ERROR
        if isinstance(answer, LetGo):
            return self._let_go(call.uid, answer)
        return answer if isinstance(answer, bytes) else await answer

    async def _noted(self, call: EvictionCall, case: EvictionCase, hold: EvictionHold) -> bytes:
        """Two replicas may be asked at once. The note that is there first counts, whoever wrote it.

        It may also be an old one that our cache does not show: then its time counts, not ours. A note that takes too
        long is still being written. The pod is held meanwhile, for no longer than for a release.
        """
        text, loop = EvictionAsked(self._now(), call.user).text(), asyncio.get_running_loop()
        self._noting += 1
        try:
            writing = loop.run_in_executor(self._executor, self._note, case.pod, text)
            there = await asyncio.wait_for(writing, NOTE_SECONDS)
        except TimeoutError:
            is_new = self._now() < self._late.setdefault(case.pod.uid, self._now()) + RELEASE_SECONDS
            there = text if is_new else None
            log.warning("eviction of %s: the note takes too long", call.pod)
        except ApiError as error:
            log.warning("eviction of %s: allowed, because the note was not taken: %s", call.pod, error)
            there = None
        except Exception:  # the boundary, as in `answer`
            log.exception("eviction of %s: allowed", call.pod)
            return self._let_go(call.uid, LetGo.ERROR)
        finally:
            self._noting -= 1
        if there is None:
            return self._let_go(call.uid, LetGo.UNMARKED)
        if there != text:
            known = replace(case.pod, annotations={**case.pod.annotations, names.EVICTION_ASKED: there})
            verdict = judged(replace(case, pod=known))
            if isinstance(verdict, LetGo):
                return self._let_go(call.uid, verdict)
            hold = verdict
        log.info("eviction of %s, asked for by %s: held", call.pod, legible(call.user))
        return self._hold(call.uid, hold, case)

    def _let_go(self, uid: str, why: LetGo) -> bytes:
        self._metrics.count_eviction(why.label)
        return review_text({"uid": uid, "allowed": True})

    def _hold(self, uid: str, hold: EvictionHold, case: EvictionCase) -> bytes:
        return self._refused(uid, "held", sentence(hold, case))

    def _refused(self, uid: str, counted: str, message: str) -> bytes:
        self._metrics.count_eviction(counted)
        status: dict[str, Any] = {"code": TOO_MANY_REQUESTS, "reason": "TooManyRequests", "message": message}
        return review_text({"uid": uid, "allowed": False, "status": status})


def _owned(case: EvictionCase) -> str:
    return f"{OWNED}{case.workload.uid}"
