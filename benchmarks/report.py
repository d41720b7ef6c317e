"""The results of interleaved rounds: medians, ratios within rounds and their spread, a table and a JSON file."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

OUT = Path(__file__).parent.parent / "out" / "bench"

Round = Mapping[str, Mapping[str, float]]  # contender → figure → value


def rounds_wanted(usual: int) -> int:
    """$ROUNDS, or the usual number of this benchmark."""
    return int(os.environ.get("ROUNDS", usual))


@dataclass(frozen=True, slots=True)
class Ratio:
    """One contender's figure over another's: the median of the rounds, and the rounds furthest from it."""

    median: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.lowest:.2f}–{self.highest:.2f})"


def ratio(rounds: Sequence[Round], figure: str, one: str, other: str) -> Ratio | None:
    """Taken within each round, since the machine differs between rounds; None if it cannot be computed."""
    found = [each[one][figure] / each[other][figure] for each in rounds if each[other].get(figure)]
    return Ratio(statistics.median(found), min(found), max(found)) if found else None


def tell(
    name: str, title: str, rounds: Sequence[Round], figures: Mapping[str, str], pairs: Sequence[tuple[str, str]]
) -> None:
    """Prints a row for each figure (key → its name), with the ratios of the pairs; writes out/bench/NAME.json."""
    contenders = list(rounds[0])
    load = os.getloadavg()[2]  # of the last 15 minutes: on a busy machine, times mean little
    table = Table(title=f"{title}; medians of {len(rounds)} rounds, ratios with their spread; load {load:.1f}")
    for column in ("", *contenders, *(f"{one} / {other}" for one, other in pairs)):
        table.add_column(column, justify="right")
    ratios: dict[str, Any] = {}
    for key, text in figures.items():
        found = {f"{one}/{other}": ratio(rounds, key, one, other) for one, other in pairs}
        ratios[key] = {pair: None if each is None else each.median for pair, each in found.items()}
        values = (f"{statistics.median(each[which][key] for each in rounds):.2f}" for which in contenders)
        table.add_row(text, *values, *("–" if each is None else str(each) for each in found.values()))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    OUT.mkdir(parents=True, exist_ok=True)
    content = {"load": load, "rounds": rounds, "ratios": ratios}
    (OUT / f"{name}.json").write_text(json.dumps(content, indent=2))
