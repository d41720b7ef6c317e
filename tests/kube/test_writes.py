"""Writes to pods and the election on a real API server: its preconditions, its budgets, its versions."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kube.client import Client, connect
from kube.configmaps import change_outages, read_outages
from kube.crashpoints import VARIABLE
from kube.election import Terms
from kube.errors import AlreadyExists, NotFound
from kube.lease import PATH, Leader, permit_first_leader
from kube.podwriter import PodWriter
from localcluster import LocalCluster
from placement import names
from placement.model import Key
from placement.outcome import Outcome
from tests.builders.api import raw_bare_pod, raw_budget
from tests.timing import timed, within

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parent.parent.parent
QUICK = Terms(duration_seconds=3, safe_seconds=2.0, renew_seconds=0.3, look_seconds=0.2, retry_seconds=0.1)


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with closing(connect(cluster.kubeconfig, user_agent="spotweave-tests")) as connected:
        yield connected


@pytest.fixture
def writer(client: Client) -> PodWriter:
    return PodWriter(client)


def create(client: Client, namespace: str, name: str, **spec: Any) -> str:
    """A pod; gives its UID. It stays where it is: on a node that is none, or without one."""
    raw = raw_bare_pod(name, name, **{"schedulerName": "nobody", "terminationGracePeriodSeconds": 0, **spec})
    return str(client.post(f"/api/v1/namespaces/{namespace}/pods", raw)["metadata"]["uid"])


def budget(client: Client, namespace: str, name: str, app: str) -> None:
    client.post(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", raw_budget(name, app, minAvailable=1))


def running(client: Client, key: Key) -> None:
    """Pending pods pass by budgets."""
    ready = {"type": "Ready", "status": "True"}
    path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/status"
    client.patch(path, {"status": {"phase": "Running", "conditions": [ready]}})


def get(client: Client, key: Key) -> Any:
    return client.get_json(f"/api/v1/namespaces/{key.namespace}/pods/{key.name}")


# --- pods ------------------------------------------------------------------------------------------------------------


def test_annotations_and_labels_come_and_go_in_one(client: Client, writer: PodWriter, namespace: str) -> None:
    """What is not named stays."""
    key = Key(namespace, "a")
    uid = create(client, namespace, "a")
    assert writer.annotate(key, uid, {names.SLOT: "3", names.MOVED: "x"}, {names.CLASS: "spot"}) is Outcome.DONE
    assert writer.annotate(key, uid, {names.SLOT: "4", names.MOVED: None}, {names.CLASS: None}) is Outcome.DONE
    metadata = get(client, key)["metadata"]
    assert metadata["annotations"] == {names.SLOT: "4"}
    assert metadata["labels"] == {"app": "a"}


def test_a_successor_under_the_same_name_is_safe(client: Client, writer: PodWriter, namespace: str) -> None:
    """Every write means one pod, by its UID."""
    key = Key(namespace, "a")
    create(client, namespace, "a", nodeName=f"not-in-{namespace}")
    outcomes = [
        writer.annotate(key, "another", {names.SLOT: "3"}),
        writer.evict(key, "another"),
        writer.delete(key, "another"),
        writer.fail_lost(key, "another", "why"),
    ]
    assert outcomes == [Outcome.GONE] * 4
    raw = get(client, key)
    assert "annotations" not in raw["metadata"]
    assert "deletionTimestamp" not in raw["metadata"]
    assert raw["status"]["phase"] == "Pending"


def test_a_pod_that_waits_for_a_node_is_evicted_and_one_that_has_one_is_not(
    client: Client, writer: PodWriter, namespace: str
) -> None:
    """As it was read: the server takes the version for a precondition."""
    waits, placed = Key(namespace, "waits"), Key(namespace, "placed")
    outcomes = [
        writer.evict_waiting(waits, create(client, namespace, "waits")),
        writer.evict_waiting(placed, create(client, namespace, "placed", nodeName=f"not-in-{namespace}")),
        writer.evict_waiting(placed, "another"),
    ]
    assert outcomes == [Outcome.DONE, Outcome.BUSY, Outcome.GONE]
    with pytest.raises(NotFound):
        get(client, waits)
    assert "deletionTimestamp" not in get(client, placed)["metadata"]


def test_what_is_gone_is_gone(writer: PodWriter, namespace: str) -> None:
    """404 is success."""
    key = Key(namespace, "never")
    outcomes = [writer.annotate(key, "u", {}), writer.evict(key, "u"), writer.delete(key, "u")]
    assert [*outcomes, writer.fail_lost(key, "u", "why")] == [Outcome.GONE] * 4


def test_an_eviction_and_a_deletion_end_a_pod(client: Client, writer: PodWriter, namespace: str) -> None:
    """No budget selects it."""
    for name, end in (("a", writer.evict), ("b", writer.delete)):
        key = Key(namespace, name)
        assert end(key, create(client, namespace, name)) is Outcome.DONE
        with pytest.raises(NotFound):
            get(client, key)


def test_budgets_block_and_two_of_them_for_good(client: Client, writer: PodWriter, namespace: str) -> None:
    """Which of the two it is, the planner has to know: one passes, the other does not."""
    key = Key(namespace, "a")
    uid = create(client, namespace, "a", nodeName=f"not-in-{namespace}")
    running(client, key)
    budget(client, namespace, "one", "a")
    assert writer.evict(key, uid) is Outcome.BLOCKED
    budget(client, namespace, "two", "a")
    assert writer.evict(key, uid) is Outcome.IMPOSSIBLE
    assert writer.annotate(key, uid, {"no/such/key": "x"}) is Outcome.IMPOSSIBLE


def test_a_lost_pod_fails_first_and_then_goes(client: Client, writer: PodWriter, namespace: str) -> None:
    """A finalizer of somebody else's lets us see what it was in between: other conditions stay."""
    key = Key(namespace, "a")
    uid = create(client, namespace, "a", nodeName=f"not-in-{namespace}", terminationGracePeriodSeconds=30)
    running(client, key)
    client.patch(f"/api/v1/namespaces/{namespace}/pods/a", {"metadata": {"finalizers": ["example.com/wait"]}})
    assert writer.fail_lost(key, uid, f"its node not-in-{namespace} is gone") is Outcome.DONE
    raw = get(client, key)
    conditions = {each["type"]: each for each in raw["status"]["conditions"]}
    assert raw["status"]["phase"] == "Failed"
    assert raw["metadata"]["deletionGracePeriodSeconds"] == 0
    assert conditions["Ready"]["status"] == "True"
    told = conditions[names.DISRUPTION_TARGET]
    assert (told["status"], told["reason"]) == ("True", names.DISRUPTION_REASON)
    assert told["message"] == f"its node not-in-{namespace} is gone"
    client.patch(f"/api/v1/namespaces/{namespace}/pods/a", {"metadata": {"finalizers": None}})
    assert writer.fail_lost(key, uid, "again") is Outcome.GONE


