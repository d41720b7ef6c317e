"""Spotweave beside the real Karpenter: a cluster that begins without nodes, what was bought, and whether it rests."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kube.configmaps import read_observed
from localcluster import Profile
from localcluster.api import Raw
from localcluster.karpenter import (
    CAPACITY_TYPE_LABEL,
    NODE_CLAIMS,
    Karpenter,
    hourly_price,
    start_karpenter,
)
from localcluster.nodes import ZONE_LABEL, list_nodes
from localcluster.progress import Progress
from placement import names
from report.status import WorkloadStatus
from tests.builders.api import raw_template
from tests.cluster.clustersetup import START_SECONDS, ClusterSetup, cluster_setup
from tests.cluster.namespaceuser import wait_for
from tests.integration.figures import note

# The preset's fallback time is five minutes; a test need not wait for so long. With it, pods that fell back also took
# five minutes to return.
CONFIGURATION = "classes: [karpenter]\ndefaults: {spot-fallback-after: 20s}\n"
SECONDS = float(os.environ.get("SPOTWEAVE_REST_SECONDS") or 60)  # how long a rest is watched
# So long nothing changes before it is called a rest. Karpenter leaves a node alone for 10 s after its last change of
# pods, looks every 10 s, and looks once more after 15 s.
STILL_SECONDS = 45.0
PATIENCE_SECONDS = 600.0  # consolidation replaces one node at a time
# So soon all serve after nodes were taken: their own start, that of a node, and 5 s.
FULL_SECONDS = Karpenter().node_start_seconds + START_SECONDS + 5.0


@dataclass(frozen=True)
class Purchase:
    """What Karpenter had bought for some workloads when all was at rest."""

    nodes: int
    price: float  # per hour, of all nodes

    def __str__(self) -> str:
        return f"{self.price:.3f}/h for {self.nodes} nodes"


@dataclass(frozen=True)
class KarpenterSetup:
    """A cluster whose nodes are bought by Karpenter, with Spotweave on it."""

    setup: ClusterSetup
    told: list[int] = field(default_factory=lambda: [0])  # all moves, at the end of each phase

    def create(self, name: str, replicas: int, spec: dict[str, Any] | None = None, /, **settings: str) -> None:
        """A Deployment of pods of half a CPU, with these settings of its policy, and more of their spec."""
        container = {"name": "app", "image": "example/app:1.0", "resources": {"requests": {"cpu": "500m"}}}
        annotations = {names.PREFIX + key.replace("_", "-"): value for key, value in settings.items()}
        self.setup.create(
            name, replicas, annotations, spec={"template": raw_template(name, containers=[container], **(spec or {}))}
        )

    @property
    def nodes(self) -> list[Raw]:
        """Those that Karpenter has not begun to remove."""
        return [node for node in list_nodes(self.setup.cluster.api) if "deletionTimestamp" not in node["metadata"]]

    def claims(self, capacity_type: str = "") -> list[str]:
        """The names of what was bought and not given back, of one capacity type or of all."""
        found = self.setup.cluster.api.get(NODE_CLAIMS)["items"]
        return sorted(
            claim["metadata"]["name"]
            for claim in found
            if not capacity_type or claim["metadata"]["labels"].get(CAPACITY_TYPE_LABEL) == capacity_type
        )

    @property
    def price(self) -> float:
        """Per hour, of all nodes."""
        return hourly_price(self.nodes)

    def bought(self, apps: list[str], replicas: int, **settings: str) -> Purchase:
        """From zero nodes: what Karpenter buys for workloads of this size and policy. All is given back afterwards."""
        assert self.claims() == []
        for name in apps:
            self.create(name, replicas, **settings)
        self.setup.settles(*apps, patience=PATIENCE_SECONDS)
        self.rests(apps[0])
        assert all(status.is_exact for status in self.setup.settles(*apps).values())
        found = Purchase(len(self.nodes), self.price)
        self.clear(*apps)
        return found

    @contextmanager
    def buying(self) -> Iterator[set[str]]:
        """The names of all NodeClaims that come meanwhile, those that go again included."""
        before, found, is_over = set(self.claims()), set[str](), threading.Event()

        def look() -> None:
            while not is_over.wait(0.5):  # the pace of the watch: none lives for so short a time
                found.update(set(self.claims()) - before)

        watching = threading.Thread(target=look)
        watching.start()
        try:
            yield found
        finally:
            is_over.set()
            watching.join()

    def interrupt(self, claims: list[str]) -> None:
        """As when the cloud takes the machines back, with notice: Karpenter taints the nodes and drains them."""
        for name in claims:
            self.setup.cluster.api.delete(f"{NODE_CLAIMS}/{name}")

    def gone(self, claims: list[str]) -> None:
        """Waits until all of these nodes are given back."""
        wait_for(f"{claims} to go", lambda: not set(claims) & set(self.claims()), PATIENCE_SECONDS)

    @property
    def interruptions(self) -> dict[str, tuple[float, int]]:
        """By pool, as the rebalancer has noted them: when the latest episode began, and how many nodes it took."""
        noted = read_observed(self.setup.user.client)
        return {name: (record.began, record.taken) for name, record in noted.pools.items() if record.taken}

    def serves(self, what: str, name: str, replicas: int, began: float) -> int:
        """Waits until so many serve, and notes that. What follows until the rest is Karpenter's consolidation.

        Gives the lowest number that served.
        """
        wait_for(
            f"{replicas} replicas of {name} to serve",
            lambda: self.setup.serves_in_full(name, replicas),
            PATIENCE_SECONDS,
        )
        return self.tell(f"{what}, all {replicas} serve", name, began)

    def rests(self, name: str, patience: float = PATIENCE_SECONDS) -> WorkloadStatus:
        """Waits until the mix is exact, and neither pods nor nodes have changed for a while."""
        began = time.monotonic()
        last: tuple[Any, float] = (None, began)

        def is_still() -> bool:
            nonlocal last
            seen = (self.claims(), len(self.nodes), self.setup.uids(name), self.setup.writes())
            if seen != last[0]:
                last = (seen, time.monotonic())
            return time.monotonic() - last[1] > STILL_SECONDS

        while True:
            left = began + patience - time.monotonic()
            status = self.setup.settles(name, patience=left)[name]
            wait_for(f"{name} and its nodes to rest", is_still, began + patience - time.monotonic())
            again = self.setup.user.status(name)
            if again.is_exact and not self.setup.released(name):
                return again
            assert time.monotonic() < began + patience, f"{status.wanted} wanted, {again.actual} at rest"

    def tell(self, what: str, name: str, began: float) -> int:
        """Notes what a phase took and what it left, and begins the next one. Gives the lowest number that served."""
        worst = self.setup.history.worst(name)
        self.told.append(self.setup.moves())
        spot = [len(self.claims(of)) for of in ("spot", "on-demand")]
        zones = Counter(
            self._classes.get(pod["spec"].get("nodeName", ""), ("no node", "")) for pod in self.setup.user.pods(name)
        )
        placed = ", ".join(f"{of} {zone} {count}" for (of, zone), count in sorted(zones.items()))
        note(
            f"{what}: {time.monotonic() - began:.0f} s, lowest serving {worst}, "
            f"moves {self.told[-1] - self.told[-2]}, nodes {spot[0]} spot + {spot[1]} on-demand, "
            f"price {self.price:.3f}/h; {placed}"
        )
        self.setup.history.forget()
        return worst

    @property
    def _classes(self) -> dict[str, tuple[str, str]]:
        return {
            node["metadata"]["name"]: tuple(
                node["metadata"]["labels"][key] for key in (CAPACITY_TYPE_LABEL, ZONE_LABEL)
            )
            for node in self.nodes
        }

    def on(self, name: str, capacity_type: str) -> int:
        """How many of its pods run on such nodes."""
        nodes = self._classes
        return sum(
            nodes.get(pod["spec"].get("nodeName", ""), ("", ""))[0] == capacity_type
            for pod in self.setup.user.pods(name)
        )

    def zones(self, name: str, capacity_type: str) -> list[int]:
        """How many of its pods run on such nodes, by zone, the smallest number first."""
        nodes = self._classes
        found = (nodes.get(pod["spec"].get("nodeName", ""), ("", "")) for pod in self.setup.user.pods(name))
        return sorted(Counter(zone for of, zone in found if of == capacity_type).values())

    def clear(self, *apps: str) -> None:
        """For the next test: nothing runs, and all nodes are given back. By itself Karpenter does that one by one."""
        for name in apps:
            self.setup.user.delete("Deployment", name)
        wait_for("the pods to go", lambda: not any(map(self.setup.user.pods, apps)))
        self.interrupt(self.claims())
        for of in ("spot", "on-demand"):
            self.setup.spotweave("outage", "clear", "--class", of)
        wait_for("the nodes to go", lambda: not self.claims() and not self.nodes, PATIENCE_SECONDS)


@contextmanager
def karpenter_setup(directory: Path, configuration: str = CONFIGURATION) -> Iterator[KarpenterSetup]:
    """From zero nodes, with two webhooks and a rebalancer."""
    with cluster_setup(directory, rebalancers=1, profile=Profile(()), configuration=configuration) as setup:
        start_karpenter(setup.cluster, Progress(), Karpenter())
        yield KarpenterSetup(setup)
