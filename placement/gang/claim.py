"""The annotation `preempted-by` of a pod that makes room for a gang: for which, by which plan, with how many others.

    `shop/train/19a2f/8`    one of eight victims of the plan 19a2f, for the gang `train` of `shop`

It is written on all victims before room is reserved, and room is reserved before the first is evicted. So where all
members wait for victims, all victims were marked; and where marks are missing, nothing was evicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from placement import names
from placement.model import Key, Pod


class ClaimKey(NamedTuple):
    """A gang, and its plan."""

    gang: Key
    plan: str


@dataclass(frozen=True, slots=True)
class RoomClaim:
    """The gang, its plan, and the number of victims."""

    gang: Key
    plan: str
    number: int

    @property
    def key(self) -> ClaimKey:
        return ClaimKey(self.gang, self.plan)

    def text(self) -> str:
        return f"{self.gang.namespace}/{self.gang.name}/{self.plan}/{self.number}"


def claim_of(pod: Pod) -> RoomClaim | None:
    """What is written on a victim; None: nothing, or nothing that we wrote. The name of a gang may have slashes."""
    return read_claim(pod.annotations.get(names.PREEMPTED_BY, ""))


def read_claim(text: str) -> RoomClaim | None:
    parts = text.split("/")
    if len(parts) < 4 or not (parts[-1].isascii() and parts[-1].isdigit() and len(parts[-1]) < 7):
        return None
    return RoomClaim(Key(parts[0], "/".join(parts[1:-2])), parts[-2], int(parts[-1]))


def claims_of(pods: Iterable[Pod]) -> Mapping[ClaimKey, list[Pod]]:
    """Victims that still take room, by what they go for."""
    found: dict[ClaimKey, list[Pod]] = {}
    for pod in pods:
        claim = claim_of(pod)
        if claim is not None and pod.is_on_node:
            found.setdefault(claim.key, []).append(pod)
    return found


def is_complete(pods: Iterable[Pod]) -> bool:
    """All that were to be marked are marked, and none of them ends."""
    there = list(pods)
    return all(
        not pod.terminating and (claim := claim_of(pod)) is not None and claim.number == len(there) for pod in there
    )
