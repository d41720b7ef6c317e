"""Pods and reviews, generated: fields missing, null, of wrong types, odd text, and fields that nobody knows.

Most of a generated pod is sound, since one that is all wrong is left alone at the first look.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from placement import names
from tests.builders.api import raw_review

Raw = dict[str, Any]
CORPUS = {path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "corpus").glob("*.json"))}
UIDS = {"ReplicaSet": ("web-abc", "rs"), "StatefulSet": ("db", "ss")}  # what the test's webhook knows
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def adopted(pod: Raw) -> Raw:
    """The pod, with an owner of its kind that the test's webhook knows."""
    made = copy.deepcopy(pod)
    for reference in made["metadata"].get("ownerReferences", []):
        name, uid = UIDS.get(reference["kind"], (reference["name"], reference["uid"]))
        reference.update(name=name, uid=uid)
    return made


REVIEWS = [raw_review(adopted(pod)) for pod in CORPUS.values()]

# --- bent ------------------------------------------------------------------------------------------------------------

STRANGE: list[Any] = [
    None, True, 0, -1, 1.5, 10**30, "", "text", "ü\u0000\ud7ff🙂", "\ud800", "x" * 5000,
    [], {}, [None], {"a": None}, [[]],
    [{"key": "node.kubernetes.io/capacity", "operator": "In", "values": ["spot"]}],
    {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{}]}}},
    {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": None}}},
    {"spotweave.dev/decision": "rs/x", "spotweave.dev/slot": "3"},
]  # fmt: skip
EXTRA = (
    "affinity",
    "nodeSelector",
    "annotations",
    "labels",
    "tolerations",
    "topologySpreadConstraints",
    "initContainers",
    "overhead",
    "resources",
    "unknownField",
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def bent(real: Raw, chance: random.Random) -> Raw:
    """A real review, bent at one to four places, mostly inside the pod."""
    raw = copy.deepcopy(real)
    for _ in range(chance.randint(1, 4)):
        path = chance.choice([path for path in places(raw) if path] or [("kind",)])
        target: Any = raw
        for key in path[:-1]:
            target = target[key]
        match chance.randrange(4):
            case 0 if isinstance(target, dict):
                target.pop(path[-1], None)  # where all is gone, there is nothing to drop
            case 1 if isinstance(target, dict):
                target[chance.choice(EXTRA)] = copy.deepcopy(chance.choice(STRANGE))
            case _:
                target[path[-1]] = copy.deepcopy(chance.choice(STRANGE))
    return raw


# --- generated -------------------------------------------------------------------------------------------------------

texts = st.text(max_size=20) | st.sampled_from(["", "spot", "on-demand", "zone-a", "true", "\u0000", "🙂" * 50])
anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)


def odd(sound: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly sound, now and then null or of a wrong type."""
    return st.integers(0, 29).flatmap(lambda number: anything if number == 0 else st.none() if number == 1 else sound)


def record(required: dict[str, Any] | None = None, **optional: Any) -> st.SearchStrategy[Raw]:
    """An object with these fields, each of which may be odd or (where not required) missing, and with unknown ones."""
    return st.builds(
        lambda known, unknown: {**unknown, **known},
        st.fixed_dictionaries(
            {key: odd(value) for key, value in (required or {}).items()},
            optional={key: odd(value) for key, value in optional.items()},
        ),
        st.just({}) | st.dictionaries(texts.map("unknown-".__add__), anything, max_size=2),
    )


KEYS = st.sampled_from([names.CAPACITY, names.ZONE, names.HOSTNAME, names.INSTANCE_TYPE, "example.com/a", "spot"])
requirements = st.lists(
    record(
        {"key": KEYS, "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])},
        values=st.lists(texts, max_size=3),
    ),
    max_size=3,
)
terms = record(matchExpressions=requirements, matchFields=requirements)
affinities = record(
    nodeAffinity=record(
        None,
        **{
            _REQUIRED: record(nodeSelectorTerms=st.lists(terms, max_size=3)),
            _PREFERRED: st.lists(record({"weight": st.integers(1, 100), "preference": terms}), max_size=2),
        },
    ),
    podAffinity=anything,
    podAntiAffinity=anything,
)
tolerations = st.lists(
    record(
        key=KEYS,
        operator=st.sampled_from(["Exists", "Equal"]),
        value=texts,
        effect=st.sampled_from(["NoSchedule", "NoExecute"]),
        tolerationSeconds=st.integers(),
    ),
    max_size=3,
)
constraints = st.lists(
    record(
        {"maxSkew": st.integers(1, 5), "topologyKey": KEYS},
        whenUnsatisfiable=st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
        labelSelector=anything,
    ),
    max_size=3,
)
amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]),
    st.sampled_from(["100m", "1", "2.5", "1Gi", "1e3", "", "-1", "a lot"]) | st.integers(),
)
resources = record(requests=amounts, limits=amounts, claims=anything)
containers = st.lists(
    record({"name": texts}, image=texts, resources=resources, args=st.lists(texts, max_size=2)), max_size=3
)
specs = record(
    {"containers": containers},
    initContainers=containers,
    ephemeralContainers=containers,
    affinity=affinities,
    tolerations=tolerations,
    topologySpreadConstraints=constraints,
    nodeSelector=st.dictionaries(KEYS, texts, max_size=2),
    overhead=amounts,
    resources=resources,
    priority=st.integers(-10, 10),
    priorityClassName=texts,
    preemptionPolicy=st.sampled_from(["Never", "PreemptLowerPriority"]),
    schedulerName=st.sampled_from(["default-scheduler", "default-scheduler", "volcano", ""]),
    schedulingGates=anything,
    volumes=anything,
)
owners = st.sampled_from(list(UIDS.items())).map(
    lambda each: [{"apiVersion": "apps/v1", "kind": each[0], "name": each[1][0], "uid": each[1][1], "controller": True}]
)
ANNOTATIONS = [getattr(names, each) for each in ("SLOT", "DECISION", "REASON", "SOFT", "RELEASED", "SPOT_RATIO")]
metadata = record(
    {"ownerReferences": owners},
    name=st.sampled_from(["db-0", "db-7", "db-x", "web"]),
    generateName=st.just("web-abc-"),
    namespace=st.just("shop"),
    labels=st.dictionaries(st.sampled_from(["app", names.CLASS, names.PLACEMENT]) | texts, texts, max_size=3),
    annotations=st.dictionaries(st.sampled_from(ANNOTATIONS) | texts, texts, max_size=3),
    managedFields=anything,
)
pods = record({"metadata": metadata, "spec": specs}, status=anything, kind=st.just("Pod"))
reviews = st.builds(raw_review, odd(pods), st.uuids().map(str)) | st.sampled_from(REVIEWS).flatmap(
    lambda real: st.integers(0, 2**32).map(lambda seed: bent(real, random.Random(seed)))
)
