"""The routes and the reviewer: what production answers, and what happens when something goes wrong."""

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from kube.owners import look_up
from placement import names
from placement.model import Key, Namespace, Owner, ReplicaSet, Workload
from placement.outage import Outages
from tests.builders.api import raw_new_pod, review
from tests.builders.model import OPTED_IN, REPLICA_SET, STATEFUL_SET
from tests.jumpingclock import run_at_once
from tests.kube.scripted import scripted_api
from tests.serving.client import Visitor
from tests.webhook.admissionharness import DB, WEB, WEB_ABC, AdmissionHarness, patched
from webhook.metrics import WebhookMetrics
from webhook.review import MalformedReview
from webhook.reviewer import PATIENCE_SECONDS, Reviewer
from webhook.routes import PortAnswers, ports
from webhook.server import ADMISSION, LARGEST_BODY

JSON = "application/json"


class Unforeseen(Exception):
    """Something that nobody thought of."""


def broken(*_args: Any) -> Any:
    raise Unforeseen


class NoThreads(Executor):
    """One that has none to give."""

    def submit(self, *_args: Any, **_more: Any) -> Any:
        raise RuntimeError("can't start new thread")


@dataclass(frozen=True)
class Webhook:
    """All of it but the server."""

    harness: AdmissionHarness
    metrics: WebhookMetrics
    reviewer: Reviewer
    ports: PortAnswers

    @property
    def client(self) -> Visitor:
        """What the API server is, over TLS."""
        return Visitor(self.ports.tls, ADMISSION)

    async def answer(self, body: bytes) -> bytes:
        """At once, or when the caches have caught up with this pod."""
        answer = self.reviewer.answer(body)
        return answer if isinstance(answer, bytes) else await answer

    def told(self, body: bytes) -> bytes:
        """The same, where no time is to pass."""
        return run_at_once(self.answer(body))


def webhook(is_ready: Callable[[], str | None] = lambda: None, **hooks: Any) -> Webhook:
    executor = hooks.pop("executor", None)
    harness, metrics = AdmissionHarness(**hooks), WebhookMetrics()
    reviewer = Reviewer(harness.admission, metrics, executor)
    return Webhook(harness, metrics, reviewer, ports(reviewer, metrics, is_ready))


