"""`make bench`: runs every benchmark, or those that are named."""

from __future__ import annotations

import sys

from benchmarks import scale, spread
from benchmarks.admission import compare

BENCHMARKS = {"admission": compare.main, "scale": scale.main, "spread": spread.main}


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
