"""What the index takes for proof, and what the loop does not do twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from placement import names
from placement.configuration import Configuration
from placement.model import (
    Class,
    HostPort,
    Needs,
    Node,
    NodeRequirement,
    NodeTaint,
    Owner,
    Pod,
    PodTerm,
    Sign,
    Workload,
)
from placement.outage import Outages
from placement.plan.actions import How, Why
from placement.plan.neighbours import FEW_NODES, Crowd
from placement.refusal import HOLD_SECONDS, Hold
from rebalancer.executor import Executor
from rebalancer.index import Index
from rebalancer.loop import Loop, Watched
from tests.rebalancer.rebalancing import LowestServing, SimulatedRebalancer
from tests.rebalancer.simulation import TERMINATION, PodFacts, SimulatedCluster


def small() -> SimulatedCluster:
    cluster = SimulatedCluster()
    cluster.opt_in("shop")
    cluster.add_nodes(Class.SPOT, 1)
    cluster.add_nodes(Class.ON_DEMAND, 2, "ab")
    cluster.deploy("web", 4)
    cluster.run(30)
    return cluster


def test_the_clouds_word_about_an_earlier_node_of_that_name_proves_nothing() -> None:
    """It was deleted, registered anew under its name, and deleted again without a word."""
    cluster = small()
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(60)
    name = next(pod.node for pod in cluster.pods if cluster.class_of(pod) is Class.SPOT)
    cluster.lose(name)
    cluster.run(60)
    cluster.add_node(Class.SPOT, name=name)
    cluster.run(600)
    assert any(pod.node == name for pod in cluster.pods)
    buried = rebalancer.count("bury")
    cluster.lose(name, proof=False)
    cluster.run(30)
    assert rebalancer.count("bury") == buried
    assert rebalancer.violations == []


def test_a_workload_that_cannot_be_assessed_stops_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    """It is told once, left alone, and looked at again when it changes."""
    cluster = small()
    rebalancer = SimulatedRebalancer(cluster)
    index, (web,) = rebalancer.index, cluster.workloads
    other = cluster.deploy("other", 2)
    cluster.run(30)
    index.observe(web, replace(web, template=None))  # type: ignore[arg-type]
    for _ in range(3):
        index.drain()
        index.refresh(cluster.now, all_of_them=True)
    assert set(index.assessments) == {other.uid}
    assert index.failing == {web.uid}
    assert [record.message for record in caplog.records] == ["cannot assess Deployment shop/web; it is left alone"]
    index.observe(web, web)
    index.drain()
    index.refresh(cluster.now)
    assert index.failing == set()
    assert web.uid in index.assessments


@pytest.mark.parametrize("tries", ["5000", "9" * 5000, "-1", "x"], ids=["many", "long", "negative", "no digits"])
def test_what_anybody_writes_on_a_pod_stops_nothing(tries: str) -> None:
    """Its move is undone, and how often that was is read from the pod."""
    cluster = small()
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(60)
    for pod in cluster.pods:
        cluster.put(replace(pod, annotations={**pod.annotations, names.UNDONE: f"{tries}/2020-01-01T00:00:00Z"}))
    cluster.annotate(cluster.workloads[0], spot_ratio="0%")
    for node in cluster.nodes.values():
        if node.labels[names.CAPACITY] == "on-demand":
            cluster.put(replace(node, taints=(NodeTaint("full"),)))
    cluster.run(600)
    assert rebalancer.count("undo") > 0
    assert rebalancer.index.failing == set()


def test_a_pod_that_was_put_back_is_not_put_back_again_before_it_is_seen() -> None:
    """Opted out in the middle of a move, while the stores lag by some seconds: one write for each pod."""
    cluster = small()
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(60)
    cluster.annotate(cluster.workloads[0], spot_ratio="0%")
    cluster.run_until(lambda: rebalancer.count("release") > 0)
    rebalancer.lag_seconds = 4.0
    released = sum(names.RELEASED in pod.annotations for pod in cluster.pods)
    cluster.opt_out("shop")
    cluster.run(30)
    assert rebalancer.count("undo") == released
    assert not any(names.RELEASED in pod.annotations for pod in cluster.pods)


def test_the_board_knows_who_waits_and_which_ports_are_taken() -> None:
    """A pod waits until it has a node, and holds its ports until it is finished."""
    index = Index(Configuration())
    waits = Pod("shop", "p", "u", needs=Needs(host_ports=(HostPort(80),)))
    placed = replace(waits, node="n", phase="Running")
    steps = [(None, waits), (waits, placed), (placed, replace(placed, phase="Succeeded"))]
    seen = []
    for old, new in steps:
        index.observe(old, new)
        index.drain()
        seen.append((len(index.waiting), dict(index.used("n"))))
    assert seen == [(1, {}), (0, {"host-port/80/TCP": 1, "host-port/80/TCP/0.0.0.0": 1, "pods": 1}), (0, {})]
    index.observe(None, waits)
    index.observe(waits, replace(waits, terminating=True))
    index.drain()
    assert list(index.waiting) == []


def test_the_board_knows_who_is_beside_whom() -> None:
    """Whatever has come, moved, come back under its name, finished or gone."""
    index = Index(Configuration())
    hosts = [Node(name, {names.HOSTNAME: name, names.ZONE: "a"}) for name in ("n", "m", *map(str, range(FEW_NODES)))]
    web = (NodeRequirement("app", "In", ("web",)),)
    needs = Needs(anti_affinity=(PodTerm(names.HOSTNAME, web), PodTerm("rack", web)))
    first = Pod("shop", "p", "u", labels={"app": "web"}, node="n", phase="Running", needs=needs)
    for each in hosts:
        index.observe(None, each)

    def shut() -> tuple[set[str], bool]:
        """The hosts that are shut to a sibling; and whether zone a is to one that is apart by zone."""
        index.drain()
        far = Needs(anti_affinity=(PodTerm(names.ZONE, web),))
        asks = Pod("shop", "q", "v", labels={"app": "web"}, needs=needs), Pod("shop", "r", "w", needs=far)
        near, zone = (index.neighbours.judge(each, Crowd()) for each in asks)
        sites = index.ground.sites.values()
        return {each.node.name for each in sites if near and not near.joins(each)}, all(
            zone and not zone.joins(s) for s in sites
        )

    again = replace(first, uid="u2")
    moved = replace(again, node="m")
    steps = [(None, first), (first, again), (again, moved), (moved, replace(moved, phase="Failed"))]
    seen = [shut()]
    for old, new in steps:
        index.observe(old, new)
        seen.append(shut())
    assert seen == [(set(), False), ({"n"}, True), ({"n"}, True), ({"m"}, True), (set(), False)]
    index.observe(None, first)
    index.observe(replace(moved, phase="Failed"), None)
    index.observe(first, None)
    assert shut() == (set(), False)
    assert index.pods() == {}


SAID = Sign("default", "e", "DeletingNode", "n", 9.0, "n-uid", "Node")
SPOT_NODE = Node("n", {names.CAPACITY: "spot"}, uid="n-uid", created=1.0)


def board_after_loss(seen: Node, *signs: Sign, is_late: bool = False) -> Index:
    """A node with a pod on it that was like this when it was last seen; Events came before or after its deletion."""
    index = Index(Configuration())
    for each in (SPOT_NODE, Pod("shop", "p", "u", node="n", phase="Running"), *(() if is_late else signs)):
        index.observe(None, each)
    index.observe(SPOT_NODE, seen)
    index.observe(seen, None)
    for sign in signs if is_late else ():
        index.observe(None, sign)
    index.drain()
    return index


@pytest.mark.parametrize("is_late", [False, True], ids=["said before", "said after"])
@pytest.mark.parametrize(
    ("fields", "signs", "is_proven", "is_counted"),
    [
        ({"ready": False}, [SAID], True, True),
        ({"ready": False}, [SAID, replace(SAID, name="f", at=10.0, kind="NodeClaim")], True, True),
        ({"ready": False}, [replace(SAID, kind="NodeClaim")], False, False),
        ({"ready": False}, [replace(SAID, uid="another")], False, False),
        ({"ready": False}, [], False, False),
        ({}, [SAID], False, False),
        ({"unschedulable": True}, [SAID], False, False),
        ({"unschedulable": True, "ready": False}, [SAID], True, False),
        ({"deleting": True}, [], False, False),
        ({"deleting": True, "outlives_machine": True}, [], True, False),
        ({"taints": (TERMINATION,)}, [], True, True),
        ({"taints": (NodeTaint("ToBeDeletedByClusterAutoscaler"),)}, [SAID], True, False),
    ],
    ids=[
        "not ready, and the cloud's word",
        "and a word about something else of that name",
        "a word about something else of that name",
        "a word about an earlier node of that name",
        "not ready alone",
        "an Event alone",
        "a cordon and an Event",
        "cordoned, not ready, and the cloud's word",
        "a deletion that was held up for whatever reason",
        "Karpenter's finalizer",
        "a termination taint",
        "the taint of a scale-down",
    ],
)
def test_what_is_proof_of_a_lost_machine_and_what_counts_as_an_interruption(
    fields: dict[str, Any], signs: list[Sign], is_proven: bool, is_counted: bool, is_late: bool
) -> None:
    """Anybody may write an Event: it neither buries pods nor raises the risk of a pool. Nor does a cordon by hand."""
    index = board_after_loss(replace(SPOT_NODE, **fields), *signs, is_late=is_late)
    assert bool(index.lost["n"].proof) is is_proven
    assert bool(index.interrupted) is is_counted


@pytest.mark.parametrize(
    ("ready", "signs", "is_buried"),
    [(False, [SAID], True), (True, [SAID], False), (False, [], False), (False, [replace(SAID, at=0.5)], False)],
    ids=["the cloud's word, and no pod is ready", "a pod is ready", "no word", "an older word"],
)
@pytest.mark.parametrize("is_late", [False, True], ids=["said before", "said after"])
def test_nodes_that_were_gone_before_we_came(ready: bool, signs: list[Sign], is_buried: bool, is_late: bool) -> None:
    """Kubernetes calls all pods of a Node not ready when the Node is not: so they show what it was."""
    cluster = small()
    first = SimulatedRebalancer(cluster)
    cluster.run(30)
    web, index = cluster.workloads[0], Index(Configuration())
    lost = next(pod.node for pod in cluster.pods if cluster.class_of(pod) is Class.SPOT)
    told = [replace(each, about=lost, uid="", at=cluster.now if each.at > 1 else 0.5) for each in signs]
    for name, store in first.feed.stores.items():
        for each in store.values() if name != "nodes" else [node for node in store.values() if node.name != lost]:
            on_lost = isinstance(each, Pod) and each.node == lost
            index.observe(None, replace(each, ready=ready) if on_lost else each)
    steps = ([], told) if is_late else (told, [])
    for signs_now in steps:
        for sign in signs_now:
            index.observe(None, sign)
        index.drain()
        index.refresh(cluster.now, all_of_them=True)
    assert index.assessments[web.uid].lost
    assert bool(index.lost[lost].proof) is is_buried
    assert not index.interrupted


EVICTED = Pod("shop", "p", "u", node="n", terminating=True, evicted=True)
RELEASED_ONE = replace(
    EVICTED,
    labels={names.POD_TEMPLATE_HASH: "released-h"},
    annotations={names.RELEASED: "2030-01-01T00:00:00Z/h"},
)
CORDONED = Node("n", unschedulable=True)
DRAINS: dict[str, tuple[list[Any], bool]] = {
    "a bare cordon": ([CORDONED], False),
    "an eviction without a cordon": ([Node("n"), EVICTED], False),
    "a cordon, then an eviction": ([CORDONED, EVICTED], True),
    "seen the other way round": ([EVICTED, CORDONED], True),
    "the end of a move of ours": ([CORDONED, RELEASED_ONE], False),
    "a pod that is deleted": ([CORDONED, replace(EVICTED, evicted=False)], False),
    "an eviction from another node": ([CORDONED, replace(EVICTED, node="m")], False),
    "an eviction long before a cordon": ([EVICTED, 60.0, CORDONED], False),
    "uncordoned again": ([CORDONED, EVICTED, Node("n")], False),
}


def test_pods_of_another_namespace_are_nobodys_here() -> None:
    """Anybody may name any UID as the owner of a pod."""
    cluster = small()
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(30)
    web = cluster.workloads[0]
    one = cluster.pods_of(web)[0]
    rebalancer.index.observe(None, replace(one, namespace="evil", name="evil", uid="evil"))
    rebalancer.index.drain()
    rebalancer.index.refresh(cluster.now, all_of_them=True)
    assert {member.pod.namespace for member in rebalancer.index.assessments[web.uid].members} == {one.namespace}


def test_an_event_about_a_node_counts_only_where_no_tenant_writes() -> None:
    unready = replace(SPOT_NODE, ready=False)
    assert board_after_loss(unready, SAID).lost["n"].proof
    assert not board_after_loss(unready, replace(SAID, namespace="evil")).lost["n"].proof


@pytest.mark.parametrize(("facts", "expected"), DRAINS.values(), ids=DRAINS.keys())
def test_a_cordon_followed_by_somebodys_eviction_is_a_drain(facts: list[Any], expected: bool) -> None:
    """It stays one when the evicted pod is gone."""
    index = Index(Configuration())
    for fact in facts:
        if isinstance(fact, float):
            index.refresh(fact)
            continue
        index.observe(None, fact)
        index.drain()
    index.observe(EVICTED, None)
    index.drain()
    assert index.ground.sites["n"].is_leaving is expected
    assert index.is_drained("n") is expected
    assert not (facts[-1] is CORDONED and index.ground.sites["n"].is_target)


def test_the_end_of_a_move_has_the_reason_of_its_beginning() -> None:
    """For as long as one rebalancer remembers it; whoever takes over in between says that it is over, no more."""
    for is_killed in (False, True):
        cluster = small()
        rebalancer = SimulatedRebalancer(cluster)
        cluster.run(60)
        cluster.annotate(cluster.workloads[0], spot_ratio="0%")
        cluster.run_until(lambda it=rebalancer: it.count("release") > 0)  # type: ignore[misc]
        if is_killed:
            rebalancer.kill()
        cluster.run(120)
        ends = {
            (each.action.how, each.action.why)
            for _, _, done in rebalancer.passes
            for each in done
            if each.action.how in (How.FINISH, How.UNDO)
        }
        assert (How.FINISH, Why.RATIO) in ends or is_killed
        assert ((How.FINISH, Why.OVER) in ends) is is_killed


def test_workloads_for_which_only_time_passes_are_looked_at_once_a_second() -> None:
    """Many may be blocked for long: a change elsewhere is not their matter, one of their own pods' is."""
    cluster = small()
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(60)
    cluster.annotate(cluster.workloads[0], spot_ratio="0%", rebalance="plan-only")
    cluster.run(5)
    index, now = rebalancer.index, cluster.now + 100
    (uid,) = [each.group.workload.uid for each in index.restless()]
    index.refresh(now)
    first = index.assessments[uid]
    index.refresh(now + 0.1)
    assert index.assessments[uid] is first
    member = first.members[0].pod
    index.observe(member, replace(member, ready=False))
    index.drain()
    index.refresh(now + 0.2)
    second = index.assessments[uid]
    assert second is not first
    index.refresh(now + 1.2)
    assert index.assessments[uid] is not second


