"""`make bench`: runs every benchmark, or the named ones. ROUNDS=N sets the number of rounds."""

from __future__ import annotations

import sys

from benchmarks import bound, evictions, fit, gangs, hostile, polling, scale, silent, spread, victims, walks
from benchmarks.admission import compare as admission
from benchmarks.creation import compare as creation

BENCHMARKS = {
    "admission": admission.main,
    "silent": silent.main,
    "hostile": hostile.main,
    "creation": creation.main,
    "bound": bound.main,
    "evictions": evictions.main,
    "fit": fit.main,
    "gangs": gangs.main,
    "polling": polling.main,
    "scale": scale.main,
    "spread": spread.main,
    "victims": victims.main,
    "walks": walks.main,
}


def main(names: list[str]) -> int:
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in names or BENCHMARKS:
        BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