def test_a_pod_whose_node_is_there_is_not_lost(
    client: Client, writer: PodWriter, cluster: LocalCluster, namespace: str
) -> None:
    """Nor one that has none yet."""
    node = client.get_json("/api/v1/nodes")["items"][0]["metadata"]["name"]
    for name, spec in (("a", {"nodeName": node}), ("b", {})):
        uid = create(client, namespace, name, **spec)
        assert writer.fail_lost(Key(namespace, name), uid, "why") is Outcome.BUSY
        assert "deletionTimestamp" not in get(client, Key(namespace, name))["metadata"]
    assert not writer.node_is_gone(node)
    assert writer.node_is_gone("nowhere")


# --- the election ----------------------------------------------------------------------------------------------------


@pytest.fixture
def lease(client: Client) -> Iterator[None]:
    """A Lease that nobody holds."""
    with suppress(AlreadyExists):
        metadata = {"name": names.SYSTEM_NAMESPACE}
        client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    with suppress(NotFound):
        client.delete(PATH)
    permit_first_leader(client)
    yield
    client.delete(PATH)


class Contender:
    """A leader, or who wants to be one, and what it told when."""

    def __init__(self, client: Client, name: str) -> None:
        self.told: queue.Queue[tuple[bool, float]] = queue.Queue()
        self.leader = Leader(client, name, on_change=self._hear, terms=QUICK)

    def _hear(self, leads: bool) -> None:
        self.told.put((leads, time.monotonic()))

    def hears(self) -> tuple[bool, float]:
        return self.told.get(timeout=20)


@contextmanager
def contending(client: Client, name: str) -> Iterator[Contender]:
    contender = Contender(client, name)
    contender.leader.start()
    try:
        yield contender
    finally:
        contender.leader.stop()


