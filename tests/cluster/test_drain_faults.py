"""Drains while something is wrong: every hold ends, and what can be kept serving is."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import pytest

from demo.supervisor import wait_until_ready
from kube.crashpoints import Call, Moment
from kube.errors import ApiError, NotFound, TooManyRequests
from localcluster import kubectl
from localcluster.errors import ClusterError
from localcluster.parts import APISERVER
from placement import names
from tests.cluster.clustersetup import ClusterSetup, cluster_setup
from tests.cluster.longreleases import serve_with_slow_replacements
from tests.cluster.namespaceuser import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CONFIGURATION = "moves: {minAge: 1s, coolDown: 2m, timeout: 60s}\n"
DRAIN = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=150s")
HOLD_SECONDS = 90.0
soak = pytest.mark.soak  # beside one of them in every check


@pytest.fixture(scope="module")
def shared_setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    made = tmp_path_factory.mktemp("config")
    with cluster_setup(made, rebalancers=2, configuration=CONFIGURATION, webhooks=2) as made_setup:
        yield made_setup


def drain(setup: ClusterSetup, node: str) -> float:
    """Seconds that it took. Raises if kubectl ends with another code than 0."""
    began = time.monotonic()
    kubectl.call("drain", node, *DRAIN, kubeconfig=setup.user.kubeconfig)
    return time.monotonic() - began


def uncordon(setup: ClusterSetup, *nodes: str) -> None:
    kubectl.call("uncordon", *nodes, kubeconfig=setup.user.kubeconfig)


def nodes_of(setup: ClusterSetup, *apps: str) -> list[str]:
    return list(dict.fromkeys(pod["spec"]["nodeName"] for app in apps for pod in setup.user.pods(app)))


def evict(setup: ClusterSetup, name: str) -> bool:
    """Once, as a drainer does. Whether the pod may go, or has gone."""
    try:
        setup.user.evict(name)
    except TooManyRequests:
        return False
    except NotFound:
        return True
    return True


def evict_patiently(setup: ClusterSetup, name: str, uid: str) -> float:
    """Every half second, whatever the API server says, until this very pod goes. Gives the seconds that it took."""
    began = time.monotonic()

    def is_gone() -> bool:
        try:
            there = setup.user.client.get_json(f"{setup.user.pods_path}/{name}")["metadata"]
            if there["uid"] != uid or "deletionTimestamp" in there or evict(setup, name):
                return True
        except NotFound:
            return True
        except ApiError:
            pass  # the API server is away, say
        time.sleep(0.5)  # the pace of a drainer, not a wait
        return False

    wait_for(f"{name} to go", is_gone, 2 * HOLD_SECONDS)
    return time.monotonic() - began


def test_pods_of_a_stateful_set_go_one_at_a_time(setup: ClusterSetup) -> None:
    """Five drainers evict the five at once, asking two webhooks, again and again."""
    setup.serves("db", 5, kind="StatefulSet")
    setup.falls_silent(2)
    setup.history.forget()
    before = setup.let_through()
    pods = [(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in setup.user.pods("db")]
    with ThreadPoolExecutor(len(pods)) as pool:
        list(pool.map(lambda pod: evict_patiently(setup, *pod), pods))
    setup.user.rest("db", "StatefulSet")
    assert setup.history.worst("db") >= 4 - (setup.let_through() - before)
    assert not {uid for _, uid in pods} & setup.uids("db")


@soak
def test_a_declared_minimum_holds_where_nothing_can_be_released(setup: ClusterSetup) -> None:
    """`maxSurge: 0`, eight of ten must serve: never fewer, however many drainers there are."""
    spec = {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}
    setup.serves("tight", 10, {"spotweave.dev/min-available": "80%"}, spec=spec)
    setup.falls_silent(2)
    setup.history.forget()
    pods = [(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in setup.user.pods("tight")]
    with ThreadPoolExecutor(len(pods)) as pool:
        list(pool.map(lambda pod: evict_patiently(setup, *pod), pods))
    assert setup.history.worst("tight") == 8


@soak
def test_ten_drainers_at_once_cost_no_replica(setup: ClusterSetup) -> None:
    """Of four nodes, and all of them of several."""
    for name, replicas in {"lone": 1, "web": 10, "more": 6}.items():
        setup.serves(name, replicas)
    setup.falls_silent(2)
    setup.history.forget()
    nodes = nodes_of(setup, "lone", "web", "more")[:4]
    with ThreadPoolExecutor(10) as pool:
        print([round(each, 1) for each in pool.map(lambda number: drain(setup, nodes[number % 4]), range(10))])
    assert [setup.history.worst(name) for name in ("lone", "web", "more")] == [1, 10, 6]
    uncordon(setup, *nodes)


@soak
def test_a_budget_beside_it_is_kept(setup: ClusterSetup) -> None:
    setup.serves("web", 10, minAvailable=9)
    setup.serves("db", 3, kind="StatefulSet", maxUnavailable=1)
    setup.falls_silent(2)
    setup.history.forget()
    for node in nodes_of(setup, "db", "web")[:3]:
        drain(setup, node)
        uncordon(setup, node)
    assert setup.history.worst("web") == 10
    assert setup.history.worst("db") == 2


def test_a_replacement_that_never_serves_is_not_waited_for_longer_than_the_policy_says(setup: ClusterSetup) -> None:
    """Eight seconds, where the built-in time is a minute and a half."""
    serve_with_slow_replacements(setup, {"slow": 1}, annotations={"spotweave.dev/eviction-hold": "8s"})
    setup.falls_silent(2)
    (pod,) = setup.user.pods("slow")
    assert not evict(setup, pod["metadata"]["name"])
    seconds = evict_patiently(setup, pod["metadata"]["name"], pod["metadata"]["uid"])
    assert seconds < HOLD_SECONDS / 2  # 8, and what a busy machine takes


@soak
def test_a_full_cluster_lets_go(setup: ClusterSetup) -> None:
    """No node takes another pod: there is no replacement to wait for."""
    setup.serves("web", 4)
    setup.falls_silent(2)
    nodes = list(setup.cluster.profile.node_names)
    kubectl.call("cordon", *nodes, kubeconfig=setup.user.kubeconfig)
    pod = setup.user.pods("web")[0]["metadata"]
    assert evict_patiently(setup, pod["name"], pod["uid"]) < HOLD_SECONDS / 2
    uncordon(setup, *nodes)
    setup.user.rest("web")


# --- while our own programs, or the API server, are killed -----------------------------------------------------------


def kill_webhooks(setup: ClusterSetup) -> None:
    """All of them; new ones come up."""
    for each in [each for each in setup.installed.processes if each.name.startswith(names.WEBHOOK_COMPONENT)]:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
    wait_until_ready([setup.installed.add(), setup.installed.add()])


def kill_leader(setup: ClusterSetup) -> None:
    """Another one is there already."""
    for each in setup.rebalancers:
        if setup.leads(each):
            each.process.kill()
            each.process.wait()
    setup.installed.add(names.REBALANCER_COMPONENT)


def restart_api_server(setup: ClusterSetup) -> None:
    setup.cluster.kill(APISERVER)
    setup.cluster.start_part(APISERVER, 60.0)


FAULTS: dict[str, tuple[Callable[[ClusterSetup], None], float]] = {
    "webhooks": (kill_webhooks, 2.0),
    "leader": (kill_leader, 5.0),
    "API server": (restart_api_server, 8.0),
}


@pytest.mark.parametrize("what", [pytest.param(name, marks=soak) for name in FAULTS])
def test_drains_end_while_it_is_killed_again_and_again(setup: ClusterSetup, what: str) -> None:
    """And afterwards nothing is held. What the fault costs is not judged here."""
    fault, pause_seconds = FAULTS[what]
    assert len(webhooks(setup)) == 2
    for name, replicas in {"lone": 1, "web": 10}.items():
        setup.serves(name, replicas)
    setup.falls_silent(2)
    nodes = nodes_of(setup, "lone", "web")[:3]
    with ThreadPoolExecutor(1) as pool:
        draining = pool.submit(drain_one_by_one, setup, nodes)
        while not draining.done():
            fault(setup)  # by this thread: what a thread has started ends with it
            wait([draining], pause_seconds)
    print(what, [f"drained {node} in {seconds:.1f} s" for node, seconds in draining.result().items()])
    wait_for("the API server", lambda: setup.cluster.parts[APISERVER].state == "running")
    uncordon(setup, *nodes)
    setup.user.rest("web")
    setup.user.rest("lone")
    assert held(setup, "web", "lone") == []


STEPS = [f"{moment}:{call}:{number}" for call in (Call.ANNOTATE, Call.EVICT) for moment in Moment for number in (1, 2)]


@pytest.mark.parametrize("step", [pytest.param(step, marks=soak) for step in STEPS])
def test_a_drain_ends_whichever_step_the_leader_dies_at(setup: ClusterSetup, step: str) -> None:
    """Before or after a release, before or after an eviction. Another one takes over; eight of ten serve at least."""
    assert len(webhooks(setup)) == 2
    setup.serves("web", 10)
    setup.falls_silent(2)
    setup.stop_all()
    faulty = setup.start(step)
    wait_for("the leader", lambda: faulty.process.poll() is not None or setup.leads(faulty))
    setup.start()
    setup.history.forget()
    before, nodes = setup.let_through(), nodes_of(setup, "web")
    for node in nodes:
        print(f"{step}: drained {node} in {drain(setup, node):.1f} s, lowest serving {setup.history.worst('web')}")
        if faulty.process.poll() is not None:
            break
    assert faulty.process.returncode == -signal.SIGKILL
    uncordon(setup, *nodes)
    setup.user.rest("web")
    assert setup.history.worst("web") >= 8 - (setup.let_through() - before)
    assert held(setup, "web") == []
    setup.installed.add(names.REBALANCER_COMPONENT)  # two, as before


def held(setup: ClusterSetup, *apps: str) -> list[str]:
    metas = [pod["metadata"] for app in apps for pod in setup.user.pods(app)]
    return [meta["name"] for meta in metas if names.EVICTION_ASKED in meta.get("annotations", {})]


def webhooks(setup: ClusterSetup) -> list[str]:
    """Those that live."""
    own = [each for each in setup.installed.processes if each.name.startswith(names.WEBHOOK_COMPONENT)]
    return [each.name for each in own if each.process.poll() is None]


def drain_one_by_one(setup: ClusterSetup, nodes: list[str]) -> dict[str, float]:
    """Seconds that each took."""
    seconds = {}
    for node in nodes:
        began = time.monotonic()
        wait_for(f"{node} to be drained", partial(is_drained, setup, node), 2 * HOLD_SECONDS)
        seconds[node] = time.monotonic() - began
    return seconds


def is_drained(setup: ClusterSetup, node: str) -> bool:
    """Asks for it again where kubectl gave up because nobody answered it."""
    try:
        drain(setup, node)
    except ClusterError:
        return False
    return True
