"""`spotweave pause` and `spotweave resume`: the rebalancer moves nothing for a while. Admission goes on."""

from __future__ import annotations

import argparse
import getpass
import logging
import time
from typing import Any

from rich.text import Text

from cli import access, output
from kube.client import Client
from kube.configmaps import change_pause, read_pause
from kube.errors import Forbidden
from placement import names
from placement.pause import Pause, standing
from placement.window import parse_duration
from report.sentences import pause_sentence

log = logging.getLogger(__name__)

LONGEST_REASON = 200


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    pause = commands.add_parser(
        "pause",
        parents=[common],
        help="stop the rebalancer from moving pods",
        description="Stop the rebalancer from moving pods. Admission continues.",
    )
    access.add_options(pause)
    pause.add_argument(
        "--for",
        dest="seconds",
        type=_seconds,
        metavar="D",
        help="duration, such as 30m (default: until `spotweave resume`)",
    )
    pause.add_argument(
        "--reason", type=_reason, default="", metavar="TEXT", help="reason that `spotweave status` shows"
    )
    output.add_option(pause, "text")
    pause.set_defaults(run=start, writes=True)
    resume = commands.add_parser(
        "resume",
        parents=[common],
        help="let the rebalancer move pods again after a pause",
        description="End a pause: let the rebalancer move pods again.",
    )
    access.add_options(resume)
    output.add_option(resume, "text")
    resume.set_defaults(run=end, writes=True)


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError:
        seconds = 0
    if not seconds:
        raise argparse.ArgumentTypeError(f"expected a duration such as 90s, 5m or 1h30m, got {text!r}")
    return seconds


def _reason(text: str) -> str:
    if len(text) > LONGEST_REASON:
        raise argparse.ArgumentTypeError(f"expected at most {LONGEST_REASON} characters, got {len(text)}")
    return text


def start(args: argparse.Namespace) -> int:
    """A pause that stands already is replaced."""
    now = time.time()
    pause = Pause(now, None if args.seconds is None else now + args.seconds, _who(), args.reason)
    with access.client_for(args) as client:
        change_pause(client, lambda _: pause)
    return output.show(args, lambda: output.Result({"paused": pause.raw}, lambda: Text(pause_sentence(pause))))


def end(args: argparse.Namespace) -> int:
    """Also where nothing is paused: what is asked for is so."""
    stood = False

    def without(known: Pause | None) -> None:
        nonlocal stood
        stood = standing(known, time.time()) is not None

    with access.client_for(args) as client:
        change_pause(client, without)
    said = "Resumed." if stood else "Moves were not paused."
    return output.show(args, lambda: output.Result({"paused": None, "resumed": stood}, lambda: Text(said)))


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no user has this number, as in many containers
        return "operator"


def pause_for_reading(client: Client, now: float) -> Pause | None:
    """The current pause, for read-only commands. Warns if the user may not read the ConfigMap."""
    try:
        return standing(read_pause(client), now)
    except Forbidden:
        log.warning("not allowed to read the ConfigMap %s: a pause is not shown", names.STATE_MAP)
        return None
