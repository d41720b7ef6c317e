"""`python -m localcluster` gets the programs, with progress, and nothing else: for a Makefile, before the tests."""

import sys

from localcluster.errors import ClusterError
from localcluster.programs import chosen_kubernetes, get_programs
from localcluster.progress import Progress


def main() -> int:
    try:
        got = get_programs(chosen_kubernetes(), Progress())
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for name, path in got.paths.items():
        print(f"{name:<24} {got.versions[name]:<8} {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
