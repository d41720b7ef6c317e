"""`spotweave status`: every opted-in workload, its wanted and actual mix, and why they differ."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cli import access, hints, output, prices
from cli.observed import observed_for_reading
from cli.outage import outages_for_reading
from cli.pause import pause_for_reading
from kube.client import Client
from kube.configuration import configuration_for_reading
from kube.installation import signs_of_life
from kube.snapshot import read_snapshot
from placement import names
from placement.model import Snapshot
from report.residue import LeftOver, left_over
from report.rolloutroom import foreseen, room_in
from report.savings import savings_in
from report.sentences import NOT_INSTALLED, life_sentences
from report.skipped import skipped_in
from report.status import statuses
from report.statusjson import status_json
from report.tables import left_over_table, status_table


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "status",
        parents=[common],
        help="show the wanted and actual mix of each workload",
        description="Show the wanted and actual mix of each workload, its headroom, and why a mix differs.",
    )
    access.add_options(parser)
    parser.add_argument("--config", type=Path, help="configuration file (default: the ConfigMap spotweave-config)")
    parser.add_argument("-n", "--namespace", help="only this namespace")
    output.add_option(parser)
    output.add_watch(parser)
    prices.add_options(parser)
    parser.add_argument("--pods", action="store_true", help="list every pod, its node and the reason")
    parser.add_argument(
        "--left-over",
        action="store_true",
        help="list pods with Spotweave labels or annotations in namespaces that are not opted in",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 where a mix is not what it should be."""
    return output.show(args, lambda: look(args))


def look(args: argparse.Namespace) -> output.Result:
    with access.client_for(args) as client:
        configuration = configuration_for_reading(args.config, client)
        snapshot = read_snapshot(client)
        now = datetime.now(UTC)
        paused = pause_for_reading(client, now.timestamp())
        outages = outages_for_reading(client, now.timestamp())
        observed = observed_for_reading(client)
        problems = _problems(client, snapshot)
    hints.check_namespace(args.namespace, snapshot.namespaces)
    if args.left_over:
        carrying = left_over(snapshot, configuration.classes)
        return _left_over([each for each in carrying if args.namespace in (None, each.pod.namespace)])
    found = statuses(snapshot, configuration, observed, now.timestamp(), is_paused=paused is not None)
    shown = [each for each in found if args.namespace in (None, each.workload.namespace)]
    saved = savings_in(snapshot, configuration, shown, prices.prices_for(args, configuration))
    ahead = foreseen(shown, room_in(snapshot, configuration))
    skipped = skipped_in(snapshot, args.namespace)
    return output.Result(
        {**status_json(shown, now, paused, saved, ahead, outages, skipped, with_pods=args.pods), "problems": problems},
        lambda: status_table(shown, paused, saved, ahead, outages, skipped, with_pods=args.pods, problems=problems),
        0 if all(each.is_exact for each in shown) and NOT_INSTALLED not in problems else 1,
    )


def _problems(client: Client, snapshot: Snapshot) -> list[str]:
    """Of Spotweave itself: it is not installed, no webhook answers, or no rebalancer leads."""
    ours = {each.name for each in snapshot.workloads if each.namespace == names.SYSTEM_NAMESPACE}
    if not ours & {names.WEBHOOK_ACCOUNT, names.REBALANCER_ACCOUNT}:
        return life_sentences(is_installed=False, has_webhook=False, has_leader=False)
    has_webhook, has_leader = signs_of_life(client)
    return life_sentences(is_installed=True, has_webhook=has_webhook, has_leader=has_leader)


def _left_over(found: Sequence[LeftOver]) -> output.Result:
    """Exit code 1 where there are any."""
    raw = {"leftOver": [each.raw for each in found]}
    return output.Result(raw, lambda: left_over_table(found), 1 if found else 0)
