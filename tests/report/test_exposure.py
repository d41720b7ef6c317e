"""Exposure: what a workload loses if a node, a pool, a zone or all spot goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import names
from placement.availability import Availability, Basis
from placement.configuration import Configuration
from placement.model import Class, Node, NodeTaint
from placement.observation import NOTHING_OBSERVED, Observed, PoolRecord
from placement.plan.ground import Site, site_of
from placement.risk import Risk, unavailability
from report.exposure import Blast, Domain, Exposure, bears_any_pool, exposure, is_in
from tests.builders.plan import site
from tests.placement.invariants import many


def spot(node: str, zone: str, instance_type: str = "m5") -> Site:
    return site(node, Class.SPOT, zone, instance_type)


def demand(node: str, zone: str) -> Site:
    return site(node, zone=zone)


EIGHT = Availability(8, Basis.BUDGET)
ON_DEMAND = [demand("da", "zone-a"), demand("db", "zone-b"), demand("dc", "zone-c")]
OTHERS = [spot("b1", "zone-b"), spot("b1", "zone-b"), spot("b2", "zone-b"), spot("c1", "zone-c", "c5"), *ON_DEMAND]
TEN = [*[spot("a1", "zone-a")] * 3, *OTHERS]
SPREAD = [*[spot("a1", "zone-a")] * 2, spot("a2", "zone-a"), *OTHERS]
ALL, NONE = (True,) * 4, (False,) * 4

EXPOSURES: dict[str, tuple[list[Site], int, int, tuple[int, ...], tuple[bool, ...]]] = {
    "ten, of which eight must serve, three of them on one node": (TEN, 8, 2, (3, 3, 4, 7), NONE),
    "those three spread over two nodes": (SPREAD, 8, 2, (2, 3, 4, 7), (True, False, False, False)),
    "seven must serve": (TEN, 7, 3, (3, 3, 4, 7), (True, True, False, False)),
    "six must serve": (TEN, 6, 4, (3, 3, 4, 7), (True, True, True, False)),
    "three must serve: it outlasts all spot": (TEN, 3, 7, (3, 3, 4, 7), ALL),
    "all on demand: there is no pool to lose": (ON_DEMAND, 3, 0, (1, 0, 1, 0), (False, True, False, True)),
    "fewer are ready than must serve: nothing is survived": (ON_DEMAND, 4, -1, (1, 0, 1, 0), NONE),
    "none, and none must serve": ([], 0, 0, (0, 0, 0, 0), ALL),
    "none is ready": ([], 1, -1, (0, 0, 0, 0), NONE),
    "an on-demand node that holds all is no pool": (
        [demand("da", "zone-a")] * 3,
        2,
        1,
        (3, 0, 3, 0),
        (False, True, False, True),
    ),
    "two types of a zone are two pools": (
        [spot("a1", "zone-a"), spot("a2", "zone-a", "c5")],
        1,
        1,
        (1, 1, 2, 2),
        (True, True, False, False),
    ),
    "a type of two zones is two pools": (
        [spot("a1", "zone-a"), spot("b1", "zone-b")],
        1,
        1,
        (1, 1, 1, 2),
        (True, True, True, False),
    ),
}


@pytest.mark.parametrize(
    ("ready", "needed", "headroom", "blasts", "survived"), EXPOSURES.values(), ids=EXPOSURES.keys()
)
def test_what_can_be_lost_and_what_may_be(
    ready: list[Site], needed: int, headroom: int, blasts: tuple[int, ...], survived: tuple[bool, ...]
) -> None:
    """Blast radii and survival, of node, pool, zone and all spot, in the shape that scripts rely on."""
    kinds = ("node", "pool", "zone", "spot")
    told = exposure(ready, Availability(needed, Basis.DECLARED))
    assert told.raw == {
        "headroom": headroom,
        "assumed": False,
        "blastRadius": dict(zip(kinds, blasts, strict=True)),
        "survives": dict(zip(kinds, survived, strict=True)),
        **told.risk.raw,
    }


def test_which_domain_is_told() -> None:
    """The fullest; of several the first by name. All spot has no name."""
    assert exposure(TEN, EIGHT) == Exposure(
        10,
        EIGHT,
        Blast(3, "a1"),
        Blast(3, "zone-a/m5"),
        Blast(4, "zone-a"),
        Blast(7),
        Risk(2.1, unavailability(2.1)),
    )


WATCHED = Observed(
    pools={"zone-a/m5": PoolRecord(hours=720, losses=3), "zone-b/m5": PoolRecord(hours=480, node_hours=960)}
)
RISKS: dict[str, tuple[list[Site], int, Observed, tuple[float, float, str]]] = {
    "nothing was watched: pools a and b and node a1 are too much": (
        TEN,
        8,
        NOTHING_OBSERVED,
        (2.1, 0.00048611, "assumed"),
    ),
    "spread over two nodes, no node is": (SPREAD, 8, NOTHING_OBSERVED, (2.0, 0.00046296, "assumed")),
    "a headroom of three outlasts any of them": (TEN, 7, NOTHING_OBSERVED, (0.0, 0.0, "assumed")),
    "watched: 2.5 and a third; what was watched least tells how far to trust it": (
        [each for each in SPREAD if each.spot_pool != "zone-c/c5"],
        7,
        WATCHED,
        (2.8333, 0.00065586, "observed 20 days"),
    ),
    "one pool was never watched": (SPREAD, 8, WATCHED, (2.8333, 0.00065586, "assumed")),
    "on-demand alone: three nodes, none of which may go": (ON_DEMAND, 3, WATCHED, (0.03, 0.00000694, "assumed")),
    "fewer are ready than must serve: it is unavailable now": (ON_DEMAND, 4, WATCHED, (0.03, 1.0, "assumed")),
    "none, and none must serve": ([], 0, WATCHED, (0.0, 0.0, "assumed")),
}


@pytest.mark.parametrize(("ready", "needed", "observed", "expected"), RISKS.values(), ids=RISKS.keys())
def test_how_often_that_is_expected(
    ready: list[Site], needed: int, observed: Observed, expected: tuple[float, float, str]
) -> None:
    """Incidents in 30 days, the part of the time below m, and what both rest on."""
    raw = exposure(ready, Availability(needed, Basis.DECLARED), observed).raw
    assert (raw["incidentsPer30Days"], raw["unavailability"], raw["restsOn"]) == expected


def test_an_exposure_explains_itself() -> None:
    """In one sentence for each kind of domain."""
    told = exposure(TEN, EIGHT)
    assert [told.explain(domain) for domain in Domain] == [
        "losing node a1 takes 3 replicas and leaves 7, but 8 must serve",
        "losing pool zone-a/m5 takes 3 replicas and leaves 7, but 8 must serve",
        "losing zone zone-a takes 4 replicas and leaves 6, but 8 must serve",
        "losing all spot takes 7 replicas and leaves 3, but 8 must serve",
    ]
    one = exposure(ON_DEMAND[:1], EIGHT)
    assert one.explain(Domain.NODE) == "losing node da takes 1 replica and leaves 0, but 8 must serve"
    assert one.explain(Domain.POOL) == "losing any pool takes 0 replicas and leaves 1, but 8 must serve"


@pytest.mark.parametrize("source", list(Basis))
def test_it_is_assumed_where_nobody_said_how_many_must_serve(source: Basis) -> None:
    """Neither an annotation nor a budget."""
    assert exposure(TEN, Availability(8, source)).raw["assumed"] is (source is Basis.ASSUMED)


NODES: dict[str, tuple[Node, tuple[Class, str, str, bool]]] = {
    "a spot node": (
        Node("n", {names.CAPACITY: "spot", names.ZONE: "zone-a", names.INSTANCE_TYPE: "m5"}),
        (Class.SPOT, "zone-a", "zone-a/m5", False),
    ),
    "an on-demand node is in no pool that goes at once": (
        Node("n", {names.CAPACITY: "on-demand", names.ZONE: "zone-a", names.INSTANCE_TYPE: "m5"}),
        (Class.ON_DEMAND, "zone-a", "", False),
    ),
    "an unlabelled node counts as on-demand": (Node("n"), (Class.ON_DEMAND, "unlabelled", "", False)),
    "a spot node of which no more is known": (
        Node("n", {names.CAPACITY: "spot"}),
        (Class.SPOT, "unlabelled", "unlabelled/unlabelled", False),
    ),
    "cordoned": (Node("n", unschedulable=True), (Class.ON_DEMAND, "unlabelled", "", False)),
    "drained": (Node("n", unschedulable=True, drained=True), (Class.ON_DEMAND, "unlabelled", "", True)),
    "being deleted": (Node("n", deleting=True), (Class.ON_DEMAND, "unlabelled", "", True)),
    "its termination was announced": (
        Node("n", taints=(NodeTaint("aws-node-termination-handler/spot-itn"),)),
        (Class.ON_DEMAND, "unlabelled", "", True),
    ),
    "Karpenter brings a node in its place": (
        Node("n", taints=(NodeTaint("karpenter.sh/disrupted"),)),
        (Class.ON_DEMAND, "unlabelled", "", False),
    ),
    "Karpenter removes it": (
        Node("n", taints=(NodeTaint("karpenter.sh/disrupted"),), deleting=True),
        (Class.ON_DEMAND, "unlabelled", "", True),
    ),
    "another taint": (Node("n", taints=(NodeTaint("example.com/gpu"),)), (Class.ON_DEMAND, "unlabelled", "", False)),
    "not ready, but there": (Node("n", ready=False), (Class.ON_DEMAND, "unlabelled", "", False)),
}


@pytest.mark.parametrize(("node", "expected"), NODES.values(), ids=NODES.keys())
def test_where_a_node_stands_is_read_from_its_labels_and_taints(
    node: Node, expected: tuple[Class, str, str, bool]
) -> None:
    """Its class, zone and spot pool, and whether it leaves: once for all pods."""
    found = site_of(node, Configuration())
    assert (found.of, found.zone, found.spot_pool, found.is_leaving) == expected


@many
@given(st.lists(st.sampled_from(TEN), max_size=30), st.integers(0, 30))
def test_smaller_domains_lose_less(ready: list[Site], needed: int) -> None:
    """A pool lies within a zone and within spot, a node within a zone; and the told domain holds as many as told."""
    told = exposure(ready, Availability(needed, Basis.DECLARED))
    assert max(told.node.replicas, told.pool.replicas) <= told.zone.replicas <= told.ready == len(ready)
    assert told.pool.replicas <= told.spot.replicas
    for domain in Domain:
        gone = [each for each in ready if is_in(each, domain, told.blast(domain).where)]
        assert len(gone) == told.blast(domain).replicas


@many
@given(st.lists(st.sampled_from(TEN), max_size=30), st.integers(0, 30))
def test_the_quick_question_has_the_same_answer(ready: list[Site], needed: int) -> None:
    """Whether a workload bears the loss of any pool is asked for every change, without the whole exposure."""
    told = exposure(ready, Availability(needed, Basis.DECLARED))
    assert bears_any_pool(ready, told.availability) is told.survives(Domain.POOL)
