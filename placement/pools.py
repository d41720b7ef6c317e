"""Spot pools: in which order slots walk through them, and which one a slot prefers."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence

from placement.model import Class, Pool, Workload
from placement.slots import Slots


def pool_order(pools: Collection[Pool]) -> tuple[Pool, ...]:
    """Pools in the order that slots walk through them: zones take turns, so that neighbours differ in zone.

    Pools a/m, a/r, b/m, c/m come out as a/m, b/m, c/m, a/r.
    """
    rank: dict[Pool, int] = {}
    seen: dict[str, int] = {}
    for pool in sorted(pools, key=lambda pool: (pool.zone, pool.instance_type)):
        rank[pool] = seen.get(pool.zone, 0)
        seen[pool.zone] = rank[pool] + 1
    return tuple(sorted(rank, key=lambda pool: (rank[pool], pool.zone)))


def preferred_pool(slot: int, slots: Slots, workload: Workload, spot_pools: Sequence[Pool]) -> Pool | None:
    """The pool that a spot slot prefers: the j-th spot slot takes pool (start + j) mod P."""
    if slots.class_of(slot) is not Class.SPOT or not spot_pools:
        return None
    return spot_pools[(first_pool(workload) + slots.spot_index(slot)) % len(spot_pools)]


def first_pool(workload: Workload) -> int:
    """Each workload starts elsewhere, or the first pools would hold the first pods of every small workload."""
    return zlib.crc32(f"{workload.kind}/{workload.key}".encode())
