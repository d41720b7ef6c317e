"""Whatever a review looks like: a correct answer, a patch that applies, and fields that we do not know survive.

Real pods (`corpus/`), real reviews bent at random places, and pods that hypothesis makes up. A seeded sample runs with
every change, more than 100,000 in `make soak`.
"""

from __future__ import annotations

import copy
import http.client
import json
import os
import random
from base64 import b64decode
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given

from benchmarks.admission.compare import review as real_review
from placement import names
from tests.builders.api import raw_review
from tests.examples import examples
from tests.webhook.generate import CORPUS, REVIEWS, UIDS, adopted, anything, bent, reviews
from tests.webhook.test_reviewer import Webhook, webhook
from tests.webhook.test_server import Caller, asked, served
from webhook.review import AdmissionCall, MalformedReview, answer, parse
from webhook.server import TlsIdentity

IS_SOAK = bool(os.environ.get("SPOTWEAVE_SOAK"))
COUNT = 100_000 if IS_SOAK else 2_500
SENT = 10_000 if IS_SOAK else 500
Raw = dict[str, Any]


def owned(raw: Raw) -> Raw:
    """A review whose pod belongs to the ReplicaSet that the test's webhook knows."""
    reference = raw["request"]["object"]["metadata"]["ownerReferences"][0]
    reference.update(uid="rs", name="web-abc")
    return raw


REAL = owned(real_review())
ALL_REAL = [REAL, *REVIEWS]


# --- what holds for every review -------------------------------------------------------------------------------------


def check(hook: Webhook, raw: Any) -> list[Raw] | None:
    """The laws, for one review. Gives the patch; None where the call itself is wrong."""
    try:
        told = json.loads(hook.told(json.dumps(raw).encode()))["response"]
    except MalformedReview:
        return None
    assert told["allowed"] is True
    assert told["uid"] == raw["request"]["uid"]
    if is_malformed(raw):
        assert told == {"uid": told["uid"], "allowed": True}
        return None
    operations: list[Raw] = json.loads(b64decode(told["patch"])) if "patch" in told else []
    if operations:
        check_patch(hook, raw, operations)
    check_skipped(hook, raw)
    return operations


def is_malformed(raw: Raw) -> bool:
    """It says whose it is, but makes no sense."""
    try:
        parse(json.dumps(raw).encode())
    except MalformedReview:
        return True
    return False


def check_patch(hook: Webhook, raw: Raw, operations: list[Raw]) -> None:
    """It applies, leaves everything else as it was, and a second one is empty."""
    pod = raw["request"]["object"]
    check_paths(pod, operations)
    created = jsonpatch.apply_patch(pod, operations)
    touched = {("metadata", "labels"), ("metadata", "annotations"), ("spec", "affinity"), ("spec", "tolerations")}
    touched |= {("spec", "topologySpreadConstraints")}
    for outer in created:
        if outer not in ("metadata", "spec"):
            assert created[outer] == pod[outer]
            continue
        for inner in set(created[outer]) | set(pod[outer]):
            assert (outer, inner) in touched or created[outer].get(inner) == pod[outer].get(inner)
    assert survives(pod, created), f"{pod} became {created}"
    again = json.dumps({**raw, "request": {**raw["request"], "object": created}}).encode()
    assert "patch" not in json.loads(hook.told(again))["response"]


def check_paths(pod: Raw, operations: list[Raw]) -> None:
    """What a strict reader asks for: every parent is there, and what is replaced or removed is, too."""
    for operation in operations:
        *outer, last = operation["path"].lstrip("/").split("/")
        target: Any = pod
        for key in outer:
            target = target[key]
        assert isinstance(target, dict)
        assert operation["op"] == "add" or last in target


def survives(before: Any, after: Any) -> bool:
    """Whether all that the user wrote is still there; what is empty may have been filled, what is ours replaced."""
    if isinstance(before, Mapping) and before:
        kept = (key for key in before if key not in OURS)
        return isinstance(after, Mapping) and all(key in after and survives(before[key], after[key]) for key in kept)
    if isinstance(before, list) and before:
        return isinstance(after, list) and all(any(survives(one, other) for other in after) for one in before)
    return not before or before == after


