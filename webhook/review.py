"""AdmissionReviews: reads the call, writes the answer. Pure."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any

import msgspec

from placement.decide import Decision, Reason
from placement.patch import patch
from placement.policy import Mistake

API_VERSION = "admission.k8s.io/v1"
_WARNING_LENGTH = 250  # longer ones are cut by the API server


# What the API server and etcd take; a pod that is close to it already is left as it is.
LARGEST_POD = 1_400_000
LARGEST_ANNOTATIONS = 256 * 1024


class TooLarge(ValueError):
    """With our patch the pod might be refused."""


class MalformedReview(ValueError):
    """The call itself is wrong; answered with status 400."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call: the creation of a pod."""

    uid: str
    namespace: str
    raw_pod: dict[str, Any]
    dry_run: bool = False
    size: int = field(default=0, compare=False)  # of the whole review, in bytes


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a pod: a decision, or the reason why it is untouched; and what to warn about."""

    reason: Reason
    decision: Decision | None = None
    mistakes: tuple[Mistake, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the answer warns about: every mistake in the policy, and why a pod is left alone."""
        alone = self.decision is not None and self.decision.placed is None
        return (*map(str, self.mistakes), *((self.decision.explanation,) if alone and self.decision else ()))


def parse(body: bytes) -> Request:
    """The request in a review. Raises MalformedReview that says what is wrong."""
    try:
        review = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedReview(f"not JSON: {error}") from error
    version = review.get("apiVersion") if isinstance(review, dict) else None
    if version != API_VERSION:
        raise MalformedReview(f"expected an AdmissionReview of {API_VERSION}, got {version!r}")
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str) or not request["uid"]:
        raise MalformedReview("the review has no request with a uid")
    return _request(request, len(body))


def _request(raw: dict[str, Any], size: int) -> Request:
    raw_pod = raw.get("object")
    metadata, spec = (raw_pod.get("metadata"), raw_pod.get("spec")) if isinstance(raw_pod, dict) else (None, None)
    if raw.get("operation") != "CREATE" or not isinstance(metadata, dict) or not isinstance(spec, dict):
        raise MalformedReview("expected the creation of a pod with metadata and spec")
    namespace = raw.get("namespace") or metadata.get("namespace") or ""
    return Request(raw["uid"], str(namespace), raw["object"], raw.get("dryRun") is True, size)


def answer(request: Request, verdict: Verdict) -> bytes:
    """Always allowed; patched where a decision has something to say. Raises TooLarge where the pod would be refused."""
    operations = patch(request.raw_pod, verdict.decision) if verdict.decision else []
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    if operations:
        encoded = msgspec.json.encode(operations)
        if _is_too_large(request, encoded, operations):
            raise TooLarge(f"{request.size} bytes, and {len(encoded)} of patch")
        response["patchType"] = "JSONPatch"
        response["patch"] = b64encode(encoded).decode()
    if verdict.warnings:
        response["warnings"] = [text[:_WARNING_LENGTH] for text in verdict.warnings]
    return _review(response)


def _is_too_large(request: Request, encoded: bytes, operations: list[dict[str, Any]]) -> bool:
    if request.size + len(encoded) > LARGEST_POD:
        return True
    return len(encoded) > LARGEST_ANNOTATIONS and _annotations_size(operations) > LARGEST_ANNOTATIONS


def _annotations_size(operations: list[dict[str, Any]]) -> int:
    written: dict[str, str] = next(
        (each["value"] for each in operations if each["path"] == "/metadata/annotations"), {}
    )
    return sum(len(key.encode()) + len(value.encode()) for key, value in written.items())


def unchanged(uid: str) -> bytes:
    """The answer when anything went wrong: allowed, unchanged."""
    return _review({"uid": uid, "allowed": True})


def _review(response: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
