"""The real descheduler on a local cluster: every few seconds it evicts pods that would fit better elsewhere."""

from pathlib import Path

import yaml

from localcluster.api import Raw
from localcluster.build import DESCHEDULER
from localcluster.cluster import LocalCluster
from localcluster.layout import LOOPBACK, Layout, free_port
from localcluster.neighbours import Neighbour
from localcluster.programs import get_neighbour
from localcluster.progress import Progress

SPREAD = "RemovePodsViolatingTopologySpreadConstraint"
UTILIZATION = "LowNodeUtilization"
EVICTOR = "DefaultEvictor"


def start_descheduler(
    cluster: LocalCluster, progress: Progress, interval_seconds: int = 10, *, node_fit: bool = False
) -> None:
    """Get the program and start it with its two plugins that balance: spread constraints, and use of nodes."""
    directory = get_neighbour(DESCHEDULER, progress)
    policy = cluster.directory / "descheduler.yaml"
    policy.write_text(yaml.safe_dump(raw_policy(node_fit)))
    cluster.add(descheduler_part(directory, cluster.layout, policy, interval_seconds))


def descheduler_part(directory: Path, layout: Layout, policy: Path, interval_seconds: int) -> Neighbour:
    port = free_port()
    arguments = (
        f"--kubeconfig={layout.client_kubeconfig(DESCHEDULER.name)}",
        f"--policy-config-file={policy}",
        f"--descheduling-interval={interval_seconds}s",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={layout.certificate('server')}",
        f"--tls-private-key-file={layout.key('server')}",
        "--v=1",  # one line for each eviction
    )
    url = f"https://{LOOPBACK}:{port}/healthz"
    return Neighbour(DESCHEDULER.name, directory / DESCHEDULER.name, arguments, {}, url)


def raw_policy(node_fit: bool = False) -> Raw:
    """Soft constraints count as well. Nodes below 20 % of their CPU are filled from nodes above 50 %.

    With `node_fit` a pod is evicted only if another node would take it. The descheduler's own default is not to ask.
    """
    balancing = {
        SPREAD: {"constraints": ["DoNotSchedule", "ScheduleAnyway"]},
        UTILIZATION: {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}},
    }
    settings = {EVICTOR: {"nodeFit": node_fit}, **balancing}
    profile = {
        "name": "balance",
        "pluginConfig": [{"name": name, "args": args} for name, args in settings.items()],
        "plugins": {"balance": {"enabled": list(balancing)}},
    }
    return {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile]}