def value(metrics: WebhookMetrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


def decisions(metrics: WebhookMetrics, placed: str, reason: str) -> float:
    return value(metrics, "spotweave_admission_decisions_total", **{"class": placed, "reason": reason})


def test_a_pod_is_placed() -> None:
    """The call goes in, the patch comes out, the decision is counted and timed."""
    hook = webhook()
    answer = hook.client.post(names.WEBHOOK_PATH, data=review(raw_new_pod()), content_type=JSON)
    assert (answer.status_code, answer.content_type) == (200, JSON)
    created = patched(raw_new_pod(), answer.data)
    assert created["metadata"]["labels"] == {names.CLASS: "on-demand"}
    assert created["metadata"]["annotations"][names.DECISION] == "rs/u1"
    assert decisions(hook.metrics, "on-demand", "slot") == 1
    assert value(hook.metrics, "spotweave_admission_seconds_count") == 1


def test_a_content_type_with_a_charset_is_json() -> None:
    """What is behind the semicolon does not matter."""
    answer = webhook().client.post("/mutate", data=review(raw_new_pod()), content_type=f"{JSON}; charset=utf-8")
    assert answer.status_code == 200


FORGED = {
    "the owner's name": raw_new_pod(Owner("ReplicaSet", "../../../../api/v1/pods?watch=true", "u")),
    "the namespace": raw_new_pod(Owner("ReplicaSet", "web-new", "u")),
}


@pytest.mark.parametrize("pod", FORGED.values(), ids=FORGED.keys())
def test_a_forged_review_reads_nothing_with_our_rights(pod: dict[str, Any]) -> None:
    """The pod is allowed unchanged, as with any unknown owner, and nothing is asked of the API server."""
    with scripted_api() as (script, api):
        hook = webhook(look_up=lambda owner, namespace: look_up(api, owner, namespace))
        namespace = "shop" if pod is FORGED["the owner's name"] else "shop/secrets/x?"
        body = asyncio.run(hook.answer(review(pod, namespace=namespace)))
        assert script.asked.empty()
    assert patched(pod, body) == pod
    assert decisions(hook.metrics, "none", "unknown-owner") == 1


REFUSED: dict[str, tuple[dict[str, Any], int]] = {
    "text": ({"data": review(raw_new_pod()), "content_type": "text/plain"}, 415),
    "a form": ({"data": b"a=b", "content_type": "application/x-www-form-urlencoded"}, 415),
    "no type": ({"data": b"x"}, 415),
    "no JSON": ({"data": b"{", "content_type": JSON}, 400),
    "no uid": ({"data": review(raw_new_pod(), uid=""), "content_type": JSON}, 400),
    "too much": ({"data": b" " * (LARGEST_BODY + 1), "content_type": JSON}, 413),
}


@pytest.mark.parametrize(("call", "status"), REFUSED.values(), ids=REFUSED.keys())
def test_a_call_that_is_wrong_is_refused(call: dict[str, Any], status: int) -> None:
    """The call, not a pod: there is none. Nothing is counted as a decision."""
    hook = webhook()
    assert hook.client.post(names.WEBHOOK_PATH, **call).status_code == status
    assert value(hook.metrics, "spotweave_admission_seconds_count") == 0


MADE_NO_SENSE = {
    "not the creation of a pod": review(raw_new_pod(), operation="DELETE"),
    "no spec": review({"metadata": {}}),
    "an old version": review(raw_new_pod()).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"),
}


@pytest.mark.parametrize("body", MADE_NO_SENSE.values(), ids=MADE_NO_SENSE.keys())
def test_a_call_that_makes_no_sense_gets_a_review_in_its_own_version(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It says whose it is: allowed, unchanged; told in the log, and counted."""
    hook = webhook()
    answer = hook.client.post(names.WEBHOOK_PATH, data=body, content_type=JSON)
    assert answer.status_code == 200
    assert answer.json is not None
    assert answer.json["apiVersion"] == json.loads(body)["apiVersion"]
    assert answer.json["response"] == {"uid": "u1", "allowed": True}
    assert decisions(hook.metrics, "none", "malformed") == 1
    assert "request u1: malformed review: expected" in caplog.text


def test_reviews_are_posted() -> None:
    """And other paths do not exist."""
    client = webhook().client
    assert (client.get(names.WEBHOOK_PATH).status_code, client.get("/").status_code) == (405, 404)


def test_probes() -> None:
    """Healthy as long as it answers; ready when nothing is missing, else it says what."""
    assert webhook().client.get("/healthz").text == "ok\n"
    ready = webhook().client.get("/readyz")
    assert (ready.status_code, ready.text) == (200, "ok\n")
    waiting = webhook(lambda: "no certificate yet").client.get("/readyz")
    assert (waiting.status_code, waiting.text) == (503, "not ready: no certificate yet\n")


def test_metrics_are_exposed() -> None:
    """Under the names that dashboards rely on, in Prometheus's text format."""
    hook = webhook()
    hook.harness.put(WEB.__class__(WEB.kind, "shop", "web", "d", 10, annotations={names.SPOT_RATIO: "70"}))
    hook.client.post(names.WEBHOOK_PATH, data=review(raw_new_pod()), content_type=JSON)
    hook.client.post(names.WEBHOOK_PATH, data=review(raw_new_pod(None)), content_type=JSON)
    answer = hook.client.get("/metrics")
    assert answer.content_type.startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert 'spotweave_admission_decisions_total{class="on-demand",reason="slot"} 1.0' in lines
    assert 'spotweave_admission_decisions_total{class="none",reason="not-a-workload"} 1.0' in lines
    assert "spotweave_admission_fail_open_total 0.0" in lines
    assert "spotweave_policy_mistakes_total 1.0" in lines
    for gauge in (names.METRIC_LEDGER, names.METRIC_CACHE_AGE, names.METRIC_CERTIFICATE_EXPIRY):
        assert f"{gauge} 0.0" in lines


# --- failing open ----------------------------------------------------------------------------------------------------

ODD_PODS: dict[str, dict[str, Any]] = {
    "labels that are a list": raw_new_pod(labels=["x"]),
    "an ordinal that is none": raw_new_pod(STATEFUL_SET, "db-x"),
    "an expression without a key": raw_new_pod(
        spec={
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"operator": "In"}]}]
                    }
                }
            }
        }
    ),
}


