"""What people are shown of pods that are not placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from placement.model import Snapshot
from placement.skipped import SkipCounts, SkipReason, skipped_among

MOST_NAMED = 3  # namespaces in a sentence


def skipped_in(snapshot: Snapshot, namespace: str | None = None) -> SkipCounts:
    """Of the opted-in namespaces, or of one of them."""
    asked = {name for name, each in snapshot.namespaces.items() if each.is_opted_in and namespace in (None, name)}
    return skipped_among(
        (pod for pod in snapshot.pods if pod.namespace in asked),
        {each.uid: each for each in snapshot.replica_sets},
        {each.uid: each for each in snapshot.workloads},
    )


def skipped_json(found: SkipCounts) -> list[dict[str, Any]]:
    """The most first; those of one size in the order of namespace and reason."""
    ordered = sorted(found.items(), key=lambda each: (-each[1], each[0]))
    return [
        {"namespace": namespace, "reason": str(reason), "pods": pods, "text": reason.text}
        for (namespace, reason), pods in ordered
    ]


def skipped_sentence(found: SkipCounts) -> str:
    """`Not placed: 5 pods in shop, ops (3 owned by a Job, 2 opted out)`; "" where there are none."""
    if not found:
        return ""
    by_reason = Counter[SkipReason]()
    for (_, reason), pods in found.items():
        by_reason[reason] += pods
    ordered = sorted(by_reason.items(), key=lambda each: (-each[1], each[0]))
    parts = ", ".join(f"{pods} {reason.text}" for reason, pods in ordered)
    count = "1 pod" if by_reason.total() == 1 else f"{by_reason.total()} pods"
    return f"Not placed: {count} in {_named(sorted({namespace for namespace, _ in found}))} ({parts})"


def _named(namespaces: Collection[str]) -> str:
    first = list(namespaces)[:MOST_NAMED]
    more = len(namespaces) - len(first)
    return ", ".join(first) + (f" and {more} more namespaces" if more > 1 else " and 1 more namespace" if more else "")
