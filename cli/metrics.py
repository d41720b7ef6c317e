"""`spotweave metrics`: what each metric says; and what is made from that and from the rules, for contributors."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from cli.errors import UsageError
from generators.files import ROOT, generated
from placement.metrics import document


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "metrics",
        parents=[common],
        help="print a reference of all metrics",
        description="Print what each metric means, its type and its labels.",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the reference, the operator's rules and the dashboards into the source tree",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if not args.write:
        sys.stdout.write(document())
        return 0
    if not (ROOT / "docs").is_dir():
        raise UsageError("no source tree to write to", "clone the repository and run the command there")
    for path, text in generated().items():
        (ROOT / path).write_text(text)
        print(path)
    return 0
