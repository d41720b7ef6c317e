"""Generated admission calls: pods of a cluster's workloads, of strangers, with wishes of their own, and malformed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.recordings.clusters import PREFIX, Raw
from tests.recordings.workloads import ODDITIES, RawRevision, reference

COUNT = 250  # per cluster
STRANGE: tuple[Any, ...] = (None, True, 0, -1, 1.5, "", "text", "ü\u0000🙂", [], {}, [None], {"a": None}, "x" * 3000)


@dataclass(frozen=True)
class Review:
    """One call. `pod` is what it creates, where it is sound."""

    kind: str
    body: bytes
    namespace: str = ""
    pod: Raw | None = None


def reviews(revisions: Sequence[RawRevision], chance: Random, count: int = COUNT) -> list[Review]:
    kinds, weights = [each for each, _ in KINDS], [weight for _, weight in KINDS]
    made: list[Review] = []
    for index in range(count):
        make = chance.choices(kinds, weights)[0]
        revision = chance.choice(revisions)
        made.append(make(revision, chance, f"review-{index:03d}", made))
    return made


Make = Callable[[RawRevision, Random, str, list[Review]], Review]


def _review(kind: str, uid: str, pod: Raw, namespace: str, /, **call: Any) -> Review:
    body = json.dumps(raw_review(uid, pod, namespace, **call)).encode()
    return Review(kind, body, namespace, None if call.get("dryRun") else pod)


def raw_review(uid: str, pod: Any, namespace: str, **call: Any) -> Raw:
    request = {
        "uid": uid,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        **call,
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def pod_of(revision: RawRevision, chance: Random) -> Raw:
    """As its controller creates it."""
    template = copy.deepcopy(revision.template)
    metadata = {**template["metadata"], "ownerReferences": [reference(revision.kind, revision.raw)]}
    if revision.kind == "StatefulSet":
        metadata["name"] = f"{revision.name}-{chance.randint(0, 6)}"
    else:
        metadata["generateName"] = f"{revision.name}-"
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": template["spec"]}


# --- kinds -----------------------------------------------------------------------------------------------------------


def plain(revision: RawRevision, chance: Random, uid: str, _made: list[Review]) -> Review:
    return _review("plain", uid, pod_of(revision, chance), revision.namespace)


def burst(revision: RawRevision, chance: Random, uid: str, made: list[Review]) -> Review:
    """A sibling of an earlier pod, so that one ReplicaSet's slots fill up."""
    earlier = [(each.pod, each.namespace) for each in made if each.pod and each.kind in ("plain", "burst")]
    if not earlier:
        return plain(revision, chance, uid, made)
    pod, namespace = earlier[-1]
    return _review("burst", uid, copy.deepcopy(pod), namespace)


def dry_run(revision: RawRevision, chance: Random, uid: str, _made: list[Review]) -> Review:
    return _review("dry-run", uid, pod_of(revision, chance), revision.namespace, dryRun=True)


def own_wishes(revision: RawRevision, chance: Random, uid: str, _made: list[Review]) -> Review:
    """With affinity, spread, tolerations or a priority that another webhook has added."""
    pod = pod_of(revision, chance)
    for _, change in chance.sample(ODDITIES, 2):
        change(pod["metadata"], pod["spec"], revision.name)
    return _review("own-wishes", uid, pod, revision.namespace)


def again(revision: RawRevision, chance: Random, uid: str, made: list[Review]) -> Review:
    """The same call a second time."""
    return chance.choice(made) if made else plain(revision, chance, uid, made)


def decided(revision: RawRevision, chance: Random, uid: str, _made: list[Review]) -> Review:
    """It carries a decision already."""
    pod = pod_of(revision, chance)
    slot = str(chance.randint(0, 9))
    written = {PREFIX + "decision": f"{revision.uid}/earlier", PREFIX + "slot": slot, PREFIX + "reason": "earlier"}
    pod["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), **written}
    return _review("decided", uid, pod, revision.namespace)


def unknown_owner(revision: RawRevision, chance: Random, uid: str, _made: list[Review]) -> Review:
    pod = pod_of(revision, chance)
    pod["metadata"]["ownerReferences"][0]["uid"] = f"nobody-{uid}"
    return _review("unknown-owner", uid, pod, revision.namespace)


def elsewhere(revision: RawRevision, chance: Random, uid: str, _made: list[Review]) -> Review:
    """In a namespace that is not opted in, or that no cache knows."""
    namespace = chance.choice(["lab", "legacy", "kube-system", "brand-new"])
    return _review("elsewhere", uid, pod_of(revision, chance), namespace)


def stranger(revision: RawRevision, chance: Random, uid: str, _made: list[Review]) -> Review:
    pod = pod_of(revision, chance)
    metadata, spec = pod["metadata"], pod["spec"]
    match chance.randrange(7):
        case 0:
            del metadata["ownerReferences"]
        case 1:
            metadata["ownerReferences"] = [reference("Job", revision.raw, "batch/v1")]
        case 2:
            metadata["ownerReferences"] = [reference("DaemonSet", revision.raw)]
        case 3:
            metadata["annotations"] = {"kubernetes.io/config.mirror": "1"}
        case 4:
            spec["nodeName"] = "on-demand-x"
        case 5:
            spec["schedulerName"] = "other"
        case _:
            metadata["labels"][PREFIX + "placement"] = "disabled"
    return _review("stranger", uid, pod, revision.namespace)


def bent(revision: RawRevision, chance: Random, uid: str, _made: list[Review]) -> Review:
    """A sound call, with strange values at up to three places."""
    raw = raw_review(uid, pod_of(revision, chance), revision.namespace)
    for _ in range(chance.randint(1, 3)):
        path = chance.choice([each for each in _paths(raw["request"]) if each])
        target: Any = raw["request"]
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = copy.deepcopy(chance.choice(STRANGE))
    return Review("bent", json.dumps(raw).encode(), revision.namespace)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, inner in items for each in _paths(inner, (*path, key)))]


def malformed(revision: RawRevision, chance: Random, uid: str, _made: list[Review]) -> Review:
    pod, namespace = pod_of(revision, chance), revision.namespace
    sound = raw_review(uid, pod, namespace)
    bodies: tuple[Any, ...] = (
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"},
        {**sound, "apiVersion": "admission.k8s.io/v1beta1"},
        {**sound, "apiVersion": "v1"},
        raw_review("", pod, namespace),
        raw_review(uid, None, namespace),
        raw_review(uid, {"metadata": {}}, namespace),
        raw_review(uid, pod, namespace, operation="UPDATE"),
    )
    body = chance.choice(bodies)
    return Review("malformed", body if isinstance(body, bytes) else json.dumps(body).encode())


def large(revision: RawRevision, chance: Random, uid: str, _made: list[Review]) -> Review:
    pod = pod_of(revision, chance)
    size = chance.choice([200_000, 262_000, 1_399_000])
    pod["metadata"]["annotations"] = {"example.com/large": "x" * size}
    review = _review("large", uid, pod, revision.namespace)
    return Review(review.kind, review.body, review.namespace)


KINDS: tuple[tuple[Make, int], ...] = (
    (plain, 90),
    (burst, 50),
    (own_wishes, 35),
    (dry_run, 12),
    (again, 10),
    (decided, 8),
    (unknown_owner, 5),
    (elsewhere, 8),
    (stranger, 16),
    (bent, 14),
    (malformed, 10),
    (large, 2),
)
