"""One table from HTTP status to exception."""

from typing import Any

import pytest

from kube.errors import (
    AlreadyExists,
    ApiError,
    Cause,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    error_from,
)
from tests.builders.api import status

CASES: dict[str, tuple[int, bytes, type[ApiError]]] = {
    "a bad request has no class of its own": (400, status(400, "BadRequest"), ApiError),
    "credentials refused": (401, status(401, "Unauthorized"), Unauthorized),
    "not allowed": (403, status(403, "Forbidden"), Forbidden),
    "not there": (404, status(404, "NotFound"), NotFound),
    "a precondition fails": (409, status(409, "Conflict"), Conflict),
    "the name is taken": (409, status(409, "AlreadyExists"), AlreadyExists),
    "the version is too old": (410, status(410, "Expired"), Gone),
    "gone without a reason": (410, b"", Gone),
    "expired is gone whatever the status": (500, status(0, "Expired"), Gone),
    "breaks a rule": (422, status(422, "Invalid"), Invalid),
    "too many": (429, status(429, "TooManyRequests"), TooManyRequests),
    "the server failed": (500, status(500, "InternalError"), ServerError),
    "a proxy's page instead of a Status": (503, b"<html>no healthy upstream</html>", ServerError),
    "an event's own code counts, since a watch has answered 200": (500, status(403, "Forbidden"), Forbidden),
}


@pytest.mark.parametrize(("code", "body", "expected"), CASES.values(), ids=CASES.keys())
def test_each_status_has_its_exception(code: int, body: bytes, expected: type[ApiError]) -> None:
    """The class says what happened, exactly, so that `except` clauses need no codes."""
    assert type(error_from("GET /x", code, body)) is expected


def test_the_text_says_what_was_asked_and_what_the_server_said() -> None:
    """A log line with the exception alone can be understood."""
    error = error_from("GET /api/v1/pods/a", 404, status(404, "NotFound", 'pods "a" not found'))
    assert str(error) == 'GET /api/v1/pods/a: 404 NotFound: pods "a" not found'


def test_a_page_of_a_proxy_is_quoted_in_part() -> None:
    """What is no Status object is shown, but not at any length."""
    error = error_from("GET /x", 502, b"bad gateway" + b"x" * 1000)
    assert error.message.startswith("bad gateway")
    assert len(error.message) == 200


def test_no_answer_names_the_cause() -> None:
    """Unreachable has no status, but a reason."""
    assert str(Unreachable("GET /x", "refused")) == "GET /x: no answer: refused"


def test_causes_are_kept() -> None:
    """The fields that break a rule are named by the server; they must not get lost."""
    causes = [{"reason": "FieldValueInvalid", "message": "must be > 0", "field": "spec.replicas"}]
    error = error_from("POST /x", 422, status(422, "Invalid", causes=causes))
    assert error.causes == (Cause("FieldValueInvalid", "must be > 0", "spec.replicas"),)


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        pytest.param({"causes": [{"reason": "DisruptionBudget", "message": "needs 3"}]}, True, id="a budget"),
        pytest.param({"retryAfterSeconds": 1}, False, id="a busy server"),
        pytest.param({}, False, id="nothing said"),
    ],
)
def test_a_budget_is_told_from_a_busy_server(details: dict[str, Any], expected: bool) -> None:
    """Both are 429 on an eviction; only the cause tells them apart."""
    error = error_from("POST /x/eviction", 429, status(429, "TooManyRequests", **details))
    assert isinstance(error, TooManyRequests)
    assert error.is_disruption_budget is expected


@pytest.mark.parametrize(
    ("header", "detail", "expected"),
    [
        pytest.param("3", None, 3.0, id="the header"),
        pytest.param(None, 7, 7.0, id="the Status object"),
        pytest.param("3", 7, 3.0, id="the header wins"),
        pytest.param("Wed, 21 Oct 2026 07:28:00 GMT", None, None, id="a date is not understood"),
        pytest.param(None, None, None, id="neither"),
        pytest.param(None, 0, None, id="zero is no wish"),
    ],
)
def test_how_long_to_wait(header: str | None, detail: int | None, expected: float | None) -> None:
    """`retry_after_seconds` is what the server asked for, wherever it said so."""
    details: dict[str, Any] = {} if detail is None else {"retryAfterSeconds": detail}
    body = status(429, "TooManyRequests", **details)
    assert error_from("GET /x", 429, body, header).retry_after_seconds == expected
