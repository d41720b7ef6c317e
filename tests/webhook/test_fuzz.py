"""Whatever a review looks like: a correct answer, a patch that applies, and fields that we do not know survive.

A real review is bent at random places: keys dropped, nulls, wrong types, odd text, unknown fields. A seeded sample runs
with every change, 100,000 in `make soak`.
"""

from __future__ import annotations

import copy
import json
import os
import random
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import jsonpatch
import msgspec
import pytest

from benchmarks.admission.compare import review as real_review
from tests.webhook.test_app import webhook
from webhook.review import MalformedReview, Request, answer, parse

COUNT = 100_000 if os.environ.get("SPOTWEAVE_SOAK") else 4_000
STRANGE: list[Any] = [
    None, True, 0, -1, 1.5, 10**30, "", "text", "ü\u0000\ud7ff🙂", "x" * 5000, [], {}, [None], {"a": None}, [[]],
    [{"key": "node.kubernetes.io/capacity", "operator": "In", "values": ["spot"]}],
    {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}},
    {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": None}}},
    {"spotweave.dev/decision": "rs/x", "spotweave.dev/slot": "3"},
]  # fmt: skip
EXTRA = (
    "affinity",
    "nodeSelector",
    "annotations",
    "labels",
    "tolerations",
    "topologySpreadConstraints",
    "unknownField",
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def bent(chance: random.Random) -> dict[str, Any]:
    """The real review, bent at one to four places, mostly inside the pod."""
    raw = copy.deepcopy(REAL)
    for _ in range(chance.randint(1, 4)):
        path = chance.choice([path for path in places(raw) if path] or [("kind",)])
        target: Any = raw
        for key in path[:-1]:
            target = target[key]
        match chance.randrange(4):
            case 0 if isinstance(target, dict):
                del target[path[-1]]
            case 1 if isinstance(target, dict):
                target[chance.choice(EXTRA)] = copy.deepcopy(chance.choice(STRANGE))
            case _:
                target[path[-1]] = copy.deepcopy(chance.choice(STRANGE))
    return raw


def owned(raw: dict[str, Any]) -> dict[str, Any]:
    """A review whose pod belongs to the ReplicaSet that the test's webhook knows."""
    reference = raw["request"]["object"]["metadata"]["ownerReferences"][0]
    reference.update(uid="rs", name="web-abc")
    return raw


REAL = owned(real_review())


def test_no_review_gets_a_wrong_answer() -> None:
    """Allowed, with the request's own uid; the patch applies, changes nothing else, and a second one is empty."""
    chance, hook = random.Random(20261116), webhook()
    patched_pods = malformed = 0
    for _ in range(COUNT):
        raw = bent(chance)
        try:
            told = json.loads(hook.door.answer(json.dumps(raw).encode()))["response"]
        except MalformedReview:
            malformed += 1
            continue
        assert told["allowed"] is True
        assert told["uid"] == raw["request"]["uid"]
        if "patch" in told:
            patched_pods += 1
            check_patch(hook, raw, json.loads(b64decode(told["patch"])))
        check_skipped(hook, raw)
    assert patched_pods > COUNT // 4
    assert malformed < COUNT // 2


def check_patch(hook: Any, raw: dict[str, Any], operations: list[dict[str, Any]]) -> None:
    pod = raw["request"]["object"]
    created = jsonpatch.apply_patch(pod, operations)
    touched = {("metadata", "labels"), ("metadata", "annotations"), ("spec", "affinity"), ("spec", "tolerations")}
    touched |= {("spec", "topologySpreadConstraints")}
    for outer in created:
        if outer not in ("metadata", "spec"):
            assert created[outer] == pod[outer]
            continue
        for inner in set(created[outer]) | set(pod[outer]):
            assert (outer, inner) in touched or created[outer].get(inner) == pod[outer].get(inner)
    again = json.dumps({**raw, "request": {**raw["request"], "object": created}}).encode()
    assert "patch" not in json.loads(hook.door.answer(again))["response"]


def check_skipped(hook: Any, raw: dict[str, Any]) -> None:
    """What is not read of the pod makes no difference."""
    read = parse(json.dumps(raw).encode())
    whole = msgspec.structs.replace(read, raw_pod=raw["request"]["object"])
    assert outcome(hook, read) == outcome(hook, whole)


def outcome(hook: Any, request: Request) -> bytes | type[Exception]:
    try:
        return answer(request, hook.world.admission.place(request))
    except Exception as error:  # noqa: BLE001 - the door answers for it
        return type(error)


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
    told = json.loads(webhook().door.answer(json.dumps(raw).encode()))["response"]
    assert told == {"uid": raw["request"]["uid"], "allowed": True}


def test_a_large_pod_is_placed() -> None:
    """Half a mebibyte is nothing to be afraid of."""
    raw = copy.deepcopy(REAL)
    raw["request"]["object"]["spec"]["containers"][0]["args"] = ["x" * 512 * 1024]
    told = json.loads(webhook().door.answer(json.dumps(raw).encode()))["response"]
    check_patch(webhook(), raw, json.loads(b64decode(told["patch"])))