def allowed_unchanged(hook: Webhook, body: bytes) -> bool:
    errors = (decisions(hook.metrics, "none", "error"), value(hook.metrics, "spotweave_admission_fail_open_total"))
    return json.loads(body)["response"] == {"uid": "u1", "allowed": True} and errors == (1, 1)


@pytest.mark.parametrize("pod", ODD_PODS.values(), ids=ODD_PODS.keys())
def test_an_odd_pod_is_allowed_unchanged(pod: dict[str, Any]) -> None:
    """Whatever we trip over, the pod is created and the failure is counted."""
    hook = webhook()
    answer = hook.client.post(names.WEBHOOK_PATH, data=review(pod), content_type=JSON)
    assert answer.status_code == 200
    assert allowed_unchanged(hook, answer.data)


@pytest.mark.parametrize("hook_name", ["is_synced", "outages"])
def test_an_error_of_ours_costs_nobody_a_pod(hook_name: str) -> None:
    """Wherever it happens."""
    hook = webhook(**{hook_name: broken})
    assert allowed_unchanged(hook, asyncio.run(hook.answer(review(raw_new_pod()))))


# --- patience --------------------------------------------------------------------------------------------------------


def test_a_patient_answer_is_immediate_where_all_is_known() -> None:
    """Nothing is looked up."""
    hook = webhook()
    created = patched(raw_new_pod(), asyncio.run(hook.answer(review(raw_new_pod()))))
    assert created["metadata"]["annotations"][names.SLOT] == "0"
    assert hook.harness.looked_up == []


def test_a_patient_answer_waits_for_the_caches() -> None:
    """The owners are seen while it waits, as an informer's thread would put them there."""
    hook = webhook()
    hook.harness.stores.replica_sets.remove(WEB_ABC.key)
    hook.harness.stores.namespaces.remove(Key("", "shop"))

    async def scenario() -> bytes:
        answer = asyncio.ensure_future(hook.answer(review(raw_new_pod())))
        await asyncio.sleep(0)  # it has begun
        assert not answer.done()
        hook.harness.put(AdmissionHarness().stores.namespaces.values()[0], WEB_ABC)
        return await answer

    created = patched(raw_new_pod(), asyncio.run(scenario()))
    assert created["metadata"]["annotations"][names.SLOT] == "0"
    assert hook.harness.looked_up == []
    assert value(hook.metrics, "spotweave_admission_seconds_count") == 1


def test_waiting_for_one_pod_does_not_keep_others() -> None:
    """All calls share one thread."""
    hook = webhook()
    hook.harness.stores.replica_sets.remove(WEB_ABC.key)

    async def scenario() -> tuple[bytes, bytes]:
        waiting = asyncio.ensure_future(hook.answer(review(raw_new_pod())))
        await asyncio.sleep(0)
        other = await hook.answer(review(raw_new_pod(STATEFUL_SET, "db-1")))
        assert not waiting.done()
        hook.harness.put(WEB_ABC)
        return await waiting, other

    waited, other = asyncio.run(scenario())
    assert patched(raw_new_pod(), waited)["metadata"]["labels"] == {names.CLASS: "on-demand"}
    assert patched(raw_new_pod(), other)["metadata"]["labels"] == {names.CLASS: "spot"}


def test_a_patient_answer_asks_the_api_in_the_end() -> None:
    """The watch is late, but the API server knows the owner."""
    hook = webhook()
    hook.harness.stores.replica_sets.remove(WEB_ABC.key)
    hook.harness.known_to_the_api = {"rs": WEB_ABC}
    created = patched(raw_new_pod(), asyncio.run(hook.answer(review(raw_new_pod()))))
    assert created["metadata"]["annotations"][names.SLOT] == "0"
    assert hook.harness.looked_up == [REPLICA_SET]


def test_an_owner_that_nobody_knows_is_left_alone() -> None:
    """Allowed unchanged, and no failure of ours."""
    hook = webhook()
    hook.harness.stores.stateful_sets.remove(DB.key)
    pod = raw_new_pod(STATEFUL_SET, "db-1")
    assert patched(pod, asyncio.run(hook.answer(review(pod)))) == pod
    assert decisions(hook.metrics, "none", "unknown-owner") == 1
    assert value(hook.metrics, "spotweave_admission_fail_open_total") == 0


