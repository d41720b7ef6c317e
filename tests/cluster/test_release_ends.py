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
from tests.cluster.company import (
    Diary,
    Meta,
    controllers,
    have_two,
    kill_leader,
    released_from,
    slow,
    wait_for_leader,
    written,
)
from tests.cluster.scene import Scene, staged
from tests.cluster.world import wait_for

pytestmark = pytest.mark.cluster

CONFIGURATION = "moves: {minAge: 1s, coolDown: 2m, timeout: 5m}\n"  # no release ends by itself
REPLICAS, FEWER = 8, 6
NEW_IMAGE = "example/app:2.0"

Released = Mapping[str, Meta]  # by UID


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with staged(tmp_path_factory.mktemp("config"), rebalancers=2, configuration=CONFIGURATION) as made:
        yield made


@pytest.fixture(autouse=True)
def tidy(scene: Scene) -> Iterator[None]:
    """Two rebalancers at first; no ReplicaSet in the end that would bring its pods back."""
    have_two(scene)
    yield
    scene.world.client.delete(scene.world.path("ReplicaSet"))


@pytest.fixture
def diary(scene: Scene) -> Iterator[Diary]:
    with written(scene.world) as diary:
        yield diary


def typed(scene: Scene, *arguments: str) -> str:
    return kubectl.call(*arguments, "-n", scene.world.namespace, kubeconfig=scene.world.kubeconfig)


# --- what people do, and what is to come of it -----------------------------------------------------------------------


def roll_out(scene: Scene, name: str) -> None:
    """A new image, whose pods become ready soon."""
    meta = {"annotations": {READY_AFTER_ANNOTATION: "1s"}}
    spec = {"containers": [{"name": "app", "image": NEW_IMAGE}]}
    patch = {"spec": {"template": {"metadata": meta, "spec": spec}}}
    scene.world.client.patch(scene.world.path("Deployment", name), patch, content_type=STRATEGIC_PATCH)


def await_rollout(scene: Scene, name: str) -> None:
    typed(scene, "rollout", "status", f"deployment/{name}", "--timeout=60s")


def pause_rollout(scene: Scene, name: str) -> None:
    typed(scene, "rollout", "pause", f"deployment/{name}")


def orphan(scene: Scene, name: str) -> None:
    typed(scene, "delete", "deployment", name, "--cascade=orphan")


def nothing_more(_scene: Scene, _name: str) -> None:
    """It takes effect by itself."""


def is_empty(scene: Scene, name: str, _released: Released) -> bool:
    return not scene.world.pods(name)


def has_fewer(scene: Scene, name: str, released: Released) -> bool:
    return is_ended(scene, name, released, FEWER)


def is_new(scene: Scene, name: str, released: Released) -> bool:
    images = {pod["spec"]["containers"][0]["image"] for pod in scene.world.pods(name)}
    return images == {NEW_IMAGE} and is_ended(scene, name, released, REPLICAS)


def is_as_before(scene: Scene, name: str, released: Released) -> bool:
    """The newcomers are gone, and nothing is released again."""
    return len(scene.world.pods(name)) == REPLICAS and is_ended(scene, name, released, REPLICAS)


def is_ended(scene: Scene, name: str, released: Released, replicas: int) -> bool:
    """As many as wanted are their ReplicaSet's. What was released is among them or gone; other moves may have begun."""
    metas = [pod["metadata"] for pod in scene.world.pods(name)]
    owned = {meta["uid"] for meta in metas if _is_of_its_set(meta, name)}
    return len(owned) == replicas and {meta["uid"] for meta in metas} & released.keys() <= owned


def _is_of_its_set(meta: Meta, name: str) -> bool:
    """Its controller is the ReplicaSet that its label names."""
    of = [(each["kind"], each["name"]) for each in controllers(meta)]
    return of == [("ReplicaSet", f"{name}-{meta['labels'][names.POD_TEMPLATE_HASH]}")]


@dataclass(frozen=True)
class End:
    """What somebody does to a Deployment, what has to take effect by itself, and what is to be within seconds then."""

    do: Callable[[Scene, str], None]
    is_over: Callable[[Scene, str, Released], bool]
    seconds: float = 5.0
    settle: Callable[[Scene, str], None] = nothing_more
    serving: int = 0  # never fewer meanwhile


