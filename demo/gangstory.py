"""The demo's chapter about gangs: one starts whole, one does not fit, and one makes room for another."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from kube.client import Client
from kube.snapshot import read_snapshot
from localcluster import kubectl
from placement import names
from placement.configuration import Configuration
from placement.model import FINISHED, Class, Node, Pod

EXAMPLES = Path(__file__).parent.parent / "manifests" / "examples" / "gangs"
# The demo's own: a gang that has just started may make room at once.
CONFIGURATION = "gangs: {enabled: true, minimumRunTime: 0s}\n"
PATIENCE_SECONDS = 40.0
EVENTS = "/api/v1/namespaces/demo/events"


@dataclass(slots=True)
class GangStory:
    """What it shows, and whether it went as told."""

    console: Console
    kubeconfig: Path
    client: Client
    went_well: bool = True

    def tell(self) -> bool:
        self._chapter("A training Job of 4 workers: all start together, on spot first")
        self._apply("train.yaml")
        self._wait(lambda: self._said("train", names.EVENT_GANG_STARTED))
        self._show("train")
        self._chapter("A Job of 200 workers does not fit: nothing starts, nothing is evicted")
        self._apply("too-large.yaml")
        self._wait(lambda: self._said("too-large", names.EVENT_GANG_WAITING))
        self._wait(lambda: not any(pod.node for pod in self._pods("too-large")))
        self._show("too-large")
        self._call("delete", "--wait=false", "-f", str(EXAMPLES / "too-large.yaml"))
        self._chapter("Six background workers fill all on-demand nodes, as one gang")
        self._apply("priority-low.yaml")
        self._wait(lambda: self._said("background", names.EVENT_GANG_STARTED))
        self._show("background")
        self._chapter("An urgent gang needs their room: they go whole, and come back after it")
        self._apply("priority-high.yaml")
        self._wait(lambda: self._said("urgent", names.EVENT_GANG_STARTED))
        self._wait(lambda: sum(bool(pod.node) for pod in self._pods("background")) == 6)
        self._show("urgent")
        self._show("background")
        return self.went_well

    # --- doing -------------------------------------------------------------------------------------------------------

    def _apply(self, name: str) -> None:
        self._call("apply", "-f", str(EXAMPLES / name))

    def _call(self, *arguments: str) -> None:
        kubectl.call(*arguments, kubeconfig=self.kubeconfig)

    def _wait(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            if time.monotonic() > deadline:
                self.went_well = False
                return
            time.sleep(0.2)

    # --- looking -----------------------------------------------------------------------------------------------------

    def _pods(self, gang: str) -> list[Pod]:
        pods = read_snapshot(self.client).pods
        return [pod for pod in pods if pod.annotations.get(names.POD_GROUP) == gang and pod.phase not in FINISHED]

    def _events(self, gang: str) -> list[dict[str, Any]]:
        """About this gang, the oldest first."""
        found = [
            each
            for each in self.client.get_json(EVENTS)["items"]
            if each["involvedObject"]["name"] == gang and str(each.get("reason")).startswith("Gang")
        ]
        return sorted(found, key=lambda each: str(each.get("eventTime")))

    def _said(self, gang: str, reason: str) -> bool:
        return any(each["reason"] == reason for each in self._events(gang))

    # --- telling -----------------------------------------------------------------------------------------------------

    def _chapter(self, title: str) -> None:
        self.console.print(f"\n[bold blue]▌ {title}[/]")

    def _show(self, gang: str) -> None:
        """What its owner reads in Events, and where its members are."""
        for each in dict.fromkeys((each["reason"], each["message"]) for each in self._events(gang)):
            self.console.print(f"[bold]{each[0]}[/] on {gang}: {each[1]}")
        nodes = read_snapshot(self.client).nodes
        on = Counter(_where(pod, nodes) for pod in self._pods(gang))
        where = ", ".join(f"{count} {word}" for word, count in sorted(on.items()))
        self.console.print(f"{gang}: {where or 'done'}", style="dim")


def _where(pod: Pod, nodes: Mapping[str, Node]) -> str:
    if not pod.node:
        return "waiting"
    of = Configuration().classes.of_node(nodes[pod.node].labels) if pod.node in nodes else None
    return f"on {of or Class.ON_DEMAND}"
