"""The component of gangs: it refuses no pod, names what the programs look for, and alone switches gangs on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.gangs import LISTED, guard_solo, list_schedulers
from localcluster import kubectl
from localcluster.errors import ClusterError
from placement import names
from placement.gang.bare import LONGEST_PRIORITY
from placement.gang.terms import LONGEST_NAME

MANIFESTS = Path(__file__).parent.parent / "manifests"
COMPONENT = MANIFESTS / "components" / "gangs"


def objects(*paths: Path) -> list[dict[str, Any]]:
    return [each for path in paths for each in yaml.safe_load_all(path.read_text()) if each]


BEFORE_OVERLAY = "local-gangs-before-1.36"
GUARDED_OVERLAY = "local-gangs-guard-solo"
BARE_OVERLAY, BARE_BEFORE_OVERLAY = "local-gangs-bare", "local-gangs-bare-before-1.36"
GATE, GATE_BINDING = objects(COMPONENT / "gate.yaml")
(ENTRY,) = objects(COMPONENT / "webhook.yaml")[0]["webhooks"]
(PLACE,) = next(each for each in objects(MANIFESTS / "base" / "admission.yaml") if "Mutating" in each["kind"])[
    "webhooks"
]
BARE, BARE_BINDING = objects(MANIFESTS / "components" / "gangs-bare-annotations" / "gate.yaml")
BARE_BEFORE = MANIFESTS / "components" / "gangs-bare-annotations-before-1.36"
(BARE_ENTRY,) = objects(BARE_BEFORE / "webhook.yaml")[0]["webhooks"]
BEFORE = MANIFESTS / "components" / "gangs-before-1.36"
GATE_ENTRY, _ = objects(BEFORE / "webhook.yaml")[0]["webhooks"]
FENCES = objects(COMPONENT / "fence.yaml")
TWIN_FENCE, TWIN_FENCE_BINDING, GROUP_FENCE, GROUP_FENCE_BINDING, JOB_FENCE, JOB_FENCE_BINDING, *NODE_FENCES = FENCES


def test_the_gate_is_given_by_an_apply_configuration_alone() -> None:
    """A JSONPatch with a typed value would make the API server refuse the pod."""
    (mutation,) = GATE["spec"]["mutations"]
    assert mutation["patchType"] == "ApplyConfiguration"
    expression = mutation["applyConfiguration"]["expression"]
    assert f"schedulingGates{{name: '{names.GANG_GATE}'}}" in expression
    assert f"labels: {{'{names.GANG_LABEL}': '{names.GANG_MEMBER}'}}" in expression
    assert "object." not in expression  # two constants: nothing of the pod could make them invalid


def test_every_field_that_may_be_absent_is_asked_for_as_such() -> None:
    """With `failurePolicy: Fail`, an expression that fails refuses a pod."""
    assert GATE["spec"]["failurePolicy"] == "Fail"
    for condition in GATE["spec"]["matchConditions"]:
        rest = condition["expression"].replace("object.metadata.?", "").replace("object.?spec.?", "")
        assert "object." not in rest, condition
    assert f"'{names.POD_GROUP}'" in GATE["spec"]["matchConditions"][0]["expression"]


def test_annotations_without_a_prefix_are_copied_by_a_policy_of_the_same_kind() -> None:
    """It names what the program names; the webhook's entry meets the same pods; nothing else is given by it."""
    assert all(each["patchType"] == "ApplyConfiguration" for each in BARE["spec"]["mutations"])
    assert (BARE["spec"]["failurePolicy"], BARE["metadata"]["name"]) == ("Fail", names.GANG_BARE_POLICY)
    text = str(BARE["spec"])
    read = (*names.BARE_POD_GROUPS, names.BARE_PRIORITY, names.POD_GROUP, names.PRIORITY, names.POD_GROUP_LABEL)
    assert all(f"'{name}'" in text for name in read)
    assert f"<= {LONGEST_NAME}" in text
    assert f"<= {LONGEST_PRIORITY}" in text
    shared = ("without-a-node", "not-a-static-pod", "not-of-a-daemon-set")
    by_name = {each["name"]: each for each in BARE["spec"]["matchConditions"]}
    assert [each for each in GATE["spec"]["matchConditions"] if each["name"] in shared] == [by_name[n] for n in shared]
    assert BARE["spec"]["matchConditions"] == BARE_ENTRY["matchConditions"]
    assert BARE_ENTRY["objectSelector"] == BARE["spec"]["matchConstraints"]["objectSelector"]
    assert (BARE_ENTRY["name"], BARE_ENTRY["clientConfig"]["service"]["path"]) == (names.BARE_ENTRY, names.GATE_PATH)
    assert (BARE_ENTRY["failurePolicy"], by_name["of-a-listed-scheduler"]["name"]) == ("Fail", LISTED)


