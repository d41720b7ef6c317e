"""The real Karpenter on a local cluster: it buys nodes for pending pods, and KWOK simulates them.

with LocalCluster.start(Profile(())) as cluster:      # from zero nodes
    start_karpenter(cluster, Progress())
    allow_capacity(cluster.api, "on-demand")          # spot cannot be bought any more

Instance types and prices are our own. The price per hour of 2 CPUs and 8 GiB is 2 × 0.03 + 8 × 0.004 = 0.092 on
on-demand, and 0.35 of that on spot: 0.032 in zone-a, 5 % more in zone-b and 10 % more in zone-c.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from localcluster.api import MERGE_PATCH, AdminApi, Raw
from localcluster.build import KARPENTER
from localcluster.cluster import LocalCluster
from localcluster.layout import LOOPBACK, Layout, free_port
from localcluster.neighbours import Neighbour
from localcluster.nodes import INSTANCE_TYPE_LABEL, ZONE_LABEL
from localcluster.programs import get_neighbour
from localcluster.progress import Progress

CAPACITY_TYPE_LABEL = "karpenter.sh/capacity-type"
SPOT, ON_DEMAND = CAPACITY_TYPES = ("spot", "on-demand")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NODE_POOLS = "/apis/karpenter.sh/v1/nodepools"
NODE_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
NODE_CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
NAME = "local"  # of the NodePool and of the node class

CPU_PRICE, GIBIBYTE_PRICE, SPOT_PART = 0.03, 0.004, 0.35
SPOT_FACTORS = {"zone-a": 1.0, "zone-b": 1.05, "zone-c": 1.1}  # on-demand costs the same in all zones
GIBIBYTES_PER_CPU = {"compute": 2, "general": 4, "memory": 8}
CPUS = (2, 4, 8, 16)


@dataclass(frozen=True)
class InstanceType:
    """A kind of machine that can be bought in every zone, on spot and on on-demand."""

    name: str
    cpu: int
    memory_gibibytes: int

    def price(self, capacity_type: str, zone: str) -> float:
        """Per hour."""
        on_demand = self.cpu * CPU_PRICE + self.memory_gibibytes * GIBIBYTE_PRICE
        return on_demand if capacity_type == ON_DEMAND else on_demand * SPOT_PART * SPOT_FACTORS[zone]

    def raw(self) -> Raw:
        """As Karpenter's KWOK provider reads it."""
        return {
            "name": self.name,
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": {"cpu": str(self.cpu), "memory": f"{self.memory_gibibytes}Gi", "pods": "110"},
            "offerings": [self._offering(of, zone) for of in CAPACITY_TYPES for zone in SPOT_FACTORS],
        }

    def _offering(self, capacity_type: str, zone: str) -> Raw:
        requirements = [_requirement(CAPACITY_TYPE_LABEL, capacity_type), _requirement(ZONE_LABEL, zone)]
        return {
            "Price": round(self.price(capacity_type, zone), 6),
            "Available": True,
            "Requirements": requirements,
        }


INSTANCE_TYPES = tuple(
    InstanceType(f"{family}-{cpu}", cpu, cpu * gibibytes)
    for family, gibibytes in GIBIBYTES_PER_CPU.items()
    for cpu in CPUS
)


@dataclass(frozen=True)
class Karpenter:
    """What can be bought, how long a node takes, and how soon Karpenter looks for a cheaper set of nodes."""

    types: tuple[InstanceType, ...] = INSTANCE_TYPES
    node_start_seconds: int = 2  # from the purchase until the Node registers
    consolidate_after: str = "10s"  # a node is left alone for so long after its last change of pods; or Never
    arguments: tuple[str, ...] = ()  # appended to ours


def start_karpenter(cluster: LocalCluster, progress: Progress, karpenter: Karpenter | None = None) -> None:
    """Get the program, install its definitions, start it, and let it buy nodes of any type on spot and on-demand."""
    wanted = karpenter or Karpenter()
    directory = get_neighbour(KARPENTER, progress)
    install_definitions(cluster, directory / "crds")
    types = cluster.directory / "instance-types.json"
    types.write_text(json.dumps([each.raw() for each in wanted.types]))
    cluster.add(karpenter_part(directory, cluster.layout, types, wanted.arguments))
    cluster.api.create(NODE_CLASSES, raw_node_class(wanted.node_start_seconds))
    cluster.api.create(NODE_POOLS, raw_node_pool(wanted.consolidate_after))


