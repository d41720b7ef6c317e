"""Whether a node that Karpenter deletes has expired."""

from __future__ import annotations

from typing import Any

import pytest

from kube.nodeclaims import has_expired, is_expired, lifetime
from placement.model import Node

CREATED, AFTER_2M = "2026-01-01T10:00:00Z", "2026-01-01T10:02:00Z"


def raw_claim(after: str | None, deleted: str | None) -> dict[str, Any]:
    meta = {"name": "local-abc", "creationTimestamp": CREATED}
    return {
        "metadata": meta | ({"deletionTimestamp": deleted} if deleted else {}),
        "spec": {"expireAfter": after} if after else {},
    }


@pytest.mark.parametrize(
    ("after", "deleted", "expected"),
    [
        ("2m", AFTER_2M, True),
        ("1m30s", AFTER_2M, True),
        ("2m1s", AFTER_2M, False),
        ("720h", AFTER_2M, False),
        ("Never", AFTER_2M, False),
        (None, AFTER_2M, False),
        ("2m", None, False),
    ],
)
def test_a_claim_that_was_deleted_at_its_age_has_expired(after: str, deleted: str, expected: bool) -> None:
    assert has_expired(raw_claim(after, deleted)) is expected


def test_lifetimes_are_read_as_karpenter_writes_them() -> None:
    assert [lifetime(text) for text in ("90s", "1h30m", "1.5h", "500ms")] == [90.0, 5400.0, 5400.0, 0.5]
    assert [lifetime(text) for text in ("", "Never", "soon", "-2m", "5")] == [None] * 5


class NodeAnswers:
    """An API server with one node and its claim."""

    def __init__(self, *owners: dict[str, str], uid: str = "n") -> None:
        self.asked: list[str] = []
        self._raw = {"/api/v1/nodes/spot-1": {"metadata": {"uid": uid, "ownerReferences": [*owners]}}}
        self._raw["/apis/karpenter.sh/v1/nodeclaims/local-abc"] = raw_claim("2m", AFTER_2M)

    def get_json(self, path: str, **_: Any) -> dict[str, Any]:
        self.asked.append(path)
        return self._raw[path]


CLAIM = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "local-abc", "uid": "c"}


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        pytest.param(NodeAnswers(CLAIM), True, id="its claim"),
        pytest.param(NodeAnswers(), False, id="no claim"),
        pytest.param(NodeAnswers({**CLAIM, "apiVersion": "example.com/v1"}), False, id="a claim of somebody else"),
        pytest.param(NodeAnswers(CLAIM, uid="another"), False, id="another node of its name"),
    ],
)
def test_the_claim_is_the_one_that_owns_the_node(there: Any, expected: bool) -> None:
    assert is_expired(there, Node("spot-1", uid="n")) is expected
    assert len(there.asked) == (2 if expected else 1)
