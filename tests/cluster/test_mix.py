"""The mix equals the formula whenever a workload comes to rest, whatever happened before."""

from __future__ import annotations

import random

import pytest

from localcluster import LocalCluster
from placement.names import OVERFLOW_PRIORITY
from placement.slots import Mix
from report.status import WorkloadStatus
from tests.builders.api import raw_workload
from tests.cluster.namespaceuser import WALKS, NamespaceUser, is_exact, wait_for

pytestmark = pytest.mark.cluster


def test_the_mix_is_exact_at_every_size(user: NamespaceUser) -> None:
    """1→10→200→50→3→1: at each rest the mix is the formula's, and no create was refused."""
    user.create(raw_workload("Deployment", "web", 1))
    assert is_exact(user.rest("web"), 0, 1)
    for replicas, spot, on_demand in ((10, 7, 3), (200, 140, 60), (50, 35, 15), (3, 2, 1), (1, 0, 1)):
        user.scale("web", replicas)
        status = user.rest("web")
        assert is_exact(status, spot, on_demand), f"{replicas}: {status.actual}, wanted {status.wanted}"
    assert user.events("FailedCreate") == []


def held_slots(status: WorkloadStatus) -> list[int | None]:
    return [each.pod.slot for each in status.pods if each.pod.is_live]


def test_slots_are_taken_once_and_from_below(user: NamespaceUser) -> None:
    """Fifty pods hold the slots 0…49, each once; after a scale-down to 20 those that are left hold 0…19."""
    user.create(raw_workload("Deployment", "web", 50))
    assert held_slots(user.rest("web")) == list(range(50))
    user.scale("web", 20)
    assert held_slots(user.rest("web")) == list(range(20))


def test_a_pod_that_is_pending_at_a_scale_down_leaves_a_hole_for_the_next_one(
    user: NamespaceUser, cluster: LocalCluster
) -> None:
    """Of twelve, the one in slot 3 is replaced and not ready yet when one has to go: it is the one that goes.

    Eleven are then 8 + 3 where 7 + 4 are wanted, until the rebalancer rewrites slots; here none runs. The twelfth
    takes the hole, and the mix is the formula's.
    """
    user.create(raw_workload("Deployment", "web", 12))
    third = next(each for each in user.rest("web").pods if each.pod.slot == 3)
    cluster.pause("kwok")
    try:
        user.delete_pod(third.pod.name)
        wait_for("the replacement", lambda: len(user.pods("web")) == 12)
        user.scale("web", 11)
        wait_for("eleven to be left", lambda: len(user.pods("web")) == 11)
    finally:
        cluster.resume("kwok")
    status = user.rest("web")
    assert (held_slots(status), str(status.actual)) == ([0, 1, 2, *range(4, 12)], str(Mix(8, 3)))
    status = user.rest_without_holes("web")
    assert held_slots(status) == list(range(12))
    assert is_exact(status, 8, 4)


