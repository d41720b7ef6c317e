"""`spotweave explain`: why something is where it is, for people and scripts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.errors import UsageError
from cli.explain import explained, split
from cli.plan import Picture, with_settings
from placement import names
from placement.eviction import EvictionAsked
from placement.model import Namespace, Owner, Pod, ReplicaSet
from placement.plan.marks import moment
from tests.builders.model import NOW
from tests.builders.snapshots import SHOP, WEB_NODES, deployment, snapshot
from tests.cli.printed import printed
from tests.dashboard.dashboardharness import dashboard_of

PICTURE = Picture(SHOP, now=NOW)
AT_THIRTY = with_settings(PICTURE, "shop/web", ["spot-ratio=30%"])


def test_a_workload_is_told_as_the_dashboard_tells_it() -> None:
    """Pods, what comes next and what blocks; but for Events, which only the rebalancer has seen."""
    raw = explained(PICTURE, "shop/web").raw
    answer = dashboard_of().get("workloads/shop/Deployment/web")
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
    assert {each["blocked"] for each in finding.raw["blockers"]} == {"Spotweave writes the slots of its pods first"}


def test_of_a_pod_only_what_concerns_it_is_told() -> None:
    """It is fine, whatever others are."""
    going, staying = explained(AT_THIRTY, "shop/web-4"), explained(AT_THIRTY, "shop/web-0")
    assert [each["name"] for each in going.raw["workload"]["pods"]] == ["web-4"]
    assert [each["pod"] for each in going.raw["blockers"]] == ["web-4"]
    assert (going.code, staying.code) == (1, 0)
    assert staying.raw["next"] == staying.raw["blockers"] == []


def test_a_pod_that_asks_to_be_kept_is_a_blocker_by_name() -> None:
    """And by what it asks."""
    workload, replica_set, pods = deployment("web", WEB_NODES, spot_ratio="0")
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


def test_a_pod_without_a_node_is_told_with_what_the_scheduler_says() -> None:
    """Its sentence does not stand where a node's name belongs."""
    workload, replica_set, pods = deployment("web", WEB_NODES, spot_ratio="60%")
    said = "0/6 nodes are available: 6 Insufficient cpu."
    waiting = replace(pods[1], node="", ready=False, phase="Pending", unschedulable=said)
    picture = Picture(snapshot((workload, replica_set, [pods[0], waiting, *pods[2:]])), now=NOW)
    assert f"  slot 1: web-1 has no node: {said}" in explained(picture, "shop/web").raw["lines"]
    assert f"slot 1, has no node: {said}" in explained(picture, "shop/web-1").raw["lines"]


def test_a_reason_is_told_once() -> None:
    """Of a pod by name, and not again as a number of pods."""
    kept = with_settings(PICTURE, "shop/web", ["spot-ratio=30%", "rebalance=off"])
    lines = [line for line in explained(kept, "shop/web").raw["lines"] if line.startswith("blocked: ")]
    assert len(lines) == 3
    assert all("should run on on-demand (wrong-class): rebalance is off" in line for line in lines)


def test_too_few_that_are_ready_are_told_once_and_no_losses() -> None:
    """Whatever else might be lost then."""
    workload, replica_set, pods = deployment("web", WEB_NODES, min_available="8")
    picture = Picture(
        snapshot((workload, replica_set, [*pods[:7], *(replace(each, ready=False) for each in pods[7:])])), now=NOW
    )
    lines = explained(picture, "shop/web").raw["lines"]
    assert "too few are ready: 7, but 8 must serve" in lines
    assert not any("would not survive" in line for line in lines)


def test_a_pod_that_is_left_alone_says_so() -> None:
    """Else nothing would tell why the mix is another."""
    workload, replica_set, pods = deployment("web", WEB_NODES)
    alone = replace(pods[0], annotations={**pods[0].annotations, names.LEFT_ALONE: "true"})
    picture = Picture(snapshot((workload, replica_set, [alone, *pods[1:]])), now=NOW)
    (line,) = [each for each in explained(picture, "shop/web").raw["lines"] if "left alone" in each]
    assert line.startswith("  slot 0: web-0 on od-a (on-demand, a/m); left alone: the pod's own node selector")


def test_a_pod_that_others_evict_says_when_and_by_whom() -> None:
    """So that one knows why it was released."""
    workload, replica_set, pods = deployment("web", WEB_NODES)
    note = EvictionAsked(NOW, "alice")
    drained = replace(pods[0], annotations={**pods[0].annotations, names.EVICTION_ASKED: note.text()})
    picture = Picture(snapshot((workload, replica_set, [drained, *pods[1:]])), now=NOW)
    line = f"its eviction was first asked for at {moment(NOW)} by alice: held until {moment(NOW + 90)} at most"
    lines = explained(picture, "shop/web-0").raw["lines"]
    assert line in lines
    assert "next: release web-0 (eviction-asked): to on-demand" in lines


