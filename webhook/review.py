"""AdmissionReviews: reads the call and what its pod says of itself, writes the answer. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import msgspec

from placement import names
from placement.decide import Decision, Reason
from placement.gang.belonging import group_name
from placement.model import DEFAULT_SCHEDULER, Kind, Owner, Pod
from placement.policy import Mistake
from serving.parser import BEGINNING_BYTES

_GROUP = "admission.k8s.io/"
API_VERSION = _GROUP + "v1"
_WARNING_LENGTH = 250  # longer ones are cut by the API server


# What the API server and etcd take; a pod that is close to it already is left as it is.
LARGEST_POD = 1_400_000
LARGEST_ANNOTATIONS = 256 * 1024
# Anybody can send a review. `[],[],[]` takes twenty times as much memory as it is long.
SMALL = 64 * 1024  # bytes; of those it does not matter
MOST_VALUES = 250_000  # in one review; a real pod of the largest size has a third of it
VALUE_BYTES = 64
LONGEST_UID = 128
LONGEST_QUOTED = 100


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
    """What became of a pod: a decision and its patch, or the reason why it is untouched; and what to warn about."""

    reason: Reason
    decision: Decision | None = None
    mistakes: tuple[Mistake, ...] = ()  # in the policy
    warnings: tuple[str, ...] = ()
    patch: Sequence[Any] = ()  # JSON patch operations, some of them encoded already (msgspec.Raw)


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
    schedulingGates: Any
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
        raise MalformedReview(f"not JSON: {_quoted(error)}") from error
    version, request = (review.get("apiVersion"), review.get("request")) if isinstance(review, dict) else (None, None)
    uid = request.get("uid") if isinstance(request, dict) else None
    if version != API_VERSION:
        is_kin = isinstance(version, str) and version.startswith(_GROUP)
        told = f"expected an AdmissionReview of {API_VERSION}, got {_quoted(repr(version))}"
        raise MalformedReview(told, str(uid) if is_kin and is_uid(uid) else "", _quoted(version))
    if not isinstance(request, dict) or not is_uid(uid):
        raise MalformedReview("the review has no request with a uid")
    return _request(request, len(body))


def values_in(body: bytes) -> int:
    """How many values there are at most, without reading them."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def weight(body: bytes) -> int:
    """About how much memory a review takes once it is read, in bytes."""
    return len(body) + VALUE_BYTES * values_in(body)


def is_oversized(body: bytes) -> bool:
    """Whether it is so large that the pod would be left unchanged, or could only be meant to do harm."""
    return len(body) > LARGEST_POD or (len(body) > SMALL and values_in(body) > MOST_VALUES)


