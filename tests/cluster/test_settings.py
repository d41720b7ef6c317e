"""Settings of workloads that moves must heed, and what is no proof of a loss, on a real control plane."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from kube.client import Client
from kube.informer import Informer
from kube.resources import PODS
from kube.store import Store
from localcluster import Choice, Way
from localcluster.reclaim import deleting_node_event
from placement import names
from placement.model import Pod
from placement.slots import Mix
from tests.builders.api import raw_template
from tests.cluster.clustersetup import ClusterSetup
from tests.cluster.namespaceuser import wait_for

pytestmark = pytest.mark.cluster

MIN_READY_SECONDS = 8


class Lives:
    """When each pod became ready, by its condition; when its end was seen to have begun; the most of each workload."""

    def __init__(self, pods: Store[Pod]) -> None:
        self.slots: dict[str, str] = {}
        self.ready_at: dict[str, float] = {}
        self.ended_at: dict[str, float] = {}
        self.most: defaultdict[str, int] = defaultdict(int)
        self._there: defaultdict[str, set[str]] = defaultdict(set)
        pods.subscribe(self._see)

    def _see(self, old: Pod | None, new: Pod | None) -> None:
        now, seen = time.time(), new or old
        assert seen is not None
        app = seen.labels.get("app", "")
        self.slots[seen.uid] = seen.annotations.get(names.SLOT, "")
        if new is not None and new.ready:
            self.ready_at.setdefault(new.uid, new.changed)
        if new is None or new.terminating:
            self.ended_at.setdefault(seen.uid, now)
            self._there[app].discard(seen.uid)
        else:
            self._there[app].add(seen.uid)
        self.most[app] = max(self.most[app], len(self._there[app]))


@contextmanager
def lives(client: Client) -> Iterator[Lives]:
    pods = Store[Pod]()
    seen = Lives(pods)
    informer = Informer(client, PODS, pods)
    informer.start()
    assert informer.wait_synced(30)
    try:
        yield seen
    finally:
        informer.stop()


def test_an_old_pod_stays_until_the_new_one_was_ready_for_long_enough(setup: ClusterSetup) -> None:
    """`minReadySeconds: 8`, and a budget that allows nothing: four pods change their class, and ten serve all along."""
    setup.serves("web", 10, spec={"minReadySeconds": MIN_READY_SECONDS}, minAvailable="100%")
    before = setup.uids("web")
    setup.history.forget()
    with lives(setup.user.client) as seen:
        setup.annotate("web", spot_ratio="30%")
        assert setup.settles("web")["web"].actual == Mix(3, 7)
    ended = {uid: at for uid, at in seen.ended_at.items() if uid in before}
    assert len(ended) == 4
    for uid, at in ended.items():
        (ready,) = [
            ready
            for other, ready in seen.ready_at.items()
            if other not in before and seen.slots[other] == seen.slots[uid]
        ]
        assert at - ready >= MIN_READY_SECONDS
    assert setup.history.worst("web") == 10


def test_without_a_surge_there_is_never_a_pod_more_than_replicas(setup: ClusterSetup) -> None:
    """`maxSurge: 0`: nothing is released. One pod at a time goes, while all others serve."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    setup.serves("web", 6, {names.SPOT_RATIO: "50%"}, spec={"strategy": strategy})
    setup.settles("web")
    setup.history.forget()
    with lives(setup.user.client) as seen:
        setup.annotate("web", spot_ratio="17%")
        assert setup.settles("web")["web"].actual == Mix(1, 5)
    assert seen.most["web"] == 6
    assert setup.history.worst("web") == 5
    assert setup.told(f"{names.METRIC_ACTIONS}_total", 'action="evict"', 'outcome="done"') == 2


def test_an_empty_directory_pins_nothing(setup: ClusterSetup) -> None:
    """Four of ten pods with an `emptyDir` change their class; those of a workload that asks to stay do not."""
    volumes = [{"name": "scratch", "emptyDir": {}}]
    setup.serves("web", 10, spec={"template": raw_template("web", volumes=volumes)})
    stays = raw_template("stays", volumes=volumes)
    setup.serves("stays", 3, {names.REBALANCE: "auto"}, spec={"template": stays})
    for pod in setup.user.pods("stays"):
        written = {"metadata": {"annotations": {names.DO_NOT_DISRUPT: "true"}}}
        setup.user.client.patch(f"{setup.user.pods_path}/{pod['metadata']['name']}", written)
    before = setup.uids("stays")
    for name in ("web", "stays"):
        setup.annotate(name, spot_ratio="30%")
    assert setup.settles("web")["web"].actual == Mix(3, 7)
    assert setup.uids("stays") == before


def test_the_low_priority_of_an_outage_ends_with_it(setup: ClusterSetup) -> None:
    """Spot is called out while it has room: what is more than the service needs comes to spot as overflow."""
    assert setup.spotweave("outage", "set", "--for", "1h") == 0
    setup.create("web", 10)
    wait_for("all to serve", lambda: setup.serves_in_full("web", 10))

    def low() -> set[str]:
        pods = setup.user.pods("web")
        return {pod["metadata"]["uid"] for pod in pods if pod["spec"].get("priorityClassName") == "spotweave-overflow"}

    first = low()
    assert len(first) == 2
    setup.falls_silent()
    assert low() == first  # while the outage stands
    setup.history.forget()
    assert setup.spotweave("outage", "clear") == 0
    wait_for("all to have their own priority", lambda: not low())
    assert setup.settles("web")["web"].actual == Mix(7, 3)
    assert {pod["spec"]["priority"] for pod in setup.user.pods("web")} == {0}
    assert setup.history.worst("web") == 10


def test_an_event_alone_buries_no_pod(setup: ClusterSetup) -> None:
    """Anybody may write a `DeletingNode` Event. The Node was ready, is deleted, and comes back with its pods."""
    setup.serves("web", 10)
    setup.settles("web")
    before, client = setup.uids("web"), setup.user.client
    held = {pod["spec"]["nodeName"] for pod in setup.user.pods("web") if "spot" in pod["spec"]["nodeName"]}
    for name in held:
        event = deleting_node_event(client.get_json(f"/api/v1/nodes/{name}"), datetime.now(UTC))
        client.post("/api/v1/namespaces/default/events", event)
    writes = setup.writes()
    taken = setup.cluster.reclaim(Choice(all_spot=True), Way.BARE)
    assert held <= set(taken.nodes)
    time.sleep(5)  # what it is about: a node that is gone for a while
    setup.cluster.restore()
    setup.settles("web")
    assert setup.uids("web") == before
    assert setup.writes() == writes
