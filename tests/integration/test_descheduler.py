"""Beside the real descheduler: it evicts pods that would fit better elsewhere, and the mix is exact afterwards.

It comes to an end, and no replica stops serving. With busy pods it would go on for ever by itself: it fills nodes that
are hardly used, and on-demand nodes are, whatever it evicts from spot.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from localcluster import Choice
from localcluster.descheduler import start_descheduler
from localcluster.progress import Progress
from placement import names
from tests.builders.api import raw_template
from tests.cluster.clustersetup import ClusterSetup, cluster_setup
from tests.cluster.namespaceuser import is_exact
from tests.integration.figures import note
from tests.integration.karpentersetup import SECONDS

pytestmark = [pytest.mark.cluster, pytest.mark.integration]

INTERVAL_SECONDS = 10
WATCHED_SECONDS = max(SECONDS, 180.0)  # one pod of each node at a time: the last one of thirty moves after 73 s
APPS = {"web": (20, 14, 6), "api": (10, 7, 3)}
LIGHT, BUSY = "500m", "1500m"  # of the spot nodes' CPU 22 % and 66 % are requested, of the others' 9 % and 28 %


@dataclass(frozen=True)
class DeschedulerRun:
    """What happened while the descheduler ran."""

    evictions: int  # that the API server granted, those that end our moves included
    moves: int
    last_seconds: float  # from the start to the last of both
    strategies: Counter[str]  # the descheduler's own evictions, by their reason

    @property
    def has_stopped(self) -> bool:
        return self.last_seconds < WATCHED_SECONDS - 2 * INTERVAL_SECONDS

    def __str__(self) -> str:
        own = ", ".join(f"{name} {count}" for name, count in self.strategies.items())
        last = f"the last one after {self.last_seconds:.0f} s"
        return f"{self.evictions} evictions ({own or 'none'} by the descheduler), {self.moves} moves, {last}"


@contextmanager
def unbalanced(directory: Path, cpu: str) -> Iterator[ClusterSetup]:
    """Two workloads at 70 % that lost a zone: when it is back, its nodes are empty and the pods are not spread."""
    with cluster_setup(directory, rebalancers=1, configuration="{}\n") as setup:
        container = {"name": "app", "image": "example/app:1.0", "resources": {"requests": {"cpu": cpu}}}
        for name, (replicas, _, _) in APPS.items():
            annotations = {names.SPOT_RATIO: "70%", names.MIN_AVAILABLE: "80%"}
            setup.serves(name, replicas, annotations, spec={"template": raw_template(name, containers=[container])})
        setup.cluster.reclaim(Choice(zone="zone-c"), notice_seconds=60.0)
        setup.cluster.restore()
        setup.settles(*APPS)
        setup.history.forget()
        yield setup


def descheduled(setup: ClusterSetup, node_fit: bool) -> DeschedulerRun:
    """Lets the descheduler run for a while, ends it, and waits until the mix is exact."""
    last = first = (setup.evictions(), setup.moves())
    start_descheduler(setup.cluster, Progress(), INTERVAL_SECONDS, node_fit=node_fit)
    began, changed = time.monotonic(), 0.0
    while (passed := time.monotonic() - began) < WATCHED_SECONDS:
        now = (setup.evictions(), setup.moves())
        if now != last:
            last, changed = now, passed
        time.sleep(1.0)  # the pace of the watch, not a wait
    log = setup.cluster.layout.log("descheduler").read_text()
    strategies = Counter(re.findall(r'"Evicted pod".* strategy="(\w+)"', log))
    run = DeschedulerRun(last[0] - first[0], last[1] - first[1], changed, strategies)
    setup.cluster.kill("descheduler")
    found = setup.settles(*APPS)
    for name, (_, spot, on_demand) in APPS.items():
        assert is_exact(found[name], spot, on_demand)
    return run


@pytest.mark.parametrize(
    ("cpu", "node_fit"),
    [
        pytest.param(LIGHT, False, id="light"),
        pytest.param(BUSY, True, id="busy, evicts only what fits elsewhere"),
        pytest.param(BUSY, False, id="busy"),
    ],
)
def test_mix_is_exact_when_the_descheduler_ends(tmp_path: Path, cpu: str, node_fit: bool) -> None:
    """It balances spread constraints and use of nodes every ten seconds."""
    with unbalanced(tmp_path, cpu) as setup:
        run = descheduled(setup, node_fit)
        lowest = ", ".join(f"{name} {setup.history.worst(name)} of {count}" for name, (count, *_) in APPS.items())
        ended = "converged" if run.has_stopped else "did not converge"
        note(f"descheduler, pods of {cpu}, nodeFit {node_fit}: {ended}: {run}; lowest serving {lowest}")
        assert run.has_stopped
        assert {name: setup.history.worst(name) for name in APPS} == {name: count for name, (count, *_) in APPS.items()}