# As the API server writes it, at the beginning: the rest of a large review is not even kept.
_UID = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([^"\\]{1,%d})"' % LONGEST_UID)


def uid_of(body: bytes) -> str:
    """The call's, without reading the rest. Raises MalformedReview."""
    found = _UID.search(body, 0, BEGINNING_BYTES)
    uid = found[1].decode("latin-1") if found is not None else ""
    if not is_uid(uid):
        raise MalformedReview("the review is too large, and does not begin with a request and its uid")
    return uid


def is_uid(uid: Any) -> bool:
    """It is written to logs and to the pod."""
    return isinstance(uid, str) and 0 < len(uid) <= LONGEST_UID and uid.isascii() and uid.isprintable()


def _quoted(value: object) -> str:
    """As much of it as belongs into a sentence."""
    return str(value)[:LONGEST_QUOTED]


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


# --- what the pod says of itself -------------------------------------------------------------------------------------


def is_of_another_scheduler(raw_spec: Mapping[str, Any]) -> bool:
    return bool((raw_spec.get("schedulerName") or DEFAULT_SCHEDULER) != DEFAULT_SCHEDULER)


def left_out(raw_pod: Mapping[str, Any], owner: Owner | None, *, leaves_gangs: bool = False) -> Reason | None:
    """Why this pod is none of ours, from the pod alone. While gangs are off, the name of a group means nothing."""
    metadata, spec = raw_pod["metadata"], raw_pod["spec"]
    if names.MIRROR in (metadata.get("annotations") or {}):
        return Reason.MIRROR
    if spec.get("nodeName"):
        return Reason.PRESET_NODE
    if is_of_another_scheduler(spec):
        return Reason.FOREIGN_SCHEDULER
    if (metadata.get("labels") or {}).get(names.PLACEMENT) == names.DISABLED:
        return Reason.OPTED_OUT
    if names.GANG_LABEL in (metadata.get("labels") or {}) or (leaves_gangs and is_in_group(metadata)):
        return Reason.GANG
    if owner is None or owner.api_group != "apps" or owner.kind not in ("ReplicaSet", Kind.STATEFUL_SET):
        return Reason.NOT_A_WORKLOAD
    return None


def keep_priority(_call: AdmissionCall) -> Sequence[Any]:
    """What is added to a pod's patch where pods without a gang are not guarded."""
    return ()


def is_of_daemon_set(owner: Owner | None) -> bool:
    return owner is not None and (owner.kind, owner.api_group) == ("DaemonSet", "apps")


def is_in_group(raw_metadata: Mapping[str, Any]) -> bool:
    """Its template names a gang."""
    return bool(group_name(raw_metadata.get("annotations") or {}, raw_metadata.get("labels") or {}).strip())


def is_gated_member(raw_pod: Mapping[str, Any]) -> bool:
    """It belongs to a gang and waits for it."""
    gates = raw_pod["spec"].get("schedulingGates")
    named = [each.get("name") for each in gates if isinstance(each, dict)] if isinstance(gates, list) else []
    metadata = raw_pod["metadata"]
    is_labelled = (metadata.get("labels") or {}).get(names.GANG_LABEL) == names.GANG_MEMBER
    return names.GANG_GATE in named and (is_labelled or is_in_group(metadata))


def controller(raw_pod: Mapping[str, Any]) -> Owner | None:
    reference = _controller_reference(raw_pod)
    if reference is None:
        return None
    group = str(reference.get("apiVersion") or "").rpartition("/")[0]
    kind, name, uid = reference.get("kind"), reference.get("name"), reference.get("uid")
    return Owner(str(kind or ""), str(name or ""), str(uid or ""), group)


def owner_uid(raw_pod: Mapping[str, Any]) -> str | None:
    """The UID of the ReplicaSet that slots are counted for; None for pods whose slot needs no counting."""
    reference = _controller_reference(raw_pod)
    return str(reference.get("uid") or "") if reference is not None and reference.get("kind") == "ReplicaSet" else None


def _controller_reference(raw_pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The reference that says so. Asked before anything is known of the pod, so nothing is taken for granted."""
    references = raw_pod["metadata"].get("ownerReferences")
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, dict) and reference.get("controller") is True:
            return reference
    return None


def decided_slot(raw_pod: Mapping[str, Any], controller_uid: str) -> int | None:
    """The slot that a decision of ours for this very pod gave it (a second call for one request)."""
    written = raw_pod["metadata"].get("annotations") or {}
    if names.DECISION not in written:
        return None
    decision = written[names.DECISION]
    return Pod("", "", owner=Owner("", "", controller_uid), annotations=written, decision=decision).slot


# --- the answer ------------------------------------------------------------------------------------------------------

_encode = msgspec.json.Encoder().encode


def answer(request: AdmissionCall, verdict: Verdict) -> bytes:
    """Always allowed; with the patch, if there is one. Raises PodTooLarge where the pod might be refused with it."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    if verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = _patch(request, verdict.patch)  # written as base64
    if verdict.warnings:
        response["warnings"] = [text[:_WARNING_LENGTH] for text in verdict.warnings]
    return review_text(response)


def _patch(request: AdmissionCall, operations: Sequence[Any]) -> bytes:
    encoded = _encode(operations)
    if _is_too_large(request, encoded):
        raise PodTooLarge(f"{request.size} bytes, and {len(encoded)} of patch")
    return encoded


def _is_too_large(request: AdmissionCall, encoded: bytes) -> bool:
    if request.size + len(encoded) > LARGEST_POD:
        return True
    return len(encoded) > LARGEST_ANNOTATIONS and _annotations_size(encoded) > LARGEST_ANNOTATIONS


def _annotations_size(encoded: bytes) -> int:
    operations = msgspec.json.decode(encoded)
    written: dict[str, str] = next(
        (each["value"] for each in operations if each["path"] == "/metadata/annotations"), {}
    )
    return sum(len(key.encode()) + len(value.encode()) for key, value in written.items())


def unchanged(uid: str, version: str = API_VERSION) -> bytes:
    """The answer when anything went wrong: allowed, unchanged."""
    return review_text({"uid": uid, "allowed": True}, version)


def review_text(response: dict[str, Any], version: str = API_VERSION) -> bytes:
    """A review with this response."""
    return _encode({"apiVersion": version, "kind": "AdmissionReview", "response": response})
