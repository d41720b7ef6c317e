"""The control plane itself: it starts, survives faults, gives and takes nodes, and leaves nothing behind."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import astuple, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from localcluster import Choice, ClusterError, LocalCluster, Options, Way, demo_profile
from localcluster.api import Raw
from localcluster.cluster import PartStatus
from localcluster.janitor import start_time
from localcluster.layout import LOOPBACK, Ports, free_ports
from localcluster.nodes import LEASES, list_nodes, takes_pods
from localcluster.parts import KWOK, PARTS
from localcluster.profile import NodePool, Profile
from localcluster.reclaim import TERMINATION_TAINT, reclaim
from localcluster.stages import READY_AFTER_ANNOTATION
from tests.localcluster.awaiting import until

pytestmark = pytest.mark.cluster

FAST = Options(controller_qps=200, controller_burst=400)
ONE_NODE = Profile((NodePool("p", "zone-a", "m5.large", 1, "8", "32Gi", "spot"),))


@pytest.fixture(scope="module")
def faulty() -> Iterator[LocalCluster]:
    """A cluster of this module's own: its parts are killed and its nodes taken."""
    with LocalCluster.start(demo_profile(), options=FAST) as cluster:
        yield cluster


@pytest.fixture
def whole(faulty: LocalCluster) -> Iterator[LocalCluster]:
    """The same, with all nodes back and no workloads left after the test."""
    yield faulty
    for kind in ("deployments", "poddisruptionbudgets"):
        group = "apps" if kind == "deployments" else "policy"
        faulty.api.delete(f"/apis/{group}/v1/namespaces/default/{kind}?propagationPolicy=Background")
    faulty.restore()
    faulty.wait("the pods to go", lambda: not pods(faulty))


def deploy(cluster: LocalCluster, replicas: int, name: str = "web") -> None:
    """A Deployment, and wait until all its pods are ready."""
    create(cluster, replicas, name)
    await_ready(cluster, replicas, name)


def create(cluster: LocalCluster, replicas: int, name: str, annotations: dict[str, str] | None = None) -> None:
    labels = {"app": name}
    containers = [{"name": "c", "image": "none"}]
    metadata = {"labels": labels, "annotations": annotations or {}}
    template = {"metadata": metadata, "spec": {"containers": containers, "terminationGracePeriodSeconds": 0}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    cluster.api.create("/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": name}, "spec": spec})


def await_ready(cluster: LocalCluster, replicas: int, name: str = "web") -> None:
    path = f"/apis/apps/v1/namespaces/default/deployments/{name}"
    cluster.wait("ready replicas", lambda: cluster.api.get(path)["status"].get("readyReplicas", 0) == replicas)


def pods(cluster: LocalCluster) -> list[Raw]:
    return list(cluster.api.get("/api/v1/namespaces/default/pods")["items"])


def pods_on(cluster: LocalCluster, nodes: tuple[str, ...]) -> list[Raw]:
    return [pod for pod in pods(cluster) if pod["spec"].get("nodeName") in nodes]


def condition(raw: Raw, kind: str = "Ready") -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in raw["status"]["conditions"] if entry["type"] == kind)
    return found


def node_names(cluster: LocalCluster) -> set[str]:
    return {node["metadata"]["name"] for node in list_nodes(cluster.api)}


def node(cluster: LocalCluster, name: str) -> Raw:
    return cluster.api.get(f"/api/v1/nodes/{name}")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) != 0


def test_deployment_is_scheduled_and_ready(whole: LocalCluster) -> None:
    """The scheduler binds, KWOK runs, the controllers count: 24 pods on the 12 nodes of the profile."""
    deploy(whole, 24)
    assert node_names(whole) == set(demo_profile().node_names)
    assert {pod["spec"]["nodeName"] for pod in pods(whole)} <= node_names(whole)
    assert {part.state for part in whole.parts.values()} == {"running"}


def test_every_node_sends_heartbeats(whole: LocalCluster) -> None:
    """Without leases Kubernetes would call all nodes silent after 50 s, and their pods not ready for ever."""
    held = {lease["metadata"]["name"]: lease["spec"] for lease in whole.api.get(LEASES)["items"]}
    assert set(held) == set(demo_profile().node_names)
    name, lease = held.popitem()
    path = f"{LEASES}/{name}"
    whole.wait("a heartbeat", lambda: whole.api.get(path)["spec"]["renewTime"] > lease["renewTime"])


