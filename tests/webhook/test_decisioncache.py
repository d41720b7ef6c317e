"""Batches: what is remembered gives the same answers as what is worked out anew."""

import json
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import names
from placement.model import Class, Key, Namespace, Node, NodeTaint, PriorityClass
from placement.outage import Outage, Outages, Shape
from placement.patch import patch
from placement.policy import Policy
from placement.revision import Revision
from tests.builders.api import Raw, review
from tests.builders.api import raw_new_pod as created_pod
from tests.builders.model import OPTED_IN, REPLICA_SET, STATEFUL_SET
from tests.kube.test_needs import REQUESTS
from tests.placement.invariants import many
from tests.placement.test_patch import raw_pods
from tests.webhook.admissionharness import DB, WEB, WEB_ABC, AdmissionHarness
from webhook.decisioncache import LARGEST_SPEC, Batches
from webhook.review import answer, parse

RATIO, SPREAD = names.PREFIX + "spot-ratio", names.PREFIX + "spread"
CHANGES: dict[str, Callable[[AdmissionHarness], None]] = {
    "nothing": lambda harness: None,
    "a new spot pool": lambda harness: harness.put(Node("n", {names.CAPACITY: "spot", names.ZONE: "z"})),
    "a spot node leaves": lambda harness: harness.put(Node("spot-1", {names.CAPACITY: "spot"}, unschedulable=True)),
    "a priority class": lambda harness: harness.put(PriorityClass(names.OVERFLOW_PRIORITY)),
    "another ratio": lambda harness: harness.put(replace(WEB, annotations={RATIO: "20%"})),
    "another spread": lambda harness: harness.put(replace(DB, annotations={SPREAD: "zone:hard"})),
    "the namespace's defaults": lambda harness: harness.put(Namespace("shop", OPTED_IN, {RATIO: "100%"})),
    "a mistake": lambda harness: harness.put(replace(DB, annotations={RATIO: "lots"})),
    "another template": lambda harness: harness.put(
        replace(WEB_ABC, template=replace(WEB_ABC.template, priority_class="x"))
    ),
    "ordered": lambda harness: harness.put(replace(DB, ordered=True)),
    "spot is out": lambda harness: note(harness, Outage(Class.SPOT, 2000.0)),
    "spot is out for large pods": lambda harness: note(harness, Outage(Class.SPOT, 2000.0, shape=Shape(4000))),
    "on-demand is out": lambda harness: note(harness, Outage(Class.ON_DEMAND, 2000.0)),
    "nothing is out": lambda harness: note(harness),
    "nobody leads": lambda harness: lead(harness, 60.0),
    "the leader is late": lambda harness: lead(harness, 15.0),
    "somebody leads": lambda harness: lead(harness, 1.0),
    "nothing is moved": lambda harness: harness.put(replace(WEB, annotations={names.REBALANCE: "off"})),
    "no spot node is left": lambda harness: harness.stores.nodes.remove(Key("", "spot-1")),
    "a spot node to be avoided": lambda harness: harness.put(
        Node("spot-1", {names.CAPACITY: "spot"}, (NodeTaint("x", "", "PreferNoSchedule"),))
    ),
}


def note(harness: AdmissionHarness, *outages: Outage) -> None:
    harness.outages = Outages(harness.outages.version + 1, outages)


def lead(harness: AdmissionHarness, unled_seconds: float) -> None:
    harness.unled_seconds = unled_seconds


def owned(raw_pod: Raw, slot: int | None) -> Raw:
    """The StatefulSet's pod with this ordinal, which is its slot; or one of the Deployment's."""
    whole = created_pod(REPLICA_SET) if slot is None else created_pod(STATEFUL_SET, f"db-{slot}")
    return {**raw_pod, "metadata": {**raw_pod["metadata"], **whole["metadata"]}}


@many
@given(
    st.lists(raw_pods, min_size=1, max_size=2),
    st.lists(st.tuples(st.sampled_from(list(CHANGES)), st.integers(0, 1), st.none() | st.integers(0, 12)), max_size=12),
)
def test_a_batch_answers_as_if_each_pod_were_the_first(
    pods: list[Raw], calls: list[tuple[str, int, int | None]]
) -> None:
    """Operation for operation, whatever has changed since the pod before."""
    harness = AdmissionHarness()
    for change, which, slot in calls:
        CHANGES[change](harness)
        pod = owned(pods[which % len(pods)], slot)
        request = harness.request(pod, dry_run=True)
        expected = harness.anew().place(request)
        told = json.loads(answer(request, harness.admission.place(request)))["response"]
        operations = json.loads(b64decode(told["patch"])) if "patch" in told else []
        assert operations == (patch(pod, expected.decision) if expected.decision else [])
        assert told.get("warnings", []) == [text[:250] for text in expected.warnings]


def revision(**changes: Any) -> Revision:
    workload = WEB
    return replace(Revision("rs", workload, Policy(), 10, {}, workload.template), **changes)


def test_pods_of_one_revision_and_spec_are_one_batch() -> None:
    """Two specs of one revision are two batches; a revision that has changed starts anew."""
    batches, old, new = Batches(), revision(), revision(replicas=11)
    batch = batches.find(old, {"tolerations": []})
    assert batches.find(old, {"tolerations": []}) is batch
    assert batches.find(old, {"tolerations": [{"operator": "Exists"}]}) is not batch
    assert batches.find(old, {"tolerations": []}) is batch
    assert batches.find(new, {"tolerations": []}) is not batch


def test_what_python_takes_for_equal_is_not_the_same_spec() -> None:
    """The patch carries the user's own values along: 1 must not become true."""
    batches, of = Batches(), revision()
    assert batches.find(of, {"tolerations": [{"tolerationSeconds": 1}]}) is not batches.find(
        of, {"tolerations": [{"tolerationSeconds": True}]}
    )


def test_a_huge_spec_is_not_kept() -> None:
    """Anybody may write one, and memory is shared by all."""
    batches, of, spec = Batches(), revision(), {"nodeSelector": {"a": "x" * LARGEST_SPEC}}
    assert batches.find(of, spec) is not batches.find(of, spec)


@pytest.mark.parametrize(("spec", "requests"), REQUESTS.values(), ids=REQUESTS.keys())
def test_a_pod_has_the_shape_that_the_rebalancer_sees(spec: Raw, requests: dict[str, int]) -> None:
    """Else an outage that is noted for it would not cover it, and it would be created anew for ever."""
    seen = parse(review({"metadata": {}, "spec": spec})).raw_pod["spec"]
    assert Batches().find(revision(), seen).demand.shape == Shape.asking(requests)


def test_a_spec_that_makes_no_sense_asks_for_nothing() -> None:
    """And stops nobody."""
    assert Batches().find(revision(), {"containers": "none"}).demand.shape == Shape()
