"""Slots: the one idea behind the mix.

For a ratio ρ and a floor b, n replicas have

    spot(n) = min(n − min(b, n), floor(ρ·n))        on_demand(n) = n − spot(n)

Both arguments of `min` grow by 0 or 1 per replica, so `spot` does too, and each slot k has a class of its own:
spot if spot(k+1) > spot(k). With ρ = 70 % and b = 1, slots 0…9 are O S S O S S O S S S: spot(10) = 7, spot(3) = 2,
spot(1) = 0. Any prefix is a correct mix, so pods that take the lowest free slot and leave from the highest need no
move at all when a workload scales.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count, islice

from placement.model import Class


@dataclass(frozen=True, slots=True)
class Mix:
    """How many pods are, or should be, on each class."""

    spot: int = 0
    on_demand: int = 0

    def __add__(self, other: Mix) -> Mix:
        return Mix(self.spot + other.spot, self.on_demand + other.on_demand)

    def __str__(self) -> str:
        return f"{self.spot} spot + {self.on_demand} on-demand"

    @classmethod
    def of(cls, classes: Iterable[Class]) -> Mix:
        counted = list(classes)
        spot = counted.count(Class.SPOT)
        return cls(spot, len(counted) - spot)


@dataclass(frozen=True, slots=True)
class Slots:
    """The sequence of slots that a ratio and a floor come to."""

    ratio: Fraction
    floor: int

    def spot(self, replicas: int) -> int:
        """How many of so many replicas are spot; exact, on-demand is rounded up."""
        return min(replicas - min(self.floor, replicas), self.ratio.numerator * replicas // self.ratio.denominator)

    def mix(self, replicas: int) -> Mix:
        spot = self.spot(replicas)
        return Mix(spot, replicas - spot)

    def class_of(self, slot: int) -> Class:
        return Class.SPOT if self.spot(slot + 1) > self.spot(slot) else Class.ON_DEMAND

    def classes(self, count: int) -> tuple[Class, ...]:
        """The classes of the first slots, for who asks about many of them."""
        return _classes(self.ratio.numerator, self.ratio.denominator, self.floor, count)

    def spot_index(self, slot: int) -> int:
        """Which spot slot this is: 0 for the first. (70 %: slot 4 is the third, index 2.)"""
        return self.spot(slot)


@lru_cache(maxsize=4096)
def _classes(numerator: int, denominator: int, floor: int, count: int) -> tuple[Class, ...]:
    slots = Slots(Fraction(numerator, denominator), floor)
    return tuple(map(slots.class_of, range(count)))


def lowest_free(taken: Collection[int]) -> int:
    return next(slot for slot in count() if slot not in taken)


def with_unslotted(slots: Slots, taken: Iterable[int], unslotted: Iterable[Class | None]) -> set[int]:
    """The taken slots when pods without one are counted by their class, each in the lowest free slot of that class.

    A pod whose class is not known takes the lowest free slot. One that finds none among as many slots as there are
    pods is more than the mix has of its class, and takes none: so newcomers complete the mix. Example, 70 %: ten
    pods that admission missed are all on on-demand nodes. Three of them take slots 0, 3 and 6; the next pod gets
    slot 1 and goes to spot.
    """
    occupied, strangers = set(taken), Counter(unslotted)
    free = [slot for slot in range(len(occupied) + strangers.total()) if slot not in occupied]
    for known in Class:
        occupied.update(islice((slot for slot in free if slots.class_of(slot) is known), strangers[known]))
    left = (slot for slot in free if slot not in occupied)
    return occupied.union(islice(left, strangers[None]))
