"""Observations of spot pools: how long each was watched and how often it was lost. Kept in `spotweave-state`.

    {"version": 3, "at": 1750000000, "rates": {"zone-a/m5": 2.0},
     "pools": {"zone-a/m5": {"hours": 720.0, "nodeHours": 2880.0, "losses": 3.0, "nodeLosses": 1.0,
                             "seen": 1750000000, "episode": [1749990000, 4, 2]}}}

Nodes of one pool that go within ten minutes are one episode. The pool counts as lost, once, if the episode takes all
of its nodes, or several nodes and at least a quarter of them. Otherwise each node counts by itself. Example: a pool has
4 nodes. The first loss is that of a node. The second, three minutes later, makes it the loss of the pool. The third
adds nothing. If two of 12 nodes go, these are two losses of nodes.

Older observations fade: after 90 days, hours and losses shrink together, so that one more hour still leaves 90 days.

Exposure uses the pools as noted. `auto` uses `rates`, which are updated once a day and rounded up to powers of two, so
that ratios change rarely and all programs read the same. Example: 0.9 losses in 30 days are noted as 1. That becomes 2
above 1, and 0.5 only at 0.4 and below.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from placement.autostate import Chosen, key_of
from placement.bursts import NO_BURSTS, Bursts, bounded, parse_bursts, raw_bursts, with_loss
from placement.risk import DAY_HOURS, NODE_PRIOR, ON_DEMAND_NODE_RATE, POOL_PRIOR, monthly

KEY = "interruptions.json"
EPISODE_SECONDS = 600.0
LARGE_PART = 4  # a quarter of a pool is more than single nodes
LONGEST_HOURS = 90 * DAY_HOURS
DAY_SECONDS = DAY_HOURS * 3600
FORGOTTEN_SECONDS = 90 * DAY_SECONDS  # without a node
MOST_POOLS = 300
LOWER = 0.8  # of the next lower step: a noted rate goes down only below this


@dataclass(frozen=True, slots=True)
class PoolRecord:
    """One pool. Losses fade, so they are not whole numbers."""

    hours: float = 0.0  # watched, while it had nodes
    node_hours: float = 0.0
    losses: float = 0.0  # of the pool
    node_losses: float = 0.0  # of single nodes
    seen: float = 0.0  # when it last had a node, in seconds since 1970
    began: float = 0.0  # start of the latest episode
    had: int = 0  # nodes when the episode began
    taken: int = 0  # nodes lost since then

    def watched(self, seconds: float, node_seconds: float, now: float) -> PoolRecord:
        hours = self.hours + seconds / 3600
        keep = min(1.0, LONGEST_HOURS / hours) if hours else 1.0
        return replace(
            self,
            hours=hours * keep,
            node_hours=(self.node_hours + node_seconds / 3600) * keep,
            losses=self.losses * keep,
            node_losses=self.node_losses * keep,
            seen=max(self.seen, now),
        )

    def interrupted(self, had: int, now: float) -> PoolRecord:
        """With one more lost node; `had` is the number of nodes before."""
        is_same = self.taken > 0 and abs(now - self.began) < EPISODE_SECONDS
        before = self if is_same else replace(self, began=now, had=max(1, had), taken=0)
        after = replace(before, taken=before.taken + 1)
        if before.is_large:
            return after
        if after.is_large:
            node_losses = max(0.0, self.node_losses - before.taken)
            return replace(after, losses=self.losses + 1, node_losses=node_losses)
        return replace(after, node_losses=self.node_losses + 1)

    @property
    def is_large(self) -> bool:
        """The latest episode took the pool, not single nodes of it."""
        return self.taken >= self.had > 0 or (self.taken > 1 and self.taken * LARGE_PART >= self.had)

    @property
    def rate(self) -> float:
        return monthly(self.losses, self.hours, POOL_PRIOR)

    @property
    def node_rate(self) -> float:
        return monthly(self.node_losses, self.node_hours, NODE_PRIOR)

    @property
    def raw(self) -> dict[str, Any]:
        return {
            "hours": round(self.hours, 3),
            "nodeHours": round(self.node_hours, 3),
            "losses": round(self.losses, 4),
            "nodeLosses": round(self.node_losses, 4),
            "seen": round(self.seen),
            "episode": [round(self.began), self.had, self.taken],
        }


NEVER_WATCHED = PoolRecord()


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates that `auto` uses: losses of each pool in 30 days, in steps. Another version is another table."""

    version: int = 0
    pools: Mapping[str, float] = field(default_factory=dict)
    chosen: Mapping[str, Chosen] = field(default_factory=dict)  # by `key_of` a workload

    def chosen_for(self, uid: str) -> Chosen | None:
        return self.chosen.get(key_of(uid)) if self.chosen else None

    @property
    def falling(self) -> tuple[float, ...]:
        return tuple(sorted(self.pools.values(), reverse=True))