def test_the_schedulers_of_the_configuration_are_listed() -> None:
    """On the local cluster, in both forms."""
    configuration = "gangs: {enabled: true, bareAnnotations: true, schedulerNames: [mine]}"
    made = objects(MANIFESTS / "components" / "gangs-bare-annotations" / "gate.yaml", BARE_BEFORE / "webhook.yaml")
    list_schedulers(made, configuration)
    assert str(made).count("in ['', 'default-scheduler', 'mine']") == 2
    assert "volcano" not in str(made)


def test_the_same_namespaces_are_meant_everywhere() -> None:
    """Opted in, and none of the excluded ones."""
    assert BARE_BINDING["spec"]["matchResources"]["namespaceSelector"] == PLACE["namespaceSelector"]
    assert BARE_ENTRY["namespaceSelector"] == PLACE["namespaceSelector"]
    assert BARE_BINDING["spec"]["policyName"] == names.GANG_BARE_POLICY
    assert GATE["metadata"]["name"] == GATE_BINDING["metadata"]["name"] == names.GANG_POLICY
    assert GATE_BINDING["spec"]["policyName"] == names.GANG_POLICY
    selector = GATE_BINDING["spec"]["matchResources"]["namespaceSelector"]
    assert selector == ENTRY["namespaceSelector"] == PLACE["namespaceSelector"]


def test_a_member_is_sent_to_its_own_entry_and_to_no_other() -> None:
    """The label decides, which the API server has given before it asks webhooks."""
    assert (ENTRY["name"], ENTRY["clientConfig"]["service"]["path"]) == (names.GANG_ENTRY, names.GANG_PATH)
    assert (ENTRY["failurePolicy"], ENTRY["sideEffects"]) == ("Ignore", "None")
    is_member = {"key": names.GANG_LABEL, "operator": "In", "values": [names.GANG_MEMBER]}
    assert is_member in ENTRY["objectSelector"]["matchExpressions"]
    assert {"key": names.GANG_LABEL, "operator": "DoesNotExist"} in PLACE["objectSelector"]["matchExpressions"]


def test_before_1_36_the_webhook_gates_the_same_pods_and_refuses_no_others() -> None:
    """The conditions, the namespaces and the pods are those of the policy; whoever does not meet them is not sent."""
    assert GATE_ENTRY["matchConditions"] == GATE["spec"]["matchConditions"]
    assert GATE_ENTRY["objectSelector"] == GATE["spec"]["matchConstraints"]["objectSelector"]
    assert GATE_ENTRY["namespaceSelector"] == ENTRY["namespaceSelector"]
    assert GATE_ENTRY["failurePolicy"] == GATE["spec"]["failurePolicy"] == "Fail"
    assert (GATE_ENTRY["name"], GATE_ENTRY["clientConfig"]["service"]["path"]) == (names.GATE_ENTRY, names.GATE_PATH)


def test_the_fence_of_twins_denies_also_when_it_fails() -> None:
    """And goes by the names that the rebalancer uses."""
    assert TWIN_FENCE["metadata"]["name"] == names.TWIN_FENCE_POLICY
    assert TWIN_FENCE["spec"]["failurePolicy"] == "Fail"
    assert TWIN_FENCE_BINDING["spec"] == {"policyName": names.TWIN_FENCE_POLICY, "validationActions": ["Deny"]}
    text = str(TWIN_FENCE["spec"])
    assert all(f"'{name}'" in text for name in (names.TWIN_PREFIX, names.TWIN_OF))


def test_the_fences_of_pod_groups_and_nodes_deny_also_when_they_fail() -> None:
    policy, binding = NODE_FENCES
    assert (policy["metadata"]["name"], policy["spec"]["failurePolicy"]) == (names.NODE_FENCE_POLICY, "Fail")
    assert binding["spec"] == {"policyName": names.NODE_FENCE_POLICY, "validationActions": ["Deny"]}
    assert str(policy["spec"]).count(f"'{names.EXCLUSIVE_TAINT}'") == 3
    assert GROUP_FENCE["metadata"]["name"] == names.POD_GROUP_FENCE_POLICY
    assert GROUP_FENCE["spec"]["failurePolicy"] == "Fail"
    assert GROUP_FENCE_BINDING["spec"] == {"policyName": names.POD_GROUP_FENCE_POLICY, "validationActions": ["Deny"]}


def test_the_fence_of_jobs_denies_also_when_it_fails() -> None:
    """And goes by the same accounts and namespaces as the fence of pods."""
    assert JOB_FENCE["metadata"]["name"] == names.JOB_FENCE_POLICY
    assert (JOB_FENCE["spec"]["failurePolicy"], JOB_FENCE["spec"]["matchConditions"]) == (
        "Fail",
        TWIN_FENCE["spec"]["matchConditions"],
    )
    assert JOB_FENCE_BINDING["spec"] == {"policyName": names.JOB_FENCE_POLICY, "validationActions": ["Deny"]}
    (fence, *_) = objects(MANIFESTS / "base" / "fence.yaml")
    (opted_in,) = (each for each in fence["spec"]["variables"] if each["name"] == "optedIn")
    assert opted_in in JOB_FENCE["spec"]["variables"]


