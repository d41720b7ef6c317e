"""Bare pods as they were written for another scheduler: annotations without a prefix, and a foreign scheduler's name.

Each node has room for one pod. Nothing but the default scheduler runs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from demo.gangs import OVERLAY_WITH_BARE_WITHOUT_POLICY, list_schedulers, rendered
from kube.errors import ApiError
from kube.gates import BARE_POLICY, remove_gate
from localcluster import kubectl
from placement import names
from tests.cluster.clustersetup import PLAIN
from tests.cluster.gangs import create, is_gated, is_labelled, raw_member
from tests.cluster.gangsetup import CONFIGURATION, GangSetup, gang_setup, pod_spec
from tests.cluster.namespaceuser import wait_for
from tests.cluster.test_gang_admission import KEYS, TEXTS, outcome, owned_by, random_pod

pytestmark = pytest.mark.cluster
FOREIGN = "gang-scheduler"
BARE = "enabled: true, minimumRunTime: 1s, bareAnnotations: true, schedulerNames: [gang-scheduler, volcano]"
NODES = 4
ONE_PER_NODE = "5"
PODS = 300


@pytest.fixture(scope="module")
def shared_gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangSetup]:
    directory = tmp_path_factory.mktemp("config")
    with gang_setup(directory, configuration=CONFIGURATION.replace("enabled: true", BARE)) as made:
        user = made.setup.user
        wait_for("the policy", lambda: is_gated(create(user, raw_member("probe", {"pod-group": "a"}), dry=True)))
        yield made


@pytest.fixture
def gangs(shared_gangs: GangSetup) -> Iterator[GangSetup]:
    yield shared_gangs
    shared_gangs.clear()


# --- what they become ------------------------------------------------------------------------------------------------

GROUP = {names.POD_GROUP: "a"}
PRIORITY = {names.PRIORITY: "100"}
# annotations, spec and labels → what is added to the annotations, whether it is a member, and its scheduler
MADE: dict[str, tuple[dict[str, str], dict[str, Any], dict[str, str], dict[str, str], bool]] = {
    "a group": ({"pod-group": "a"}, {}, {}, GROUP, True),
    "a group with an underscore": ({"pod_group": "a"}, {}, {}, GROUP, True),
    "both: the first counts": ({"pod-group": "a", "pod_group": "b"}, {}, {}, GROUP, True),
    "the first is blank": ({"pod-group": " ", "pod_group": "a"}, {}, {}, GROUP, True),
    "a priority beside it": ({"pod-group": "a", "priority": " 100 "}, {}, {}, {**GROUP, **PRIORITY}, True),
    "a priority alone": ({"priority": "100"}, {}, {}, PRIORITY, False),
    "a listed scheduler": ({"pod-group": "a"}, {"schedulerName": FOREIGN}, {}, GROUP, True),
    "a listed scheduler and a priority": ({"priority": "100"}, {"schedulerName": "volcano"}, {}, PRIORITY, True),
    "a listed scheduler alone": ({}, {"schedulerName": FOREIGN}, {}, {}, True),
    "a listed scheduler and the prefix": ({names.POD_GROUP: "b"}, {"schedulerName": FOREIGN}, {}, {}, True),
    "a listed scheduler and a PodGroup": ({}, {"schedulerName": FOREIGN}, {names.POD_GROUP_LABEL: "b"}, {}, True),
    "the prefix counts first": (
        {"pod-group": "a", "priority": "1", names.POD_GROUP: "b", names.PRIORITY: "2"}, {}, {}, {}, True,
    ),
    "a name that is too long": ({"pod-group": "a" * 254}, {}, {}, {}, False),
    "no room for more annotations": ({"pod-group": "a", "x": "x" * 262_000}, {}, {}, {}, False),
    "another scheduler": ({"pod-group": "a", "priority": "1"}, {"schedulerName": "other"}, {}, {}, False),
    "opted out": ({"pod-group": "a"}, {}, {names.PLACEMENT: names.DISABLED}, {}, False),
    "neither": ({"other": "a"}, {}, {}, {}, False),
}  # fmt: skip


@pytest.mark.parametrize("case", MADE.values(), ids=MADE.keys())
def test_what_they_become(
    gangs: GangSetup, case: tuple[dict[str, str], dict[str, Any], dict[str, str], dict[str, str], bool]
) -> None:
    """Members get gate, label and the default scheduler; others keep theirs. Where nobody opted in nothing is added."""
    _become(gangs, *case)


def _become(
    gangs: GangSetup,
    annotations: dict[str, str],
    spec: dict[str, Any],
    labels: dict[str, str],
    added: dict[str, str],
    is_member: bool,
) -> None:
    raw = raw_member("made", annotations, **spec)
    raw["metadata"]["labels"] = labels
    made = create(gangs.setup.user, raw, dry=True)
    assert made["metadata"].get("annotations", {}) == {**annotations, **added}
    assert (is_gated(made), is_labelled(made)) == (is_member, is_member)
    scheduler = spec.get("schedulerName", "default-scheduler")
    assert made["spec"]["schedulerName"] == ("default-scheduler" if is_member else scheduler)
    elsewhere = create(replace(gangs.setup.user, namespace=PLAIN), raw, dry=True)
    assert (is_gated(elsewhere), elsewhere["spec"]["schedulerName"]) == (False, scheduler)


def test_a_daemon_sets_pod_is_left_alone(gangs: GangSetup) -> None:
    raw = raw_member("made", {"pod-group": "a"}, schedulerName=FOREIGN)
    raw["metadata"]["ownerReferences"] = [owned_by("DaemonSet", "apps/v1")]
    made = create(gangs.setup.user, raw, dry=True)
    assert (is_gated(made), made["spec"]["schedulerName"]) == (False, FOREIGN)


def test_no_pod_is_refused_because_of_us(gangs: GangSetup) -> None:
    """Each of 300 odd pods fares as it does in a namespace that is not opted in."""
    chance, members = random.Random(142), 0
    elsewhere = replace(gangs.setup.user, namespace=PLAIN)
    for number in range(PODS):
        raw = random_pod(chance, number)
        written = raw["metadata"].get("annotations")
        keys = chance.sample([*names.BARE_POD_GROUPS, names.BARE_PRIORITY, *KEYS], chance.randint(0, 4))
        if written is not None:
            written.update({key: chance.choice(TEXTS) for key in keys})
        if chance.random() < 0.3:
            raw["spec"]["schedulerName"] = chance.choice([FOREIGN, "volcano", "other"])
        there, here = outcome(elsewhere, raw)[0], outcome(gangs.setup.user, raw)
        assert bool(here[0]) is bool(there), f"{raw}: {here[0] or there}"
        members += here[2]
    assert members > PODS / 10


# --- what becomes of them --------------------------------------------------------------------------------------------


def fill(gangs: GangSetup, name: str, pods: int, priority: int, *, is_gang: bool) -> None:
    """Bare pods with nothing but such annotations and such a scheduler."""
    for number in range(pods):
        annotations = {"priority": str(priority), **({"pod-group": name} if is_gang else {})}
        meta = {"name": f"{name}-{number}", "labels": {"app": name}, "annotations": annotations}
        spec = {**pod_spec(ONE_PER_NODE), "schedulerName": FOREIGN}
        gangs.client.post(gangs.setup.user.pods_path, {"metadata": meta, "spec": spec})


def test_high_priority_preempts_low(gangs: GangSetup) -> None:
    """Four pods fill the cluster. One of higher priority gets the node of one of them, and the others stay."""
    fill(gangs, "low", NODES, 1, is_gang=False)
    wait_for("all to run", lambda: gangs.bound("low") == NODES)
    time.sleep(2)  # their minimum run time
    fill(gangs, "high", 1, 100, is_gang=False)
    wait_for("the high one to run", lambda: gangs.bound("high") == 1)
    assert len(gangs.setup.user.pods("low")) == NODES - 1


def test_a_gang_of_three_starts_whole(gangs: GangSetup) -> None:
    """Nothing says how many they are. Once no other has come for a while, all start together."""
    gangs.starts.expect("trio", 3)
    fill(gangs, "trio", 3, 10, is_gang=True)
    wait_for("the gang to start", lambda: gangs.bound("trio") == 3)
    gangs.starts.check()
    assert {each["spec"]["schedulerName"] for each in gangs.all_of("trio")} == {"default-scheduler"}
    plans = {each["metadata"]["annotations"][names.GANG_PLAN].partition("/")[0] for each in gangs.all_of("trio")}
    assert len(plans) == 1


def test_a_gang_larger_than_the_cluster_starts_nothing_and_evicts_nobody(gangs: GangSetup) -> None:
    """Five members on four nodes, above two pods of low priority."""
    fill(gangs, "low", 2, 1, is_gang=False)
    wait_for("both to run", lambda: gangs.bound("low") == 2)
    uids = {each["metadata"]["uid"] for each in gangs.all_of("low")}
    time.sleep(2)
    fill(gangs, "huge", NODES + 1, 100, is_gang=True)
    waiting = names.EVENT_GANG_WAITING
    wait_for("the reason", lambda: any("huge" in each["message"] for each in gangs.setup.user.events(waiting)))
    time.sleep(3)
    assert (gangs.gated("huge"), gangs.reserved("huge"), gangs.bound("low")) == (NODES + 1, 0, 2)
    assert {each["metadata"]["uid"] for each in gangs.setup.user.pods("low")} == uids


def test_a_low_gang_is_evicted_whole_for_a_high_one(gangs: GangSetup) -> None:
    """Three members run on four nodes. Two of higher priority need a node more than is free: all three go."""
    fill(gangs, "low", 3, 1, is_gang=True)
    wait_for("the low gang to run", lambda: gangs.bound("low") == 3)
    time.sleep(2)
    fill(gangs, "high", 2, 100, is_gang=True)
    wait_for("the high gang to run", lambda: gangs.bound("high") == 2)
    assert gangs.setup.user.pods("low") == []


# --- at the end -------------------------------------------------------------------------------------------------------


def test_uninstalling_removes_the_policy(gangs: GangSetup) -> None:
    """What comes after this has none."""
    assert remove_gate(gangs.client)
    assert not gangs.setup.user.exists(BARE_POLICY)
    user = gangs.setup.user
    wait_for("no gate", lambda: not is_gated(create(user, raw_member("probe", {"pod-group": "a"}), dry=True)))


def test_before_kubernetes_1_36_the_webhook_gives_the_same(gangs: GangSetup) -> None:
    """By the entries of the other component; the policies are removed."""
    user = gangs.setup.user
    objects = rendered(OVERLAY_WITH_BARE_WITHOUT_POLICY)
    list_schedulers(objects, CONFIGURATION.replace("enabled: true", BARE))
    (entries,) = (each for each in objects if each["kind"] == "MutatingWebhookConfiguration")
    apply = ("apply", "--server-side", "--force-conflicts", "--field-manager=spotweave", "-f", "-")
    kubectl.call(*apply, kubeconfig=user.kubeconfig, stdin=yaml.safe_dump(entries))
    wait_for("the entry to be asked", lambda: _is_gated_now(gangs))
    for case in MADE.values():
        _become(gangs, *case)


def _is_gated_now(gangs: GangSetup) -> bool:
    """It refuses members until its certificate is trusted."""
    try:
        return is_gated(create(gangs.setup.user, raw_member("probe", {"pod-group": "a"}), dry=True))
    except ApiError:
        return False
