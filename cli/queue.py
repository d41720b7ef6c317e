"""`spotweave queue`: the gangs, which of them wait, and for what."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cli import access, hints, output
from cli.plan import Picture, index_of, scene_at, take_picture
from kube.client import Client
from kube.errors import Forbidden
from kube.resources import JOBS
from kube.snapshot import read_all
from placement.gang.gang import State
from placement.plan.select import plan
from report.queue import QueuedGang, queue_of, queue_table


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


def run(args: argparse.Namespace) -> int:
    """Exit code 1 where a gang waits or is blocked."""
    return output.show(args, lambda: look(args))


def look(args: argparse.Namespace) -> output.Result:
    with access.client_for(args) as client:
        picture = take_picture(client, args.config)
        jobs = _jobs(client)
    hints.check_namespace(args.namespace, picture.snapshot.namespaces)
    snapshot = replace(picture.snapshot, others=(*picture.snapshot.others, *jobs))
    picture = replace(picture, snapshot=snapshot)
    shown = [each for each in queued(picture) if args.namespace in (None, each.status.gang.key.namespace)]
    is_on = picture.configuration.gangs.enabled
    calm = (State.RUNNING, State.EVICTING, State.RESERVED, State.PLACING)
    return output.Result(
        {"enabled": is_on, "gangs": [each.raw for each in shown]},
        lambda: queue_table(shown, is_on=is_on),
        0 if all(each.status.state in calm for each in shown) else 1,
    )


def queued(picture: Picture) -> list[QueuedGang]:
    """As the rebalancer would find them now: it remembers of gangs what their pods say, and nothing else."""
    index = index_of(picture)
    scene = scene_at(picture, index, picture.now)
    scene = replace(scene, gangs=index.restless_gangs(), nominated=index.nominated)
    made = plan(replace(scene, candidates=index.candidates, marked=list(index.marked.values())))
    return queue_of(made.gangs, index.gangs, picture.now)


def _jobs(client: Client) -> Iterable[object]:
    """Who may not read them sees gangs of Jobs as Assembling, unless annotations say how many members there are."""
    try:
        return read_all(client, JOBS)
    except Forbidden:
        return ()
