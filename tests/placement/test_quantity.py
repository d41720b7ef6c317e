"""Quantities: every way in which Kubernetes writes an amount."""

from fractions import Fraction

import pytest

from placement.quantity import amount, quantity

QUANTITIES: dict[str, tuple[object, Fraction]] = {
    "a number": ("3", Fraction(3)),
    "a number that is none on the wire": (3, Fraction(3)),
    "a decimal": ("0.25", Fraction(1, 4)),
    "no digit before the point": (".5", Fraction(1, 2)),
    "no digit after it": ("2.", Fraction(2)),
    "thousandths": ("250m", Fraction(1, 4)),
    "millionths": ("5u", Fraction(5, 10**6)),
    "billionths, as metrics have them": ("7n", Fraction(7, 10**9)),
    "thousands": ("2k", Fraction(2000)),
    "millions": ("2M", Fraction(2 * 10**6)),
    "an E alone is a unit": ("1E", Fraction(10**18)),
    "an E before digits is an exponent": ("1E3", Fraction(1000)),
    "a small e is an exponent": ("1e3", Fraction(1000)),
    "a negative exponent": ("5e-3", Fraction(1, 200)),
    "a float as Python writes it": (1e-7, Fraction(1, 10**7)),
    "binary units": ("1.5Gi", Fraction(3 * 2**29)),
    "the largest": ("1Ei", Fraction(2**60)),
    "a plus": ("+1", Fraction(1)),
    "a minus counts as nothing": ("-1", Fraction(0)),
    "an unknown unit": ("1Xi", Fraction(0)),
    "a small K": ("1ki", Fraction(0)),
    "two units": ("1mm", Fraction(0)),
    "an exponent that no machine has": ("1e999999999", Fraction(0)),
    "more digits than anybody writes": ("1" * 33, Fraction(0)),
    "digits of another script": ("٣", Fraction(0)),
    "a new line": ("1\n", Fraction(0)),
    "a word": ("many", Fraction(0)),
    "an empty text": ("", Fraction(0)),
    "nothing": (None, Fraction(0)),
    "a truth": (True, Fraction(0)),
    "a list": ([1], Fraction(0)),
}


@pytest.mark.parametrize(("value", "expected"), QUANTITIES.values(), ids=QUANTITIES.keys())
def test_a_quantity_is_exact_and_what_cannot_be_read_counts_as_nothing(value: object, expected: Fraction) -> None:
    """Nothing is rounded, and nothing raises."""
    assert quantity(value) == expected


AMOUNTS = {
    "CPU in thousandths": ("cpu", "1500m", 1500),
    "of a quota, too": ("requests.cpu", "2", 2000),
    "CPU is rounded up": ("cpu", "100u", 1),
    "memory in bytes": ("memory", "1Ki", 1024),
    "thousandths of a byte are rounded up": ("memory", "1500m", 2),
    "pieces": ("example.com/gpu", "2", 2),
    "a resource whose name only ends like one": ("example.com/vcpu", "2", 2),
}


@pytest.mark.parametrize(("resource", "value", "expected"), AMOUNTS.values(), ids=AMOUNTS.keys())
def test_an_amount_is_whole(resource: str, value: str, expected: int) -> None:
    """Rounded up as the scheduler does, so that no pod is thought smaller than it is."""
    assert amount(resource, value) == expected
