"""Reviews: the call is read, the answer is written."""

import json
from base64 import b64decode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.decide import Decision, Reason
from placement.model import Class
from placement.patch import patch
from placement.policy import Mistake
from tests.builders.api import review
from tests.examples import examples
from webhook.review import AdmissionCall, MalformedReview, Verdict, answer, parse, unchanged

POD: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {}}

CALLS: dict[str, tuple[bytes, AdmissionCall]] = {
    "a create": (review(POD), AdmissionCall("u1", "shop", POD)),
    "a dry run": (review(POD, dryRun=True), AdmissionCall("u1", "shop", POD, dry_run=True)),
    "no dry run": (review(POD, dryRun=False), AdmissionCall("u1", "shop", POD)),
    "the request's namespace counts": (
        review({"metadata": {"namespace": "x"}, "spec": {}}),
        AdmissionCall("u1", "shop", {"metadata": {"namespace": "x"}, "spec": {}}),
    ),
    "else the pod's": (
        review({"metadata": {"namespace": "x"}, "spec": {}}, namespace=""),
        AdmissionCall("u1", "x", {"metadata": {"namespace": "x"}, "spec": {}}),
    ),
    "else none": (review(POD, namespace=None), AdmissionCall("u1", "", POD)),
    "fields that we do not know": (review(POD, options={"x": [1]}, resource={}), AdmissionCall("u1", "shop", POD)),
}


@pytest.mark.parametrize(("body", "expected"), CALLS.values(), ids=CALLS.keys())
def test_a_call_is_read(body: bytes, expected: AdmissionCall) -> None:
    """Only what is used of it."""
    assert parse(body) == msgspec.structs.replace(expected, size=len(body))


def altered(**changes: Any) -> bytes:
    return json.dumps({**json.loads(review(POD)), **changes}).encode()


MALFORMED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not JSON"),
    "text": (b"hello", "not JSON"),
    "half of it": (review(POD)[:-5], "not JSON"),
    "not UTF-8": (b'{"apiVersion": "\xff"}', "not JSON"),
    "half of a surrogate pair": (b'{"apiVersion": "\\ud800"}', "not JSON"),
    "nested beyond reason": (b"[" * 200_000, "not JSON"),
    "a list": (b"[]", "expected an AdmissionReview of admission.k8s.io/v1, got None"),
    "a number": (b"5", "expected an AdmissionReview"),
    "no version": (b"{}", "got None"),
    "an old version": (altered(apiVersion="admission.k8s.io/v1beta1"), "got 'admission.k8s.io/v1beta1'"),
    "no request": (altered(request=None), "no request with a uid"),
    "a request that is a list": (altered(request=[]), "no request with a uid"),
    "no uid": (review(POD, uid=None), "no request with a uid"),
    "an empty uid": (review(POD, uid=""), "no request with a uid"),
    "a uid that is a number": (review(POD, uid=5), "no request with a uid"),
    "an update": (review(POD, operation="UPDATE"), "expected the creation of a pod"),
    "no operation": (review(POD, operation=None), "expected the creation of a pod"),
    "no object": (review(None), "expected the creation of a pod"),
    "an object that is a list": (review([]), "expected the creation of a pod"),
    "no metadata": (review({"spec": {}}), "with metadata and spec"),
    "no spec": (review({"metadata": {}}), "with metadata and spec"),
    "a spec of null": (review({"metadata": {}, "spec": None}), "with metadata and spec"),
}


@pytest.mark.parametrize(("body", "told"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_call_is_told_what_is_wrong(body: bytes, told: str) -> None:
    """Answered with status 400: the fault is the caller's."""
    with pytest.raises(MalformedReview) as raised:
        parse(body)
    assert told in str(raised.value)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)


@examples(100)
@given(
    st.fixed_dictionaries(
        {"apiVersion": st.just("admission.k8s.io/v1")},
        optional={
            "request": st.one_of(
                json_values,
                st.fixed_dictionaries(
                    {},
                    optional={
                        "uid": st.one_of(st.just("u"), json_values),
                        "operation": st.one_of(st.just("CREATE"), json_values),
                        "namespace": json_values,
                        "object": st.one_of(st.just(POD), json_values),
                        "dryRun": json_values,
                    },
                ),
            )
        },
    )
)
def test_any_call_is_read_or_malformed(call: Any) -> None:
    """Never another exception; a request always has a uid, and a pod with metadata and spec."""
    try:
        request = parse(json.dumps(call).encode())
    except MalformedReview:
        return
    assert request.uid
    assert isinstance(request.namespace, str)
    assert {"metadata", "spec"} <= request.raw_pod.keys()


DECISION = Decision("id", "rs", Reason.SLOT, "because", Class.SPOT, 1)


def response(body: bytes) -> Any:
    read = json.loads(body)
    assert (read["apiVersion"], read["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    return read["response"]


def test_a_decision_is_answered_with_its_patch() -> None:
    """As base64 of a JSON patch, under the uid of the call."""
    verdict = Verdict(Reason.SLOT, DECISION, patch=patch(POD, DECISION))
    told = response(answer(AdmissionCall("u1", "shop", POD), verdict))
    assert json.loads(b64decode(told.pop("patch"))) == patch(POD, DECISION)
    assert told == {"uid": "u1", "allowed": True, "patchType": "JSONPatch"}


def test_operations_that_are_encoded_already_are_part_of_the_patch() -> None:
    """In their place, and as if they had been encoded with the others."""
    first, second = patch(POD, DECISION)
    verdict = Verdict(Reason.SLOT, DECISION, patch=[first, msgspec.Raw(json.dumps(second).encode())])
    told = response(answer(AdmissionCall("u1", "shop", POD), verdict))
    assert json.loads(b64decode(told["patch"])) == [first, second]


def test_no_decision_is_answered_with_no_patch() -> None:
    """Allowed unchanged: neither patch nor patch type, which the API server wants both or none of."""
    verdict = Verdict(Reason.NOT_A_WORKLOAD)
    assert response(answer(AdmissionCall("u1", "shop", POD), verdict)) == {"uid": "u1", "allowed": True}
    assert response(unchanged("u2")) == {"uid": "u2", "allowed": True}


def test_warnings_are_passed_on_and_cut() -> None:
    """The API server cuts longer ones by itself, in the middle of all of them."""
    mistakes = (Mistake("workload", "a", "b", "c"), Mistake("workload", "a", "b", "x" * 1000))
    verdict = Verdict(Reason.DECIDED, None, mistakes, tuple(map(str, mistakes)))
    told = response(answer(AdmissionCall("u1", "shop", POD), verdict))
    assert told["warnings"] == [
        "workload a: 'b' is ignored; expected c",
        (f"workload a: 'b' is ignored; expected {'x' * 1000}")[:250],
    ]
