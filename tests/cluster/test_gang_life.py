"""Gangs that run on the unmodified scheduler: members are lost, time runs out, a quota is short."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from kube.errors import ApiError
from localcluster import Choice, Way
from localcluster.profile import parse_profile
from localcluster.stages import READY_AFTER_ANNOTATION
from placement import names
from placement.model import FINISHED
from tests.cluster.gangsetup import CPU, MEMBERS, POOL, GangSetup, gang_setup, pod_spec
from tests.cluster.namespaceuser import wait_for

pytestmark = pytest.mark.cluster
URGENT = "urgent"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
# Four nodes hold the gang of eight; a fifth may go. The spot nodes hold it, too.
SPARE = {**POOL, "name": "spare", "count": 1, "memory": "32Gi"}
SPOT = {**POOL, "name": "spot", "class": "spot", "zone": "zone-b", "memory": "32Gi"}
PROFILE = parse_profile({"region": "local", "pools": [{**POOL, "memory": "32Gi"}, SPARE, SPOT]})
ON_DEMAND = {names.POD_GROUP_CLASS: "on-demand"}
IGNORE = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}


@pytest.fixture(scope="module")
def shared_gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangSetup]:
    with gang_setup(tmp_path_factory.mktemp("config"), profile=PROFILE) as gangs:
        gangs.client.post(CLASSES, {"metadata": {"name": URGENT}, "value": 100})
        yield gangs


@pytest.fixture
def gangs(shared_gangs: GangSetup) -> Iterator[GangSetup]:
    yield shared_gangs
    shared_gangs.clear()


def create_job(
    gangs: GangSetup, name: str, members: int = MEMBERS, annotations: dict[str, str] | None = None, **spec: Any
) -> None:
    """Its pods never end by themselves: the simulated kubelet takes an hour to start them."""
    written = {names.POD_GROUP: name, READY_AFTER_ANNOTATION: "1h", **ON_DEMAND, **(annotations or {})}
    meta = {"labels": {"app": name}, "annotations": written}
    template = {"metadata": meta, "spec": {**pod_spec(CPU), "restartPolicy": "Never"}}
    counts = {"parallelism": members, "completions": members}
    gangs.client.post(gangs.jobs_path, {"metadata": {"name": name}, "spec": {**counts, "template": template, **spec}})


@contextmanager
def kubelet(gangs: GangSetup) -> Iterator[None]:
    """Ends pods of Jobs as a real kubelet does: first they fail, then they go. The simulated one leaves that out.

    A Job with a podFailurePolicy replaces its pods only then.
    """
    stop = threading.Event()

    def end() -> None:
        while not stop.wait(0.2):
            for pod in gangs.client.get_json(gangs.setup.user.pods_path)["items"]:
                is_ending = "deletionTimestamp" in pod["metadata"] and pod["metadata"].get("finalizers")
                if is_ending and pod["status"].get("phase") not in FINISHED:
                    path = f"{gangs.setup.user.pods_path}/{pod['metadata']['name']}/status"
                    with suppress(ApiError):
                        gangs.client.patch(path, {"status": {"phase": "Failed"}})

    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def uids(gangs: GangSetup, name: str = "train") -> set[str]:
    return {pod["metadata"]["uid"] for pod in gangs.setup.user.pods(name)}


def nodes_of(gangs: GangSetup, name: str = "train") -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in gangs.setup.user.pods(name)}


def runs_anew(gangs: GangSetup, before: set[str]) -> None:
    """All of its members are others, and all run."""
    wait_for("the gang to run again", lambda: gangs.is_whole("train") and not before & uids(gangs))


def told(gangs: GangSetup, reason: str, text: str) -> None:
    wait_for(f"{reason}: {text}", lambda: any(text in each["message"] for each in gangs.setup.user.events(reason)))


def cordon(gangs: GangSetup, node: str, *, undo: bool = False) -> None:
    gangs.client.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None if undo else True}})


def is_suspended(gangs: GangSetup, name: str) -> bool:
    return bool(gangs.client.get_json(f"{gangs.jobs_path}/{name}")["spec"].get("suspend"))


def test_a_gang_whose_node_dies_starts_again_whole(gangs: GangSetup) -> None:
    """Two of eight members are lost with it. The Job counts no failure, and its new run is whole."""
    cordon(gangs, "od-3")
    # Else the Job waits for ten minutes before it replaces eight pods.
    by_index: dict[str, Any] = {"completionMode": "Indexed", "backoffLimitPerIndex": 6}
    create_job(gangs, "train", podFailurePolicy=IGNORE, **by_index)
    wait_for("the gang to run", lambda: gangs.is_whole("train"))
    cordon(gangs, "od-3", undo=True)
    before = uids(gangs)
    (spare,) = (node for node in nodes_of(gangs) if node.startswith("spare"))
    with kubelet(gangs):
        gangs.setup.cluster.reclaim(Choice(pool="spare"), Way.CLOUD)
        began = time.monotonic()
        runs_anew(gangs, before)
    print(f"a node died: all {MEMBERS} members run again after {time.monotonic() - began:.2f} s")
    assert spare not in nodes_of(gangs)
    told(gangs, names.EVENT_GANG_LOST, spare)
    status = gangs.client.get_json(f"{gangs.jobs_path}/train")["status"]
    assert status.get("failed", 0) == 0
    gangs.setup.cluster.restore(Choice(pool="spare"))


def test_a_notice_moves_the_whole_gang_before_the_node_goes(gangs: GangSetup) -> None:
    """One spot node of four is announced to go. All members go to on-demand, since spot does not hold them any more."""
    gangs.create("train", annotations={names.POD_GROUP_CLASS: "spot,on-demand"})
    wait_for("the gang to run on spot", lambda: gangs.is_whole("train"))
    assert all(node.startswith("spot") for node in nodes_of(gangs))
    before, leaving = uids(gangs), min(nodes_of(gangs))
    taint = {"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}
    gangs.client.patch(f"/api/v1/nodes/{leaving}", {"spec": {"taints": [taint]}})
    try:
        runs_anew(gangs, before)
        assert leaving not in nodes_of(gangs)
        told(gangs, names.EVENT_GANG_NOTICE, leaving)
    finally:
        gangs.client.patch(f"/api/v1/nodes/{leaving}", {"spec": {"taints": None}})


def test_a_member_that_the_scheduler_preempts_restarts_the_gang(gangs: GangSetup) -> None:
    """A pod of high priority takes the room of one. The Event names it, and the others do not stay behind."""
    cordon(gangs, "spare-0")
    gangs.create("train", annotations=ON_DEMAND)
    wait_for("the gang to run", lambda: gangs.is_whole("train"))
    before = uids(gangs)
    spec = {**pod_spec("5"), "priorityClassName": URGENT, "nodeSelector": {names.ZONE: "zone-a"}}
    gangs.client.post(
        gangs.setup.user.pods_path, {"metadata": {"name": "urgent", "labels": {"app": URGENT}}, "spec": spec}
    )
    wait_for("the urgent pod to run", lambda: gangs.bound(URGENT) == 1)
    told(gangs, names.EVENT_GANG_LOST, f"{gangs.setup.user.namespace}/urgent")
    wait_for("the others to go", lambda: not before & uids(gangs))
    cordon(gangs, "spare-0", undo=True)
    runs_anew(gangs, before)


def test_a_job_that_counts_evictions_as_failures_is_repaired(gangs: GangSetup) -> None:
    """Without a podFailurePolicy, seven evictions would exceed its backoffLimit: one pod is replaced, and told why."""
    create_job(gangs, "train")
    wait_for("the gang to run", lambda: gangs.is_whole("train"))
    before = uids(gangs)
    gangs.setup.user.delete_pod(gangs.setup.user.pods("train")[0]["metadata"]["name"])
    wait_for("the replacement to join", lambda: gangs.is_whole("train") and not before <= uids(gangs))
    assert len(before & uids(gangs)) == MEMBERS - 1
    told(gangs, names.EVENT_GANG_LOST, "podFailurePolicy")


def test_fail_gang_suspends_the_job_until_somebody_resumes_it(gangs: GangSetup) -> None:
    """One member is evicted: none is left, and none comes back. Resumed, all start together."""
    create_job(gangs, "train", annotations={names.ON_PARTIAL_FAILURE: "fail-gang"})
    wait_for("the gang to run", lambda: gangs.is_whole("train"))
    gangs.setup.user.evict(gangs.setup.user.pods("train")[0]["metadata"]["name"])
    wait_for("all pods to go", lambda: is_suspended(gangs, "train") and not gangs.setup.user.pods("train"))
    told(gangs, names.EVENT_GANG_FAILED, "resume Job train")
    gangs.client.patch(f"{gangs.jobs_path}/train", {"spec": {"suspend": False}})
    wait_for("the gang to run", lambda: gangs.is_whole("train"))


def test_a_quota_that_is_short_is_named_and_starts_no_part(gangs: GangSetup) -> None:
    """Six of eight may exist. When there is more of it, all eight start."""
    path = f"/api/v1/namespaces/{gangs.setup.user.namespace}/resourcequotas"
    gangs.client.post(path, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "6"}}})
    try:
        wait_for("the quota to count", lambda: gangs.client.get_json(f"{path}/few").get("status", {}).get("used"))
        gangs.create("train")
        told(gangs, names.EVENT_GANG_BLOCKED, "QuotaShort: ResourceQuota few has no room for 2 more members")
        assert (gangs.gated("train"), gangs.reserved("train")) == (6, 0)
    finally:
        gangs.client.delete(f"{path}/few")
    wait_for("the gang to run", lambda: gangs.is_whole("train"))


def test_a_time_limit_ends_a_job_unless_it_is_extended(gangs: GangSetup) -> None:
    """Two Jobs may run for eight seconds. One is given an hour while it runs; the other is suspended."""
    for name in ("ended", "extended"):
        create_job(gangs, name, 4, {names.TIME_LIMIT: "8s"})
    wait_for("both to run", lambda: gangs.bound("ended") == gangs.bound("extended") == 4)
    began = time.monotonic()
    gangs.client.patch(f"{gangs.jobs_path}/extended", {"metadata": {"annotations": {names.TIME_LIMIT: "1h"}}})
    wait_for("the Job to be suspended", lambda: is_suspended(gangs, "ended"))
    assert time.monotonic() - began > 4
    told(gangs, names.EVENT_GANG_LIMIT, "Job ended is suspended")
    wait_for("its pods to go", lambda: not gangs.setup.user.pods("ended"))
    time.sleep(2)
    assert (is_suspended(gangs, "extended"), gangs.bound("extended")) == (False, 4)


def test_a_gang_that_waits_for_too_long_fails(gangs: GangSetup) -> None:
    """It is larger than the cluster: after three seconds its Job is suspended, and its gated pods are gone."""
    create_job(gangs, "huge", 20, {names.POD_GROUP_WAIT_TIMEOUT: "3s:fail"})
    wait_for("the Job to be suspended", lambda: is_suspended(gangs, "huge") and not gangs.setup.user.pods("huge"))
    told(gangs, names.EVENT_GANG_FAILED, "waited for longer")
    assert gangs.bound("huge") == 0


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["after:annotate:3", "after:evict:3", "before:start:1"])
def test_the_rebalancer_dies_in_the_middle_of_a_restart(gangs: GangSetup, fault: str) -> None:
    """The next leader evicts the rest, and the gang starts whole."""
    gangs.create("train", annotations=ON_DEMAND)
    wait_for("the gang to run", lambda: gangs.is_whole("train"))
    before = uids(gangs)
    gangs.setup.stop_all()
    dying = gangs.setup.start(fault)
    gangs.setup.user.delete_pod(gangs.setup.user.pods("train")[0]["metadata"]["name"])
    wait_for("the rebalancer to die", lambda: dying.process.poll() is not None)
    gangs.setup.start()
    runs_anew(gangs, before)