def test_pods_of_one_owner_share_a_look_up() -> None:
    """A burst must not queue behind as many look-ups as it has pods."""
    asked: list[Owner] = []
    everybody_waits = threading.Event()

    def look_up(owner: Owner, _namespace: str) -> ReplicaSet:
        asked.append(owner)
        everybody_waits.wait()
        return WEB_ABC

    hook = webhook(look_up=look_up)
    hook.harness.stores.replica_sets.remove(WEB_ABC.key)

    async def burst() -> list[bytes]:
        bodies = [review(raw_new_pod(), uid=f"u{number}") for number in range(10)]
        calls = [asyncio.ensure_future(hook.answer(body)) for body in bodies]
        await asyncio.sleep(3 * PATIENCE_SECONDS)
        everybody_waits.set()
        return await asyncio.gather(*calls)

    slots = {patched(raw_new_pod(), answer)["metadata"]["annotations"][names.SLOT] for answer in asyncio.run(burst())}
    assert slots == {str(slot) for slot in range(10)}
    assert asked == [REPLICA_SET]


def test_a_look_up_that_takes_too_long_is_not_waited_for() -> None:
    """The API server would give up: the pod is allowed unchanged before that."""
    told = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        hook = webhook(executor=executor, look_up=lambda *_: told.wait() and None)
        hook.harness.stores.replica_sets.remove(WEB_ABC.key)
        answer = run_at_once(hook.answer(review(raw_new_pod())))
        told.set()
    assert patched(raw_new_pod(), answer) == raw_new_pod()
    assert decisions(hook.metrics, "none", "unknown-owner") == 1


def test_a_wait_that_breaks_costs_nobody_a_pod() -> None:
    """No thread to be had for a look-up, say: outside of what decides, inside of the boundary."""
    hook = webhook(executor=NoThreads())
    hook.harness.stores.replica_sets.remove(WEB_ABC.key)
    assert allowed_unchanged(hook, asyncio.run(hook.answer(review(raw_new_pod()))))


def test_a_label_that_was_not_seen_yet_is_waited_for() -> None:
    """A namespace is labelled and rolled out at once: the API server asks us because of that label."""
    hook = webhook()
    hook.harness.put(Namespace("shop", {}))

    async def scenario() -> bytes:
        waiting = asyncio.ensure_future(hook.answer(review(raw_new_pod())))
        await asyncio.sleep(0)
        hook.harness.put(Namespace("shop", OPTED_IN))
        return await waiting

    assert names.CLASS in patched(raw_new_pod(), asyncio.run(scenario()))["metadata"]["labels"]


def test_a_look_up_that_breaks_costs_nobody_a_pod() -> None:
    """It runs in another thread, and its failure comes home to the same boundary."""
    hook = webhook(look_up=broken)
    hook.harness.stores.replica_sets.remove(WEB_ABC.key)
    assert allowed_unchanged(hook, asyncio.run(hook.answer(review(raw_new_pod()))))


def test_a_malformed_call_is_told_to_the_server() -> None:
    """Which answers 400; no patience is spent on it."""
    with pytest.raises(MalformedReview):
        asyncio.run(webhook().answer(b"{"))


def test_outages_are_asked_for_each_pod() -> None:
    """They are a moment's fact."""
    asked: list[int] = []

    def outages() -> Outages:
        asked.append(1)
        return Outages()

    hook = webhook(outages=outages)
    for _ in range(2):
        asyncio.run(hook.answer(review(raw_new_pod())))
    assert len(asked) == 2


def test_a_look_up_is_asked_with_owner_and_namespace() -> None:
    """As the composition root hands it on to the client."""
    asked: list[tuple[Owner, str]] = []

    def look_up(owner: Owner, namespace: str) -> ReplicaSet | Workload | None:
        asked.append((owner, namespace))
        return None

    hook = webhook(look_up=look_up)
    hook.harness.stores.replica_sets.remove(WEB_ABC.key)
    asyncio.run(hook.answer(review(raw_new_pod())))
    assert asked == [(REPLICA_SET, "shop")]
