"""`spotweave replay`: what a ratio would have come to on a trace of spot pools."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cli import output
from cli.errors import UsageError
from placement.configuration import Moves
from placement.policy import Amount, parse_amount, parse_share, percent
from placement.window import parse_duration
from report.contenders import Replay, TriedPolicy, replayed
from report.fleet import ReplayTerms
from report.trace import Trace, TraceError, parse_trace

MOST_REPLICAS = 10_000
LONGEST_SECONDS = 86_400.0
MISSED = 1  # the exit code

T = TypeVar("T")


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "replay",
        parents=[common],
        help="what a ratio would have come to on a trace of spot pools",
        description="Replays a trace with the programs' own decisions. Needs no cluster.",
    )
    parser.add_argument("trace", type=Path, metavar="TRACE.csv", help="a table: zone,start_s,duration_s,available")
    parser.add_argument("--replicas", type=_replicas, default=10, metavar="N", help="default: 10")
    parser.add_argument(
        "--min-available", type=_amount, default=Amount(share=Fraction(4, 5)), metavar="M", help="default: 80%%"
    )
    parser.add_argument("--min-on-demand", type=_count, default=1, metavar="N", help="default: 1")
    parser.add_argument("--spot-ratio", type=_ratio, default=None, metavar="R", help="auto (default), 70%%, 0.7")
    parser.add_argument(
        "--availability-target", type=_target, default=Fraction(999, 1000), metavar="T", help="default: 99.9%%"
    )
    parser.add_argument(
        "--recovery", type=_duration, default=195.0, metavar="D", help="until a replacement serves (default: 195s)"
    )
    parser.add_argument("--notice", type=_duration, default=0.0, metavar="D", help="before a pool goes (default: 0s)")
    parser.add_argument(
        "--price", type=_share, default=Fraction(33, 100), metavar="P", help="of spot, of on-demand's (default: 0.33)"
    )
    parser.add_argument("--compare", action="store_true", help="show all policies that were tried")
    output.add_option(parser)
    parser.set_defaults(run=run)


def _read(text: str, read: Callable[[str], T], is_right: Callable[[T], bool], expected: str) -> T:
    try:
        value = read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}") from error
    if not is_right(value):
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return value


def _replicas(text: str) -> int:
    return _read(text, int, lambda count: 1 <= count <= MOST_REPLICAS, f"a count from 1 to {MOST_REPLICAS}")


def _count(text: str) -> int:
    return _read(text, int, lambda count: 0 <= count <= MOST_REPLICAS, f"a count from 0 to {MOST_REPLICAS}")


def _amount(text: str) -> Amount:
    return _read(text, parse_amount, lambda _: True, "a count such as 8, or a percentage such as 80%")


def _share(text: str) -> Fraction:
    return _read(text, parse_share, lambda _: True, "a percentage such as 33%, or a decimal from 0 to 1")


def _ratio(text: str) -> Fraction | None:
    expected = "auto, a percentage such as 70%, or a decimal from 0 to 1"
    return None if text == "auto" else _read(text, parse_share, lambda _: True, expected)


def _target(text: str) -> Fraction:
    return _read(text, parse_share, lambda share: 0 < share < 1, "a percentage such as 99.9%, below 100%")


def _duration(text: str) -> float:
    def seconds(text: str) -> float:
        return parse_duration(text).total_seconds()

    return _read(text, seconds, lambda each: each <= LONGEST_SECONDS, "a duration such as 195s or 5m, at most 1d")


def run(args: argparse.Namespace) -> int:
    """Exit code 1 if the target is missed."""
    terms, trace = _terms(args), _trace(args.trace)
    found = replayed(trace, terms, args.spot_ratio)
    compared = {"compared": found.compared} if args.compare else {}
    shown = output.Result({**found.raw, **compared}, lambda: _shown(found, with_all=args.compare))
    output.show(args, lambda: shown)
    return 0 if found.is_met else MISSED


def _terms(args: argparse.Namespace) -> ReplayTerms:
    replicas, must_serve = args.replicas, args.min_available.of(args.replicas)
    if must_serve > replicas:
        hint = f"choose a count from 0 to {replicas}, or a percentage"
        raise UsageError(f"--min-available {must_serve} is more than --replicas {replicas}", hint)
    return ReplayTerms(
        replicas,
        must_serve,
        args.min_on_demand,
        float(args.availability_target),
        args.recovery,
        args.notice,
        float(args.price),
        max(1, Moves().per_workload.of(replicas)),
    )


def _trace(path: Path) -> Trace:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the trace {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read the trace {path}: it is not UTF-8 text") from error
    try:
        return parse_trace(text)
    except TraceError as error:
        raise UsageError(f"{path}: {error}") from error


def _shown(found: Replay, *, with_all: bool) -> RenderableType:
    best, ideal = found.hindsight, found.omniscient
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (
        "POLICY",
        "SPOT",
        "COST",
        "AVAILABILITY",
        "INCIDENTS\nin 30 days",
        "SHORT\nmin in 30 days",
        "MOVES\na day",
    ):
        table.add_column(column, justify="left" if column == "POLICY" else "right", no_wrap=column != "POLICY")
    rows = [found.asked, *([found.auto, *found.contenders] if with_all else [best])]
    rows = rows[1:] if with_all and found.asked is found.auto else rows
    for each in rows:
        table.add_row(*_row(each, found, is_best=each is best))
    table.add_row("omniscient", _percent(ideal.share), f"{ideal.cost:.3f}", "", "", "", "")
    days = f"{found.asked.outcome.days:.1f} days, {found.pools} pool{'s' if found.pools > 1 else ''}"
    return Group(Text(days), table, Text(_sentence(found), style="green" if found.is_met else "bold red"))


def _row(each: TriedPolicy, found: Replay, *, is_best: bool) -> tuple[str | Text, ...]:
    outcome = each.outcome
    style = "" if outcome.meets(found.target) else "red"
    return (
        f"{each.policy} (hindsight)" if is_best else each.policy,
        _percent(outcome.share),
        f"{outcome.cost:.3f}",
        Text(f"{outcome.availability * 100:.4f}%", style=style),
        f"{outcome.monthly(outcome.incidents):.1f}",
        f"{outcome.monthly(outcome.short_seconds / 60):.1f}",
        f"{outcome.moves / outcome.days:.1f}",
    )


def _percent(share: float) -> str:
    return f"{share * 100:.1f}%"


def _sentence(found: Replay) -> str:
    met = "meets" if found.is_met else "misses"
    asked, best = found.asked.outcome, found.hindsight
    return (
        f"{found.asked.policy} {met} the target of {percent(Fraction(str(found.target)))} at {asked.cost:.3f} of the "
        f"on-demand price. The cheapest fixed policy that meets it, {best.policy}, costs {best.outcome.cost:.3f}."
    )
