"""A release ends first of all when its Deployment is scaled down, rolled, paused or gone: in every mode, any leader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pytest

from kube.client import STRATEGIC_PATCH
from localcluster import kubectl
from localcluster.stages import READY_AFTER_ANNOTATION
from placement import names
from tests.cluster.clustersetup import ClusterSetup, cluster_setup
from tests.cluster.longreleases import (
    have_two_rebalancers,
    kill_leader,
    serve_with_slow_replacements,
    start_releases,
    wait_for_leader,
)
from tests.cluster.namespaceuser import wait_for
from tests.cluster.podhistory import Meta, PodHistory, controllers, recording_pods
from tests.timing import timed, within

pytestmark = pytest.mark.cluster

CONFIGURATION = "moves: {minAge: 1s, coolDown: 2m, timeout: 5m, afterRollout: 0s}\n"  # no release ends by itself
REPLICAS, FEWER = 8, 6
NEW_IMAGE = "example/app:2.0"

Released = Mapping[str, Meta]  # by UID


@pytest.fixture(scope="module")
def shared_setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    with cluster_setup(tmp_path_factory.mktemp("config"), rebalancers=2, configuration=CONFIGURATION) as made:
        yield made


@pytest.fixture(autouse=True)
def tidy(setup: ClusterSetup) -> Iterator[None]:
    """Two rebalancers at first; no ReplicaSet in the end that would bring its pods back."""
    have_two_rebalancers(setup)
    yield
    setup.user.client.delete(setup.user.path("ReplicaSet"))


@pytest.fixture
def pod_history(setup: ClusterSetup) -> Iterator[PodHistory]:
    with recording_pods(setup.user) as pod_history:
        yield pod_history


def typed(setup: ClusterSetup, *arguments: str) -> str:
    return kubectl.call(*arguments, "-n", setup.user.namespace, kubeconfig=setup.user.kubeconfig)


# --- what people do, and what is to come of it -----------------------------------------------------------------------


def roll_out(setup: ClusterSetup, name: str) -> None:
    """A new image, whose pods become ready soon."""
    meta = {"annotations": {READY_AFTER_ANNOTATION: "1s"}}
    spec = {"containers": [{"name": "app", "image": NEW_IMAGE}]}
    patch = {"spec": {"template": {"metadata": meta, "spec": spec}}}
    setup.user.client.patch(setup.user.path("Deployment", name), patch, content_type=STRATEGIC_PATCH)


def await_rollout(setup: ClusterSetup, name: str) -> None:
    typed(setup, "rollout", "status", f"deployment/{name}", "--timeout=60s")


def pause_rollout(setup: ClusterSetup, name: str) -> None:
    typed(setup, "rollout", "pause", f"deployment/{name}")


def orphan(setup: ClusterSetup, name: str) -> None:
    typed(setup, "delete", "deployment", name, "--cascade=orphan")


def nothing_more(_scene: ClusterSetup, _name: str) -> None:
    """It takes effect by itself."""


def is_empty(setup: ClusterSetup, name: str, _released: Released) -> bool:
    return not setup.user.pods(name)


def has_fewer(setup: ClusterSetup, name: str, released: Released) -> bool:
    return is_ended(setup, name, released, FEWER)


def is_new(setup: ClusterSetup, name: str, released: Released) -> bool:
    images = {pod["spec"]["containers"][0]["image"] for pod in setup.user.pods(name)}
    return images == {NEW_IMAGE} and is_ended(setup, name, released, REPLICAS)


def is_as_before(setup: ClusterSetup, name: str, released: Released) -> bool:
    """The newcomers are gone, and nothing is released again."""
    return len(setup.user.pods(name)) == REPLICAS and is_ended(setup, name, released, REPLICAS)


def is_ended(setup: ClusterSetup, name: str, released: Released, replicas: int) -> bool:
    """As many as wanted are their ReplicaSet's. What was released is among them or gone; other moves may have begun."""
    metas = [pod["metadata"] for pod in setup.user.pods(name)]
    owned = {meta["uid"] for meta in metas if _is_of_its_set(meta, name)}
    return len(owned) == replicas and {meta["uid"] for meta in metas} & released.keys() <= owned


def _is_of_its_set(meta: Meta, name: str) -> bool:
    """Its controller is the ReplicaSet that its label names."""
    of = [(each["kind"], each["name"]) for each in controllers(meta)]
    return of == [("ReplicaSet", f"{name}-{meta['labels'][names.POD_TEMPLATE_HASH]}")]


