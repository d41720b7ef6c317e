"""Pods that will take room somewhere before anything else does: they wait for a node, or are about to be created."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from placement.model import Needs, Pod, Toleration
from placement.plan.assess import Assessment
from placement.plan.group import own_terms
from placement.plan.scene import Scene

# A pod for which the scheduler found no node in all this time gets none: what fits is placed within seconds.
HOPELESS_SECONDS = 30.0


def waiting_pods(scene: Scene) -> Iterator[Pod]:
    """Pods that will take room: not those with a gate, nor those that have not fitted anywhere for a while.

    Pods for which an autoscaler adds a node will use that node.
    """
    for pod in scene.waiting:
        is_fresh = scene.now - (pod.changed or pod.created) < HOPELESS_SECONDS
        if not pod.waits and (is_fresh or scene.is_coming(pod)):
            yield pod
    for each in scene.assessments:
        yield from _to_come(each, scene)


def _to_come(each: Assessment, scene: Scene) -> Iterator[Pod]:
    """Replacements of released pods that their ReplicaSet has not created yet, or that we have not seen yet.

    They count as much as the pods that they replace, on either class: the webhook decides on the class later.
    """
    classes = scene.ground.configuration.classes
    tolerated = tuple(Toleration(**each) for each in classes.tolerations)
    needs: dict[int, Needs] = {}  # one for all that are alike, as before
    for cohort in each.group.cohorts:
        missing = cohort.replicas - len(cohort.live) if cohort.released else 0
        for pod in cohort.released[: max(0, missing)]:
            asked = pod.needs
            alike = needs.setdefault(id(asked), replace(asked, tolerations=(*asked.tolerations, *tolerated)))
            yield replace(pod, node="", needs=alike, required_terms=own_terms(pod, classes))