def owned(name: str, owner: Owner | None) -> Pod:
    return Pod("shop", name, name, owner, node="spot-a", phase="Running", ready=True)


BARE = ReplicaSet("shop", "bare", "rs-1", None, 1)
ROLLED = ReplicaSet("shop", "shop-6c", "rs-2", Owner("Rollout", "shop", "ro", "argoproj.io"), 1)
OTHERS = replace(
    SHOP,
    replica_sets=(*SHOP.replica_sets, BARE, ROLLED),
    pods=(
        *SHOP.pods,
        owned("agent-x", Owner("DaemonSet", "agent", "ds")),
        owned("import-y", Owner("Job", "import", "job", "batch")),
        owned("bare-z", Owner("ReplicaSet", "bare", "rs-1")),
        owned("shop-6c-q", Owner("ReplicaSet", "shop-6c", "rs-2")),
        owned("debug", None),
    ),
)
LEFT_ALONE: dict[str, tuple[str, str, str, str]] = {
    "a DaemonSet by kind": ("shop/agent", "DaemonSet", "DaemonSet shop/agent", "one pod on each of its nodes"),
    "a DaemonSet by name": ("shop/agent", "", "DaemonSet shop/agent", "one pod on each of its nodes"),
    "its pod": ("shop/agent-x", "", "Pod shop/agent-x of DaemonSet agent", "one pod on each of its nodes"),
    "a Job": ("shop/import", "Job", "Job shop/import", "Pods of Jobs are left alone"),
    "a Job's pod": ("shop/import-y", "pod", "Pod shop/import-y of Job import", "Pods of Jobs are left alone"),
    "a bare ReplicaSet": ("shop/bare", "ReplicaSet", "ReplicaSet shop/bare", "belongs to neither"),
    "a Rollout": ("shop/shop", "Rollout", "Rollout shop/shop", "Rollout (argoproj.io) is a controller of another kind"),
    "a Rollout's ReplicaSet": ("shop/shop-6c", "", "ReplicaSet shop/shop-6c of Rollout shop", "of another kind"),
    "a Rollout's pod": ("shop/shop-6c-q", "", "Pod shop/shop-6c-q of Rollout shop", "of another kind"),
    "a bare pod": ("shop/debug", "", "Pod shop/debug", "no controller"),
}


@pytest.mark.parametrize(("name", "kind", "told", "why"), LEFT_ALONE.values(), ids=LEFT_ALONE)
@pytest.mark.parametrize("opted_in", [True, False])
def test_what_is_not_placed_is_told_with_the_reason(name: str, kind: str, told: str, why: str, opted_in: bool) -> None:
    """In one sentence, with where its pods are; an opt-in would change nothing about it."""
    seen = OTHERS if opted_in else replace(OTHERS, namespaces={"shop": Namespace("shop")})
    finding = explained(Picture(seen, now=NOW), name, kind)
    lines = finding.raw["lines"]
    assert (finding.code, finding.raw["placed"], lines[0]) == (0, False, f"{told}: not placed by Spotweave")
    assert why in lines[1]
    assert all("on spot-a (spot, a/m)" in line for line in lines[2:])
    assert len(lines) == 3


def test_who_has_opted_out_is_told_where_that_is_written() -> None:
    """On the workload or on its template."""
    workload, replica_set, pods = deployment("web", WEB_NODES)
    template = replace(workload.template, labels={names.PLACEMENT: "disabled"})
    picture = Picture(snapshot((replace(workload, template=template), replica_set, pods)), now=NOW)
    assert explained(picture, "shop/web").raw["lines"][:2] == [
        "Deployment shop/web: not placed by Spotweave",
        "It is opted out: spotweave.dev/placement: disabled is a label of its pod template.",
    ]
    assert explained(picture, "shop/web-0").raw["lines"][0] == (
        "Pod shop/web-0 of Deployment web: not placed by Spotweave"
    )


def test_a_kind_that_is_not_placed_and_has_no_pods_is_told() -> None:
    """Nothing is known of it, and nothing is done to it."""
    with pytest.raises(UsageError, match="shop/nobody: no DaemonSet of that name has pods"):
        explained(PICTURE, "shop/nobody", "DaemonSet")


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
    "ds/agent": ("DaemonSet", "agent"),
    "job/import": ("Job", "import"),
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


def test_members_of_a_gang_are_shown_where_to_look() -> None:
    """Nobody is told that pods of a Job are left alone: this one waits for us."""
    waiting = Pod(
        "shop", "train-x", owner=Owner("Job", "train", "j", "batch"), labels={names.GANG_LABEL: names.GANG_MEMBER}
    )
    lines = explained(replace(PICTURE, snapshot=replace(SHOP, pods=(*SHOP.pods, waiting))), "shop/train-x").raw["lines"]
    assert "`spotweave queue` shows it" in "\n".join(lines)
