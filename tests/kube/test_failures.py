"""What a controller says about pods that it could not create: its condition, its latest Event, or nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from kube.client import Client
from kube.errors import ApiError, Forbidden
from kube.failures import RECENT_SECONDS, creation_failure
from placement.model import Owner

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
WEB = Owner("ReplicaSet", "web-abc", "rs")
DB = Owner("StatefulSet", "db", "ss")
SET = "/apis/apps/v1/namespaces/shop/replicasets/web-abc"
EVENTS = "/apis/events.k8s.io/v1/namespaces/shop/events"
FAILED = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "the first failure"}


class Answers:
    """An API that answers reads from a table, and remembers what was asked."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def get_json(self, path: str, query: dict[str, Any] | None = None, **_bounds: Any) -> Any:
        self.asked.append((path, query or {}))
        found = self._answers.get(path, {"items": []})
        if isinstance(found, ApiError):
            raise found
        return found

    def failure(self, owner: Owner) -> str:
        return creation_failure(cast(Client, self), owner, "shop", NOW.timestamp())


def replica_set(*conditions: dict[str, str], uid: str = "rs") -> dict[str, Any]:
    return {"metadata": {"uid": uid}, "status": {"conditions": list(conditions)}}


def event(note: str, seconds_ago: float, field: str = "deprecatedLastTimestamp") -> dict[str, Any]:
    at = (NOW - timedelta(seconds=seconds_ago)).isoformat()
    told = {"series": {"lastObservedTime": at}} if field == "series" else {field: at}
    return {"metadata": {"creationTimestamp": "2026-03-01T09:00:00Z"}, "note": note, **told}


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([FAILED], "the first failure"),
        ([], ""),
        ([{**FAILED, "status": "False"}], ""),
        ([{**FAILED, "reason": "FailedDelete"}], ""),
        ([{"type": "Odd"}, FAILED], "the first failure"),
    ],
    ids=["failed", "no condition", "over", "could not delete", "among others"],
)
def test_a_replica_sets_condition_tells(conditions: list[dict[str, str]], expected: str) -> None:
    """It goes with the next creation that succeeds."""
    assert Answers({SET: replica_set(*conditions)}).failure(WEB) == expected


def test_the_latest_event_knows_better_than_the_condition() -> None:
    """The condition keeps the message of the first failure: a full quota, and only then the policy."""
    events = {"items": [event("a quota", 30), event("a policy", 2), event("older", 60)]}
    api = Answers({SET: replica_set(FAILED), EVENTS: events})
    assert api.failure(WEB) == "a policy"
    assert api.asked[-1][1]["fieldSelector"] == "regarding.uid=rs,reason=FailedCreate"


def test_events_of_a_replica_set_whose_pods_are_created_are_not_read() -> None:
    """They stay for an hour."""
    api = Answers({SET: replica_set(), EVENTS: {"items": [event("a policy", 2)]}})
    assert api.failure(WEB) == ""
    assert len(api.asked) == 1


def test_another_replica_set_of_that_name_tells_nothing() -> None:
    """It was deleted and created again while we asked."""
    assert Answers({SET: replica_set(FAILED, uid="another")}).failure(WEB) == ""


@pytest.mark.parametrize("field", ["series", "deprecatedLastTimestamp", "eventTime"])
def test_a_stateful_sets_recent_events_tell(field: str) -> None:
    """Wherever their writer notes the time; what is older tells of another trouble."""
    assert Answers({EVENTS: {"items": [event("a policy", 5, field)]}}).failure(DB) == "a policy"
    assert Answers({EVENTS: {"items": [event("a policy", RECENT_SECONDS + 1, field)]}}).failure(DB) == ""


def test_what_cannot_be_read_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """RBAC may forbid it, objects go: then pods are admitted as ever, and the log says why."""
    api = Answers({SET: Forbidden(f"GET {SET}", 403, "Forbidden", "no")})
    assert api.failure(WEB) == ""
    assert "cannot see why pods of ReplicaSet shop/web-abc are not created" in caplog.text