@dataclass(frozen=True, slots=True)
class Interruption:
    """A node of a pool was lost, or its end was announced; `had` is the number of nodes before."""

    pool: str
    had: int
    at: float


@dataclass(frozen=True, slots=True)
class Watch:
    """How long a pool with nodes was watched, and the sum of that time over its nodes."""

    seconds: float = 0.0
    node_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Observed:
    """All observations, and the rates computed from them."""

    rates: Rates = Rates()
    at: float = 0.0  # when the rates were computed
    pools: Mapping[str, PoolRecord] = field(default_factory=dict)
    bursts: Bursts = NO_BURSTS

    def of(self, pool: str) -> PoolRecord:
        return self.pools.get(pool, NEVER_WATCHED)

    def node_rate(self, pool: str) -> float:
        """The rate of a single node of a pool, or of on-demand ("")."""
        return self.of(pool).node_rate if pool else ON_DEMAND_NODE_RATE


NOTHING_OBSERVED = Observed()


def extended(
    observed: Observed, watches: Mapping[str, Watch], interruptions: Iterable[Interruption], now: float
) -> Observed:
    """Adds what was seen since."""
    pools = dict(observed.pools)
    for name, watch in watches.items():
        pools[name] = pools.get(name, NEVER_WATCHED).watched(watch.seconds, watch.node_seconds, now)
    bursts = bounded(observed.bursts, now)
    for each in interruptions:
        before = pools.get(each.pool, NEVER_WATCHED)
        after = pools[each.pool] = before.interrupted(each.had, each.at)
        bursts = with_loss(bursts, each.pool, each.at) if after.losses > before.losses else bursts
    return _settled(replace(observed, pools=_bounded(pools, now), bursts=bursts), now)


def _bounded(pools: Mapping[str, PoolRecord], now: float) -> dict[str, PoolRecord]:
    """Drops pools that were not seen for long. If there are too many, those seen last are kept."""
    known = [(name, record) for name, record in pools.items() if now < _touched(record) + FORGOTTEN_SECONDS]
    latest = sorted(known, key=lambda each: (-_touched(each[1]), each[0]))[:MOST_POOLS]
    return dict(sorted(latest))


def _touched(record: PoolRecord) -> float:
    return max(record.seen, record.began)


def _settled(observed: Observed, now: float) -> Observed:
    """Computes the rates again once a day, for pools that were watched for a day and seen within the last day."""
    if observed.at <= now < observed.at + DAY_SECONDS:  # a time in the future comes from a wrong clock
        return observed
    known = observed.rates.pools
    pools = {
        name: step(record.rate, known.get(name))
        for name, record in observed.pools.items()
        if record.hours >= DAY_HOURS and now < record.seen + DAY_SECONDS
    }
    if not pools:
        return observed  # all spot is gone, or no pool was watched for long enough: keep what is known
    rates = observed.rates if pools == known else Rates(observed.rates.version + 1, pools)
    return replace(observed, rates=rates, at=now)


def step(rate: float, before: float | None = None) -> float:
    """Rounded up to a power of two. The previous step is kept until the rate clearly differs."""
    if before and LOWER * before / 2 < rate <= before:
        return before
    return float(2.0 ** math.ceil(math.log2(rate)))


# --- text ------------------------------------------------------------------------------------------------------------


def parse_observed(text: str) -> Observed:
    """The noted observations. Raises ValueError if the text cannot be read."""
    try:
        raw = json.loads(text)
        rates = {str(name): _amount(rate) for name, rate in raw["rates"].items()}
        pools = {str(name): _record(record) for name, record in raw["pools"].items()}
        bursts = parse_bursts(raw["bursts"]) if "bursts" in raw else NO_BURSTS
        return Observed(Rates(int(raw["version"]), rates), _amount(raw["at"]), pools, bursts)
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"{KEY} is unreadable: {type(error).__name__}: {error}") from error


def _record(raw: dict[str, Any]) -> PoolRecord:
    began, had, taken = raw["episode"]
    return PoolRecord(
        _amount(raw["hours"]),
        _amount(raw["nodeHours"]),
        _amount(raw["losses"]),
        _amount(raw["nodeLosses"]),
        _amount(raw["seen"]),
        _amount(began),
        int(had),
        int(taken),
    )


def _amount(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is not an amount")
    return float(value)


def observed_text(observed: Observed) -> str:
    return json.dumps(
        {
            "version": observed.rates.version,
            "at": round(observed.at),
            "rates": dict(sorted(observed.rates.pools.items())),
            "pools": {name: record.raw for name, record in observed.pools.items()},
            "bursts": raw_bursts(observed.bursts),
        }
    )
