"""How long to wait before something is tried again: twice as long each time, up to a limit."""

from __future__ import annotations

MOST_DOUBLINGS = 30  # 2 s become 68 years; more would only be too much for a float, at 1,024


def doubled(first_seconds: float, times: int, longest_seconds: float) -> float:
    """5 minutes, doubled 3 times, an hour at most: 40 minutes. Any count will do: what was written may be garbled."""
    return min(longest_seconds, first_seconds * float(2 ** max(0, min(times, MOST_DOUBLINGS))))
