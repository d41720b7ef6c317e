"""Who has to go when there is no room for another connection. Pure.

Those that have been silent for longer than a caller is go first. Then the source with the most connections gives one
up: first one in the middle of a request, then one that has just come, then one that waits for the next request, the
oldest of each. One that is being answered never goes. So a flood from one address displaces itself and nobody else,
whatever it sends.

Example, one place needed. 10.0.0.1, an API server, has 2 idle connections; 10.0.0.9 has 3 idle and 1 silent. The silent
one goes. Next time it is the oldest idle one of 10.0.0.9, which still has 3.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from enum import IntEnum
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple, TypeVar

C = TypeVar("C")
IPV6_BITS = 64  # one machine has as many addresses as this leaves


class Rank(IntEnum):
    """Who goes first."""

    SILENT = 0  # has not completed a request, and has had the time to
    SENDING = 1  # has begun another one
    ARRIVING = 2  # has just come
    IDLE = 3
    BUSY = 4  # never


class Seat(NamedTuple):
    """What a connection has to say for itself when another one wants its place."""

    source: str
    rank: Rank
    since: float


def source_of(address: str) -> str:
    """Whose connections count together: an address; of IPv6 its network, because a machine has many addresses."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped) if mapped is not None else str(IPv6Address(int(found) >> IPV6_BITS << IPV6_BITS))
    return address


def leaving(crowd: Mapping[C, Seat], count: int) -> list[C]:
    """So many of them, or as many as may go."""
    sizes = Counter(each.source for each in crowd.values())
    gone: defaultdict[str, int] = defaultdict(int)
    ordered: list[tuple[bool, int, Rank, float, int, C]] = []
    oldest_first = sorted(crowd.items(), key=lambda item: (item[1].rank, item[1].since))
    for who, claim in oldest_first:
        if claim.rank is not Rank.BUSY:
            left = sizes[claim.source] - gone[claim.source]  # when its turn comes
            gone[claim.source] += 1
            ordered.append((claim.rank is not Rank.SILENT, -left, claim.rank, claim.since, len(ordered), who))
    return [each[-1] for each in sorted(ordered, key=lambda each: each[:-1])[:count]]