# What a copied template brings along of ours, and is rightly replaced.
OURS = {names.DECISION, names.REASON, names.SLOT, names.SOFT, names.RELEASED, names.LEFT_ALONE, names.CLASS}
OURS |= {names.DELETION_COST, names.MOVED, names.UNDONE}


def check_skipped(hook: Webhook, raw: Raw) -> None:
    """What is not read of the pod makes no difference."""
    read = parse(json.dumps(raw).encode())
    whole = msgspec.structs.replace(read, raw_pod=raw["request"]["object"])
    assert outcome(hook, read) == outcome(hook, whole)


def outcome(hook: Webhook, request: AdmissionCall) -> bytes | type[Exception]:
    try:
        return answer(request, hook.harness.admission.place(request))
    except Exception as error:  # noqa: BLE001 - the reviewer answers for it
        return type(error)


# --- through the reviewer --------------------------------------------------------------------------------------------

PLACED = {name for name in CORPUS if name.startswith(("deployment", "stateful"))}
PLACED -= {"deployment-opted-out", "deployment-bound", "deployment-other-scheduler"}


@pytest.mark.parametrize("name", CORPUS)
def test_real_pods_get_what_they_should(name: str) -> None:
    """A patch for pods of a Deployment or StatefulSet, none for those that are none of ours."""
    operations = check(webhook(), raw_review(adopted(CORPUS[name])))
    assert bool(operations) is (name in PLACED)


def test_no_bent_review_gets_a_wrong_answer() -> None:
    """Allowed, with the request's own uid; the patch applies, changes nothing else, and a second one is empty."""
    chance, hook = random.Random(20261116), webhook()
    patches = [check(hook, bent(chance.choice(ALL_REAL), chance)) for _ in range(COUNT)]
    assert sum(bool(each) for each in patches) > COUNT // 4
    assert patches.count(None) < COUNT // 2


def test_no_generated_review_gets_a_wrong_answer() -> None:
    """The same, for pods that hypothesis makes up. A quarter of them get a patch, else it would say little."""
    hook = webhook()
    patches: list[list[Raw] | None] = []

    @examples(600)
    @given(reviews)
    def law(raw: Raw) -> None:
        patches.append(check(hook, raw))

    law()
    assert sum(bool(each) for each in patches) > len(patches) // 4


@examples(200)
@given(anything)
def test_what_is_no_review_is_malformed(raw: Any) -> None:
    """And nothing else happens."""
    with pytest.raises(MalformedReview):
        parse(json.dumps(raw).encode())


# --- through the server ----------------------------------------------------------------------------------------------


def check_answer(connection: http.client.HTTPConnection, raw: Any, body: bytes) -> int:
    """Never a 5xx, and what is answered is an AdmissionReview that allows the pod."""
    status, told = asked(connection, "POST", names.WEBHOOK_PATH, body, "application/json")
    assert status in (200, 400, 413), told
    if status == 200:
        response = json.loads(told)["response"]
        assert (response["uid"], response["allowed"]) == (raw["request"]["uid"], True)
        assert "patch" not in response or jsonpatch.apply_patch(
            raw["request"]["object"], json.loads(b64decode(response["patch"]))
        )
    return status


def is_quick(raw: Any) -> bool:
    """Whether its owner is known, or there is none: for any other one it is waited."""
    known = {uid for _, uid in UIDS.values()}
    try:
        return raw["request"]["object"]["metadata"]["ownerReferences"][0]["uid"] in known
    except (KeyError, IndexError, TypeError):
        return True


def test_no_review_gets_a_5xx_over_tls() -> None:
    """Bent and generated ones, one after the other on a connection that is never cut."""
    statuses: list[int] = []

    def scenario(caller: Caller, _identity: TlsIdentity) -> None:
        with closing(caller.secure()) as connection:
            connection.connect()
            chance, first = random.Random(20261117), connection.sock
            for _ in range(SENT):
                raw = bent(chance.choice(ALL_REAL), chance)
                if is_quick(raw):
                    statuses.append(check_answer(connection, raw, json.dumps(raw).encode()))

            @examples(200)
            @given(reviews.filter(is_quick))
            def send(raw: Raw) -> None:
                statuses.append(check_answer(connection, raw, json.dumps(raw).encode()))

            send()
            assert connection.sock is first  # it was never cut

    served(scenario)
    assert len(statuses) > SENT // 2
    assert statuses.count(200) > len(statuses) // 2


