"""Reviews that no API server has sent: what they cost, and what they cannot do."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest

from placement import names
from placement.model import Owner
from tests.builders.api import raw_new_pod, review
from tests.builders.model import REPLICA_SET
from tests.jumpingclock import run_at_once
from tests.webhook.admissionharness import AdmissionHarness, patched
from tests.webhook.test_reviewer import JSON, Webhook, webhook
from webhook import ledger as ledgers
from webhook.decisioncache import MOST_BATCHES
from webhook.ledger import UNSEEN_SECONDS, Ledger
from webhook.review import LARGEST_POD, MOST_VALUES, MalformedReview
from webhook.reviewer import MOST_LOOK_UPS

MIB = 1024**2


@pytest.fixture
def hook() -> Webhook:
    return webhook()


def asked(hook: Webhook, body: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(asyncio.run(hook.answer(body)))["response"]
    return answer


class Clock:
    """A ledger's clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def slots_of_a_burst(harness: AdmissionHarness, count: int) -> list[int]:
    pods = [harness.create(raw_new_pod(), f"web-{number}") for number in range(count)]
    return [int(each["metadata"]["annotations"][names.SLOT]) for each in pods]


def timed(harness: AdmissionHarness) -> Clock:
    clock = Clock()
    harness.admission.ledger = Ledger(clock)
    harness.stores.pods.subscribe(harness.admission.ledger.observe)
    return clock


def test_a_forged_review_costs_a_slot_until_it_expires() -> None:
    """Six are taken; five seconds later the ten real pods have the slots 0 to 9, as if nothing had been."""
    harness = AdmissionHarness()
    clock = timed(harness)
    for _ in range(6):
        harness.place(raw_new_pod())
    assert len(harness.admission.ledger) == 6
    clock.now = UNSEEN_SECONDS + 0.1
    assert slots_of_a_burst(harness, 10) == list(range(10))


def test_more_forged_reviews_than_replicas_take_no_more_slots_than_there_are() -> None:
    """A real pod in between is placed, too: the slot that is unseen for longest is given again."""
    harness = AdmissionHarness()
    timed(harness)
    for _ in range(500):
        harness.place(raw_new_pod())
    assert len(harness.admission.ledger) == 10
    created = harness.create(raw_new_pod())
    assert int(created["metadata"]["annotations"][names.SLOT]) < 10


