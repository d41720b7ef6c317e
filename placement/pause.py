"""A pause: the rebalancer moves nothing until it is over. Noted in the ConfigMap `spotweave-state`, beside the outages.

    {"since": 1750000000, "until": 1750003600, "by": "alice", "reason": "black friday"}

`until` is null if the pause lasts until `spotweave resume`. Admission continues meanwhile. A note that cannot be read
counts as a pause without an end: its author wanted something, and moving pods would be the worse mistake.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

KEY = "pause.json"


@dataclass(frozen=True, slots=True)
class Pause:
    """Since when, until when (seconds since 1970; None: until `resume`), by whom and why."""

    since: float
    until: float | None = None
    by: str = "operator"
    reason: str = ""
    is_garbled: bool = False

    def stands(self, now: float) -> bool:
        return self.until is None or now < self.until

    @property
    def raw(self) -> dict[str, Any]:
        return {"since": self.since, "until": self.until, "by": self.by, "reason": self.reason}


def parse_pause(text: str) -> Pause | None:
    """What is noted; None where nothing is. Never fails: what is garbled is a pause that says so."""
    if not text.strip():
        return None
    try:
        raw = json.loads(text)
        if raw is None:
            return None
        until = raw["until"]
        return Pause(
            _moment(raw["since"]),
            None if until is None else _moment(until),
            str(raw.get("by", "operator")),
            str(raw.get("reason", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        told = f"{KEY} is unreadable, which counts as a pause ({type(error).__name__}: {error})"
        return Pause(0.0, by="unknown", reason=told[:200], is_garbled=True)


def _moment(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a time")
    return float(value)


def pause_text(pause: Pause) -> str:
    return json.dumps(pause.raw)


def standing(pause: Pause | None, now: float) -> Pause | None:
    """The pause, unless it is over."""
    return pause if pause is not None and pause.stands(now) else None
