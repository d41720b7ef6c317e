"""Sets up a cluster of its own with Spotweave on it, and keeps the history of its serving replicas."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cli.main import main
from demo.supervisor import Installed, Process, wait_until_ready
from kube.client import Client, connect
from kube.crashpoints import VARIABLE
from kube.errors import AlreadyExists
from kube.lease import PATH as LEASE
from kube.lease import lease_object, released_spec
from kube.membership import PATH as LEASES
from kube.podwriter import END_SECONDS, PodWriter
from localcluster import LocalCluster, Options, Profile, demo_profile
from placement import names
from placement.eviction import LetGo
from placement.model import Class, Key, Pod
from placement.plan.actions import Why
from rebalancer.program import WRITERS
from report.status import WorkloadStatus
from tests.builders.api import raw_budget, raw_namespace, raw_workload
from tests.cluster.killing import running
from tests.cluster.namespaceuser import NamespaceUser, failed_open, label, wait_for
from tests.cluster.servinghistory import ServingHistory, tracking_serving

CONFIGURATION = "moves: {minAge: 1s, coolDown: 2m, timeout: 60s, afterRollout: 0s}\n"
NO_ARGUMENTS: Mapping[str, tuple[str, ...]] = {}
PLAIN = "plain"  # a namespace that is not opted in
START_SECONDS = 2
PATIENCE_SECONDS = 120.0
TOO_SLOW = (LetGo.UNCOUNTED, LetGo.UNMARKED)


@dataclass(frozen=True)
class StartPace:
    """How long pods take to start by themselves, here and now: as many as in the test, under the same load."""

    seconds: float

    def within(self, more: float) -> float:
        """So many seconds more than their own start; as many times more as this machine is slower than it should be."""
        return self.seconds + more * self.slowness

    @property
    def slowness(self) -> float:
        return max(1.0, self.seconds / START_SECONDS)


@dataclass(frozen=True)
class ClusterSetup:
    """A cluster with Spotweave on it, its user, and the history of its serving replicas."""

    cluster: LocalCluster
    installed: Installed
    user: NamespaceUser
    history: ServingHistory

    def serves(
        self,
        name: str,
        replicas: int,
        annotations: dict[str, str] | None = None,
        *,
        kind: str = "Deployment",
        **more: Any,
    ) -> None:
        """A workload whose pods take a while to become ready, with a budget if one is given; waits for it."""
        self.create(name, replicas, annotations, kind=kind, **more)
        self.user.rest(name, kind)

    def create(
        self,
        name: str,
        replicas: int,
        annotations: dict[str, str] | None = None,
        *,
        kind: str = "Deployment",
        ready_after: int = START_SECONDS,
        spec: dict[str, Any] | None = None,
        **budget: Any,
    ) -> None:
        raw = raw_workload(kind, name, replicas, annotations, **(spec or {}))
        raw["spec"]["template"]["metadata"]["annotations"] = {
            "localcluster.spotweave.dev/ready-after": f"{ready_after}s"
        }
        self.user.create(raw)
        if budget:
            self._guard(name, **budget)

    def _guard(self, name: str, **budget: Any) -> None:
        path = f"/apis/policy/v1/namespaces/{self.user.namespace}/poddisruptionbudgets"
        self.user.client.post(path, raw_budget(name, **budget))

    def begin_control(self, replicas: int) -> float:
        """As many pods, in a namespace that is not opted in, are asked for now. Gives the moment."""
        began = time.monotonic()
        self._outside.create("control", replicas)
        return began

    def pace(self, began: float, replicas: int) -> StartPace:
        """How long they took."""
        wait_for("the control to serve", lambda: self.serves_in_full("control", replicas), PATIENCE_SECONDS)
        return StartPace(self.history.full_since("control", replicas) - began)

    def patched(self) -> float:
        """Seconds that one write to each pod of the control takes, as many at once as a rebalancer makes."""
        client, path = self.user.client, self._outside.user.pods_path
        paths = [f"{path}/{pod['metadata']['name']}" for pod in self._outside.user.pods("control")]
        began = time.monotonic()
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(lambda each: client.patch(each, {"metadata": {"annotations": {"seen": "yes"}}}), paths))
        return time.monotonic() - began

    def evicted(self, count: int, replicas: int) -> float:
        """Seconds that so many evictions of the control's replicas take under one budget that allows them all.

        About a tenth of a second for each, however many are asked for at once; the control serves in full before and
        after.
        """
        outside, client = self._outside, self.user.client
        outside._guard("control", minAvailable=0)
        path = f"/apis/policy/v1/namespaces/{PLAIN}/poddisruptionbudgets/control"
        wait_for(
            "the budget to count", lambda: client.get_json(path).get("status", {}).get("disruptionsAllowed") == replicas
        )
        metas = [raw["metadata"] for raw in outside.user.pods("control")[:count]]
        pods = [(Key(PLAIN, meta["name"]), meta["uid"]) for meta in metas]
        began = time.monotonic()
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(lambda each: PodWriter(client, call_seconds=END_SECONDS).evict(*each), pods))
        seconds = time.monotonic() - began
        client.delete(path)  # or a drainer would be as slow
        wait_for(
            "the control to serve",
            lambda: len(outside.user.pods("control")) == self.history.serving("control") == replicas,
        )
        return seconds

    @property
    def _outside(self) -> ClusterSetup:
        return replace(self, user=replace(self.user, namespace=PLAIN))

    def annotate(self, name: str, kind: str = "Deployment", **settings: str | None) -> None:
        written = {names.PREFIX + key.replace("_", "-"): value for key, value in settings.items()}
        self.user.client.patch(self.user.path(kind, name), {"metadata": {"annotations": written}})

    def uids(self, name: str) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.user.pods(name)}

    def settles(self, *apps: str, patience: float = PATIENCE_SECONDS) -> dict[str, WorkloadStatus]:
        """Waits until every mix is exact, no slot is doubled and nothing is released any more."""
        found: dict[str, WorkloadStatus] = {}

        def is_settled() -> bool:
            found.update({name: self.user.status(name) for name in apps})
            return all(map(self._is_settled, found.values()))

        wait_for(f"{apps} to settle", is_settled, patience)
        return found

    def _is_settled(self, status: WorkloadStatus) -> bool:
        replicas = status.workload.replicas
        live = [each for each in status.pods if each.pod.is_live]
        all_pods = self.user.pods(status.workload.name)
        return (
            status.is_exact
            and len(all_pods) == len(live) == replicas
            and sorted(each.pod.slot for each in live if each.pod.slot is not None) == list(range(replicas))
        )

    def deleted(self, number: int) -> list[Pod]:
        """What was deleted: so many at least. The history shows the last one a moment later than who lists pods."""
        wait_for(f"{number} pods to be gone", lambda: len(self.history.deleted) >= number)
        return self.history.deleted

    def serves_in_full(self, name: str, replicas: int) -> bool:
        return self.history.serving(name) >= replicas

    def released(self, name: str) -> list[str]:
        """The pods that are released now."""
        return [
            pod["metadata"]["name"]
            for pod in self.user.pods(name)
            if names.RELEASED in pod["metadata"].get("annotations", {})
        ]

    def clear(self) -> None:
        """For the next test: all nodes, no workload, no outage, no pause."""
        self.spotweave("resume")
        self.cluster.restore()
        client = self.user.client
        for user in (self.user, self._outside.user):
            for group, kind in (("apps", "deployments"), ("apps", "statefulsets"), ("policy", "poddisruptionbudgets")):
                client.delete(f"/apis/{group}/v1/namespaces/{user.namespace}/{kind}")
            client.delete(user.pods_path)  # also what was released, where a test has failed
            wait_for("the pods to go", partial(_is_empty, client, user.pods_path))
        for of in Class:
            self.spotweave("outage", "clear", "--class", str(of))
        for name in self.strange_nodes():
            client.delete(f"/api/v1/nodes/{name}")

    def strange_nodes(self) -> list[str]:
        """Those that the profile does not have."""
        there = [node["metadata"]["name"] for node in self.user.client.get_json("/api/v1/nodes")["items"]]
        return [name for name in there if name not in self.cluster.profile.node_names]

    def spotweave(self, *arguments: str) -> int:
        """A command, as an operator gives it."""
        return main([*arguments, "--kubeconfig", str(self.user.kubeconfig)])

    # --- rebalancers -------------------------------------------------------------------------------------------------

    @property
    def rebalancers(self) -> list[Process]:
        """Those that live."""
        own = [each for each in self.installed.processes if each.name.startswith(names.REBALANCER_COMPONENT)]
        return [each for each in own if each.process.poll() is None]

    def start(self, fault: str = "") -> Process:
        """One more, with a fault if one is given. If none lives, it leads at once and need not wait for a Lease."""
        if not self.rebalancers:
            give_up_lease(self.user.client)
        process = self.installed.add(names.REBALANCER_COMPONENT, **({VARIABLE: fault} if fault else {}))
        if not fault:
            wait_until_ready([process])
        return process

    def stop_all(self) -> None:
        """By their own processes, and no others."""
        for each in self.rebalancers:
            each.process.terminate()
            each.process.wait(15)

    def leads(self, process: Process) -> bool:
        return f"{names.METRIC_LEADING} 1.0" in self.installed.metrics(process.name).splitlines()

    def told(self, metric: str, *parts: str) -> int:
        """The sum of a metric's series that carry all these parts, over all rebalancers that live."""
        texts = [self.installed.metrics(each.name) for each in self.rebalancers]
        lines = [line for text in texts for line in text.splitlines() if re.match(rf"{metric}[ {{]", line)]
        return int(sum(float(line.rpartition(" ")[2]) for line in lines if all(part in line for part in parts)))

    def moves(self, *reasons: Why) -> int:
        """How many releases and evictions there were, for these reasons; without any: for all."""
        actions = f"{names.METRIC_ACTIONS}_total"
        told = [f'reason="{why}"' for why in reasons] or ["reason="]
        done = 'outcome="done"'
        return sum(self.told(actions, f'action="{how}"', done, why) for how in ("release", "evict") for why in told)

    def writes(self) -> int:
        """What was tried of any kind."""
        return self.told(f"{names.METRIC_ACTIONS}_total")

    def passes(self) -> int:
        return self.told(f"{names.METRIC_PASS_SECONDS}_count")

    def let_through(self) -> int:
        """Evictions that passed so far because somebody was too slow, as they should. On idle cores there are none."""
        webhooks = [each for each in self.installed.processes if each.name.startswith(names.WEBHOOK_COMPONENT)]
        texts = [self.installed.metrics(each.name) for each in webhooks if each.process.poll() is None]
        lines = [line for text in texts for line in text.splitlines() if line.startswith(names.METRIC_EVICTIONS)]
        slow = [line for line in lines if any(f'"{why.label}"' in line for why in TOO_SLOW)]
        return failed_open(self.user.client, names.EVICTION_ENTRY) + int(
            sum(float(line.rpartition(" ")[2]) for line in slow)
        )

    def falls_silent(self, seconds: float = 5.0) -> None:
        """Waits until the rebalancers have written nothing for so long."""
        last = [self.writes(), time.monotonic()]

        def is_silent() -> bool:
            now = self.writes()
            if now != last[0]:
                last[:] = [now, time.monotonic()]
            return time.monotonic() - last[1] > seconds

        wait_for(f"no write for {seconds:.0f} s", is_silent, PATIENCE_SECONDS)

    def evictions(self) -> int:
        """How many evictions the API server has granted, to whomever, since it was started."""
        lines = self.user.client.get("/metrics").decode().splitlines()
        wanted = ('resource="pods"', 'subresource="eviction"', 'code="201"')
        found = [line for line in lines if line.startswith("apiserver_request_total{")]
        return int(sum(float(line.rpartition(" ")[2]) for line in found if all(part in line for part in wanted)))


