"""What would be in the way of the next rollout."""

from dataclasses import replace

import pytest

from placement import names
from placement.classes import PRESETS, Classes
from placement.configuration import Configuration
from placement.model import (
    Node,
    NodeRequirement,
    NodeTerm,
    Pod,
    PodTerm,
    Snapshot,
)
from report.rolloutroom import foreseen, of_next_revision, room_in
from report.status import statuses
from tests.builders.model import NEEDS, ON_DEMAND, SPOT, node, pod, replica_set, workload
from tests.builders.snapshots import snapshot


def shop(*nodes: Node, waiting: int = 0) -> Snapshot:
    """Ten replicas of 1 CPU, seven of them on spot; a rollout needs 2 more places of each class."""
    where = ["o" if slot in (0, 3, 6) else "s" for slot in range(10)] + [""] * waiting
    pods = [pod(f"p{index}", None, there, phase="Running", ready=True) for index, there in enumerate(where)]
    return snapshot((workload(), replica_set(), pods), nodes=nodes)


PLENTY = 64_000
ROOMS: dict[str, tuple[Snapshot, list[str]]] = {
    "enough of both": (shop(node("o", cpu=5000), node("s", SPOT, cpu=9000)), []),
    "none on on-demand": (
        shop(node("o", cpu=3000), node("s", SPOT, cpu=PLENTY)),
        ["a rollout needs 2 more on-demand places, 0 free"],
    ),
    "one on each of two nodes": (shop(node("o", cpu=4000), node("p", cpu=1500), node("s", SPOT, cpu=PLENTY)), []),
    "one on on-demand, one on spot": (
        shop(node("o", cpu=4500), node("s", SPOT, cpu=8000)),
        ["a rollout needs 2 more on-demand places, 1 free and 2 more spot places, 1 free"],
    ),
    "room that others wait for": (
        shop(node("o", cpu=5000), node("s", SPOT, cpu=PLENTY), waiting=1),
        ["a rollout needs 2 more on-demand places, 1 free"],
    ),
    "a node that leaves": (
        shop(node("o", cpu=3000), node("p", ON_DEMAND, unschedulable=True), node("s", SPOT, cpu=PLENTY)),
        ["a rollout needs 2 more on-demand places, 0 free"],
    ),
}


@pytest.mark.parametrize(("snapshot", "expected"), ROOMS.values(), ids=ROOMS.keys())
def test_places_that_a_rollout_will_lack_are_told_beforehand(snapshot: Snapshot, expected: list[str]) -> None:
    """By class; and nothing where there are enough."""
    configuration = Configuration()
    told = foreseen(statuses(snapshot, configuration), room_in(snapshot, configuration))
    assert [each.text for each in told] == expected


def test_where_an_autoscaler_brings_nodes_a_rollout_waits_for_them() -> None:
    """Few places are free there at any time, which is no reason to worry."""
    configuration = Configuration(Classes((replace(PRESETS["default"], is_scaled=True),)))
    there = shop(node("o", cpu=3000), node("s", SPOT, cpu=PLENTY))
    (told,) = foreseen(statuses(there, configuration), room_in(there, configuration))
    expected = "a rollout needs 2 more on-demand places, 0 free now: it waits until the autoscaler brings them"
    assert told.text == expected


WEB = NodeRequirement("app", "In", ("web",))
OF_ITS_REVISION = NodeRequirement(names.POD_TEMPLATE_HASH, "In", ("abc",))


def apart(selector: NodeTerm, *nodes: Node) -> Snapshot:
    """Three replicas that are to be on hosts of their own; a rollout needs one more on on-demand."""
    needs = replace(NEEDS, anti_affinity=(PodTerm(names.HOSTNAME, selector),))
    labels = {"app": "web", names.POD_TEMPLATE_HASH: "abc"}
    seen = shop(*nodes)
    pods = tuple(
        replace(each, node=where, labels=labels, needs=needs)
        for each, where in zip(seen.pods, ("o", "s", "t"), strict=False)
    )
    workloads = (replace(seen.workloads[0], replicas=3),)
    return replace(seen, pods=pods, workloads=workloads, replica_sets=(replace(seen.replica_sets[0], replicas=3),))


HOSTS = node("o"), node("s", SPOT), node("t", SPOT)
APART: dict[str, tuple[Snapshot, list[str]]] = {
    "no host is left": (apart((WEB,), *HOSTS), ["a rollout needs 1 more on-demand place, 0 free"]),
    "one is": (apart((WEB,), *HOSTS, node("p")), []),
    "they are apart within their revision alone": (apart((WEB, OF_ITS_REVISION), *HOSTS), []),
}


@pytest.mark.parametrize(("snapshot", "expected"), APART.values(), ids=APART.keys())
def test_a_rollout_needs_hosts_of_its_own_where_pods_are_kept_apart(snapshot: Snapshot, expected: list[str]) -> None:
    """Room for more is of no use on a host that has one already."""
    configuration = Configuration()
    told = foreseen(statuses(snapshot, configuration), room_in(snapshot, configuration))
    assert [each.text for each in told] == expected


def test_what_names_no_revision_is_the_same_for_the_next() -> None:
    """Terms without a selector, or about other revisions, stay as they are."""
    terms = (PodTerm("zone"), PodTerm("zone", (WEB, replace(OF_ITS_REVISION, values=("other",)))))
    pod = Pod("shop", "p", labels={names.POD_TEMPLATE_HASH: "abc"}, needs=replace(NEEDS, affinity=terms))
    assert of_next_revision(pod).needs == pod.needs
    assert of_next_revision(pod).labels == {names.POD_TEMPLATE_HASH: "next"}
    plain = replace(pod, needs=NEEDS)
    assert of_next_revision(plain) is plain