def under_way() -> tuple[SimulatedCluster, SimulatedRebalancer, Workload, Pod]:
    """A workload, one of whose pods was just released."""
    cluster = small()
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(60)
    web = cluster.workloads[0]
    cluster.annotate(web, spot_ratio="0%")
    cluster.run_until(lambda: any(pod.is_released for pod in cluster.pods))
    return cluster, rebalancer, web, next(pod for pod in cluster.pods if pod.is_released)


def test_a_released_pod_goes_with_its_workload() -> None:
    """Kubernetes collects it. One that the version before released is nothing's, and left to us."""
    for is_older in (False, True):
        cluster, rebalancer, web, old = under_way()
        cluster.delete(web)
        if is_older:
            cluster.put(replace(cluster.disown(old), terminating=False))
            cluster.facts[old.uid].dies_at = float("inf")
        cluster.run(10)
        assert cluster.pods == []
        deleted = [write.pod.name for write in rebalancer.writes if write.verb == "delete" and write.pod]
        assert deleted == ([old.name] if is_older else [])
        assert rebalancer.violations == []


def test_a_released_pod_goes_back_to_a_replica_set_that_was_left_behind() -> None:
    """`kubectl delete deployment --cascade=orphan`."""
    cluster, rebalancer, web, old = under_way()
    (left,) = cluster.sets_of(web)
    cluster.delete(web, orphan=True)
    cluster.run(10)
    assert rebalancer.count("delete", "finish") == 0
    again = cluster.pod(old.key)
    assert again is not None
    assert again.owner is not None
    assert again.owner.uid == left.uid


