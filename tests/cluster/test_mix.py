"""The mix equals the formula whenever a workload comes to rest, whatever happened before."""

from __future__ import annotations

import random

import pytest

from placement.names import OVERFLOW_PRIORITY
from report.status import WorkloadStatus
from tests.cluster.world import WALKS, World, is_exact, wait_for, workload

pytestmark = pytest.mark.cluster


def test_the_mix_is_exact_at_every_size(world: World) -> None:
    """1→10→200→50→3→1: at each rest the mix is the formula's, and no create was refused."""
    world.create(workload("Deployment", "web", 1))
    assert is_exact(world.rest("web"), 0, 1)
    for replicas, spot, on_demand in ((10, 7, 3), (200, 140, 60), (50, 35, 15), (3, 2, 1), (1, 0, 1)):
        world.scale("web", replicas)
        status = world.rest("web")
        assert is_exact(status, spot, on_demand), f"{replicas}: {status.actual}, wanted {status.wanted}"
    assert world.events("FailedCreate") == []


def held_slots(status: WorkloadStatus) -> list[int | None]:
    return [each.pod.slot for each in status.pods if each.pod.is_live]


def test_slots_are_taken_once_and_from_below(world: World) -> None:
    """Fifty pods hold the slots 0…49, each once; after a scale-down to 20 those that are left hold 0…19."""
    world.create(workload("Deployment", "web", 50))
    assert held_slots(world.rest("web")) == list(range(50))
    world.scale("web", 20)
    assert held_slots(world.rest("web")) == list(range(20))


def test_a_rollout_at_100_replicas_keeps_the_mix(world: World) -> None:
    """With a surge of 25 % the new revision ends with the same mix, and nothing was refused or evicted."""
    strategy = {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
    world.create(workload("Deployment", "web", 100, strategy=strategy))
    assert is_exact(world.rest("web"), 70, 30)
    world.roll_out("web")
    assert is_exact(world.rest("web"), 70, 30)
    assert world.events("FailedCreate") == []
    assert world.events("Evicted") == []


def test_ratio_and_floor_are_what_the_annotations_say(world: World) -> None:
    """40 % of 10 with a floor of 7 is 3 spot; 100 % with floor 0 is all spot."""
    world.create(
        workload("Deployment", "careful", 10, {"spotweave.dev/spot-ratio": "40%", "spotweave.dev/min-on-demand": "7"})
    )
    world.create(
        workload("Deployment", "bold", 4, {"spotweave.dev/spot-ratio": "1", "spotweave.dev/min-on-demand": "0"})
    )
    assert is_exact(world.rest("careful"), 3, 7)
    assert is_exact(world.rest("bold"), 4, 0)


def test_each_replacement_has_the_class_of_the_lost_pod(world: World) -> None:
    """Thirty random deletions, one by one: the class that was lost is the class that comes."""
    world.create(workload("Deployment", "web", 10))
    world.rest("web")
    chance = random.Random(7)
    for _ in range(30):
        before = world.classes("web")
        victim = chance.choice(sorted(before))
        world.delete_pod(victim)
        wait_for("the replacement", lambda: victim not in (now := world.classes("web")) and len(now) == 10)  # noqa: B023
        after = world.classes("web")
        (newcomer,) = set(after) - set(before)
        assert after[newcomer] == before[victim]
    assert is_exact(world.rest("web"), 7, 3)


def test_many_deletions_at_once_leave_the_mix_exact(world: World) -> None:
    """Half of 40 pods are deleted in one go."""
    world.create(workload("Deployment", "web", 40))
    world.rest("web")
    for victim in random.Random(11).sample(sorted(world.classes("web")), 20):
        world.delete_pod(victim)
    assert is_exact(world.rest("web"), 28, 12)


@WALKS
def test_a_walk_of_sizes_with_a_rollout_and_deletions_ends_exact(world: World, walks: int, steps: int) -> None:
    """Every second another size and two pods deleted, a rollout half-way; at each rest the mix is the formula's."""
    chance = random.Random(3)
    world.create(workload("Deployment", "web", 20))
    world.rest("web")
    for _ in range(walks):
        world.walk("web", steps, chance)
        status = world.rest("web")
        assert is_exact(status, status.wanted.spot, status.wanted.on_demand), f"{status.actual}, not {status.wanted}"


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_single_replica_is_always_on_demand(world: World, kind: str) -> None:
    """At first, after a rollout, and after its pod was lost."""
    world.create(workload(kind, "lone", 1))
    assert is_exact(world.rest("lone", kind), 0, 1)
    world.roll_out("lone", kind)
    assert is_exact(world.rest("lone", kind), 0, 1)
    (pod,) = world.classes("lone")
    uid = world.pods("lone")[0]["metadata"]["uid"]
    world.delete_pod(pod)
    wait_for("another pod", lambda: [each for each in world.pods("lone") if each["metadata"]["uid"] != uid])
    assert is_exact(world.rest("lone", kind), 0, 1)


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_a_stateful_set_goes_by_its_ordinals(world: World, policy: str) -> None:
    """Ordinals 0…9 at 70 % are O S S O S S O S S S, also where the class is only preferred (OrderedReady)."""
    world.create(workload("StatefulSet", "store", 10, podManagementPolicy=policy))
    status = world.rest("store", "StatefulSet")
    assert is_exact(status, 7, 3)
    classes = world.classes("store")
    assert "".join(classes[f"store-{ordinal}"][0] for ordinal in range(10)) == "ossossosss"


def test_ordinals_count_from_where_they_start(world: World) -> None:
    """With `ordinals.start: 5`, store-5 is slot 0."""
    world.create(workload("StatefulSet", "store", 3, ordinals={"start": 5}))
    assert is_exact(world.rest("store", "StatefulSet"), 2, 1)
    assert world.classes("store") == {"store-5": "on-demand", "store-6": "spot", "store-7": "spot"}


def test_a_mistake_stops_no_pod(world: World) -> None:
    """`70` does not count: the pods come with the built-in ratio, and status names annotation, value and remedy."""
    world.create(workload("Deployment", "typo", 10, {"spotweave.dev/spot-ratio": "70"}))
    status = world.rest("typo")
    assert is_exact(status, 7, 3)
    (mistake,) = status.mistakes
    assert (mistake.annotation, mistake.value) == ("spotweave.dev/spot-ratio", "70")
    assert "70%" in mistake.expected


def test_dry_runs_change_no_count(world: World) -> None:
    """Twenty pods of a ReplicaSet are created as dry runs; real pods get the next slots all the same."""
    world.create(workload("Deployment", "web", 3))
    world.rest("web")
    (like, *_) = world.pods("web")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": like["metadata"]["generateName"],
            "labels": {"app": "web", "pod-template-hash": like["metadata"]["labels"]["pod-template-hash"]},
            "ownerReferences": like["metadata"]["ownerReferences"],
        },
        "spec": {"containers": [{"name": "app", "image": "example/app:1.0"}]},
    }
    answers = [world.client.post(world.pods_path, pod, {"dryRun": "All"}) for _ in range(20)]
    assert {each["metadata"]["annotations"]["spotweave.dev/slot"] for each in answers} == {"3"}
    world.scale("web", 10)
    assert is_exact(world.rest("web"), 7, 3)


def test_the_overflow_class_is_installed(world: World) -> None:
    """Negative, so that it gives way, and above the autoscaler's cut-off of −10."""
    raw = world.client.get_json(f"/apis/scheduling.k8s.io/v1/priorityclasses/{OVERFLOW_PRIORITY}")
    assert raw["value"] == -5
