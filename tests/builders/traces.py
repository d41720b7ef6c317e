"""Traces of spot pools, made with a seed."""

from __future__ import annotations

import random

from report.trace import UNLIMITED, Span, Trace

DAY = 86_400.0


def pool(seconds: float, *outages: tuple[float, float], room: int = UNLIMITED) -> tuple[Span, ...]:
    """A pool that is there all the time but in these outages: from, until."""
    spans, before = [], 0.0
    for start, end in outages:
        spans += [Span(before, start, room)] if start > before else []
        spans.append(Span(start, end, 0))
        before = end
    return (*spans, Span(before, seconds, room)) if before < seconds else tuple(spans)


def losing(seed: int, pools: int, losses_per_day: float, days: float = 30.0, together: float = 0.0) -> Trace:
    """Pools that go at random for about an hour; each loss takes every other pool with it with such a chance."""
    rng = random.Random(seed)
    outages: list[list[tuple[float, float]]] = [[] for _ in range(pools)]
    at = rng.expovariate(pools * losses_per_day / DAY) if losses_per_day else days * DAY
    while at < days * DAY:
        first = rng.randrange(pools)
        for number, known in enumerate(outages):
            if (number == first or rng.random() < together) and (not known or known[-1][1] < at):
                known.append((at, min(days * DAY, at + rng.uniform(1800, 5400))))
        at += rng.expovariate(pools * losses_per_day / DAY)
    return Trace({f"zone-{number}": pool(days * DAY, *each) for number, each in enumerate(outages)})
