"""Sentences for people, told apart from what scripts read: they may change where behaviour does not."""

from __future__ import annotations

import re
from typing import Any

MASK = "(sentence)"
REASON = "spotweave.dev/reason"

# How the path of a sentence ends, without indexes. A code, such as `reason` of an action, is none.
_ENDS = (
    ("advice",),
    ("blocked",),
    ("blocked", "reason"),
    ("expected",),
    ("exposure", "restsOn"),
    ("exposureAfter", "restsOn"),
    ("lines",),
    ("lost", "proof"),
    ("mistakes",),
    ("paused", "reason"),
    ("perils",),
    ("pods", "reason"),
    ("policy",),
    ("risk",),
    ("skipped", "reason"),
    ("text",),
    ("warnings",),
    ("workload", "reason"),
    ("workloads", "reason"),
    (REASON,),
)
_MOST = max(map(len, _ENDS))
# In a text of Prometheus.
_HELP = re.compile(r"^# HELP .*$", re.MULTILINE)

Sentences = dict[str, str]  # by path


def parted(value: Any) -> tuple[Any, Sentences]:
    """The same value with a mask for each sentence, and the sentences by their paths. Empty ones stay as they are."""
    found: Sentences = {}
    return _masked(value, (), found), found


def _masked(value: Any, path: tuple[str | int, ...], found: Sentences) -> Any:
    if isinstance(value, dict):
        return {key: _masked(inner, (*path, _step(value, key)), found) for key, inner in value.items()}
    if isinstance(value, list):
        return [_masked(inner, (*path, index), found) for index, inner in enumerate(value)]
    if isinstance(value, str) and value and _is_sentence(path):
        found["/".join(map(str, path))] = value
        return MASK
    return value


def _step(parent: dict[str, Any], key: str) -> str:
    """The value of a patch operation goes by what the operation writes to."""
    written = str(parent.get("path", ""))
    is_reason = key == "value" and written.endswith("/" + REASON.replace("/", "~1"))
    return REASON if is_reason else key


def _is_sentence(path: tuple[str | int, ...]) -> bool:
    keys = tuple(each for each in path if isinstance(each, str))
    return any(keys[-length:] in _ENDS for length in range(1, _MOST + 1))


def parted_metrics(text: str) -> tuple[str, str]:
    """The series without what depends on time or the process, and the help lines. Their order says nothing."""
    helps = "\n".join(sorted(_HELP.findall(text)))
    kept = [line for line in text.splitlines() if not line.startswith("# HELP ") and not _is_dropped(line)]
    return "\n".join(sorted(kept)) + "\n", helps + "\n"


# What depends on time or on the process. Counts of the histograms stay.
_DROPPED = re.compile(
    r"spotweave_(?:admission|plan|pass)_seconds_(?:sum|bucket|created)\b"
    r"|spotweave_cache_age_seconds\b"
    r"|spotweave_certificate_expiry_timestamp_seconds\b"
)


def _is_dropped(line: str) -> bool:
    return _DROPPED.match(line) is not None
