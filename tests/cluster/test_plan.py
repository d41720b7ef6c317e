"""`spotweave plan` and `spotweave explain` against a cluster: what would be done, what if, and why; nothing is done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from placement import names
from tests.builders.api import raw_namespace
from tests.cluster.clustersetup import ClusterSetup, cluster_setup
from tests.cluster.namespaceuser import wait_for

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    """Without a rebalancer: what is planned stays planned. `web` is as it should be; `older` is not opted in."""
    with cluster_setup(tmp_path_factory.mktemp("config")) as made:
        made.serves("web", 10, minAvailable=8)
        client = made.user.client
        client.post("/api/v1/namespaces", raw_namespace("older"))
        older = replace(made, user=replace(made.user, namespace="older"))
        older.create("mature", 4)
        wait_for("all to serve", partial(made.serves_in_full, "mature", 4))
        yield made


class PlanningOperator:
    """Asks, and reads the answer."""

    def __init__(self, setup: ClusterSetup, capsys: pytest.CaptureFixture[str]) -> None:
        self._scene = setup
        self._capsys = capsys

    def asks(self, *arguments: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = self._scene.spotweave(*arguments)
        told = self._capsys.readouterr()
        return code, told.out, told.err

    def plan(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        code, out, err = self.asks("plan", "-o", "json", *arguments)
        assert not err
        return code, json.loads(out)


@pytest.fixture
def operator(setup: ClusterSetup, capsys: pytest.CaptureFixture[str]) -> PlanningOperator:
    return PlanningOperator(setup, capsys)


@pytest.fixture
def at_thirty(setup: ClusterSetup) -> Iterator[None]:
    """The ratio of `web` has changed, and nobody has done anything about it yet."""
    setup.annotate("web", spot_ratio="30%")
    yield
    setup.annotate("web", spot_ratio=None)


def test_nothing_to_do(operator: PlanningOperator) -> None:
    assert operator.plan() == (0, {"actions": [], "skipped": [], "paused": None, "ahead": []})
    assert operator.asks("plan")[:2] == (0, "Nothing to do.\n")


@pytest.mark.usefixtures("at_thirty")
def test_a_changed_ratio_is_told_in_actions_and_in_what_is_left(
    setup: ClusterSetup, operator: PlanningOperator
) -> None:
    code, told = operator.plan("-n", "shop")
    assert code == 1
    for each in told["actions"]:
        assert set(each) == {"pod", "uid", "reason", "from", "to", "how"}
        assert each["uid"] in setup.uids("web")
        assert each["pod"].startswith("shop/web-")
    assert told["actions"]
    assert all(set(each) == {"workload", "reason"} for each in told["skipped"])
    code, table, _ = operator.asks("plan")
    assert code == 1
    assert table.split()[:5] == ["POD", "HOW", "WHY", "FROM", "TO"]


def test_what_if(setup: ClusterSetup, operator: PlanningOperator) -> None:
    """50 % instead of 70: two moves; the cluster itself stays as it is."""
    code, told = operator.plan("--set", "shop/web", "spot-ratio=50%")
    (web,) = told["workloads"]
    assert code == 1
    assert (web["namespace"], web["kind"], web["name"]) == ("shop", "Deployment", "web")
    assert (web["actual"], web["wanted"], web["moves"]) == (
        {"spot": 7, "onDemand": 3},
        {"spot": 5, "onDemand": 5},
        2,
    )
    assert web["exposure"]["headroom"] == 2
    assert operator.plan("--set", "shop/web", "spot-ratio=70%", "min-on-demand=1")[0] == 0
    assert operator.plan()[0] == 0
    assert names.SPOT_RATIO not in setup.user.client.get_json(setup.user.path("Deployment", "web"))["metadata"].get(
        "annotations", {}
    )


def test_as_if_a_namespace_were_labelled(operator: PlanningOperator) -> None:
    code, told = operator.plan("--opt-in", "older")
    (mature,) = told["workloads"]
    assert code == 1
    assert (mature["namespace"], mature["name"]) == ("older", "mature")
    assert mature["wanted"] == {"spot": 2, "onDemand": 2}
    assert sum(mature["actual"].values()) == 4
    assert mature["moves"] == abs(mature["actual"]["spot"] - 2)
    assert set(mature["exposure"]) >= {"headroom", "assumed", "blastRadius", "survives"}
    assert operator.plan("-n", "older")[1]["actions"] == []
    assert "older/mature" in operator.asks("plan", "--opt-in", "older")[1]


@pytest.mark.usefixtures("at_thirty")
def test_explain_tells_where_why_and_what_is_next(setup: ClusterSetup, operator: PlanningOperator) -> None:
    code, out, _ = operator.asks("explain", "web", "-n", "shop")
    assert code == 1
    assert out.startswith("Deployment shop/web: ")
    assert out.count("  slot ") == 10
    assert "next: " in out
    code, out, _ = operator.asks("explain", "shop/web", "-o", "json")
    told = json.loads(out)
    assert (code, told["fine"], told["name"]) == (1, False, "shop/web")
    pod = next(iter(setup.user.classes("web")))
    code, out, _ = operator.asks("explain", f"shop/{pod}")
    assert code in (0, 1)
    assert out.startswith(f"Pod shop/{pod} of Deployment web\nslot ")


def test_explain_is_content_where_all_is_well(operator: PlanningOperator) -> None:
    code, out, _ = operator.asks("explain", "shop/web")
    assert code == 0
    assert "next: " not in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("plan", "--set", "shop/web", "spot-ratio=70"), "spot-ratio"),
        (("plan", "--set", "shop/web", "lunch=noon"), "lunch"),
        (("plan", "--set", "shop/web"), "no setting is given"),
        (("plan", "--set", "shop/nobody", "spot-ratio=50%"), "no such Deployment or StatefulSet"),
        (("plan", "--opt-in", "nowhere"), "the namespace does not exist"),
        (("plan", "--opt-in", "kube-system"), "Spotweave never places pods of this namespace"),
        (("plan", "-n", "nowhere"), "namespace 'nowhere' does not exist"),
        (("explain", "shop/nobody"), "no such pod, Deployment or StatefulSet"),
        (("explain", "nowhere/web"), "the namespace does not exist"),
        (("explain", "older/mature"), "not opted in"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_makes_no_sense_is_told(operator: PlanningOperator, arguments: tuple[str, ...], told: str) -> None:
    code, out, err = operator.asks(*arguments)
    assert (code, out) == (2, "")
    assert told in err
