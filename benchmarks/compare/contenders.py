"""Who starts gangs: how each is installed on a cluster, and how a gang is declared for it."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.compare.sighting import GANG
from demo.supervisor import running
from kube.client import Client
from localcluster import LocalCluster, Options
from localcluster.api import AdminApi, Raw
from localcluster.build import COSCHEDULING, KUEUE
from localcluster.karpenter import install_definitions
from localcluster.layout import LOOPBACK, free_port
from localcluster.neighbours import Neighbour
from localcluster.parts import APISERVER, CONTROLLER_MANAGER, SCHEDULER
from localcluster.programs import get_neighbour
from localcluster.progress import Progress
from placement import names

NAMESPACE = "gangs"
SMALL, LARGE = "small", "large"
POOL = "pool"  # label of nodes
CONFIGURATION = """gangs: {enabled: true, minimumRunTime: 1s, evictionsPerHour: {perNamespace: 1000, inAll: 1000}}"""
HIGH, PATIENT = "high", "patient"  # of the same value; the second preempts nobody


@dataclass(frozen=True)
class GangStarter:
    """Plain pods: the scheduler alone."""

    name: str = "plain"
    arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of parts of the control plane

    @property
    def options(self) -> Options:
        return Options(controller_qps=200, controller_burst=400, extra_arguments=self.arguments)

    @contextmanager
    def installed(self, cluster: LocalCluster, client: Client) -> Iterator[list[int]]:
        """Gives the processes whose work counts, beside the scheduler's."""
        yield []

    def declare(self, client: Client, gang: str, members: int, priority: str, pool: str) -> None:
        """What must exist before its pods."""

    def member(self, raw: Raw, gang: str, members: int, pool: str) -> Raw:
        """A pod as a member of the gang."""
        return raw


@dataclass(frozen=True)
class Ours(GangStarter):
    name: str = "spotweave"

    @contextmanager
    def installed(self, cluster: LocalCluster, client: Client) -> Iterator[list[int]]:
        with tempfile.TemporaryDirectory() as directory:
            config = Path(directory, "config.yaml")
            config.write_text(CONFIGURATION)
            with running(cluster.kubeconfig, 1, config, log_level="warning", rebalancers=1) as found:
                client.patch(
                    f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {"labels": {names.PLACEMENT: names.ENABLED}}}
                )
                yield [each.process.pid for each in found.processes]

    def member(self, raw: Raw, gang: str, members: int, pool: str) -> Raw:
        raw["metadata"]["annotations"] = {names.POD_GROUP: gang, names.POD_GROUP_MIN_MEMBER: str(members)}
        return raw


NATIVE_GROUPS = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{NAMESPACE}/podgroups"
NATIVE_GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true"


@dataclass(frozen=True)
class Native(GangStarter):
    """The scheduler's own gangs, alpha in 1.36."""

    name: str = "native 1.36"
    arguments: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {
            APISERVER: (NATIVE_GATES, "--runtime-config=scheduling.k8s.io/v1alpha2=true"),
            CONTROLLER_MANAGER: (NATIVE_GATES,),
            SCHEDULER: (NATIVE_GATES,),
        }
    )

    def declare(self, client: Client, gang: str, members: int, priority: str, pool: str) -> None:
        spec: Raw = {"schedulingPolicy": {"gang": {"minCount": members}}}
        if priority:
            spec["priorityClassName"] = priority
        raw = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": gang}, "spec": spec}
        client.post(NATIVE_GROUPS, raw)

    def member(self, raw: Raw, gang: str, members: int, pool: str) -> Raw:
        raw["spec"]["schedulingGroup"] = {"podGroupName": gang}
        return raw


COSCHEDULER = "coscheduling"
POD_GROUPS = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups"


