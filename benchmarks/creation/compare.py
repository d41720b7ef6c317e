"""Pods created by a Go client: latency on one connection, rate and latency on sixteen, and the CPU time of each part.

Only etcd, the API server and the contender work meanwhile. The controller manager runs without the controllers that
watch pods; scheduler and KWOK do not run. So only the client creates, binds or deletes pods, and no controller acts on
the ReplicaSet that the pods name as their owner.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.admission.compare import pod_spec
from benchmarks.contenders import (
    ALL_ON_SPOT,
    CONTENDERS,
    OURS,
    PAIRS,
    PROFILE,
    check,
    create_namespaces,
    empty,
    install_policy,
    pods_path,
    present,
    turns,
)
from benchmarks.golang import build
from benchmarks.report import rounds_wanted, tell
from kube.client import Client, connect
from localcluster import LocalCluster, Options
from localcluster.parts import APISERVER, CONTROLLER_MANAGER, ETCD, KWOK, SCHEDULER
from placement import names

HERE = Path(__file__).parent
ROUNDS = 10
CONNECTIONS = 16
WARM_UP, ALONE, TOGETHER = 100, 200, 800  # pods: to warm up, over one connection, over all
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
OPTIONS = Options(
    extra_arguments={
        CONTROLLER_MANAGER: ("--controllers=serviceaccount-controller,namespace-controller",),
        APISERVER: ("--disable-admission-plugins=TaintNodesByCondition",),  # nothing would remove the taint
    }
)
FIGURES = {
    "alone_p50_ms": "1 connection: p50, ms",
    "rps": f"{CONNECTIONS} connections: pods/s",
    "p99_ms": f"{CONNECTIONS} connections: p99, ms",
    "apiserver_cpu_ms": "API server's CPU, ms a pod",
    "etcd_cpu_ms": "etcd's CPU, ms a pod",
    "webhook_cpu_ms": "webhook's CPU, ms a pod",
    "cpu_ms": "all three, ms a pod",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch, LocalCluster.start(PROFILE, options=OPTIONS) as cluster:
        build(HERE, Path(scratch), "./create")
        for part in (SCHEDULER, KWOK):
            cluster.kill(part)
        client = connect(cluster.kubeconfig, user_agent="spotweave-bench")
        create_namespaces(client)
        trials = {which: _prepare(client, which, Path(scratch)) for which in CONTENDERS}
        with present(OURS, cluster.kubeconfig):
            placed = client.post(pods_path(OURS), trials[OURS], {"dryRun": "All"})
        install_policy(client, placed, trials["policy"])
        bench = Bench(cluster, client, Path(scratch))
        measured = [bench.round(number) for number in range(rounds_wanted(ROUNDS) + 1)]
        client.close()
    tell("creation", f"creating pods, {len(json.dumps(trials[OURS]))} bytes each", measured[1:], FIGURES, PAIRS)


def _prepare(client: Client, which: str, scratch: Path) -> dict[str, Any]:
    """A Deployment, its ReplicaSet, and the pod that the ReplicaSet's controller would create."""
    labels = {"app": "web", names.POD_TEMPLATE_HASH: "abc"}
    template = {"metadata": {"labels": labels}, "spec": pod_spec()}
    deployment = _workload("Deployment", "web", {"app": "web"}, template)
    owner = client.post(f"/apis/apps/v1/namespaces/{which}/deployments", deployment)
    replica_set = _workload("ReplicaSet", "web-abc", labels, template, _reference(owner))
    owner = client.post(f"/apis/apps/v1/namespaces/{which}/replicasets", replica_set)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "web-abc-", "labels": labels, "ownerReferences": [_reference(owner)]},
        "spec": template["spec"],
    }
    (scratch / f"{which}.json").write_text(json.dumps(pod))
    return pod


def _workload(
    kind: str, name: str, selected: dict[str, str], template: dict[str, Any], *owners: dict[str, Any]
) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "annotations": ALL_ON_SPOT, "labels": selected, "ownerReferences": list(owners)},
        "spec": {"replicas": 10 * TOGETHER, "selector": {"matchLabels": selected}, "template": template},
    }


def _reference(owner: dict[str, Any]) -> dict[str, Any]:
    metadata = owner["metadata"]
    named = {"apiVersion": "apps/v1", "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"]}
    return {**named, "controller": True, "blockOwnerDeletion": True}


class Bench:
    """The cluster and the client program."""

    def __init__(self, cluster: LocalCluster, client: Client, scratch: Path) -> None:
        self._cluster = cluster
        self._client = client
        self._scratch = scratch

    def round(self, number: int) -> dict[str, dict[str, float]]:
        found = {which: self._measure(which) for which in turns(number)}
        return {which: found[which] for which in CONTENDERS}

    def _measure(self, which: str) -> dict[str, float]:
        with present(which, self._cluster.kubeconfig) as installed:
            pids = {part.rpartition("-")[2]: self._cluster.parts[part].pid for part in (APISERVER, ETCD)}
            pids["webhook"] = installed.processes[0].process.pid if installed else None
            self._create(which, CONNECTIONS, WARM_UP)
            alone = self._create(which, 1, ALONE)
            before = {name: _cpu_seconds(pid) for name, pid in pids.items()}
            together = self._create(which, CONNECTIONS, TOGETHER)
            spent = {name: _cpu_seconds(pid) - before[name] for name, pid in pids.items()}
            check(self._client, which, WARM_UP + ALONE + TOGETHER)
            empty(self._client, which)
        return {
            "alone_p50_ms": alone["p50_ms"],
            "rps": together["rps"],
            "p99_ms": together["p99_ms"],
            "cpu_ms": 1000 * sum(spent.values()) / TOGETHER,
            **{f"{name}_cpu_ms": 1000 * seconds / TOGETHER for name, seconds in spent.items()},
        }

    def _create(self, which: str, connections: int, pods: int) -> dict[str, float]:
        layout = self._cluster.layout
        access = (layout.server, layout.certificate("ca"), layout.certificate("admin"), layout.key("admin"))
        what = (pods_path(which), self._scratch / f"{which}.json", connections, pods)
        command = [str(each) for each in (self._scratch / "create", *access, *what)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found: dict[str, float] = json.loads(done.stdout)
        if found["failed"]:
            raise AssertionError(f"{which}: {found['failed']:.0f} of {pods} pods were not created")
        return found


def _cpu_seconds(pid: int | None) -> float:
    """The processor time that a process has used so far."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