def test_annotation_delays_readiness(whole: LocalCluster) -> None:
    """A pod that asks for it is bound at once and ready only later, as real ones are."""
    create(whole, 2, "slow", {READY_AFTER_ANNOTATION: "3s"})
    await_ready(whole, 2, "slow")
    for pod in pods(whole):
        bound, ready = (_time(condition(pod, kind)["lastTransitionTime"]) for kind in ("PodScheduled", "Ready"))
        assert (ready - bound).total_seconds() >= 2.0


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_kwok_deletes_no_pod_that_nobody_has_deleted(whole: LocalCluster) -> None:
    """It names no UID: a late call would hit the successor of the same name."""
    deploy(whole, 1)
    name = pods(whole)[0]["metadata"]["name"]
    command = ["delete", "pod", name, "--grace-period=0", "--force"]
    late = [whole.kubectl, f"--kubeconfig={whole.layout.client_kubeconfig(KWOK)}", *command]
    refused = subprocess.run(late, capture_output=True, text=True, check=False)
    assert "nobody has deleted" in refused.stderr
    assert [pod["metadata"]["name"] for pod in pods(whole)] == [name]


def test_server_tells_its_version(faulty: LocalCluster) -> None:
    """A build without version stamps would say v0.0.0-master."""
    version = faulty.api.get("/version")
    assert version["gitVersion"] == f"v{faulty.programs.versions['kube-apiserver']}"
    assert version["gitTreeState"] == "clean"


def test_stop_leaves_nothing(tmp_path: Path) -> None:
    """A second cluster beside the first, with its own Service addresses; stopped, no process, port or file stays."""
    options = replace(FAST, service_range="127.97.0.0/16")
    with LocalCluster.start(ONE_NODE, directory=tmp_path / "d", options=options) as cluster:
        pids = {part.pid: start_time(part.pid or 0) for part in cluster.parts.values()}
        service = cluster.api.get("/api/v1/namespaces/default/services/kubernetes")
        assert service["spec"]["clusterIP"] == "127.97.0.1"
        assert cluster.kubeconfig == tmp_path / "d" / "kubeconfig"
        assert all(started is not None for started in pids.values())
    assert all(start_time(pid or 0) != started for pid, started in pids.items())
    assert all(is_free(port) for port in astuple(cluster.layout.ports))
    assert not cluster.directory.exists()
    assert not cluster.layout.data.exists()


OWNER_CODE = """
import json, sys, threading
from dataclasses import astuple
from localcluster import LocalCluster, Options, demo_profile
started = []
fast = Options(controller_qps=200, controller_burst=400)
thread = threading.Thread(target=lambda: started.append(LocalCluster.start(demo_profile(), options=fast)))
thread.start(); thread.join()
cluster = started[0]
pids = [part.pid for part in cluster.parts.values()] + [cluster._janitor.pid]
cluster.api.get("/api/v1/namespaces/default")  # alive, though the thread that started it is not
states = sorted({part.state for part in cluster.parts.values()})
told = {"states": states, "pids": pids, "ports": astuple(cluster.layout.ports), "directory": str(cluster.directory)}
print(json.dumps(told), flush=True)
sys.stdin.read()
"""


