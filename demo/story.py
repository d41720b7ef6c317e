"""The steps of the demo, with real pods: workloads start, spot is lost and comes back, and all keep serving."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from demo.disturbance import Found, Look, look_at, told
from demo.gangstory import GangStory
from kube.client import Client
from kube.configmaps import read_configuration
from kube.snapshot import read_snapshot
from localcluster import Choice, LocalCluster, Options, demo_profile, kubectl
from localcluster.profile import NodePool
from placement.model import Class
from placement.plan.stuck import SHORTEST_OUTAGE_SECONDS
from report.status import statuses
from report.tables import status_table

EXAMPLES = Path(__file__).parent.parent / "manifests" / "examples"
NAMESPACE = "demo"
SETTLE_SECONDS = 60.0
MOVE_SECONDS = 240.0  # pods are moved one after the other, when they are half a minute old
NOTICE_SECONDS = 120.0  # the nodes go as soon as they are empty
OUTAGE = f"{SHORTEST_OUTAGE_SECONDS:.0f}"
PACE = Options(controller_qps=200, controller_burst=400)  # by default the controllers create 20 objects per second


@dataclass(slots=True)
class Story:
    """What the demo does, and whether every mix was exact."""

    console: Console
    cluster: LocalCluster
    client: Client
    exact: bool = True

    def tell(self) -> bool:
        self._chapter("Four workloads in a namespace with the label spotweave.dev/placement=enabled")
        kubectl.call("apply", "-f", str(EXAMPLES / "namespace.yaml"), kubeconfig=self.cluster.kubeconfig)
        kubectl.call("apply", "-f", str(EXAMPLES), kubeconfig=self.cluster.kubeconfig)
        self.console.print(status_table(self._rest()))
        for replicas in (25, 10):
            self._chapter(f"web scales to {replicas} replicas: no pod needs to move")
            self._kubectl("scale", "deployment/web", f"--replicas={replicas}")
            self._show_web()
        self._chapter("web rolls out a new revision: it gets the same mix")
        self._kubectl("set", "image", "deployment/web", "app=example/app:2.0")
        self._show_web()
        self._lose_a_pool()
        self._lose_all_spot()
        self._chapter("Spot is back: one pod probes it, then the others follow")
        self.console.print(
            f"Pods return once the outage has lasted {OUTAGE} s and they are {OUTAGE} s old.", style="dim"
        )
        self._disturb(self.cluster.restore, is_settled)
        self.exact = GangStory(self.console, self.cluster.kubeconfig, self.client).tell() and self.exact
        return self.exact

    def _lose_a_pool(self) -> None:
        """Removes the pool that holds most pods of web."""
        pool = fullest(self._statuses(), "web")
        self._chapter(f"The cloud reclaims pool {pool.zone}/{pool.instance_type} with two minutes' notice")
        text = "A drainer, not part of Spotweave, evicts what budgets allow. Replacements start."
        self.console.print(text, style="dim")
        self._disturb(lambda: self.cluster.reclaim(Choice(pool=pool.name), notice_seconds=NOTICE_SECONDS), is_settled)

    def _lose_all_spot(self) -> None:
        """No mix is exact then: pods that belong on spot run on on-demand."""
        self._chapter("All spot nodes disappear without notice: their pods run on on-demand")
        self._disturb(lambda: self.cluster.reclaim(Choice(all_spot=True)), is_at_rest)

    def _disturb(self, act: Callable[[], object], is_done: Callable[[Found], bool]) -> None:
        """Changes the nodes, and reports the effect on the workloads."""
        looks = self._looks(act, is_done)
        self.exact = self.exact and is_done(looks[-1].found)
        self.console.print(status_table(looks[-1].found))
        self.console.print()
        self.console.print(told(looks))

    def _looks(self, act: Callable[[], object], is_done: Callable[[Found], bool]) -> list[Look]:
        """Looks repeatedly: before, during the change, and until its effects are over."""
        looks: list[Look] = []

        def look() -> Found:
            looks.append(look_at(time.monotonic(), read_snapshot(self.client), read_configuration(self.client)))
            return looks[-1].found

        look()
        with ThreadPoolExecutor(1) as pool:
            acting = pool.submit(act)
            wait_until(look, lambda found: acting.done() and not looks[-1].released and is_done(found), MOVE_SECONDS)
            acting.result()
        return looks

    def _kubectl(self, *arguments: str) -> None:
        kubectl.call("-n", NAMESPACE, *arguments, kubeconfig=self.cluster.kubeconfig)

    def _chapter(self, title: str) -> None:
        self.console.print(f"\n[bold blue]▌ {title}[/]")

    def _show_web(self) -> None:
        self.console.print(status_table([each for each in self._rest() if each.workload.name == "web"]))

    def _rest(self) -> Found:
        """Waits until the workloads are at rest and nothing is left to move, and checks their mixes."""
        for workload in ("deployment/billing", "deployment/typo", "deployment/web", "statefulset/store"):
            self._kubectl("rollout", "status", workload, f"--timeout={SETTLE_SECONDS:.0f}s")
        found = wait_until(self._statuses, is_settled, MOVE_SECONDS)
        self.exact = self.exact and is_settled(found)
        return found

    def _statuses(self) -> Found:
        return statuses(read_snapshot(self.client), read_configuration(self.client))


def fullest(found: Found, name: str) -> NodePool:
    """The spot pool that holds most pods of a workload."""
    nodes = [each.pod.node for status in found if status.workload.name == name for each in status.pods]
    spot = [pool for pool in demo_profile().pools if pool.capacity_class == Class.SPOT]
    return max(spot, key=lambda pool: sum(node in pool.node_names for node in nodes))


def is_at_rest(found: Found) -> bool:
    """Each has one revision and the wanted number of pods, all of them serve, and none is terminating."""
    return bool(found) and all(
        each.revisions == 1 and len(each.pods) == each.workload.replicas and all(pod.serves for pod in each.pods)
        for each in found
    )


def is_settled(found: Found) -> bool:
    return is_at_rest(found) and all(each.is_exact for each in found)


def wait_until(
    read: Callable[[], Found],
    is_done: Callable[[Found], bool],
    timeout_seconds: float,
) -> Found:
    """The last status read: when the condition holds, or when time is up."""
    deadline = time.monotonic() + timeout_seconds
    while not is_done(found := read()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found