@dataclass(frozen=True)
class End:
    """What somebody does to a Deployment, what has to take effect by itself, and what is to be within seconds then."""

    do: Callable[[ClusterSetup, str], None]
    is_over: Callable[[ClusterSetup, str, Released], bool]
    seconds: float = 5.0
    settle: Callable[[ClusterSetup, str], None] = nothing_more
    serving: int = 0  # never fewer meanwhile


ORPHANED = "orphaned"  # without an owner for a moment, as its owner asked for
ENDS = {
    # Budgets allow no eviction from a Deployment that wants no pod: it takes more than an eviction.
    "emptied": End(lambda setup, name: setup.user.scale(name, 0), is_empty),
    "shrunk": End(lambda setup, name: setup.user.scale(name, FEWER), has_fewer, serving=FEWER),
    "rolled": End(roll_out, is_new, settle=await_rollout, serving=FEWER),
    "paused": End(pause_rollout, is_as_before, seconds=10.0, serving=REPLICAS),
    "deleted": End(lambda setup, name: setup.user.delete("Deployment", name), is_empty, seconds=10.0),
    ORPHANED: End(orphan, is_as_before, seconds=10.0, serving=REPLICAS),
}


def under_way(setup: ClusterSetup, *deployments: str) -> dict[str, Released]:
    """Deployments of which pods are released, and stay so: their replacements do not become ready."""
    serve_with_slow_replacements(setup, dict.fromkeys(deployments, REPLICAS), minAvailable="100%")
    setup.history.forget()
    return {name: start_releases(setup, name, REPLICAS) for name in deployments}


def await_end(setup: ClusterSetup, name: str, released: Released, since: float) -> None:
    """Within its seconds of a moment (monotonic). Nothing else would end it for minutes."""
    end, what = ENDS[name], f"the end of the release of what was {name}"
    wait_for(what, partial(end.is_over, setup, name, released))
    within(what, time.monotonic() - since, end.seconds)
    assert setup.history.worst(name) >= end.serving


@timed
@pytest.mark.parametrize("name", ENDS)
def test_a_release_ends_with_its_reason(setup: ClusterSetup, pod_history: PodHistory, name: str) -> None:
    """Within seconds and for good, with never one serving replica less than Kubernetes itself would leave."""
    end, released = ENDS[name], under_way(setup, name)[name]
    end.do(setup, name)
    end.settle(setup, name)
    await_end(setup, name, released, time.monotonic())
    setup.falls_silent(2)
    assert end.is_over(setup, name, released)
    assert pod_history.complaints(spared=ORPHANED) == []


# --- by the next leader ----------------------------------------------------------------------------------------------


def act_on_all(setup: ClusterSetup) -> None:
    for name, end in ENDS.items():
        end.do(setup, name)
    for name, end in ENDS.items():
        end.settle(setup, name)


def five_seconds_after_a_kill(setup: ClusterSetup) -> None:
    """The other rebalancer leads when the Lease has run out."""
    kill_leader(setup)
    time.sleep(5)  # what it is about
    act_on_all(setup)


def while_none_lives(setup: ClusterSetup) -> None:
    """A new rebalancer knows only what the pods say.

    They are killed first: an eviction that is cut off uses up its budget for two minutes.
    """
    for each in setup.rebalancers:
        each.process.kill()
        each.process.wait()
    act_on_all(setup)
    setup.start()


@timed
@pytest.mark.parametrize("act", [five_seconds_after_a_kill, while_none_lives])
def test_the_next_leader_ends_releases(
    setup: ClusterSetup, pod_history: PodHistory, act: Callable[[ClusterSetup], None]
) -> None:
    """Of all kinds at once, as soon after its first moment as the last leader would have."""
    released = under_way(setup, *ENDS)
    act(setup)
    wait_for_leader(setup)
    since = time.monotonic()
    for name in sorted(ENDS, key=lambda name: ENDS[name].seconds):
        await_end(setup, name, released[name], since)
    assert pod_history.complaints(spared=ORPHANED) == []


# --- in every mode ---------------------------------------------------------------------------------------------------


@timed
@pytest.mark.parametrize("mode", ["plan-only", "off", "pause"])
def test_no_mode_keeps_released_pods_of_a_deployment_that_is_scaled_to_0(setup: ClusterSetup, mode: str) -> None:
    """All are gone within five seconds, also while moves are paused."""
    released = under_way(setup, "emptied")["emptied"]
    if mode == "pause":
        setup.spotweave("pause", "--for", "5m")
    else:
        setup.annotate("emptied", rebalance=mode)
    setup.falls_silent(2)
    ENDS["emptied"].do(setup, "emptied")
    await_end(setup, "emptied", released, time.monotonic())