def test_kill_9_of_the_owner_leaves_nothing() -> None:
    """Started from a thread that has ended, the parts live on; with the process they all die, and the files go."""
    with subprocess.Popen([sys.executable, "-c", OWNER_CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        told = json.loads(owner.stdout.readline())
        assert told["states"] == ["running"]
        started = {pid: start_time(pid) for pid in told["pids"]}
        assert None not in started.values()
        assert len(started) == len(PARTS) + 1
        owner.kill()
    until(lambda: all(start_time(pid) != began for pid, began in started.items()), "all processes to end")
    assert all(is_free(port) for port in told["ports"])
    assert not Path(told["directory"]).exists()


def test_interrupted_start_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C while the API server comes up: the parts that run already are stopped, the directory goes."""
    code = (
        "import sys; from pathlib import Path; from localcluster import *; "
        "LocalCluster.start(demo_profile(), Path(sys.argv[1]))"
    )
    directory = tmp_path / "d"
    with subprocess.Popen([sys.executable, "-c", code, str(directory)], stderr=subprocess.DEVNULL) as owner:
        until(lambda: (directory / "logs" / "kube-apiserver.log").exists(), "the API server to be started")
        owner.send_signal(signal.SIGINT)
        assert owner.wait(timeout=20) != 0
    assert not directory.exists()
    assert not _processes_with(str(directory))


def _processes_with(text: str) -> list[str]:
    """Command lines of running processes that name `text`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_text()
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


def test_part_that_cannot_start_is_named_with_its_log(tmp_path: Path) -> None:
    """No half-started cluster: the error quotes the part, everything else is stopped again."""
    options = replace(FAST, extra_arguments={"kube-scheduler": ("--no-such-flag",)})
    with pytest.raises(ClusterError, match="kube-scheduler died") as caught:
        LocalCluster.start(ONE_NODE, directory=tmp_path / "d", options=options)
    assert "unknown flag: --no-such-flag" in caught.value.message
    assert not (tmp_path / "d").exists()
    assert not _processes_with(str(tmp_path / "d"))


def test_lost_race_for_a_port_is_tried_again() -> None:
    """Someone takes the port of etcd between our look and its bind: the next attempt has other ports."""
    with socket.socket() as thief:
        thief.bind((LOOPBACK, 0))
        thief.listen()
        taken = replace(free_ports(), etcd=thief.getsockname()[1])
        attempts: list[Ports] = [taken, free_ports()]
        with LocalCluster.start(ONE_NODE, options=replace(FAST, find_ports=lambda: attempts.pop(0))) as cluster:
            assert attempts == []
            assert cluster.layout.ports.etcd != taken.etcd


@pytest.mark.parametrize("part", PARTS)
def test_killed_part_can_be_started_again(whole: LocalCluster, part: str) -> None:
    """With the same ports and data; afterwards the cluster as a whole works: a new Deployment becomes ready."""
    whole.kill(part)
    assert whole.parts[part] == PartStatus(part, "killed", None)
    with pytest.raises(ClusterError, match=f"{part} is not running: killed"):
        whole.pause(part)
    whole.start_part(part)
    assert whole.parts[part].state == "running"
    with pytest.raises(ClusterError, match=f"{part} is running"):
        whole.start_part(part)
    deploy(whole, 3, f"after-{part}")


def test_paused_part_hangs_until_resumed(whole: LocalCluster) -> None:
    """A scheduler that hangs binds nothing; when it goes on it does."""
    whole.pause("kube-scheduler")
    assert whole.parts["kube-scheduler"].state == "paused"
    create(whole, 2, "late")
    whole.wait("the pods to be created", lambda: len(pods(whole)) == 2)
    assert not any(pod["spec"].get("nodeName") for pod in pods(whole))
    whole.resume("kube-scheduler")
    await_ready(whole, 2, "late")


def test_watch_tells_of_a_part_that_dies(whole: LocalCluster) -> None:
    """Somebody else's SIGKILL is noticed once, with the part's last words; one of ours is no news."""
    told: list[PartStatus] = []
    whole.watch(told.append)
    whole.kill("kwok")
    whole.start_part("kwok")
    os.kill(whole.parts["kube-scheduler"].pid or 0, signal.SIGKILL)
    until(lambda: told, "the death to be told")
    assert whole.parts["kube-scheduler"].state == "died"
    assert "SIGKILL" in told[0].detail
    whole.start_part("kube-scheduler")
    assert [part.name for part in told] == ["kube-scheduler"]


def test_unknown_part_is_an_input_error(faulty: LocalCluster) -> None:
    """The parts that there are are named."""
    with pytest.raises(ClusterError, match="no part is called `kubelet`") as caught:
        faulty.kill("kubelet")
    assert "kube-apiserver" in caught.value.hint


def test_reclaimed_pool_goes_as_on_a_cloud(whole: LocalCluster) -> None:
    """A watcher sees the node NotReady before it is deleted, and the cloud controller's Event with the node's uid."""
    deploy(whole, 24)
    before = node(whole, "spot-a-m5-0")
    since = whole.api.get("/api/v1/nodes")["metadata"]["resourceVersion"]
    done = whole.reclaim(Choice(pool="spot-a-m5"))
    assert done.nodes == ("spot-a-m5-0", "spot-a-m5-1")
    assert len(done.left) == len(pods_on(whole, done.nodes)) > 0
    assert node_names(whole) == set(demo_profile().node_names) - set(done.nodes)
    seen = _watched(whole, "spot-a-m5-0", since)
    assert [kind for kind, _ in seen][-1] == "DELETED"
    statuses = [(condition(raw)["status"], condition(raw).get("reason")) for kind, raw in seen if kind == "MODIFIED"]
    assert ("Unknown", "NodeStatusUnknown") in statuses
    assert statuses[-1][0] == "Unknown"
    events = whole.api.get("/api/v1/namespaces/default/events", fieldSelector="reason=DeletingNode")["items"]
    assert before["metadata"]["uid"] in {event["involvedObject"]["uid"] for event in events}
    assert whole.restore().created == done.nodes
    await_ready(whole, 24)


def _watched(cluster: LocalCluster, name: str, since: str) -> list[tuple[str, Raw]]:
    """What a watcher of the node saw since that version."""
    path = f"/api/v1/nodes?watch=1&fieldSelector=metadata.name%3D{name}&resourceVersion={since}&timeoutSeconds=1"
    command = [str(cluster.kubectl), "--kubeconfig", str(cluster.kubeconfig), "get", "--raw", path]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    events = [json.loads(line) for line in told.splitlines()]
    return [(event["type"], event["object"]) for event in events]


def test_bare_reclaim_gives_no_sign(whole: LocalCluster) -> None:
    """The Nodes are gone, their pods look healthy, and no Event says why."""
    deploy(whole, 24)
    uid = node(whole, "on-demand-b-0")["metadata"]["uid"]
    done = whole.reclaim(Choice(zone="zone-b"), Way.BARE)
    assert len(done.nodes) == 4
    assert not node_names(whole) & set(done.nodes)
    orphans = pods_on(whole, done.nodes)
    assert orphans
    assert {condition(pod)["status"] for pod in orphans} == {"True"}
    events = whole.api.get("/api/v1/namespaces/default/events", fieldSelector="reason=DeletingNode")["items"]
    assert uid not in {event["involvedObject"]["uid"] for event in events}


def test_not_ready_node_stays_so_until_restored(whole: LocalCluster) -> None:
    """Kubernetes taints it and KWOK does not heal it; restored, node and pods are ready again, and no pod was lost."""
    deploy(whole, 24)
    done = whole.reclaim(Choice(pool="spot-a-m5"), Way.NOT_READY)
    whole.wait("the taint", lambda: "node.kubernetes.io/unreachable" in _taints(whole, "spot-a-m5-0"))
    silent = pods_on(whole, done.nodes)
    assert silent
    assert {condition(pod)["status"] for pod in silent} == {"False"}
    assert condition(node(whole, "spot-a-m5-0"))["status"] == "Unknown"
    assert whole.restore(Choice(pool="spot-a-m5")).revived == done.nodes
    assert takes_pods(node(whole, "spot-a-m5-0"))
    await_ready(whole, 24)
    assert {pod["metadata"]["uid"] for pod in silent} <= {pod["metadata"]["uid"] for pod in pods(whole)}


def _taints(cluster: LocalCluster, name: str) -> set[str]:
    return {taint["key"] for taint in node(cluster, name)["spec"].get("taints", ())}


def test_notice_drains_through_evictions(whole: LocalCluster) -> None:
    """All pods leave before the machines do, as nothing forbids it; the nodes go long before the notice is over."""
    deploy(whole, 24)
    before = {f"default/{pod['metadata']['name']}" for pod in pods(whole)}
    done = whole.reclaim(Choice(all_spot=True), notice_seconds=60)
    assert done.left == ()
    assert set(done.evicted) <= before
    assert len(done.evicted) > 0
    assert len(done.nodes) == 6
    await_ready(whole, 24)


def test_refused_eviction_is_tried_until_the_notice_is_over(whole: LocalCluster) -> None:
    """A budget that allows nothing holds the drainer up; the node is cordoned and tainted, then the machine goes."""
    deploy(whole, 24)
    budget = {"minAvailable": "100%", "selector": {"matchLabels": {"app": "web"}}}
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    whole.api.create(path, {"metadata": {"name": "web"}, "spec": budget})
    whole.wait(
        "the budget to be counted", lambda: whole.api.get(f"{path}/web").get("status", {}).get("expectedPods") == 24
    )
    done = reclaim(whole.api, Choice(pool="spot-a-m5"), Way.NOT_READY, notice_seconds=1.0, retry_seconds=0.2)
    assert done.evicted == ()
    assert len(done.left) == len(pods_on(whole, done.nodes)) > 0
    assert node(whole, "spot-a-m5-0")["spec"]["unschedulable"] is True
    assert TERMINATION_TAINT in _taints(whole, "spot-a-m5-0")
    whole.restore()
    assert "unschedulable" not in node(whole, "spot-a-m5-0")["spec"]
    assert _taints(whole, "spot-a-m5-0") == set()


def test_reclaim_of_nothing_is_an_input_error(faulty: LocalCluster) -> None:
    """A typing mistake must not pass for a success."""
    with pytest.raises(ClusterError, match="no node to reclaim: pool nowhere"):
        faulty.reclaim(Choice(pool="nowhere"))


@pytest.mark.cluster
def test_a_pod_that_was_called_not_ready_is_ready_again(cluster: LocalCluster, namespace: str) -> None:
    """As a kubelet sees to it when its node is back."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    container = {"name": "app", "image": "example/app:1.0"}
    cluster.api.create(path, {"metadata": {"name": "app"}, "spec": {"containers": [container]}})

    def ready() -> str:
        conditions = cluster.api.get(f"{path}/app").get("status", {}).get("conditions", [])
        return next((str(each["status"]) for each in conditions if each["type"] == "Ready"), "")

    cluster.wait("the pod to be ready", lambda: ready() == "True")
    change = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    cluster.api.patch(f"{path}/app/status", change, content_type="application/strategic-merge-patch+json")
    assert ready() == "False"
    cluster.wait("the pod to be ready again", lambda: ready() == "True")
