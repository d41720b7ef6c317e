"""A cluster with room for one gang of eight at a time, and what its user does and sees of gangs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kube.client import Client
from localcluster.parts import APISERVER
from localcluster.profile import Profile, parse_profile
from placement import names
from tests.builders.api import raw_pod_spec, raw_workload
from tests.cluster.clustersetup import ClusterSetup, cluster_setup
from tests.cluster.namespaceuser import wait_for
from tests.cluster.startobserver import BOUND_SECONDS, StartObserver, observing_starts
from tests.timing import within

MEMBERS = 8
SCHEDULER_USER = "system:kube-scheduler"
BINDINGS = {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods/binding"]}]}
AUDITED = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [BINDINGS, {"level": "None"}],
}
CONFIGURATION = "gangs: {enabled: true}\nmoves: {minAge: 1s, afterRollout: 0s}\n"
# Two members fit on a node, so eight on four.
POOL = {"name": "od", "class": "on-demand", "zone": "zone-a", "instanceType": "m5", "count": 4, "cpu": 8}
PROFILE = parse_profile({"region": "local", "pools": [{**POOL, "memory": "32Gi"}]})
CPU = "3"


@contextmanager
def gang_setup(
    directory: Path, rebalancers: int = 1, configuration: str = CONFIGURATION, profile: Profile = PROFILE
) -> Iterator[GangSetup]:
    """All bindings are written down, and all starts are watched."""
    policy, log = directory / "audit.yaml", directory / "audit.log"
    policy.write_text(yaml.safe_dump(AUDITED))
    audit = (f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking")
    with (
        cluster_setup(directory, rebalancers, profile, configuration, 1, {APISERVER: audit}) as made,
        observing_starts(made.user.client, MEMBERS) as starts,
    ):
        yield GangSetup(made, starts, log)


@dataclass
class GangSetup:
    """The setup, and what was seen of each start."""

    setup: ClusterSetup
    starts: StartObserver
    audit_log: Path

    def binders(self) -> Counter[str]:
        """Who has bound how many pods, by the API server's audit log."""
        entries = [json.loads(line) for line in self.audit_log.read_text().splitlines()]
        done = [each for each in entries if each["responseStatus"]["code"] == 201]
        return Counter(each["user"]["username"] for each in done)

    def check_starts(self) -> None:
        """None was partial, and the scheduler alone has bound pods. How soon all were bound is judged in soaks."""
        self.starts.check()
        if self.starts.bound_after:
            slowest = max(self.starts.bound_after)
            print(f"{self.starts.whole} whole starts, 0 partial ones")
            within("from the last gate to the last member on a node, at most", slowest, BOUND_SECONDS)
        assert set(self.binders()) <= {SCHEDULER_USER}

    @property
    def client(self) -> Client:
        return self.setup.user.client

    @property
    def jobs_path(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.setup.user.namespace}/jobs"

    def create(
        self,
        name: str,
        members: int = MEMBERS,
        cpu: str = CPU,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """A Deployment whose pods are one gang of its name; they run until they are deleted."""
        self.starts.expect(name, members)
        raw = raw_workload("Deployment", name, members)
        written = {names.POD_GROUP: name, **(annotations or {})}
        raw["spec"]["template"] = {
            "metadata": {"labels": {"app": name}, "annotations": written},
            "spec": {**pod_spec(cpu), **spec},
        }
        self.setup.user.create(raw)

    def create_job(self, name: str, members: int = MEMBERS, cpu: str = CPU) -> None:
        """The same as a Job, whose pods end by themselves a moment after they have started."""
        self.starts.expect(name, members)
        meta = {"labels": {"app": name}, "annotations": {names.POD_GROUP: name}}
        template = {"metadata": meta, "spec": {**pod_spec(cpu), "restartPolicy": "Never"}}
        spec = {"parallelism": members, "completions": members, "template": template}
        self.client.post(self.jobs_path, {"metadata": {"name": name}, "spec": spec})

    def delete(self, name: str) -> None:
        self.setup.user.delete("Deployment", name)
        wait_for(f"{name} to be gone", lambda: not self.all_of(name))

    def fill(self, name: str, pods: int = 1, cpu: str = CPU, **spec: Any) -> None:
        """Pods without a gang."""
        for number in range(pods):
            meta = {"name": f"{name}-{number}", "labels": {"app": name}}
            self.client.post(self.setup.user.pods_path, {"metadata": meta, "spec": {**pod_spec(cpu), **spec}})

    def all_of(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.get_json(self.setup.user.pods_path, {"labelSelector": f"app={name}"})[
            "items"
        ]
        return found

    def bound(self, name: str) -> int:
        return sum("nodeName" in pod["spec"] for pod in self.setup.user.pods(name))

    def count(self, *, exists: bool = False) -> int:
        """Pods of all gangs that have a node; or that exist."""
        pods = self.client.get_json(self.setup.user.pods_path)["items"]
        return sum(exists or "nodeName" in pod["spec"] for pod in pods)

    def gated(self, name: str) -> int:
        return sum(bool(pod["spec"].get("schedulingGates")) for pod in self.setup.user.pods(name))

    def reserved(self, name: str) -> int:
        pods = self.setup.user.pods(name)
        return sum("nominatedNodeName" in pod["status"] and "nodeName" not in pod["spec"] for pod in pods)

    def marked(self) -> list[str]:
        """Pods that are to make room for a gang."""
        pods = self.client.get_json(self.setup.user.pods_path)["items"]
        return [pod["metadata"]["name"] for pod in pods if names.PREEMPTED_BY in pod["metadata"].get("annotations", {})]

    def is_whole(self, name: str, members: int = MEMBERS) -> bool:
        return self.bound(name) == members

    def waits_whole(self, name: str, members: int = MEMBERS) -> bool:
        """All members are there, none has started, and no room is kept for any."""
        return self.gated(name) == members and not self.reserved(name)

    def clear(self) -> None:
        client, user = self.client, self.setup.user
        client.delete(self.jobs_path, query={"propagationPolicy": "Background"})
        client.delete(user.path("Deployment"))
        client.delete(user.pods_path, query={"gracePeriodSeconds": 0})
        wait_for("the pods to go", lambda: not client.get_json(user.pods_path)["items"])


def pod_spec(cpu: str) -> dict[str, Any]:
    container = {"name": "app", "image": "example/app:1.0", "resources": {"requests": {"cpu": cpu}}}
    return raw_pod_spec(containers=[container], terminationGracePeriodSeconds=0)