@pytest.fixture(scope="module")
def overlays() -> dict[str, list[dict[str, Any]]]:
    try:
        texts = {
            name: kubectl.call("kustomize", str(MANIFESTS / "overlays" / name))
            for name in ("local", "local-gangs", BEFORE_OVERLAY, BARE_OVERLAY, BARE_BEFORE_OVERLAY, GUARDED_OVERLAY)
        }
    except ClusterError as error:  # pragma: no cover - a machine without kubectl
        pytest.skip(str(error))
    return {name: [each for each in yaml.safe_load_all(text) if each] for name, text in texts.items()}


def test_only_the_component_switches_gangs_on(overlays: dict[str, list[dict[str, Any]]]) -> None:
    """In the fence, in RBAC and in the webhook configuration."""

    def fence(name: str) -> list[dict[str, str]]:
        (found,) = (
            each
            for each in overlays[name]
            if each["kind"] == "ValidatingAdmissionPolicy" and each["metadata"]["name"] == names.FENCE_POLICY
        )
        variables: list[dict[str, str]] = found["spec"]["variables"]
        return variables

    plain, gangs = fence("local"), fence("local-gangs")
    assert (plain[0], gangs[0]) == ({"name": "gangs", "expression": "false"}, {"name": "gangs", "expression": "true"})
    assert plain[1:] == gangs[1:]
    kinds = {each["kind"] for each in overlays["local"]}
    assert not any(kind.startswith("MutatingAdmissionPolicy") for kind in kinds)
    assert {each["kind"] for each in overlays["local-gangs"]} - kinds == {GATE["kind"], GATE_BINDING["kind"]}


def test_both_entries_call_the_port_of_the_local_overlay(overlays: dict[str, list[dict[str, Any]]]) -> None:
    """Whichever comes first."""
    (found,) = (each for each in overlays["local-gangs"] if each["kind"] == "MutatingWebhookConfiguration")
    ports = {each["name"]: each["clientConfig"]["service"]["port"] for each in found["webhooks"]}
    assert ports == {names.WEBHOOK_ENTRY: 8443, names.GANG_ENTRY: 8443}


def test_before_1_36_the_same_is_installed_but_for_the_policy(overlays: dict[str, list[dict[str, Any]]]) -> None:
    """And one entry gives all that members get."""
    (found,) = (each for each in overlays[BEFORE_OVERLAY] if each["kind"] == "MutatingWebhookConfiguration")
    ports = {each["name"]: each["clientConfig"]["service"]["port"] for each in found["webhooks"]}
    assert ports == {names.WEBHOOK_ENTRY: 8443, names.GATE_ENTRY: 8443}
    policy = {GATE["kind"], GATE_BINDING["kind"]}
    others = [each for each in overlays["local-gangs"] if each["kind"] not in {*policy, found["kind"]}]
    assert [each for each in overlays[BEFORE_OVERLAY] if each["kind"] != found["kind"]] == others


def test_annotations_without_a_prefix_take_one_object_more(overlays: dict[str, list[dict[str, Any]]]) -> None:
    """A policy with its binding, or an entry at the same port."""
    added = [each for each in overlays[BARE_OVERLAY] if each not in overlays["local-gangs"]]
    kinds = {(each["kind"], each["metadata"]["name"]) for each in added}
    assert kinds == {(each["kind"], each["metadata"]["name"]) for each in (BARE, BARE_BINDING)}
    (found,) = (each for each in overlays[BARE_BEFORE_OVERLAY] if each["kind"] == "MutatingWebhookConfiguration")
    ports = {each["name"]: each["clientConfig"]["service"]["port"] for each in found["webhooks"]}
    assert ports == {names.WEBHOOK_ENTRY: 8443, names.GATE_ENTRY: 8443, names.BARE_ENTRY: 8443}


def test_guarded_solo_pods_take_one_switch_more(overlays: dict[str, list[dict[str, Any]]]) -> None:
    """In the fence: by the component, and by `spotweave run`."""
    plain = [each for each in overlays["local-gangs"] if each not in overlays[GUARDED_OVERLAY]]
    (guarded,) = [each for each in overlays[GUARDED_OVERLAY] if each not in overlays["local-gangs"]]
    copied = yaml.safe_load(yaml.safe_dump(plain))
    guard_solo(copied, "gangs: {enabled: true}")
    assert copied == plain
    guard_solo(copied, "gangs: {enabled: true, guardSolo: true}")
    assert copied == [guarded]
    assert guarded["metadata"]["name"] == names.FENCE_POLICY
