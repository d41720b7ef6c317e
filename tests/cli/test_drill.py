"""`spotweave drill`: who would lose what, for people and scripts, and what the exit code says."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest

from cli.drill import Target, found, target
from cli.errors import UsageError
from placement.configuration import Configuration
from placement.model import Owner
from report.exposure import Domain
from tests.builders.snapshots import DRILL_STORE, SHOP, drill_pods, drill_snapshot
from tests.cli.printed import printed
from tests.dashboard.dashboardharness import dashboard_of

TEXTS: dict[str, Target] = {
    "node=a1": Target(Domain.NODE, "a1"),
    "pool=zone-a/m5": Target(Domain.POOL, "zone-a/m5"),
    "zone=zone-a": Target(Domain.ZONE, "zone-a"),
    "spot": Target(Domain.SPOT),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.items())
def test_targets_are_read_as_they_are_written(text: str, expected: Target) -> None:
    """And written the same."""
    assert target(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["", "pool", "pool=", "spot=", "spot=x", "rack=1", "=x"])
def test_what_is_no_target_is_told_with_what_would_be(text: str) -> None:
    """All four kinds."""
    with pytest.raises(argparse.ArgumentTypeError, match="expected node=NAME, pool=ZONE/TYPE, zone=NAME or spot"):
        target(text)


def drilled(text: str, namespace: str | None = None) -> tuple[int, str, dict[str, tuple[int, int, int, bool]]]:
    """Exit code, what people see, and by workload: lost, left, needed, falls below."""
    finding = found(drill_snapshot(), Configuration(), target(text), namespace)
    rows = {
        each["name"]: (each["lost"], each["left"], each["needed"], each["fallsBelow"]) for each in finding.raw["losses"]
    }
    return finding.code, printed(finding.shown(), 80), rows


def test_a_pool_that_takes_a_declared_minimum_away_is_a_finding() -> None:
    """Three of ten go, and eight must serve."""
    code, text, rows = drilled("pool=zone-a/m5")
    assert code == 1
    assert rows == {"web": (3, 7, 8, True)}
    assert text.splitlines()[0] == "If we lose pool=zone-a/m5 (2 nodes):"
    assert "below minimum" in text
    assert "! 1 of 1 workloads would fall below their minimum, 1 below a declared one" in text


def test_a_node_that_may_go_is_none() -> None:
    """Two of ten, and eight are left."""
    code, text, rows = drilled("node=a1")
    assert (code, rows) == (0, {"web": (2, 8, 8, False)})
    assert "If we lose node=a1 (1 node):" in text
    assert "All workloads keep their minimum of serving replicas." in text


def test_what_is_assumed_is_told_and_is_no_finding() -> None:
    """Both replicas of the store go with their node, and nobody said that one must serve."""
    both = tuple(drill_pods(Owner("StatefulSet", "store", "s"), "shop", "d1", "d1"))
    snapshot = replace(drill_snapshot(), workloads=(DRILL_STORE,), pods=both)
    finding = found(snapshot, Configuration(), target("node=d1"))
    text = printed(finding.shown(), 80)
    assert finding.raw["fallBelow"] == {"declared": 0, "assumed": 1}
    assert finding.code == 0
    assert "* assumed" in text
    assert "! 1 of 1 workloads would fall below their minimum, 0 below a declared one" in text


def test_the_worst_off_come_first() -> None:
    """Whatever they are called."""
    assert list(drilled("spot")[2]) == ["web", "store"]


def test_other_namespaces_are_left_out_on_request() -> None:
    """And then nobody loses anything."""
    code, text, rows = drilled("spot", namespace="bank")
    assert (code, rows) == (0, {})
    assert "No workload loses a replica." in text


def test_a_namespace_that_does_not_exist_is_told_with_those_that_do() -> None:
    """Exit code 2, as by `status` and `plan`: No workload loses a replica. there, but nobody meant that."""
    with pytest.raises(UsageError) as raised:
        drilled("spot", namespace="nope")
    assert (raised.value.message, raised.value.exit_code) == ("namespace 'nope' does not exist", 2)
    assert raised.value.hint == "choose from bank, shop"


def test_the_table_fits_eighty_columns() -> None:
    """And names everything."""
    _, text, _ = drilled("spot")
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "shop/web (deploy)" in text
    assert "shop/store (sts)" in text


def test_the_json_has_the_shape_that_scripts_rely_on() -> None:
    """The dashboard's, too."""
    assert found(drill_snapshot(), Configuration(), target("pool=zone-a/m5")).raw == {
        "domain": "pool",
        "name": "zone-a/m5",
        "nodes": 2,
        "replicas": 3,
        "workloads": 1,
        "fallBelow": {"declared": 1, "assumed": 0},
        "losses": [
            {
                "namespace": "shop",
                "kind": "Deployment",
                "name": "web",
                "lost": 3,
                "left": 7,
                "needed": 8,
                "assumed": False,
                "fallsBelow": True,
            }
        ],
        "room": {
            "spot": {"pods": 3, "fits": False, "leftOut": "shop/web-1-2", "reason": "no node has room for cpu"},
            "onDemand": {"pods": 0, "fits": True, "leftOut": None, "reason": None},
            "allOnDemand": {"pods": 3, "fits": False, "leftOut": "shop/web-1-2", "reason": "no node has room for cpu"},
        },
    }


def test_a_pool_that_does_not_exist_is_told_with_those_that_do() -> None:
    """Exit code 2, as for any bad input."""
    with pytest.raises(UsageError) as raised:
        drilled("pool=zone-z/m5")
    assert raised.value.exit_code == 2
    assert "pool 'zone-z/m5' does not exist" in str(raised.value)
    assert "zone-a/m5, zone-b/m5" in str(raised.value)


@pytest.mark.parametrize("text", ["node=spot-a", "pool=a/m", "zone=b", "spot"])
def test_the_dashboard_tells_the_same(text: str) -> None:
    """Also whether the rest fits on what remains; and besides, how old all of it is."""
    told = dashboard_of().get(f"drill?{text if '=' in text else f'{text}=1'}")
    assert told == {**told, **found(SHOP, Configuration(), target(text)).raw}


def test_whether_the_rest_fits_is_told_to_people() -> None:
    """Four pods of one core each: the other spot node has two cores left, on-demand has three."""
    text = printed(found(SHOP, Configuration(), target("node=spot-a")).shown(), 80)
    assert "Room for the 4 pods from spot on the other spot nodes: no, not for shop/web-" in text
    assert "Room for the 4 pods on the remaining on-demand nodes alone: no, not for" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80


def test_spot_that_is_not_left_has_no_room_to_tell_of() -> None:
    """Six pods of one core each; on-demand has three left."""
    text = printed(found(SHOP, Configuration(), target("spot")).shown(), 80)
    assert "other spot nodes" not in text
    assert "Room for the 6 pods on the remaining on-demand nodes alone: no, not for" in text
