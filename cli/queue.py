"""`spotweave queue`: the gangs, which of them wait, and for what; a preview; and a way out by hand."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from cli import access, hints, output, queuepreview, queuerelease
from cli.gangmachinery import Machinery, machinery
from cli.plan import Picture, index_of, take_picture
from placement.plan.select import plan
from report.gangview import is_calm
from report.queue import NO_GANGS, QueuedGang, queue_of, queue_table


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "queue",
        parents=[common],
        help="show the gangs, which of them wait, and why",
        description="Show every gang: its state, its members, and why it waits.",
    )
    access.add_options(parser)
    parser.add_argument("--config", type=Path, help="configuration file (default: the ConfigMap spotweave-config)")
    parser.add_argument("-n", "--namespace", help="only this namespace")
    output.add_option(parser)
    output.add_watch(parser)
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", help="without one, the queue is shown")
    queuepreview.add_parser(actions, common)
    queuerelease.add_parser(actions, common)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 where a gang waits or is blocked, or nothing would start one."""
    return output.show(args, lambda: look(args))


def look(args: argparse.Namespace) -> output.Result:
    with access.client_for(args) as client:
        picture = queuepreview.with_jobs(take_picture(client, args.config), client)
        around = machinery(client, picture.configuration)
    hints.check_namespace(args.namespace, picture.snapshot.namespaces)
    shown = [each for each in queued(picture) if args.namespace in (None, each.status.gang.key.namespace)]
    return shown_queue(shown, around)


def shown_queue(shown: list[QueuedGang], around: Machinery) -> output.Result:
    warnings = [Text(each, style="yellow") for each in around.warnings]
    table = [queue_table(shown)] if shown else []
    nothing = [] if table or not around.is_on else [Text(NO_GANGS)]
    all_calm = all(is_calm(each.status.state) for each in shown)
    return output.Result(
        {**around.raw, "gangs": [each.raw for each in shown]},
        lambda: Group(*warnings, *table, *nothing),
        0 if all_calm and not (around.is_on and warnings) else 1,
    )


def queued(picture: Picture) -> list[QueuedGang]:
    """As the rebalancer would find them now: it remembers of gangs what their pods say, and nothing else."""
    index = index_of(picture)
    made = plan(queuepreview.gang_scene(picture, index))
    return queue_of(made.gangs, index.gangs, picture.now, index.ground.sites, picture.observed)
