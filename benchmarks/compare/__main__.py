"""`make compare`: prints the table and writes out/bench/compare.json. ROUNDS=N; names of contenders as arguments."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console
from rich.table import Table

from benchmarks.compare.contenders import CONTENDERS, HIGH, LARGE, NAMESPACE, PATIENT, POOL, SMALL, GangStarter, Ours
from benchmarks.compare.scenarios import CONNECTIONS, NEVER, SCENARIOS, CompareStage, Figures, bare_rates, own_rates
from benchmarks.compare.sighting import watching
from benchmarks.report import OUT, rounds_wanted
from kube.client import Client, connect
from localcluster import LocalCluster
from localcluster.parts import SCHEDULER
from localcluster.profile import NodePool, Profile

PROFILE = Profile(
    (
        NodePool(LARGE, "zone-a", "m5", 20, "32", "256Gi", "on-demand", labels={POOL: LARGE}),
        NodePool(SMALL, "zone-a", "m5", 4, "8", "64Gi", "on-demand", labels={POOL: SMALL}),
    )
)
ROWS = {
    "large": "one gang of 64: created → all bound, s",
    "many": "50 gangs of 8 at once: until all bound, s",
    "turns": "50 gangs of 8 in room for 10, each runs 3 s: until all are done, s (ideal 15)",
    "torn": "  of these partly on nodes for more than 2 s",
    "placed": "preemption, six thieves: placed of 8",
    "victims": "  victims",
    "cores": "one gang that cannot be placed, waiting: cores",
    "writes": "  writes in 30 s",
    "partly": "  members on nodes",
    "bare_nominations": "nominations a second of a bare client beside it",
    "nominations": "  of the rebalancer",
    "bare_releases": "releases a second of a bare client beside it",
    "releases": "  of the rebalancer",
}
Measured = Mapping[str, Sequence[Figures]]  # by contender, of each round


def main(wanted: Sequence[str]) -> int:
    chosen = [each for each in CONTENDERS if not wanted or each.name.split()[0] in wanted]
    rounds = rounds_wanted(3)
    found: dict[str, list[Figures]] = {each.name: [] for each in chosen}
    for number in range(rounds):
        for each in chosen:
            print(f"round {number + 1} of {rounds}: {each.name}", file=sys.stderr, flush=True)
            found[each.name].append(_measured(each))
    _tell(found)
    return 0


def _measured(contender: GangStarter) -> Figures:
    """Each scenario on a cluster that is emptied after it."""
    with LocalCluster.start(PROFILE, options=contender.options) as cluster:
        client = connect(cluster.kubeconfig, user_agent="spotweave-bench")
        client.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        _create_priorities(client)
        cluster.wait("the ServiceAccount", lambda: _has_account(client))
        figures: Figures = {}
        with contender.installed(cluster, client) as pids, ThreadPoolExecutor(CONNECTIONS) as writers:
            scheduler = cluster.parts[SCHEDULER].pid
            assert scheduler is not None
            scenarios = [*SCENARIOS.values()]
            if isinstance(contender, Ours):
                scenarios += [bare_rates, own_rates]
            for scenario in scenarios:
                with watching(client) as seen:
                    stage = CompareStage(contender, client, seen, [scheduler, *pids], writers)
                    figures |= scenario(stage)
                    print(f"  {figures}", file=sys.stderr, flush=True)
                    stage.clear()
        client.close()
    return figures


def _has_account(client: Client) -> bool:
    found = client.get_json(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts")["items"]
    return bool(found)


def _create_priorities(client: Client) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    client.post(path, {"metadata": {"name": HIGH}, "value": 100})
    client.post(path, {"metadata": {"name": PATIENT}, "value": 100, "preemptionPolicy": "Never"})


def _tell(found: Measured) -> None:
    table = Table(title=f"gangs, medians of {len(next(iter(found.values())))} rounds; load {os.getloadavg()[2]:.1f}")
    table.add_column("")
    for name in found:
        table.add_column(name, justify="right")
    for key, text in ROWS.items():
        values = [[each[key] for each in rounds if key in each] for rounds in found.values()]
        if any(values):
            table.add_row(text, *(_shown(each) for each in values))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "compare.json").write_text(json.dumps({"load": os.getloadavg()[2], "rounds": found}, indent=2))


def _shown(values: Sequence[float]) -> str:
    """The median, and all of them where they differ by much."""
    if not values:
        return "–"
    middle = statistics.median(values)
    text = "never" if middle == NEVER else f"{middle:.2f}".rstrip("0").rstrip(".")
    spread = ", ".join("never" if each == NEVER else f"{each:.3g}" for each in values)
    return text if len(set(values)) == 1 else f"{text} ({spread})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
