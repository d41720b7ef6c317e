"""Sentences that several commands say: about a pause, an outage, a moment."""

from __future__ import annotations

from datetime import UTC, datetime

from placement.outage import Outage
from placement.pause import Pause


def pause_sentence(pause: Pause) -> str:
    """`Paused since 2026-11-16 18:00:00Z, until 2026-11-16 19:00:00Z, by alice: black friday`."""
    if pause.is_garbled:
        return f"Paused: {pause.reason}; `spotweave resume` clears it"
    until = "until `spotweave resume`" if pause.until is None else f"until {moment(pause.until)}"
    reason = f": {pause.reason}" if pause.reason else ""
    return f"Paused since {moment(pause.since)}, {until}, by {pause.by}{reason}"


def moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):  # after the year 9999
        return "the end of time" if seconds > 0 else "the beginning of time"


def outage_sentence(outage: Outage) -> str:
    """`Spot is out in zone-a for any pod, until 2026-11-16 19:00:00Z, by operator`."""
    return f"{outage.sentence}, until {moment(outage.until)}, by {outage.by}"


NOT_INSTALLED = "Spotweave is not installed in this cluster, or its namespace is gone (docs/install.md)."
NO_LEADER = "No rebalancer leads: no pod is moved. `spotweave doctor` says why."
NO_WEBHOOK = "No webhook answers: new pods are created without placement. `spotweave doctor` says why."


def life_sentences(*, is_installed: bool, has_webhook: bool, has_leader: bool) -> list[str]:
    """What is to be known before anything else; nothing if all programs live."""
    if not is_installed:
        return [NOT_INSTALLED]
    return [*([] if has_webhook else [NO_WEBHOOK]), *([] if has_leader else [NO_LEADER])]
