"""What people are shown of pods that are not placed."""

from __future__ import annotations

from placement import names
from placement.model import Namespace, Owner, Pod, Snapshot
from placement.skipped import SkipReason
from report.skipped import skipped_in, skipped_json, skipped_sentence

OPTED_IN = {names.PLACEMENT: names.ENABLED}
JOB = Owner("Job", "x", "x", "batch")
SNAPSHOT = Snapshot(
    {
        "shop": Namespace("shop", OPTED_IN),
        "ops": Namespace("ops", OPTED_IN),
        "plain": Namespace("plain"),
    },
    pods=(
        Pod("shop", "a", owner=JOB),
        Pod("shop", "b", owner=JOB),
        Pod("ops", "c"),
        Pod("plain", "d", owner=JOB),
    ),
)


def test_only_opted_in_namespaces_count() -> None:
    """All of them, or the one that is asked for."""
    assert skipped_in(SNAPSHOT) == {("shop", SkipReason.JOB): 2, ("ops", SkipReason.BARE_POD): 1}
    assert skipped_in(SNAPSHOT, "ops") == {("ops", SkipReason.BARE_POD): 1}
    assert skipped_in(SNAPSHOT, "plain") == {}


def test_the_json_lists_the_most_first() -> None:
    """With the reason as metrics have it, and as people read it."""
    assert skipped_json(skipped_in(SNAPSHOT)) == [
        {"namespace": "shop", "reason": "job", "pods": 2, "text": "owned by a Job"},
        {"namespace": "ops", "reason": "bare-pod", "pods": 1, "text": "without an owner"},
    ]


def test_the_sentence_is_one_line() -> None:
    """Counts by reason over all namespaces; nothing where every pod is placed."""
    told = "Not placed: 3 pods in ops, shop (2 owned by a Job, 1 without an owner)"
    assert skipped_sentence(skipped_in(SNAPSHOT)) == told
    assert skipped_sentence({}) == ""
    assert skipped_sentence({("shop", SkipReason.JOB): 1}) == "Not placed: 1 pod in shop (1 owned by a Job)"


def test_many_namespaces_are_not_all_named() -> None:
    """The JSON names them."""
    found = {(f"team-{number}", SkipReason.JOB): 1 for number in range(9)}
    assert "in team-0, team-1, team-2 and 6 more namespaces (9 owned by a Job)" in skipped_sentence(found)
