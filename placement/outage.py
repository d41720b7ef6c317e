"""Outages: a class that is out for a while, noted in the ConfigMap `spotweave-state`, key `outages.json`.

    {"version": 3, "outages": [{"class": "spot", "until": 1750000000}]}

While one stands, slots of that class are admitted soft: the class is preferred, no longer required.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from placement.model import Class

KEY = "outages.json"


@dataclass(frozen=True, slots=True)
class Outage:
    """A class that is out until a moment (seconds since 1970)."""

    of: Class
    until: float


@dataclass(frozen=True, slots=True)
class Outages:
    """What is noted, and its version, which each reader shows."""

    version: int = 0
    noted: tuple[Outage, ...] = ()

    def stands(self, of: Class, now: float) -> bool:
        return any(outage.of is of and now < outage.until for outage in self.noted)


def parse_outages(text: str) -> Outages:
    """What was noted; ValueError where the text is garbled (then the reader keeps what it had)."""
    try:
        raw = json.loads(text)
        noted = tuple(Outage(Class(entry["class"]), float(entry["until"])) for entry in raw["outages"])
        return Outages(int(raw["version"]), noted)
    except (KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"outages are garbled: {error}") from error