def test_a_rollout_at_100_replicas_keeps_the_mix(user: NamespaceUser) -> None:
    """With a surge of 25 % the new revision ends with the same mix, and nothing was refused or evicted."""
    strategy = {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
    user.create(raw_workload("Deployment", "web", 100, strategy=strategy))
    assert is_exact(user.rest("web"), 70, 30)
    user.roll_out("web")
    assert is_exact(user.rest("web"), 70, 30)
    assert user.events("FailedCreate") == []
    assert user.events("Evicted") == []


def test_ratio_and_floor_are_what_the_annotations_say(user: NamespaceUser) -> None:
    """40 % of 10 with a floor of 7 is 3 spot; 100 % with floor 0 is all spot."""
    user.create(
        raw_workload(
            "Deployment", "careful", 10, {"spotweave.dev/spot-ratio": "40%", "spotweave.dev/min-on-demand": "7"}
        )
    )
    user.create(
        raw_workload("Deployment", "bold", 4, {"spotweave.dev/spot-ratio": "1", "spotweave.dev/min-on-demand": "0"})
    )
    assert is_exact(user.rest("careful"), 3, 7)
    assert is_exact(user.rest("bold"), 4, 0)


def test_each_replacement_has_the_class_of_the_lost_pod(user: NamespaceUser) -> None:
    """Thirty random deletions, one by one: the class that was lost is the class that comes."""
    user.create(raw_workload("Deployment", "web", 10))
    user.rest("web")
    chance = random.Random(7)
    for _ in range(30):
        before = user.classes("web")
        victim = chance.choice(sorted(before))
        user.delete_pod(victim)
        wait_for("the replacement", lambda: victim not in (now := user.classes("web")) and len(now) == 10)  # noqa: B023
        after = user.classes("web")
        (newcomer,) = set(after) - set(before)
        assert after[newcomer] == before[victim]
    assert is_exact(user.rest("web"), 7, 3)


def test_many_deletions_at_once_leave_the_mix_exact(user: NamespaceUser) -> None:
    """Half of 40 pods are deleted in one go."""
    user.create(raw_workload("Deployment", "web", 40))
    user.rest("web")
    for victim in random.Random(11).sample(sorted(user.classes("web")), 20):
        user.delete_pod(victim)
    assert is_exact(user.rest("web"), 28, 12)


@WALKS
def test_a_walk_of_sizes_with_a_rollout_and_deletions_ends_exact(user: NamespaceUser, walks: int, steps: int) -> None:
    """Every second another size and two pods deleted, a rollout half-way; at each rest the mix is the formula's."""
    chance = random.Random(3)
    user.create(raw_workload("Deployment", "web", 20))
    user.rest("web")
    for _ in range(walks):
        user.walk("web", steps, chance)
        status = user.rest_without_holes("web")
        assert is_exact(status, status.wanted.spot, status.wanted.on_demand), f"{status.actual}, not {status.wanted}"


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_single_replica_is_always_on_demand(user: NamespaceUser, kind: str) -> None:
    """At first, after a rollout, and after its pod was lost."""
    user.create(raw_workload(kind, "lone", 1))
    assert is_exact(user.rest("lone", kind), 0, 1)
    user.roll_out("lone", kind)
    assert is_exact(user.rest("lone", kind), 0, 1)
    (pod,) = user.classes("lone")
    uid = user.pods("lone")[0]["metadata"]["uid"]
    user.delete_pod(pod)
    wait_for("another pod", lambda: [each for each in user.pods("lone") if each["metadata"]["uid"] != uid])
    assert is_exact(user.rest("lone", kind), 0, 1)


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_a_stateful_set_goes_by_its_ordinals(user: NamespaceUser, policy: str) -> None:
    """Ordinals 0…9 at 70 % are O S S O S S O S S S, also where the class is only preferred (OrderedReady)."""
    user.create(raw_workload("StatefulSet", "store", 10, podManagementPolicy=policy))
    status = user.rest("store", "StatefulSet")
    assert is_exact(status, 7, 3)
    classes = user.classes("store")
    assert "".join(classes[f"store-{ordinal}"][0] for ordinal in range(10)) == "ossossosss"


def test_ordinals_count_from_where_they_start(user: NamespaceUser) -> None:
    """With `ordinals.start: 5`, store-5 is slot 0."""
    user.create(raw_workload("StatefulSet", "store", 3, ordinals={"start": 5}))
    assert is_exact(user.rest("store", "StatefulSet"), 2, 1)
    assert user.classes("store") == {"store-5": "on-demand", "store-6": "spot", "store-7": "spot"}


def test_a_mistake_stops_no_pod(user: NamespaceUser) -> None:
    """`70` does not count: the pods come with the built-in ratio, and status names annotation, value and remedy."""
    user.create(raw_workload("Deployment", "typo", 10, {"spotweave.dev/spot-ratio": "70"}))
    status = user.rest("typo")
    assert is_exact(status, 7, 3)
    (mistake,) = status.mistakes
    assert (mistake.annotation, mistake.value) == ("spotweave.dev/spot-ratio", "70")
    assert "70%" in mistake.expected


def test_dry_runs_change_no_count(user: NamespaceUser) -> None:
    """Twenty pods of a ReplicaSet are created as dry runs; real pods get the next slots all the same."""
    user.create(raw_workload("Deployment", "web", 3))
    user.rest("web")
    (like, *_) = user.pods("web")
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
    answers = [user.client.post(user.pods_path, pod, {"dryRun": "All"}) for _ in range(20)]
    assert {each["metadata"]["annotations"]["spotweave.dev/slot"] for each in answers} == {"3"}
    user.scale("web", 10)
    assert is_exact(user.rest("web"), 7, 3)


def test_the_overflow_class_is_installed(user: NamespaceUser) -> None:
    """Negative, so that it gives way, and above the autoscaler's cut-off of −10."""
    raw = user.client.get_json(f"/apis/scheduling.k8s.io/v1/priorityclasses/{OVERFLOW_PRIORITY}")
    assert raw["value"] == -5
