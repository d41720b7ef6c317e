"""AdmissionReviews: reads the call, writes the answer. Pure."""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec

from placement.decide import Decision, Reason
from placement.patch import metadata_patch, spec_patch
from placement.policy import Mistake

_GROUP = "admission.k8s.io/"
API_VERSION = _GROUP + "v1"
_WARNING_LENGTH = 250  # longer ones are cut by the API server


# What the API server and etcd take; a pod that is close to it already is left as it is.
LARGEST_POD = 1_400_000
LARGEST_ANNOTATIONS = 256 * 1024


class PodTooLarge(ValueError):
    """With our patch the pod might be refused."""


class MalformedReview(ValueError):
    """The call itself is wrong. With a uid it is answered with a review all the same, else with status 400."""

    def __init__(self, text: str, uid: str = "", version: str = "") -> None:
        super().__init__(text)
        self.uid = uid
        self.version = version or API_VERSION


class AdmissionCall(msgspec.Struct, frozen=True):
    """One call: the creation of a pod. Of the pod, `parse` reads what we look at; the rest stays as it is anyway."""

    uid: str
    namespace: str
    raw_pod: dict[str, Any]
    dry_run: bool = False
    size: int = 0  # of the whole review, in bytes


class Verdict(msgspec.Struct, frozen=True):
    """What became of a pod: a decision, or the reason why it is untouched; and what to warn about."""

    reason: Reason
    decision: Decision | None = None
    mistakes: tuple[Mistake, ...] = ()
    spec_patch: bytes | None = None  # as JSON, where it is known already

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the answer warns about: every mistake in the policy, and why a pod is left alone."""
        told = tuple(map(str, self.mistakes)) if self.mistakes else ()
        is_left_alone = self.decision is not None and self.decision.placed is None
        return (*told, self.decision.explanation) if self.decision is not None and is_left_alone else told


# --- the call --------------------------------------------------------------------------------------------------------

# Most of a review is containers, volumes and managed fields. What is not named here is skipped, which takes a third of
# the time. Only the nesting is checked: values may be anything.


class _Container(TypedDict, total=False):
    resources: Any
    restartPolicy: Any


class _PodSpec(TypedDict, total=False):
    affinity: Any
    containers: list[_Container]
    initContainers: list[_Container]
    nodeName: Any
    nodeSelector: Any
    overhead: Any
    preemptionPolicy: Any
    priority: Any
    priorityClassName: Any
    resources: Any
    schedulerName: Any
    tolerations: Any
    topologySpreadConstraints: Any


class _PodMetadata(TypedDict, total=False):
    annotations: Any
    generateName: Any
    labels: Any
    name: Any
    namespace: Any
    ownerReferences: Any


class _Pod(TypedDict):
    metadata: _PodMetadata
    spec: _PodSpec


class _Call(TypedDict, total=False):
    dryRun: Any
    namespace: Any
    object: _Pod
    operation: Any
    uid: Any


class _Review(TypedDict, total=False):
    apiVersion: Any
    request: _Call


_READER = msgspec.json.Decoder(_Review)


def parse(body: bytes) -> AdmissionCall:
    """The request in a review. Raises MalformedReview that says what is wrong."""
    try:
        review = _decoded(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedReview(f"not JSON: {error}") from error
    version, request = (review.get("apiVersion"), review.get("request")) if isinstance(review, dict) else (None, None)
    uid = request.get("uid") if isinstance(request, dict) else None
    if version != API_VERSION:
        is_kin = isinstance(version, str) and version.startswith(_GROUP)
        told = f"expected an AdmissionReview of {API_VERSION}, got {version!r}"
        raise MalformedReview(told, str(uid or "") if is_kin else "", str(version))
    if not isinstance(request, dict) or not isinstance(uid, str) or not uid:
        raise MalformedReview("the review has no request with a uid")
    return _request(request, len(body))


def _decoded(body: bytes) -> Any:
    """The fields that we look at; or all of it, where their shape is not the usual one."""
    try:
        return _READER.decode(body)
    except msgspec.ValidationError:
        return msgspec.json.decode(body)


def _request(raw: dict[str, Any], size: int) -> AdmissionCall:
    raw_pod = raw.get("object")
    metadata, spec = (raw_pod.get("metadata"), raw_pod.get("spec")) if isinstance(raw_pod, dict) else (None, None)
    if raw.get("operation") != "CREATE" or not isinstance(metadata, dict) or not isinstance(spec, dict):
        raise MalformedReview("expected the creation of a pod with metadata and spec", raw["uid"])
    namespace = raw.get("namespace") or metadata.get("namespace") or ""
    return AdmissionCall(raw["uid"], str(namespace), raw["object"], raw.get("dryRun") is True, size)


# --- the answer ------------------------------------------------------------------------------------------------------

_encode = msgspec.json.Encoder().encode


def answer(request: AdmissionCall, verdict: Verdict) -> bytes:
    """Always allowed; patched where a decision has something to say. Raises TooLarge where the pod would be refused."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    patch = _patch(request, verdict.decision, verdict.spec_patch) if verdict.decision else b"[]"
    if patch != b"[]":
        response["patchType"] = "JSONPatch"
        response["patch"] = patch  # written as base64
    warnings = verdict.warnings
    if warnings:
        response["warnings"] = [text[:_WARNING_LENGTH] for text in warnings]
    return _review(response)


def _patch(request: AdmissionCall, decision: Decision, of_spec: bytes | None) -> bytes:
    """`placement.patch.patch` as JSON: the pod's own part of it, and the part that it may share with others."""
    own = metadata_patch(request.raw_pod["metadata"], decision)
    if of_spec is None:
        of_spec = _encode(spec_patch(request.raw_pod["spec"], decision.injection))
    encoded = _joined(_encode(own), of_spec)
    if _is_too_large(request, encoded, own):
        raise PodTooLarge(f"{request.size} bytes, and {len(encoded)} of patch")
    return encoded


def _joined(first: bytes, second: bytes) -> bytes:
    """Two JSON lists as one."""
    return b"%b,%b" % (first[:-1], second[1:]) if first != b"[]" != second else first if second == b"[]" else second


def _is_too_large(request: AdmissionCall, encoded: bytes, operations: list[dict[str, Any]]) -> bool:
    if request.size + len(encoded) > LARGEST_POD:
        return True
    return len(encoded) > LARGEST_ANNOTATIONS and _annotations_size(operations) > LARGEST_ANNOTATIONS


def _annotations_size(operations: list[dict[str, Any]]) -> int:
    written: dict[str, str] = next(
        (each["value"] for each in operations if each["path"] == "/metadata/annotations"), {}
    )
    return sum(len(key.encode()) + len(value.encode()) for key, value in written.items())


def unchanged(uid: str, version: str = API_VERSION) -> bytes:
    """The answer when anything went wrong: allowed, unchanged."""
    return _review({"uid": uid, "allowed": True}, version)


def _review(response: dict[str, Any], version: str = API_VERSION) -> bytes:
    return _encode({"apiVersion": version, "kind": "AdmissionReview", "response": response})
