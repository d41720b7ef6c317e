"""The corpus has every shape that it is there for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.corpus.applications import NAMES, control_of, load

APPLICATIONS = [load(name) for name in NAMES]
OBJECTS = [each for application in APPLICATIONS for each in application.objects]
WORKLOADS = [each for application in APPLICATIONS for each in application.workloads]
BUDGETS = [each["spec"] for each in OBJECTS if each["kind"] == "PodDisruptionBudget"]
Raw = dict[str, Any]


def pod(raw: Raw) -> Raw:
    found: Raw = raw["spec"]["template"]["spec"]
    return found


def terms(raw: Raw, kind: str) -> list[Raw]:
    found: list[Raw] = pod(raw).get("affinity", {}).get("podAntiAffinity", {}).get(kind, [])
    return found


SHAPES: dict[str, Callable[[Raw], object]] = {
    "required anti-affinity": lambda raw: terms(raw, "requiredDuringSchedulingIgnoredDuringExecution"),
    "preferred anti-affinity": lambda raw: terms(raw, "preferredDuringSchedulingIgnoredDuringExecution"),
    "host port": lambda raw: "hostPort" in str(pod(raw)["containers"]),
    "host network": lambda raw: pod(raw).get("hostNetwork"),
    "emptyDir": lambda raw: any("emptyDir" in volume for volume in pod(raw).get("volumes", ())),
    "a lone Recreate with a claim": lambda raw: (
        raw["spec"].get("strategy", {}).get("type") == "Recreate" and "persistentVolumeClaim" in str(pod(raw))
    ),
    "no surge": lambda raw: raw["spec"].get("strategy", {}).get("rollingUpdate", {}).get("maxSurge") == 0,
    "minReadySeconds": lambda raw: raw["spec"].get("minReadySeconds"),
    "claim templates": lambda raw: raw["spec"].get("volumeClaimTemplates"),
    "started in order": lambda raw: raw["spec"].get("podManagementPolicy") == "OrderedReady",
    "started in parallel": lambda raw: raw["spec"].get("podManagementPolicy") == "Parallel",
    "hard spread": lambda raw: "DoNotSchedule" in str(pod(raw).get("topologySpreadConstraints")),
    "a priority class": lambda raw: pod(raw).get("priorityClassName"),
    "an operating system": lambda raw: "kubernetes.io/os" in pod(raw).get("nodeSelector", {}),
    "tolerations": lambda raw: pod(raw).get("tolerations"),
    "init containers": lambda raw: pod(raw).get("initContainers"),
    "a sidecar": lambda raw: "'restartPolicy': 'Always'" in str(pod(raw).get("initContainers")),
    "the downward API": lambda raw: "fieldRef" in str(pod(raw)),
    "one replica": lambda raw: raw["spec"]["replicas"] == 1,
    "two replicas": lambda raw: raw["spec"]["replicas"] == 2,
    "three replicas": lambda raw: raw["spec"]["replicas"] == 3,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_workload_of_the_corpus_has_the_shape(shape: str) -> None:
    assert [each.full_name for each in WORKLOADS if SHAPES[shape](each.raw)]


@pytest.mark.parametrize(
    "budget",
    [
        {"minAvailable": 1},
        {"minAvailable": "80%"},
        {"minAvailable": "100%"},
        {"maxUnavailable": 1},
        {"maxUnavailable": "25%"},
        {"maxUnavailable": 0},
        {"unhealthyPodEvictionPolicy": "AlwaysAllow"},
    ],
    ids=str,
)
def test_a_budget_of_the_corpus_has_the_form(budget: Raw) -> None:
    assert [each for each in BUDGETS if budget.items() <= each.items()]


@pytest.mark.parametrize("kind", ["DaemonSet", "Job", "CronJob", "Pod", "HorizontalPodAutoscaler", "PriorityClass"])
def test_the_corpus_has_objects_that_are_none_of_ours(kind: str) -> None:
    assert [each for each in OBJECTS if each["kind"] == kind]


def test_a_control_differs_in_nothing_but_its_host_ports() -> None:
    """So what differs in the end is our doing."""
    for application in APPLICATIONS:
        ours, control = (list(application.placed(name)) for name in (application.name, control_of(application.name)))
        plain = [str(each).replace(control_of(application.name), application.name) for each in control]
        differing = [each for each, other in zip(map(str, ours), plain, strict=True) if each != other]
        assert all("hostPort" in each for each in differing)
