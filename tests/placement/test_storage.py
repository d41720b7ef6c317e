"""Where volumes can be used, and how many a node attaches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement import names
from placement.lack import Lack, NoPlace
from placement.model import AttachLimits, Claim, Node, NodeRequirement, Pod, Volume
from placement.plan.neighbours import Neighbours, tenants_in
from placement.plan.room import MOST_KINDS, WAITING, Room
from placement.plan.storage import Storage, storage_in
from tests.builders.model import NEEDS, ON_DEMAND, node, pod
from tests.builders.plan import ground

CSI = "csi.example"
IN_B = ((NodeRequirement(names.ZONE, "In", ("b",)),),)
NODES = node("n", zone="a", cpu=8000), node("m", zone="b")
BOUND = Claim("shop", "data", "volume")


def with_claim(name: str, where: str = "", claim: str = "data") -> Pod:
    return pod(name, 0, where, needs=replace(NEEDS, claims=(claim,)))


def asked(storage: Storage | None, *there: Pod, nodes: tuple[Node, ...] = NODES) -> Room:
    on, pods_on = ground(*nodes), dict[str, list[Pod]]()
    for each in there:
        pods_on.setdefault(each.node, []).append(each)
    return Room(on, lambda _name: {}, neighbours=Neighbours(on, tenants_in(pods_on, {}, storage)))


PLACES: dict[str, tuple[tuple[object, ...], str | NoPlace]] = {
    "anywhere, if the volume is": ((BOUND, Volume("volume")), "n"),
    "where its node affinity says": ((BOUND, Volume("volume", IN_B)), "m"),
    "where its labels say": ((BOUND, Volume("volume", (), IN_B[0])), "m"),
    "in one of its zones": ((BOUND, Volume("volume", (), (NodeRequirement(names.ZONE, "In", ("b", "c")),))), "m"),
    "by its older label, too": ((BOUND, Volume("volume", (), (NodeRequirement(names.OLD_ZONE, "In", ("b",)),))), "m"),
    "nowhere, if no node is in its zone": (
        (BOUND, Volume("volume", (), (NodeRequirement(names.ZONE, "In", ("c",)),))),
        NoPlace(Lack.VOLUME, "volume"),
    ),
    "nowhere without a claim": ((), NoPlace(Lack.CLAIM, "data")),
    "nowhere without its volume": ((BOUND,), NoPlace(Lack.CLAIM, "data")),
    "nowhere where the claim is lost or ends": (
        (replace(BOUND, is_usable=False), Volume("volume")),
        NoPlace(Lack.CLAIM, "data"),
    ),
    "not known where it is not bound": ((replace(BOUND, volume=""),), NoPlace(Lack.UNKNOWN_VOLUMES, "data")),
}


@pytest.mark.parametrize(("facts", "expected"), PLACES.values(), ids=PLACES.keys())
def test_a_pod_goes_where_its_volume_can_be_used(facts: tuple[object, ...], expected: str | NoPlace) -> None:
    """Two nodes: n in zone a, which is emptier, and m in zone b."""
    assert asked(storage_in(facts)).place(with_claim("p"), ON_DEMAND) == expected


def test_nodes_without_zones_can_use_volumes_of_any() -> None:
    """Zone labels bind only where nodes have such labels."""
    bare = replace(node("n"), labels={})
    storage = storage_in((BOUND, Volume("volume", (), IN_B[0])))
    assert asked(storage, nodes=(bare,)).place(with_claim("p"), ON_DEMAND) == "n"


def test_a_claim_that_is_not_bound_keeps_no_pod_from_falling_back() -> None:
    """Nor does it where nothing is known of claims at all. A proven place is another matter."""
    unbound = storage_in((replace(BOUND, volume=""),))
    for storage in (unbound, None):
        assert asked(storage).fits(with_claim("p"), ON_DEMAND)
        assert not asked(storage).fits(with_claim("p"), ON_DEMAND, is_proven=True)
        assert not isinstance(asked(storage).take(with_claim("p"), ON_DEMAND), str)
    assert not asked(storage_in(())).fits(with_claim("p"), ON_DEMAND)


def test_the_claims_of_a_stateful_set_go_by_the_names_of_its_pods() -> None:
    """`data-*` is `data-web-0` for `web-0`: siblings share their needs, and not their volumes."""
    storage = storage_in(
        (Claim("shop", "data-web-0", "zero"), Claim("shop", "data-web-1", "one"), Volume("zero"), Volume("one", IN_B))
    )
    room = asked(storage)
    places = [room.place(with_claim(name, claim="data-*"), ON_DEMAND) for name in ("web-0", "web-1", "web-2")]
    assert places == ["n", "m", NoPlace(Lack.CLAIM, "data-web-2")]


def test_a_claim_for_one_pod_is_free_once_that_pod_goes_first() -> None:
    """ReadWriteOncePod: another user anywhere forbids it, but not the pod that is to be replaced."""
    storage = storage_in((replace(BOUND, is_for_one_pod=True), Volume("volume")))
    old = with_claim("p", "m")
    assert asked(storage, old).place(old, ON_DEMAND) == NoPlace(Lack.ONE_POD, "data")
    assert asked(storage, old).place(old, ON_DEMAND, goes_first=True) == "n"
    assert asked(storage, replace(old, phase="Succeeded")).place(with_claim("q"), ON_DEMAND) == "n"
    assert asked(storage, old, with_claim("other", "m")).take(old, ON_DEMAND, goes_first=True) is None


def test_a_claim_for_one_pod_is_promised_once() -> None:
    """Of two pods that ask for it together, one finds a place."""
    storage = storage_in((replace(BOUND, is_for_one_pod=True), Volume("volume")))
    joint = asked(storage).together([with_claim("p"), with_claim("q")])
    assert (len(joint.places), [refusal.lack for _, refusal in joint.refused]) == (1, [Lack.ONE_POD])
    room = asked(storage)
    assert [room.take(with_claim(name), ON_DEMAND) is None for name in "pq"] == [False, True]


def limited(most: int, *claims: str) -> Storage:
    """One node that attaches so many; each claim has a volume of its own."""
    facts = [(Claim("shop", each, f"of-{each}"), Volume(f"of-{each}", driver=CSI)) for each in claims]
    return storage_in([*(fact for pair in facts for fact in pair), AttachLimits("n", {CSI: most})])


def test_a_node_attaches_so_many_volumes_of_a_driver() -> None:
    """Two at most, and one is there: one more, and no third; a volume that is there already is none more."""
    nodes = (node("n"),)
    room = asked(limited(2, "x", "a", "b"), with_claim("there", "n", "x"), nodes=nodes)
    assert room.place(with_claim("a", claim="a"), ON_DEMAND) == "n"
    assert room.place(with_claim("b", claim="b"), ON_DEMAND) == NoPlace(Lack.ATTACHMENTS, CSI)
    assert room.place(with_claim("c", claim="x"), ON_DEMAND) == "n"


def test_what_leaves_its_node_makes_room_for_a_volume_there() -> None:
    """A pod that goes first frees its own attachment, so its successor may come back."""
    old = with_claim("p", "n", "x")
    assert asked(limited(1, "x"), old, nodes=(node("n"),)).place(old, ON_DEMAND, goes_first=True) == "n"


def test_disks_of_other_pods_count_and_drivers_without_a_limit_do_not() -> None:
    """A disk that a pod names itself is attached by the driver, too."""
    disk = pod("d", 0, "n", needs=replace(NEEDS, disks=(CSI,)))
    nodes = (node("n"),)
    assert asked(limited(1, "a"), disk, nodes=nodes).take(with_claim("a", claim="a"), ON_DEMAND) is None
    other = replace(disk, needs=replace(NEEDS, disks=("other.example",)))
    assert asked(limited(1, "a"), other, nodes=nodes).take(with_claim("a", claim="a"), ON_DEMAND) == "n"


@pytest.mark.parametrize("lack", [Lack.UNKNOWN_CLAIMS, Lack.UNKNOWN_DISKS, Lack.UNKNOWN_EPHEMERAL])
def test_what_is_not_modelled_is_said_and_never_promised(lack: Lack) -> None:
    """Devices, disks that the pod names, volumes that are created with it."""
    asks = pod("p", 0, needs=replace(NEEDS, unmodelled=lack))
    found = asked(Storage()).place(asks, ON_DEMAND)
    assert found == NoPlace(lack)
    assert str(found).startswith("not modelled: ")


def test_pods_with_claims_that_wait_are_one_kind() -> None:
    """A StatefulSet of 200 that starts must not leave everybody else without a proven place."""
    claimed = replace(NEEDS, claims=("data-*",))
    waiting = [pod(f"db-{number}", needs=claimed, namespace="other") for number in range(2 * MOST_KINDS)]
    here = ground(node("n"))
    found = Room(here, lambda _node: {}, lambda: waiting, Neighbours(here, tenants_in({}, {}, storage_in(()))))
    assert found.place(pod("web"), ON_DEMAND) is not WAITING


def test_siblings_whose_volumes_are_in_different_zones_find_places_together() -> None:
    """What rules a node out for one of them says nothing about the next."""
    needs = replace(NEEDS, claims=("data-*",))
    facts: list[object] = []
    for name, zone in (("web-0", "a"), ("web-1", "b"), ("web-2", "a")):
        facts.append(Claim("shop", f"data-{name}", f"volume-{name}"))
        facts.append(Volume(f"volume-{name}", ((NodeRequirement(names.ZONE, "In", (zone,)),),)))
    pods = [pod(f"web-{number}", needs=needs) for number in range(3)]
    on = ground(*NODES)
    room = Room(on, lambda _node: {}, neighbours=Neighbours(on, tenants_in({}, {}, storage_in(facts))))
    assert room.together(pods, ON_DEMAND).places == {"web-0": "n", "web-1": "m", "web-2": "n"}