ORPHANED = "orphaned"  # without an owner for a moment, as its owner asked for
ENDS = {
    # Budgets allow no eviction from a Deployment that wants no pod: it takes more than an eviction.
    "emptied": End(lambda scene, name: scene.world.scale(name, 0), is_empty),
    "shrunk": End(lambda scene, name: scene.world.scale(name, FEWER), has_fewer, serving=FEWER),
    "rolled": End(roll_out, is_new, settle=await_rollout, serving=FEWER),
    "paused": End(pause_rollout, is_as_before, seconds=10.0, serving=REPLICAS),
    "deleted": End(lambda scene, name: scene.world.delete("Deployment", name), is_empty, seconds=10.0),
    ORPHANED: End(orphan, is_as_before, seconds=10.0, serving=REPLICAS),
}


def under_way(scene: Scene, *deployments: str) -> dict[str, Released]:
    """Deployments of which pods are released, and stay so: their replacements do not become ready."""
    slow(scene, dict.fromkeys(deployments, REPLICAS), minAvailable="100%")
    scene.watcher.forget()
    return {name: released_from(scene, name, REPLICAS) for name in deployments}


def await_end(scene: Scene, name: str, released: Released, since: float) -> None:
    """Within its seconds of a moment (monotonic)."""
    end = ENDS[name]
    left = since + end.seconds - time.monotonic()
    wait_for(f"the end of the release of what was {name}", partial(end.is_over, scene, name, released), left)
    assert scene.watcher.worst(name) >= end.serving


@pytest.mark.parametrize("name", ENDS)
def test_a_release_ends_with_its_reason(scene: Scene, diary: Diary, name: str) -> None:
    """Within seconds and for good, with never one serving replica less than Kubernetes itself would leave."""
    end, released = ENDS[name], under_way(scene, name)[name]
    end.do(scene, name)
    end.settle(scene, name)
    await_end(scene, name, released, time.monotonic())
    scene.falls_silent(2)
    assert end.is_over(scene, name, released)
    assert diary.complaints(spared=ORPHANED) == []


# --- by the next leader ----------------------------------------------------------------------------------------------


def act_on_all(scene: Scene) -> None:
    for name, end in ENDS.items():
        end.do(scene, name)
    for name, end in ENDS.items():
        end.settle(scene, name)


def five_seconds_after_a_kill(scene: Scene) -> None:
    """The other rebalancer leads when the Lease has run out."""
    kill_leader(scene)
    time.sleep(5)  # what it is about
    act_on_all(scene)


def while_none_lives(scene: Scene) -> None:
    """A new rebalancer knows only what the pods say.

    They are killed first: an eviction that is cut off uses up its budget for two minutes.
    """
    for each in scene.rebalancers:
        each.process.kill()
        each.process.wait()
    act_on_all(scene)
    scene.start()


@pytest.mark.parametrize("act", [five_seconds_after_a_kill, while_none_lives])
def test_the_next_leader_ends_releases(scene: Scene, diary: Diary, act: Callable[[Scene], None]) -> None:
    """Of all kinds at once, as soon after its first moment as the last leader would have."""
    released = under_way(scene, *ENDS)
    act(scene)
    wait_for_leader(scene)
    since = time.monotonic()
    for name in sorted(ENDS, key=lambda name: ENDS[name].seconds):
        await_end(scene, name, released[name], since)
    assert diary.complaints(spared=ORPHANED) == []


# --- in every mode ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["plan-only", "off", "pause"])
def test_no_mode_keeps_released_pods_of_a_deployment_that_is_scaled_to_0(scene: Scene, mode: str) -> None:
    """All are gone within five seconds, also while moves are paused."""
    released = under_way(scene, "emptied")["emptied"]
    if mode == "pause":
        scene.spotweave("pause", "--for", "5m")
    else:
        scene.annotate("emptied", rebalance=mode)
    scene.falls_silent(2)
    ENDS["emptied"].do(scene, "emptied")
    await_end(scene, "emptied", released, time.monotonic())