def test_the_ledger_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither with owners nor with decisions, within one expiry; the oldest are forgotten."""
    monkeypatch.setattr(ledgers, "MOST_UNSEEN", 100)
    ledger = Ledger(lambda: 0.0)
    for number in range(1000):
        ledger.take_over(f"owner-{number}", {f"decision-{number}": 0})
    assert len(ledger) == 100
    assert len(ledger._pages) == 100


def test_owners_that_do_not_exist_leave_nothing_behind() -> None:
    """However many are made up: no slot, no cached revision; and each is asked for no more than once at a time."""
    harness = AdmissionHarness()
    for number in range(5000):
        harness.place(raw_new_pod(Owner("ReplicaSet", f"made-up-{number}", f"uid-{number}")))
    assert len(harness.admission.ledger) == 0
    assert len(harness.admission._revisions) == 0


def forged_spec(number: int) -> dict[str, Any]:
    """Another one each time, as much as is kept of it, and as many values as fit."""
    return {"nodeSelector": {"n": str(number)}, "tolerations": [[]] * 5000}


def test_specs_of_all_kinds_take_a_bounded_memory() -> None:
    """Forged for a ReplicaSet that exists, each with another spec."""
    harness = AdmissionHarness()

    def forge(numbers: range) -> None:
        for number in numbers:
            harness.admission.place(
                harness.request(json.loads(json.dumps(raw_new_pod(spec=forged_spec(number)))), dry_run=True)
            )

    forge(range(MOST_BATCHES))
    gc.collect()
    tracemalloc.start()
    forge(range(MOST_BATCHES, 3 * MOST_BATCHES))
    gc.collect()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < MOST_BATCHES * 400 * 1024


def test_no_decision_of_a_real_pod_is_changed_by_forged_ones() -> None:
    """The same owner with another namespace, name, spec or annotations: the real pod gets the very same patch."""
    before, after = AdmissionHarness(), AdmissionHarness()
    forged = [
        raw_new_pod(spec={"nodeSelector": {"x": "y"}}),
        raw_new_pod(Owner("ReplicaSet", "another", REPLICA_SET.uid)),
        raw_new_pod(Owner("StatefulSet", "db", REPLICA_SET.uid), "db-0"),
        raw_new_pod(annotations={names.DECISION: "rs/x", names.SLOT: "3"}),
        raw_new_pod(spec={"affinity": {"nodeAffinity": "nonsense"}}),
    ]
    for pod in forged:
        for namespace in ("shop", "another"):
            with suppress(Exception):  # the reviewer answers "unchanged" then
                after.place(pod, namespace=namespace, dry_run=True)
    request = before.request(raw_new_pod())
    assert before.admission.place(request) == after.admission.place(request)


def test_dry_runs_take_nothing(hook: Webhook) -> None:
    """Nor do reviews of pods that are not placed."""
    for number in range(50):
        asked(hook, review(raw_new_pod(), uid=f"u{number}", dryRun=True))
        asked(hook, review(raw_new_pod(None), uid=f"v{number}"))
    assert len(hook.harness.admission.ledger) == 0


# --- what is not worth reading ---------------------------------------------------------------------------------------


def test_a_review_that_is_too_large_is_answered_unread(hook: Webhook) -> None:
    """Its pod would be left unchanged anyway. It takes no slot, and no memory for what is in it."""
    pod = raw_new_pod(annotations={"x": "y" * LARGEST_POD})
    assert asked(hook, review(pod)) == {"uid": "u1", "allowed": True}
    assert len(hook.harness.admission.ledger) == 0


def test_of_a_review_that_is_too_large_the_beginning_is_enough(hook: Webhook) -> None:
    """The server keeps no more of it. One that does not begin with its uid is malformed."""
    body = review(raw_new_pod(annotations={"x": "y" * LARGEST_POD}))
    answer = hook.client.post(names.WEBHOOK_PATH, data=body, content_type=JSON)
    assert json.loads(answer.data)["response"] == {"uid": "u1", "allowed": True}
    assert hook.client.post(names.WEBHOOK_PATH, data=b"x" * len(body), content_type=JSON).status_code == 400


def test_many_values_are_not_read(hook: Webhook) -> None:
    """`[],[],[]` takes twenty times as much memory as it is long: 1.3 MB of it would take 30."""
    evil = review(raw_new_pod(spec={"affinity": "EVIL"})).replace(
        b'"EVIL"', b"[" + b"[]," * (2 * MOST_VALUES // 3) + b"[]]"
    )
    assert len(evil) < LARGEST_POD
    tracemalloc.start()
    assert asked(hook, evil) == {"uid": "u1", "allowed": True}
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2 * MIB


def test_a_real_pod_of_a_megabyte_is_placed(hook: Webhook) -> None:
    """A container with 15,000 variables."""
    variables = [
        {"name": f"SETTING_{number}", "value": "a value of some length that is usual"} for number in range(15000)
    ]
    pod = raw_new_pod(spec={"containers": [{"name": "c", "image": "i", "env": variables}]})
    body = review(pod)
    assert MIB < len(body) < LARGEST_POD
    created = patched(pod, asyncio.run(hook.answer(body)))
    assert created["metadata"]["labels"] == {names.CLASS: "on-demand"}


UIDS = {"endless": "x" * 1000, "two lines": "a\nERROR all is lost", "another script": "уид", "empty": "", "a number": 5}


@pytest.mark.parametrize("uid", UIDS.values(), ids=UIDS.keys())
def test_what_is_no_uid_is_not_taken_for_one(hook: Webhook, uid: Any) -> None:
    """It would be written to the log and to the pod."""
    with pytest.raises(MalformedReview, match="no request with a uid"):
        asked(hook, review(raw_new_pod(), uid=uid))


def test_a_version_is_quoted_only_in_part(hook: Webhook) -> None:
    """A megabyte of it would be a log line of that size."""
    body = json.dumps({"apiVersion": "admission.k8s.io/" + "x" * MIB, "request": {"uid": "u"}}).encode()
    answer = asyncio.run(hook.answer(body))
    assert len(answer) < 1000


def test_look_ups_are_few_however_many_owners_are_made_up() -> None:
    """Whoever forges reviews must not make us flood the API server; all are answered, unchanged."""

    async def scenario() -> tuple[list[bytes], int]:
        hook = webhook()
        bodies = [
            review(raw_new_pod(Owner("ReplicaSet", f"made-up-{n}", f"uid-{n}")), uid=f"u{n}")
            for n in range(3 * MOST_LOOK_UPS)
        ]
        answers = await asyncio.gather(*map(hook.answer, bodies))
        return answers, len(hook.harness.looked_up)

    answers, looked_up = run_at_once(scenario())
    assert all(json.loads(each)["response"] == {"uid": f"u{n}", "allowed": True} for n, each in enumerate(answers))
    assert looked_up <= MOST_LOOK_UPS


def test_reviews_that_wait_take_a_bounded_memory() -> None:
    """Beyond that a pod is decided on at once, with what is known."""

    async def scenario() -> int:
        hook = webhook()
        variables = [{"name": f"V{n}", "value": ""} for n in range(20000)]
        spec = {"containers": [{"name": "c", "image": "i", "env": variables}]}
        most = 0
        tasks = []
        for number in range(100):
            owner = Owner("ReplicaSet", f"made-up-{number}", f"uid-{number}")
            tasks.append(asyncio.ensure_future(hook.answer(review(raw_new_pod(owner, spec=spec), uid=f"u{number}"))))
            await asyncio.sleep(0)
            most = max(most, hook.reviewer._waiting_bytes)
        await asyncio.gather(*tasks)
        assert hook.reviewer._waiting_bytes == 0
        return most

    assert MIB < run_at_once(scenario()) <= 64 * MIB