def holder(client: Client) -> str:
    return str(client.get_json(PATH)["spec"].get("holderIdentity", ""))


@timed
def test_one_of_several_leads_and_the_next_follows_at_once(client: Client, lease: None) -> None:
    """Three begin together; who leads stops; one of the others leads within a second or two."""
    with contending(client, "a") as a, contending(client, "b") as b, contending(client, "c") as c:
        all_three = {"a": a, "b": b, "c": c}
        deadline = time.monotonic() + 20
        while not (leading := [name for name, each in all_three.items() if each.leader.is_leading()]):
            assert time.monotonic() < deadline
        (first,) = leading
        assert holder(client) == first
        all_three[first].leader.stop()
        stopped = time.monotonic()
        others = [each for name, each in all_three.items() if name != first]
        while not (leading_now := [each for each in others if each.leader.is_leading()]):
            assert time.monotonic() < deadline
        assert len(leading_now) == 1
        within("the next leads before the Lease runs out", time.monotonic() - stopped, QUICK.duration_seconds - 0.5)
        assert client.get_json(PATH)["spec"]["leaseTransitions"] == 2


def test_a_deleted_lease_leaves_the_leader_its_lead(client: Client, lease: None) -> None:
    """It is made anew, and nobody else takes it."""
    with contending(client, "a") as a:
        assert a.hears()[0] is True
        with contending(client, "b") as b:
            client.delete(PATH)
            deadline = time.monotonic() + 20
            while not client_has_lease(client) or holder(client) != "a":
                assert a.leader.is_leading()
                assert time.monotonic() < deadline
            assert not b.leader.is_leading()
            assert a.told.empty()


def client_has_lease(client: Client) -> bool:
    try:
        client.get(PATH)
    except NotFound:
        return False
    return True


LEAD = """
import os, pathlib, sys, threading
from kube.client import connect
from kube.election import Terms
from kube.crashpoints import Faults
from kube.lease import Leader
client = connect(pathlib.Path(sys.argv[1]), user_agent="spotweave-tests")
terms = Terms(duration_seconds=3, safe_seconds=2.0, renew_seconds=0.3, look_seconds=0.2, retry_seconds=0.1)
Leader(client, "doomed", faults=Faults.told_by(os.environ), terms=terms).start()
threading.Event().wait()
"""


def test_a_killed_leader_is_followed_when_its_time_is_over(client: Client, cluster: LocalCluster, lease: None) -> None:
    """It kills itself right after a renewal, as the variable tells it to."""
    environment = {**os.environ, VARIABLE: "after:lease:4", "PYTHONPATH": str(ROOT)}
    doomed = subprocess.run([sys.executable, "-c", LEAD, str(cluster.kubeconfig)], env=environment, timeout=60)
    died = time.monotonic()
    assert doomed.returncode == -signal.SIGKILL
    assert holder(client) == "doomed"
    with contending(client, "next") as follower:
        leads, at = follower.hears()
    assert leads
    assert QUICK.duration_seconds - 0.5 < at - died < QUICK.duration_seconds + 5


# --- a death at the note of an outage --------------------------------------------------------------------------------

NOTE = """
import os, pathlib, sys
from dataclasses import replace
from kube.client import connect
from kube.configmaps import change_outages
from kube.crashpoints import Faults
client = connect(pathlib.Path(sys.argv[1]), user_agent="spotweave-tests")
change_outages(client, lambda known: replace(known, version=known.version + 1), Faults.told_by(os.environ))
"""


@pytest.mark.parametrize(("moment", "written"), [("before", 0), ("after", 1)])
def test_a_death_at_the_note_of_an_outage(
    client: Client, cluster: LocalCluster, lease: None, moment: str, written: int
) -> None:
    """Before it: nothing is noted. After it: it is."""
    before = read_outages(client)[0].version
    environment = {**os.environ, VARIABLE: f"{moment}:outage:1", "PYTHONPATH": str(ROOT)}
    doomed = subprocess.run([sys.executable, "-c", NOTE, str(cluster.kubeconfig)], env=environment, timeout=60)
    assert doomed.returncode == -signal.SIGKILL
    assert read_outages(client)[0].version == before + written
    assert change_outages(client, lambda known: known).version == before + written