def _is_empty(client: Client, path: str) -> bool:
    return not client.get_json(path)["items"]


def give_up_lease(client: Client) -> None:
    """As the last leader would have, had it been asked: the test knows that nobody leads."""
    try:
        client.post(LEASES, lease_object(released_spec()))
    except AlreadyExists:
        client.patch(LEASE, {"spec": released_spec()})


@contextmanager
def cluster_setup(
    directory: Path,
    rebalancers: int = 0,
    profile: Profile | None = None,
    configuration: str = CONFIGURATION,
    webhooks: int = 2,
    arguments: Mapping[str, tuple[str, ...]] = NO_ARGUMENTS,
) -> Iterator[ClusterSetup]:
    """So many webhooks and rebalancers, and two namespaces, of which `shop` is opted in.

    `arguments` are more ones for parts of the control plane, by part.
    """
    config = directory / "config.yaml"
    config.write_text(configuration)
    options = Options(controller_qps=200, controller_burst=400, extra_arguments=arguments)
    with (
        LocalCluster.start(profile or demo_profile(), options=options) as cluster,
        running(cluster.kubeconfig, webhooks, config, log_level="info", rebalancers=rebalancers) as installed,
    ):
        client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
        for name in ("shop", PLAIN):
            client.post("/api/v1/namespaces", raw_namespace(name))
        label(client, "shop")
        with tracking_serving(client) as history:
            yield ClusterSetup(cluster, installed, NamespaceUser(client, Path(cluster.kubeconfig), "shop"), history)
        client.close()