def karpenter_part(directory: Path, layout: Layout, types: Path, arguments: tuple[str, ...] = ()) -> Neighbour:
    """Karpenter has no flag for the kubeconfig, so the environment names it."""
    health = free_port()
    own = (
        "--disable-leader-election",
        f"--metrics-port={free_port()}",
        f"--health-probe-port={health}",
        f"--instance-types-file-path={types}",
    )
    environment = {"KUBECONFIG": str(layout.client_kubeconfig(KARPENTER.name))}
    url = f"http://{LOOPBACK}:{health}/readyz"
    return Neighbour(KARPENTER.name, directory / KARPENTER.name, (*own, *arguments), environment, url)


def install_definitions(cluster: LocalCluster, directory: Path) -> None:
    """Returns when the API server serves them."""
    names = [cluster.api.create(DEFINITIONS, each)["metadata"]["name"] for each in _definitions(directory)]
    for name in names:
        path = f"{DEFINITIONS}/{name}"
        cluster.wait(f"the definition {name}", lambda path=path: _is_served(cluster.api, path))  # type: ignore[misc]


def _definitions(directory: Path) -> Iterator[Raw]:
    for path in sorted(directory.glob("*.yaml")):
        yield from (document for document in yaml.safe_load_all(path.read_text()) if document)


def _is_served(api: AdminApi, path: str) -> bool:
    conditions = api.get(path).get("status", {}).get("conditions", [])
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def raw_node_class(node_start_seconds: int) -> Raw:
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": NAME},
        "spec": {"nodeRegistrationDelay": f"{node_start_seconds}s"},
    }


def raw_node_pool(consolidate_after: str, capacity_types: Iterable[str] = CAPACITY_TYPES) -> Raw:
    """One pool for everything. Nodes never expire. Karpenter removes those that are empty or not worth their price."""
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": NAME}
    node = {"nodeClassRef": reference, "expireAfter": "Never", "requirements": _requirements(capacity_types)}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": NAME},
        "spec": {
            "template": {"spec": node},
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": consolidate_after},
        },
    }


def _requirements(capacity_types: Iterable[str]) -> list[Raw]:
    return [_requirement("kubernetes.io/os", "linux"), _requirement(CAPACITY_TYPE_LABEL, *capacity_types)]


def _requirement(key: str, *values: str) -> Raw:
    return {"key": key, "operator": "In", "values": list(values)}


def let_drift(api: AdminApi, label: str) -> None:
    """Nodes carry another label from now on. Those that do not have drifted: Karpenter replaces them one by one."""
    template = {"metadata": {"labels": {"localcluster.spotweave.dev/drifted": label}}}
    api.patch(f"{NODE_POOLS}/{NAME}", {"spec": {"template": template}}, MERGE_PATCH)


def let_expire(api: AdminApi, after: str) -> None:
    """Nodes that are bought from now on expire after so long, such as 90s or Never; those there are have drifted."""
    api.patch(f"{NODE_POOLS}/{NAME}", {"spec": {"template": {"spec": {"expireAfter": after}}}}, MERGE_PATCH)


def allow_capacity(api: AdminApi, *capacity_types: str) -> None:
    """Only these may be bought from now on. Nodes of others have drifted: Karpenter replaces them one by one."""
    spec = {"template": {"spec": {"requirements": _requirements(capacity_types)}}}
    api.patch(f"{NODE_POOLS}/{NAME}", {"spec": spec}, MERGE_PATCH)


def hourly_price(raw_nodes: Iterable[Raw], types: Iterable[InstanceType] = INSTANCE_TYPES) -> float:
    """What the nodes that Karpenter has bought cost per hour."""
    by_name = {each.name: each for each in types}
    labels = [node["metadata"]["labels"] for node in raw_nodes]
    return sum(by_name[of[INSTANCE_TYPE_LABEL]].price(of[CAPACITY_TYPE_LABEL], of[ZONE_LABEL]) for of in labels)
