"""Kubernetes' quantities: "250m", "1.5Gi", "2k", "1e3", "1E", exactly."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

NONE = Fraction(0)
_LONGEST = 32  # characters; real quantities are shorter
_QUANTITY = re.compile(r"\+?(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d{1,2})|(n|u|m|k|[MGTPE]|[KMGTPE]i)?)", re.ASCII)
_UNITS = {
    "": Fraction(1),
    **{unit: Fraction(1, 1000**power) for power, unit in enumerate(("m", "u", "n"), 1)},
    **{unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", 1)},
    **{unit: Fraction(1024**power) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


def quantity(value: object) -> Fraction:
    """What it amounts to; what cannot be read counts as nothing. ("1E" is 10¹⁸, "1E3" a thousand.)"""
    text = value if isinstance(value, str) else str(value)
    return _parsed(text) if len(text) <= _LONGEST else NONE


def amount(resource: str, value: object) -> int:
    """In whole units, rounded up as the scheduler does; CPU, also of a quota ("requests.cpu"), in thousandths."""
    scale = 1000 if resource == "cpu" or resource.endswith(".cpu") else 1
    scaled = quantity(value) * scale
    return -(-scaled.numerator // scaled.denominator)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Fraction:
    matched = _QUANTITY.fullmatch(text)
    if matched is None:
        return NONE
    digits, exponent, unit = matched.groups()
    return Fraction(digits) * (Fraction(10) ** int(exponent) if exponent else _UNITS[unit or ""])
