"""How commands show what they found: a table or text for people, JSON or YAML for scripts, once or again and again.

Colours appear on a terminal alone, and never where NO_COLOR is set; rich sees to both.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import yaml
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from kube.errors import ApiError

EVERY_SECONDS = 5.0
WIDEST = 10_000  # columns of what is no terminal: a script that reads a name must get all of it, on one line


@dataclass(frozen=True, slots=True)
class Result:
    """What a command found: for scripts, for people, and its exit code."""

    raw: Any
    shown: Callable[[], RenderableType]
    code: int = 0


def add_option(parser: argparse.ArgumentParser, for_people: str = "table") -> None:
    parser.add_argument("-o", "--output", choices=(for_people, "json", "yaml"), default=for_people)


def add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-w",
        "--watch",
        type=_seconds,
        nargs="?",
        const=EVERY_SECONDS,
        metavar="SECONDS",
        help="refresh until Ctrl-C (default: every 5 seconds)",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.5 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"expected seconds from 0.5 to 3600, got {text!r}")
    return seconds


def show(args: argparse.Namespace, look: Callable[[], Result]) -> int:
    """Looks once, or with --watch until Ctrl-C; gives the exit code of the last look."""
    every_seconds: float | None = getattr(args, "watch", None)
    if every_seconds is not None:
        return _watch(args.output, look, every_seconds)
    found = look()
    if args.output in ("json", "yaml"):
        write(found.raw, args.output)
    else:
        _print(console(), found.shown())
    return found.code


def console() -> Console:
    """As wide as the terminal. In a pipe or a file nothing is wrapped or cut off."""
    made = Console()
    return made if made.is_terminal else Console(width=WIDEST)


def _print(there: Console, shown: RenderableType) -> None:
    """Text is not wrapped, however long its lines are, so that it can be searched. Tables fit the terminal."""
    there.print(shown, soft_wrap=isinstance(shown, Text))


def write(raw: Any, output: str) -> None:
    print(as_text(raw, output), flush=True)


def as_text(raw: Any, output: str, *, is_stream: bool = False) -> str:
    """In a stream, a JSON document is one line, and a YAML document begins with a line of its own."""
    if output == "json":
        return json.dumps(raw, indent=None if is_stream else 2, ensure_ascii=False)
    plain = json.loads(json.dumps(raw))  # enumerations and tuples are texts and lists, as in JSON
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, explicit_start=is_stream)
    return str(text).rstrip("\n")


def _watch(output: str, look: Callable[[], Result], every_seconds: float) -> int:
    """On a terminal each look replaces the last; elsewhere it follows. A failed look is reported; it is not the end."""
    code, there = 0, console()
    is_picture = there.is_terminal and output not in ("json", "yaml")
    live = Live(console=there, screen=True, auto_refresh=False) if is_picture else None
    screen: AbstractContextManager[Any] = live or nullcontext()
    try:
        with screen:
            while True:
                try:
                    found = look()
                except ApiError as error:
                    _complain(error, live)
                else:
                    code = found.code
                    _show_again(found, output, live, there)
                time.sleep(every_seconds)
    except KeyboardInterrupt:
        return code


def _show_again(found: Result, output: str, live: Live | None, there: Console) -> None:
    if live is not None:
        live.update(found.shown(), refresh=True)
    elif output in ("json", "yaml"):
        print(as_text(found.raw, output, is_stream=True), flush=True)
    else:
        _print(there, found.shown())
        there.print()


def _complain(error: ApiError, live: Live | None) -> None:
    told = f"cluster state unavailable: {error}"
    if live is not None:
        live.update(Text(told, style="bold red"), refresh=True)
    else:
        print(f"spotweave: error: {told}", file=sys.stderr, flush=True)