def padded(size: int) -> Raw:
    """A review of exactly this many bytes; the pod's arguments make it so."""
    raw = copy.deepcopy(REAL)
    arguments: list[str] = [""]
    raw["request"]["object"]["spec"]["containers"][0]["args"] = arguments
    arguments[0] = "x" * (size - len(json.dumps(raw).encode()))
    return raw


SIZES = {
    "3 MiB": (padded(3 * 1024**2), 200),
    "a 3 MiB pod and the review around it": (padded(3 * 1024**2 + 4000), 200),
    "as much as is read": (padded(7 * 1024**2), 200),
    "a byte more": (padded(7 * 1024**2 + 1), 413),
}
BODIES = {
    "nothing": b"",
    "no text": bytes(range(256)),
    "half a review": json.dumps(REAL).encode()[:1500],
    "UTF-16": json.dumps(REAL).encode("utf-16"),
    "text that is not UTF-8": json.dumps(REAL).encode().replace(b"ReplicaSet", b"\xff\xfe"),
    "a lone surrogate as uid": json.dumps({**REAL, "request": {**REAL["request"], "uid": "\ud800"}}).encode(),
    "nested without end": b"[" * 200_000,
    "an object nested in a pod without end": json.dumps(REAL)
    .encode()
    .replace(b'"status": {}', b'"status": ' + b"[" * 5_000 + b"]" * 5_000),
    "numbers that no number holds": json.dumps(REAL).encode().replace(b'"priority": 0', b'"priority": 1e999999'),
    "the same key twice": json.dumps(REAL).encode().replace(b'"dryRun": true', b'"dryRun": 1, "dryRun": true'),
}


def test_large_and_broken_bodies_get_no_5xx_over_tls() -> None:
    """3 MiB is read, more than any pod can have is not, and what is no JSON is told so."""

    def scenario(caller: Caller, _identity: TlsIdentity) -> None:
        for name, (raw, expected) in SIZES.items():
            with closing(caller.secure()) as connection:
                assert check_answer(connection, raw, json.dumps(raw).encode()) == expected, name
        for name, body in BODIES.items():
            with closing(caller.secure()) as connection:
                status, _ = asked(connection, "POST", names.WEBHOOK_PATH, body, "application/json")
                assert status < 500, name

    served(scenario)


# --- large pods ------------------------------------------------------------------------------------------------------

LARGE = {
    "annotations that leave no room for ours": {"metadata": {"annotations": {"example.com/blob": "x" * 262_100}}},
    "more than the API server would store": {"metadata": {"annotations": {"example.com/blob": "x" * 3 * 1024**2}}},
    "28,000 node terms, to each of which ours would be added": {
        "spec": {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * 28_000
                    }
                }
            }
        }
    },
}


@pytest.mark.parametrize("part", LARGE.values(), ids=LARGE.keys())
def test_a_pod_that_would_become_too_large_is_left_as_it_is(part: dict[str, Any]) -> None:
    """The API server stores it as the user wrote it, and might not store it with ours."""
    raw = copy.deepcopy(REAL)
    for outer, values in part.items():
        raw["request"]["object"][outer].update(values)
    told = json.loads(webhook().told(json.dumps(raw).encode()))["response"]
    assert told == {"uid": raw["request"]["uid"], "allowed": True}


def test_a_large_pod_is_placed() -> None:
    """Half a mebibyte is nothing to be afraid of."""
    raw = copy.deepcopy(REAL)
    raw["request"]["object"]["spec"]["containers"][0]["args"] = ["x" * 512 * 1024]
    told = json.loads(webhook().told(json.dumps(raw).encode()))["response"]
    check_patch(webhook(), raw, json.loads(b64decode(told["patch"])))