def test_a_released_pod_whose_replica_set_is_gone_is_evicted_when_all_others_serve() -> None:
    """Somebody deleted the ReplicaSet; its Deployment makes a new one, whose pods take their time."""
    cluster, rebalancer, web, old = under_way()
    lowest = LowestServing(cluster)
    (gone,) = cluster.sets_of(web)
    cluster.remove(gone)
    for pod in cluster.owned(gone.uid):
        cluster.remove(pod)
    cluster.run(5)
    assert cluster.pod(old.key) is not None
    lowest.begin()
    cluster.run(60)
    assert cluster.pod(old.key) is None
    assert rebalancer.count("delete") == 0
    assert lowest.serving["web"] >= 1
    assert len(cluster.serving(web)) == 4


COPIES: dict[str, Callable[[Pod], Pod]] = {
    "in another namespace": lambda old: replace(old, namespace="elsewhere", name="copy", uid="copy"),
    "of another owner": lambda old: replace(old, name="copy", uid="copy", owner=Owner("Job", "j", "j")),
    "of another Deployment": lambda old: replace(old, name="copy", uid="copy", owner=Owner("Deployment", "b", "b")),
    "with the label of its own": lambda old: replace(
        old, name="copy", uid="copy", labels={**old.labels, names.POD_TEMPLATE_HASH: "abc"}
    ),
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_copy_of_a_released_pod_is_nobodys_business(copied: Callable[[Pod], Pod]) -> None:
    """Not even in a namespace that is opted in: it is neither finished nor put back nor deleted."""
    cluster, rebalancer, _, old = under_way()
    cluster.opt_in("elsewhere")
    copy = copied(old)
    cluster.facts[copy.uid] = PodFacts()
    cluster.put(copy)
    cluster.run(600)
    assert cluster.pod(old.key) is None
    assert cluster.pod(copy.key) is not None
    assert not any(write.pod is not None and write.pod.uid == copy.uid for write in rebalancer.writes)


def test_an_autoscalers_word_is_about_the_pod_of_that_namespace() -> None:
    """Every namespace has a db-0."""
    index = Index(Configuration())
    index.observe(None, Sign("shop", "e", "TriggeredScaleUp", "db-0", 100.0))
    index.drain()
    assert index.is_awaited(Pod("shop", "db-0")) == 100.0
    assert index.is_awaited(Pod("elsewhere", "db-0")) == float("-inf")


FORBIDDEN = (
    'Failed to schedule pod, incompatible with nodepool "general", incompatible requirements, '
    "key node.kubernetes.io/capacity, node.kubernetes.io/capacity In [spot] not in [on-demand]"
)
DENIED = Sign("shop", "e", "FailedScheduling", "p", 100.0, message=FORBIDDEN)
NO_SCALE_UP = Sign("shop", "e", "NotTriggerScaleUp", "p", 100.0)


@pytest.mark.parametrize(
    ("signs", "is_denied"),
    [
        ([], False),
        ([DENIED], True),
        ([replace(DENIED, namespace="elsewhere")], False),
        ([replace(DENIED, at=80.0)], False),
        ([replace(DENIED, message="incompatible requirements, key kubernetes.io/arch, amd64 not in arm64")], False),
        ([DENIED, Sign("shop", "f", "Nominated", "p", 101.0)], False),
        ([DENIED, Sign("shop", "f", "Nominated", "p", 99.0)], True),
        ([NO_SCALE_UP], True),
        ([NO_SCALE_UP, Sign("shop", "f", "TriggeredScaleUp", "p", 101.0)], False),
    ],
    ids=[
        "silence",
        "no NodePool brings the class",
        "said of another namespace's pod",
        "said of an earlier pod of that name",
        "another label is the reason",
        "a node comes since",
        "a node was to come before",
        "Cluster Autoscaler can bring none",
        "it has found one since",
    ],
)
def test_an_autoscaler_says_that_it_cannot(signs: list[Sign], is_denied: bool) -> None:
    """Karpenter names the label; its last word counts."""
    index = Index(Configuration())
    for sign in signs:
        index.observe(None, sign)
    index.drain()
    assert index.is_denied(Pod("shop", "p", created=90.5)) is is_denied


def test_what_comes_before_all_is_read_is_filed_but_nothing_is_concluded() -> None:
    """A whole cluster that waited in a queue would take room for it."""
    rebalancer = SimulatedRebalancer(small())
    index, nobody = Index(Configuration()), cast(Executor, None)
    watched = Watched(lambda: False, lambda: True, Outages, lambda _now: False)
    loop = Loop(index, nobody, watched, lambda *_: None)
    for pod in rebalancer.cluster.pods:
        index.observe(None, pod)
    assert loop.once() is None
    assert index.drain() == 0
    assert index.assessments == {}


def test_a_replica_set_that_its_deployment_let_go_of_is_no_revision_of_it() -> None:
    """Somebody changed its labels; when it is deleted, nothing is missed."""
    cluster = small()
    index = SimulatedRebalancer(cluster).index
    cluster.run(30)
    web = cluster.workloads[0]
    (own,) = cluster.sets_of(web)
    debug = replace(own, uid="debug", name="debug", replicas=2)
    free = replace(debug, owner=None)
    for old, new in ((None, debug), (debug, free), (free, None)):
        index.observe(old, new)
        index.drain()
        index.refresh(cluster.now, all_of_them=True)
        counted = {cohort.uid for cohort in index.assessments[web.uid].group.cohorts}
        assert counted == ({own.uid, "debug"} if new is debug else {own.uid})
    assert not index.failing


def test_a_workload_whose_patch_is_refused_is_held_and_no_other() -> None:
    """The webhook's Event names it by UID. It outlives the Event, which the API server forgets after an hour."""
    cluster = small()
    rebalancer = SimulatedRebalancer(cluster)
    index, (web,) = rebalancer.index, cluster.workloads
    other = cluster.deploy("other", 2)
    cluster.run(30)
    told = Sign("shop", "web.1", names.EVENT_REFUSED, "web", cluster.now, web.uid, "Deployment")
    forged = replace(told, name="web.2", uid="nobody")
    foreign = replace(told, namespace="evil", uid=other.uid)  # only who may write in a namespace holds its workloads
    for sign in (told, forged, foreign):
        index.observe(None, sign)
    index.observe(told, None)
    index.drain()
    index.refresh(cluster.now)
    assert index.assessments[web.uid].group.refused == Hold(cluster.now)
    assert index.assessments[other.uid].group.refused is None


def test_a_refused_workload_is_not_moved_until_the_hold_is_over() -> None:
    """Its ratio changes, and the rebalancer waits: a replacement would be refused, too."""
    cluster = small()
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(600)
    (web,) = cluster.workloads
    told = Sign("shop", "web.1", names.EVENT_REFUSED, "web", cluster.now, web.uid, "Deployment")
    rebalancer.index.observe(None, told)
    cluster.annotate(web, spot_ratio="0%")
    before = rebalancer.count("release")
    cluster.run(HOLD_SECONDS - 60)
    assert rebalancer.count("release") == before
    cluster.run(300)
    assert rebalancer.count("release") > before
    assert rebalancer.violations == []
