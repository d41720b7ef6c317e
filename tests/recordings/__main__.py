"""`python -m tests.recordings DIR` records; `--compare DIR OTHER` compares two recordings."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.recordings import clock


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.recordings", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="a folder that does not exist yet, or is empty")
    parser.add_argument("other", type=Path, nargs="?", metavar="OTHER", help="with --compare: the later recording")
    parser.add_argument("--compare", action="store_true", help="say what differs; exit code 1 if anything does")
    parser.add_argument("--clusters", type=int, help="record only the first clusters")
    parser.add_argument("--reviews", type=int, help="so many reviews per cluster")
    args = parser.parse_args()
    if args.compare != (args.other is not None):
        parser.error("--compare takes two folders, a recording takes one")
    return _compare(args) if args.compare else _record(args)


def _record(args: argparse.Namespace) -> int:
    if args.folder.exists() and any(args.folder.iterdir()):
        print(f"{args.folder} is not empty", file=sys.stderr)
        return 2
    clock.freeze()
    from tests.recordings.record import CLUSTERS, record  # imports the product, which must see frozen clocks alone
    from tests.recordings.reviews import COUNT

    record(args.folder, range(args.clusters or CLUSTERS), args.reviews or COUNT)
    return 0


def _compare(args: argparse.Namespace) -> int:
    from tests.recordings.compare import compare

    code, lines = compare(args.folder, args.other)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
