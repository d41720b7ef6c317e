"""The API server answers badly, or not at all: moves are made all the same, later, and nobody asks without end."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from demo.supervisor import Process, access_for, wait_until_ready
from localcluster.layout import free_port
from placement import names
from placement.slots import Mix
from tests.cluster.clustersetup import ClusterSetup, cluster_setup, give_up_lease
from tests.cluster.namespaceuser import wait_for
from tests.cluster.proxy import Chance, ProxiedRequest, Proxy, Trouble, access_through, proxied

pytestmark = pytest.mark.cluster

REPLICAS = 20
MOVES = 8
TROUBLES = (Trouble.CONFLICT, Trouble.BUSY, Trouble.FAILURE, Trouble.SILENCE, Trouble.LOST)


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    with cluster_setup(tmp_path_factory.mktemp("config")) as made:
        yield made


@pytest.fixture
def proxy(setup: ClusterSetup, tmp_path: Path) -> Iterator[Proxy]:
    """In front of the one rebalancer that there is."""
    access = access_for(setup.user.kubeconfig, setup.user.client, names.REBALANCER_ACCOUNT)
    with proxied(access) as made:
        file = tmp_path / "kubeconfig"
        file.write_bytes(access_through(made, access))
        give_up_lease(setup.user.client)  # or the first one would wait until a Lease that is not there has run out
        process = _rebalancer(file)
        setup.installed.processes.append(process)
        wait_until_ready([process])
        wait_for("a leader", partial(setup.leads, process))
        yield made
        made.trouble = lambda _method, _path: None
        setup.stop_all()
        setup.clear()


def _rebalancer(kubeconfig: Path) -> Process:
    port = free_port()
    listen = ("--metrics-listen", f"127.0.0.1:{port}", "--dashboard-listen", f"127.0.0.1:{free_port()}")
    command = [sys.executable, "-m", "cli.main", "rebalancer", "--kubeconfig", str(kubeconfig), *listen]
    return Process(f"{names.REBALANCER_COMPONENT}-proxied-{port}", subprocess.Popen(command), port)


def drawn_by_lot(share: float) -> Chance:
    """Trouble for so many of the writes to pods and to the shared state; but never four times in a row for one.

    A write is tried after 2, 4, 8, 16, … seconds. Were there no end of it, some move would be undone by chance.
    """
    lot, in_a_row = random.Random(5), Counter[tuple[str, str]]()

    def trouble(method: str, path: str) -> Trouble | None:
        concerned = method != "GET" and ("/pods/" in path or "/configmaps" in path)
        meets = concerned and in_a_row[method, path] < 3 and lot.random() < share
        in_a_row[method, path] = in_a_row[method, path] + 1 if meets else 0
        return lot.choice(TROUBLES) if meets else None

    return trouble


def writes_to_pods(asked: list[ProxiedRequest]) -> list[ProxiedRequest]:
    return [each for each in asked if each.is_write and "/pods/" in each.path]


def test_moves_are_made_though_half_of_the_writes_fail(setup: ClusterSetup, proxy: Proxy) -> None:
    """409, 429, 500, no answer, and an answer that was lost: exact in the end, and all serve all the while."""
    setup.serves("web", REPLICAS, minAvailable="100%")
    setup.settles("web")
    setup.history.forget()
    proxy.asked.clear()
    proxy.trouble = drawn_by_lot(0.5)
    setup.annotate("web", spot_ratio="30%")
    assert setup.settles("web", patience=240)["web"].actual == Mix(6, 14)
    print(f"met on the way: {dict(proxy.met())}; {len(writes_to_pods(proxy.asked))} writes to pods for {MOVES} moves")
    assert len(proxy.met()) >= 4
    assert setup.history.worst("web") == REPLICAS
    assert len(setup.deleted(MOVES)) == MOVES, "nobody was evicted who need not be"
    proxy.trouble = lambda _method, _path: None
    setup.falls_silent()


REFUSALS = (Trouble.BUSY, Trouble.FAILURE, Trouble.CONFLICT)
DRAWN = random.Random(11).choice(REFUSALS)  # in every check; the others in `make soak`


@pytest.mark.parametrize(
    "trouble", [pytest.param(each, id=str(each), marks=[pytest.mark.soak] * (each is not DRAWN)) for each in REFUSALS]
)
def test_who_is_refused_again_and_again_asks_less_and_less(setup: ClusterSetup, proxy: Proxy, trouble: Trouble) -> None:
    """Every write to a pod fails for twenty seconds: each pod is tried at most five times, after 2, 4, 8, 16 s."""
    setup.serves("web", REPLICAS, minAvailable="100%")
    setup.settles("web")
    setup.history.forget()
    passes = setup.passes()
    proxy.asked.clear()
    proxy.trouble = lambda method, path: trouble if method != "GET" and "/pods/" in path else None
    setup.annotate("web", spot_ratio="30%")
    time.sleep(20)  # what it is about: how often it asks meanwhile
    tried = writes_to_pods(proxy.asked)
    print(f"{len(tried)} writes to {len({each.path for each in tried})} pods, {len(proxy.asked)} requests in 20 s")
    most = max(sum(each.path == path for each in tried) for path in {each.path for each in tried})
    assert 1 < most <= 5
    assert len(proxy.asked) < 400
    assert setup.passes() - passes < 60
    proxy.trouble = lambda _method, _path: None
    assert setup.settles("web")["web"].actual == Mix(6, 14)
    assert setup.history.worst("web") == REPLICAS


def test_watches_that_expire_are_begun_anew_and_nothing_is_done_twice(setup: ClusterSetup, proxy: Proxy) -> None:
    """Every watch is refused as too old for a while, in the midst of moves: lists with back-off, then as before."""
    setup.serves("web", REPLICAS, minAvailable="100%")
    setup.settles("web")
    setup.history.forget()
    proxy.asked.clear()
    proxy.trouble = lambda _method, path: Trouble.EXPIRED if "watch=true" in path else None
    proxy.cuts_watches = True
    setup.annotate("web", spot_ratio="30%")
    time.sleep(10)  # watches end as they tell something, and are refused when they are begun anew
    proxy.trouble, proxy.cuts_watches = (lambda _method, _path: None), False
    print(f"{proxy.met()[Trouble.EXPIRED]} watches were refused, {len(proxy.asked)} requests in 10 s")
    assert proxy.met()[Trouble.EXPIRED] > 0
    assert len(proxy.asked) < 400
    assert setup.settles("web")["web"].actual == Mix(6, 14)
    assert setup.history.worst("web") == REPLICAS
    assert len(setup.deleted(MOVES)) == MOVES, "nobody was evicted who need not be"
