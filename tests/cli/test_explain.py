"""`spotweave explain`: why something is where it is, for people and scripts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.errors import UsageError
from cli.explain import explained, split
from cli.plan import Picture, with_settings
from placement import names
from placement.model import Namespace
from tests.cli.printed import printed
from tests.dashboard.boards import SHOP, WEB, deployment, shown, snapshot
from tests.placement.plans import NOW

PICTURE = Picture(SHOP, now=NOW)
AT_THIRTY = with_settings(PICTURE, "shop/web", ["spot-ratio=30%"])


def test_a_workload_is_told_as_the_dashboard_tells_it() -> None:
    """Pods, what comes next and what blocks; but for Events, which only the rebalancer has seen."""
    raw = explained(PICTURE, "shop/web").raw
    answer = shown().get("workloads/shop/Deployment/web")
    shared = set(answer) & set(raw)
    assert shared >= {"workload", "needed", "policy", "perils", "released", "next", "blocked"}
    assert {key: raw[key] for key in shared} == {key: answer[key] for key in shared}
    first = raw["workload"]["pods"][0]
    assert (first["slot"], first["node"], first["class"], first["zone"], first["serves"]) == (
        0,
        "od-a",
        "on-demand",
        "a",
        True,
    )


def test_what_is_next_and_what_blocks_are_told_in_parts() -> None:
    """At 30 % three of six leave spot; slots are handed out anew first."""
    finding = explained(AT_THIRTY, "shop/web")
    assert (finding.code, finding.raw["fine"], finding.raw["name"]) == (1, False, "shop/web")
    assert finding.raw["next"] == []  # slots are no moves
    assert [(each["pod"], each["to"], each["reason"]) for each in finding.raw["blockers"]] == [
        ("web-4", "on-demand", "wrong-class"),
        ("web-7", "on-demand", "wrong-class"),
        ("web-8", "on-demand", "wrong-class"),
    ]
    assert {each["blocked"] for each in finding.raw["blockers"]} == {"its controller has not settled yet"}


def test_of_a_pod_only_what_concerns_it_is_told() -> None:
    """It is fine, whatever others are."""
    going, staying = explained(AT_THIRTY, "shop/web-4"), explained(AT_THIRTY, "shop/web-0")
    assert [each["name"] for each in going.raw["workload"]["pods"]] == ["web-4"]
    assert [each["pod"] for each in going.raw["blockers"]] == ["web-4"]
    assert (going.code, staying.code) == (1, 0)
    assert staying.raw["next"] == staying.raw["blockers"] == []


def test_a_pod_that_asks_to_be_kept_is_a_blocker_by_name() -> None:
    """And by what it asks."""
    workload, replica_set, pods = deployment("web", WEB, spot_ratio="0")
    kept = [replace(each, annotations={**each.annotations, names.SAFE_TO_EVICT: "false"}) for each in pods]
    picture = Picture(snapshot((workload, replica_set, kept)), now=NOW)
    (blocker,) = explained(picture, "shop/web-1").raw["blockers"]
    assert (blocker["pod"], blocker["to"]) == ("web-1", "on-demand")
    assert blocker["blocked"] == "the pod asks not to be disrupted"


def test_people_read_lines() -> None:
    """Where each pod is."""
    text = printed(explained(PICTURE, "shop/web").shown(), 200)
    assert text.startswith("Deployment shop/web: 6 spot + 4 on-demand")
    assert "  slot 0: web-0 on od-a (on-demand, a/m)" in text


def test_what_evens_pools_out_is_told_as_another_pool() -> None:
    """All six are on spot already, in one pool; the page says the same."""
    crowded = snapshot(
        deployment("web", ["od-a", "od-b", "od-a", "od-b", *["spot-a"] * 6], spot_ratio="60%", rebalance="plan-only")
    )
    raw = explained(Picture(crowded, now=NOW), "shop/web").raw
    assert "blocked: web-4 should run in another pool (balance): rebalance is plan-only" in raw["lines"]
    assert raw["blocked"][0] == "web-4 should run in another pool (balance): rebalance is plan-only"
    (perils,) = [line for line in raw["lines"] if "losing all spot" in line]
    assert perils.startswith("would not survive the loss of all spot: ")


SPLIT: dict[str, tuple[str, str]] = {
    "web": ("", "web"),
    "shop/web": ("", "shop/web"),
    "deployment/web": ("Deployment", "web"),
    "deployment.apps/web": ("Deployment", "web"),
    "sts/store": ("StatefulSet", "store"),
    "pod/web-0": ("pod", "web-0"),
    "po/x": ("", "po/x"),  # a namespace of that name
}


@pytest.mark.parametrize(("text", "expected"), SPLIT.items())
def test_names_may_be_kubectls(text: str, expected: tuple[str, str]) -> None:
    """What has always been NS/NAME stays so."""
    assert split(text, replace(SHOP, namespaces={"shop": Namespace("shop"), "po": Namespace("po")})) == expected


def test_a_kind_is_held_to() -> None:
    """There is a Deployment web, and no other web."""
    assert explained(PICTURE, "shop/web", "Deployment").raw["name"] == "shop/web"
    assert explained(PICTURE, "shop/web-0", "pod").raw["name"] == "shop/web-0"
    for name, kind in (("shop/web", "StatefulSet"), ("shop/web", "pod"), ("shop/web-0", "Deployment")):
        with pytest.raises(UsageError, match=f"{name}: no such {kind}"):
            explained(PICTURE, name, kind)


WRONG: dict[str, tuple[str, str, str]] = {
    "a pod or workload that is called otherwise": ("shop/wbe", "no such pod, Deployment", "did you mean shop/web"),
    "in another namespace": ("bank/web", "the namespace does not exist", "choose from shop/web"),
    "a namespace that is called otherwise": ("shpo/nobody", "the namespace does not exist", "did you mean shop?"),
    "nothing like it": ("shop/zzzzzzzz", "no such pod, Deployment", "-n NAMESPACE or NS/NAME"),
}


@pytest.mark.parametrize(("name", "told", "hint"), WRONG.values(), ids=WRONG.keys())
def test_what_is_not_there_is_bad_input_and_told_with_what_may_be_meant(name: str, told: str, hint: str) -> None:
    """Exit code 2."""
    with pytest.raises(UsageError) as raised:
        explained(PICTURE, name)
    assert raised.value.exit_code == 2
    assert told in raised.value.message
    assert hint in raised.value.hint


def test_who_is_not_opted_in_is_told_how_to() -> None:
    """The command that does it."""
    closed = replace(SHOP, namespaces={"shop": Namespace("shop")})
    with pytest.raises(UsageError) as raised:
        explained(Picture(closed, now=NOW), "shop/web")
    assert raised.value.hint == "opt in with: kubectl label namespace shop spotweave.dev/placement=enabled"
