"""The role for people that gangs add: what the queue reads, and nothing else."""

from __future__ import annotations

from pathlib import Path

import yaml

from kube.gates import POLICY, WEBHOOKS
from kube.lease import PATH
from kube.resources import JOBS, POD_GROUPS, PRIORITY_CLASSES
from placement import names

RBAC = Path(__file__).parents[2] / "manifests/components/gangs/rbac.yaml"


def test_the_role_lets_people_read_what_the_queue_reads() -> None:
    """Lists of Jobs, PodGroups and PriorityClasses; of leader, policy and webhook just the one that is ours."""
    every = list(yaml.safe_load_all(RBAC.read_text()))
    (role,) = [each for each in every if each["metadata"]["name"] == names.VIEW_GANGS_ROLE]
    lists = {rule["resources"][0] for rule in role["rules"] if "list" in rule["verbs"]}
    assert lists == {JOBS.name, POD_GROUPS.name, PRIORITY_CLASSES.name}
    single = {
        (rule["apiGroups"][0], rule["resources"][0], *rule["resourceNames"])
        for rule in role["rules"]
        if rule["verbs"] == ["get"]
    }
    asked = {path.split("/")[2:3][0]: path for path in (PATH, POLICY)}
    assert single == {
        ("coordination.k8s.io", "leases", PATH.rpartition("/")[2]),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies", POLICY.rpartition("/")[2]),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", WEBHOOKS.rpartition("/")[2]),
    }
    assert {group for group, *_ in single} == set(asked)
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list"}
