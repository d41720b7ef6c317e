"""What the API can say other than yes: one table from HTTP status to exception, so that callers never read codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

DISRUPTION_BUDGET = "DisruptionBudget"
VERSION_TOO_LARGE = "ResourceVersionTooLarge"


class KubeconfigError(Exception):
    """How to reach the API could not be found out. The text names the file and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of a Status object's `details.causes`."""

    reason: str = ""
    message: str = ""
    field: str = ""


class ApiError(Exception):
    """The API did not do what it was asked. `asked` is verb and path; the rest is the server's own words."""

    def __init__(self, asked: str, status: int, reason: str, message: str, causes: tuple[Cause, ...] = ()) -> None:
        super().__init__(asked, status, reason, message, causes)
        self.asked = asked
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after_seconds: float | None = None

    def __str__(self) -> str:
        answer = " ".join(part for part in (str(self.status or ""), self.reason) if part)
        return f"{self.asked}: {answer}: {self.message}" if self.message else f"{self.asked}: {answer}"

    def has_cause(self, reason: str) -> bool:
        return any(cause.reason == reason for cause in self.causes)


class Unauthorized(ApiError):
    """401: the credentials are not, or no longer, accepted."""


class Forbidden(ApiError):
    """403: RBAC or an admission plugin refused."""


class NotFound(ApiError):
    """404. On evict, patch or delete it means that the work is done."""


class Conflict(ApiError):
    """409: a precondition (UID, resource version) does not hold any more."""


class AlreadyExists(Conflict):
    """409 on a create: the name is taken."""


class Gone(ApiError):
    """410: the resource version or the continue token has expired; list again."""


class Invalid(ApiError):
    """422: the object breaks the API's rules, and `causes` name the fields; or a JSON patch does not apply to it."""

    @property
    def is_stale_patch(self) -> bool:
        """One of its tests failed: the object is not what the patch was made for."""
        return not self.causes


class TooManyRequests(ApiError):
    """429: either the API server is busy, or a disruption budget forbids the eviction."""

    @property
    def is_disruption_budget(self) -> bool:
        return self.has_cause(DISRUPTION_BUDGET)


class ServerError(ApiError):
    """5xx: the server failed. Whether a write took place is unknown."""


class Unreachable(ApiError):
    """No answer: refused, reset, TLS failure or time-out. Whether a write took place is unknown."""

    def __init__(self, asked: str, message: str) -> None:
        super().__init__(asked, 0, "no answer", message)


class AnswerTooLarge(ApiError):
    """An answer, or a line of a watch, that is larger than anything that the API should say here."""

    def __init__(self, asked: str, message: str) -> None:
        super().__init__(asked, 0, "answer too large", message)


class BadName(ApiError):
    """Nothing was sent: no object can have this name, and in a path it might mean something else."""

    def __init__(self, asked: str, message: str) -> None:
        super().__init__(asked, 0, "not sent", message)


class Garbled(ApiError):
    """An answer that is not what the API promises, such as a line of a watch that is no JSON."""

    def __init__(self, asked: str, message: str) -> None:
        super().__init__(asked, 0, "unreadable answer", message)


BY_STATUS: Mapping[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
# The server's reason is finer than its status; where it is listed here it wins.
BY_REASON: Mapping[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "Expired": Gone,
    "Gone": Gone,
}


class _StatusCause(msgspec.Struct, gc=False):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class _StatusDetails(msgspec.Struct, gc=False, rename="camel"):
    causes: list[_StatusCause] | None = None
    retry_after_seconds: int | None = None


class _Status(msgspec.Struct, gc=False):
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _StatusDetails | None = None


_decode_status = msgspec.json.Decoder(_Status).decode


def error_from(asked: str, status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """The exception for an answer. `body` is a Status object as a rule, and a proxy's page of text at times."""
    answer = _status_of(body)
    details = answer.details or _StatusDetails()
    error = _class_of(answer.code or status, answer.reason or "")(
        asked,
        answer.code or status,
        answer.reason or "",
        answer.message or "",
        tuple(Cause(cause.reason or "", cause.message or "", cause.field or "") for cause in details.causes or ()),
    )
    error.retry_after_seconds = _seconds(retry_after, details.retry_after_seconds)
    return error


def _class_of(status: int, reason: str) -> type[ApiError]:
    by_status = BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    return BY_REASON.get(reason, by_status)


def _status_of(body: bytes) -> _Status:
    try:
        return _decode_status(body)
    except msgspec.DecodeError:
        return _Status(message=body[:200].decode("utf-8", "replace").strip())


def _seconds(header: str | None, detail: int | None) -> float | None:
    """How long the server asks to wait. The header may also be a date, which the API server never sends."""
    if header is not None and header.isascii() and header.isdigit():
        return float(header)
    return None if not detail else float(detail)
