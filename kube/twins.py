"""PriorityClasses that preempt nobody, as `placement.gang.twins` wants them: read, made and removed."""

from __future__ import annotations

from typing import Any

from kube.client import Client
from kube.errors import AlreadyExists
from kube.paths import path_of
from kube.podwriter import CALL_SECONDS
from kube.resources import PRIORITY_CLASSES, pages
from placement import names
from placement.gang.twins import NEVER, TwinChange, is_twin, twin_label
from placement.model import PriorityClass


class TwinWriter:
    """Reads all classes, and writes twins."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def classes(self) -> list[PriorityClass]:
        return [each for page in pages(self._client, PRIORITY_CLASSES) for each in page.items]

    def make(self, change: TwinChange) -> None:
        """Raises ApiError. That another leader has made it is as good."""
        if change.replaces:
            self.remove(change.name)
        try:
            self._client.post(PRIORITY_CLASSES.path, twin_object(change), timeout_seconds=CALL_SECONDS)
        except AlreadyExists:
            return

    def remove(self, name: str) -> None:
        self._client.remove(path_of(PRIORITY_CLASSES.path, name), timeout_seconds=CALL_SECONDS)

    def remove_all(self) -> int:
        """How many there were."""
        found = [each.name for each in self.classes() if is_twin(each.name)]
        for name in found:
            self.remove(name)
        return len(found)


def twin_object(change: TwinChange) -> dict[str, Any]:
    of = f"the PriorityClass {change.of}" if change.of else "pods without a PriorityClass"
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": change.name, "labels": {names.TWIN_OF: twin_label(change.of)}},
        "value": change.value,
        "preemptionPolicy": NEVER,
        "globalDefault": False,
        "description": f"As {of}, for members of gangs: they preempt nobody one by one. Made by Spotweave.",
    }