@dataclass(frozen=True)
class Coscheduling(GangStarter):
    """A second scheduler with the plugin, and its controller."""

    name: str = "coscheduling"

    @contextmanager
    def installed(self, cluster: LocalCluster, client: Client) -> Iterator[list[int]]:
        directory = get_neighbour(COSCHEDULING, Progress())
        install_definitions(cluster, directory / "crds")
        config = cluster.directory / "coscheduling.yaml"
        config.write_text(yaml.safe_dump(_scheduler_configuration(cluster.kubeconfig)))
        port, health = free_port(), free_port()
        certificates = (
            f"--tls-cert-file={cluster.layout.certificate('server')}",
            f"--tls-private-key-file={cluster.layout.key('server')}",
        )
        scheduler = (f"--config={config}", f"--secure-port={port}", f"--bind-address={LOOPBACK}", *certificates)
        environment = {"KUBECONFIG": str(cluster.kubeconfig)}
        url = f"https://{LOOPBACK}:{port}/healthz"
        cluster.add(Neighbour("coscheduler", directory / "scheduler", scheduler, environment, url))
        metrics = f"--metricsAddr={LOOPBACK}:{free_port()}"
        rates = ("--qps=50", "--burst=100")
        controller = (metrics, f"--probeAddr={LOOPBACK}:{health}", *rates)
        url = f"http://{LOOPBACK}:{health}/healthz"
        cluster.add(Neighbour("coscheduling-controller", directory / "controller", controller, environment, url))
        yield _pids(cluster, "coscheduler", "coscheduling-controller")

    def declare(self, client: Client, gang: str, members: int, priority: str, pool: str) -> None:
        spec = {"minMember": members, "scheduleTimeoutSeconds": 10}
        raw = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": gang}}
        client.post(POD_GROUPS, {**raw, "spec": spec})

    def member(self, raw: Raw, gang: str, members: int, pool: str) -> Raw:
        raw["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = gang
        raw["spec"]["schedulerName"] = COSCHEDULER
        return raw


def _scheduler_configuration(kubeconfig: Path) -> Raw:
    """As the plugin's own documentation has it."""
    plugins = {
        "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "profiles": [{"schedulerName": COSCHEDULER, "plugins": plugins}],
    }


def _pids(cluster: LocalCluster, *parts: str) -> list[int]:
    return [pid for part in parts if (pid := cluster.parts[part].pid) is not None]


# --- Kueue -----------------------------------------------------------------------------------------------------------

KUEUE_API = "/apis/kueue.x-k8s.io/v1beta2"
QUOTAS = {LARGE: 640, SMALL: 24}  # CPUs: what the nodes have


@dataclass(frozen=True)
class Kueue(GangStarter):
    """Groups of plain pods. Its quota is what the nodes of a pool have."""

    name: str = "kueue"

    @contextmanager
    def installed(self, cluster: LocalCluster, client: Client) -> Iterator[list[int]]:
        directory = get_neighbour(KUEUE, Progress())
        own = cluster.directory / "kueue"
        own.mkdir()
        port, health = free_port(), free_port()
        _write_certificates(cluster, own)
        (own / "config.yaml").write_text(yaml.safe_dump(_kueue_configuration(port, health, own)))
        definitions, webhooks = _kueue_manifests(directory / "crds")
        for each in definitions:
            client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", each)
        for name in [each["metadata"]["name"] for each in definitions]:
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
            cluster.wait(name, lambda path=path: _is_served(cluster.api, path))  # type: ignore[misc]
        client.post("/api/v1/namespaces", {"metadata": {"name": "kueue-system"}})
        manager = Neighbour(
            KUEUE.name,
            directory / KUEUE.name,
            (f"--config={own / 'config.yaml'}",),
            {"KUBECONFIG": str(cluster.kubeconfig), "POD_NAMESPACE": "kueue-system"},
            f"http://{LOOPBACK}:{health}/readyz",
        )
        cluster.add(manager)
        for each in webhooks:
            _point_at(each, port, cluster.layout.certificate("ca"))
            client.post(f"/apis/admissionregistration.k8s.io/v1/{each['kind'].lower()}s", each)
        _create_queues(client)
        yield _pids(cluster, KUEUE.name)

    def member(self, raw: Raw, gang: str, members: int, pool: str) -> Raw:
        raw["metadata"]["labels"] |= {
            "kueue.x-k8s.io/queue-name": pool,
            "kueue.x-k8s.io/pod-group-name": gang,
        }
        raw["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": str(members)}
        return raw


def _write_certificates(cluster: LocalCluster, own: Path) -> None:
    (own / "tls.crt").write_bytes(cluster.layout.certificate("server").read_bytes())
    (own / "tls.key").write_bytes(cluster.layout.key("server").read_bytes())


def _kueue_configuration(port: int, health: int, own: Path) -> Raw:
    """As it comes, for Jobs and pods, with certificates of this cluster."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": port, "host": LOOPBACK, "certDir": str(own)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 50, "burst": 100},
        "controller": {"groupKindConcurrency": {"Pod": 5, "Workload.kueue.x-k8s.io": 5, "Job.batch": 5}},
        "integrations": {"frameworks": ["batch/job", "pod"]},
        "featureGates": {"VisibilityOnDemand": False},  # it would serve an API of its own
    }


def _kueue_manifests(directory: Path) -> tuple[list[Raw], list[Raw]]:
    """Definitions, and the webhooks for what it is to look after here."""
    found: list[Raw] = []
    for path in sorted(directory.glob("*.yaml")):
        found += [each for each in yaml.safe_load_all(path.read_text()) if each and "kind" in each]
    definitions = [each for each in found if each["kind"] == "CustomResourceDefinition"]
    webhooks = [each for each in found if each["kind"].endswith("WebhookConfiguration")]
    for each in webhooks:
        each["webhooks"] = [hook for hook in each["webhooks"] if _is_wanted(hook)]
    return definitions, webhooks


def _is_wanted(hook: Raw) -> bool:
    groups = {group for rule in hook["rules"] for group in rule["apiGroups"]}
    resources = {resource for rule in hook["rules"] for resource in rule["resources"]}
    return "kueue.x-k8s.io" in groups or bool(resources & {"pods", "jobs"} and groups & {"", "batch"})


def _point_at(configuration: Raw, port: int, authority: Path) -> None:
    bundle = base64.b64encode(authority.read_bytes()).decode()
    configuration["metadata"]["name"] = "kueue"
    apart = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kueue-system"]}
    for hook in configuration["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        hook["clientConfig"] = {"url": f"https://{LOOPBACK}:{port}{path}", "caBundle": bundle}
        if hook["rules"][0]["apiGroups"] != ["kueue.x-k8s.io"]:
            hook["namespaceSelector"] = {"matchExpressions": [apart]}


def _create_queues(client: Client) -> None:
    for pool, cpus in QUOTAS.items():
        _create(client, "resourceflavors", "ResourceFlavor", pool, {"nodeLabels": {POOL: pool}})
        resources = [{"name": "cpu", "nominalQuota": str(cpus)}]
        group = {"coveredResources": ["cpu"], "flavors": [{"name": pool, "resources": resources}]}
        spec = {
            "namespaceSelector": {},
            "resourceGroups": [group],
            "preemption": {"withinClusterQueue": "LowerPriority"},
        }
        _create(client, "clusterqueues", "ClusterQueue", pool, spec)
        _create(client, f"namespaces/{NAMESPACE}/localqueues", "LocalQueue", pool, {"clusterQueue": pool})


def _create(client: Client, collection: str, kind: str, name: str, spec: Raw) -> None:
    raw = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}
    client.post(f"{KUEUE_API}/{collection}", raw)


def _is_served(api: AdminApi, path: str) -> bool:
    conditions = api.get(path).get("status", {}).get("conditions") or []  # null at first
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def raw_member(name: str, gang: str, cpu: str, pool: str, priority: str) -> dict[str, Any]:
    container = {"name": "app", "image": "example/app:1.0", "resources": {"requests": {"cpu": cpu}}}
    spec: Raw = {"containers": [container], "nodeSelector": {POOL: pool}, "terminationGracePeriodSeconds": 0}
    if priority:
        spec["priorityClassName"] = priority
    labels = {GANG: gang}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


CONTENDERS: tuple[GangStarter, ...] = (GangStarter(), Ours(), Native(), Coscheduling(), Kueue())
