"""The API server itself says what is wrong when somebody applies it, exactly where the parser would."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes.client import ApiClient
from kubernetes.config import new_client_from_config

from demo.supervisor import Installed, access_for
from kube.client import Client, connect
from kube.events import EventWriter
from localcluster import LocalCluster, kubectl
from placement import names
from placement.gang.terms import ROWS, terms_of
from placement.lint import GROUP_EXPECTED, JOB_COUNTS_EVICTIONS, SHOWN_LENGTH, LintedObject, findings_in
from placement.model import Kind, Workload
from placement.policy import LONGEST_VALUE, SETTINGS, WHITE_SPACE, Mistake, Setting, mistakes_in
from tests.builders.api import raw_template, raw_workload
from tests.cluster.namespaceuser import NamespaceUser, wait_for
from tests.placement.test_lint import GANG_TEXTS, UNDECIDED, shaped
from tests.placement.test_policy import INVALID, VALID
from tests.placement.test_window import BAD_WINDOWS, WINDOWS

pytestmark = pytest.mark.cluster

MANIFEST = Path(__file__).parent.parent.parent / "manifests" / "base" / "lint.yaml"
NAMESPACE = "lint"
TOLD = re.compile(r"'(?P<policy>[\w-]+)' with binding '[\w-]+': (?P<sentence>.*)", re.DOTALL)
BY_ANNOTATION = {setting.annotation: setting for setting in SETTINGS}


@dataclass(frozen=True)
class DryRunWarnings:
    """Applies objects as dry runs and gives the sentences that the API server warns with."""

    api: ApiClient

    def told(self, path: str, raw: dict[str, Any]) -> list[str]:
        answer = self.api.rest_client.pool_manager.request(
            "POST",
            f"{self.api.configuration.host}{path}?dryRun=All",
            body=json.dumps(raw).encode(),
            headers={"content-type": "application/json"},
        )
        assert answer.status == 201, answer.data  # whatever is wrong, it is never refused
        return [sentence(header) for header in answer.headers.getlist("warning")]

    def about(self, annotations: dict[str, str], kind: str = "Deployment", namespace: str = NAMESPACE) -> list[str]:
        collection = {"Deployment": "deployments", "StatefulSet": "statefulsets"}[kind]
        return self.told(
            f"/apis/apps/v1/namespaces/{namespace}/{collection}", raw_workload(kind, "web", 1, annotations)
        )


def sentence(header: str) -> str:
    """299 - "Validation failed for ValidatingAdmissionPolicy 'spotweave-lint' with binding 'spotweave-lint': …" """
    quoted = header.encode("latin-1").decode().partition(" - ")[2][1:-1]
    matched = TOLD.search(re.sub(r"\\(.)", r"\1", quoted))
    assert matched, header
    return matched["sentence"]


@contextmanager
def labelled_namespace(cluster: LocalCluster, name: str, labels: dict[str, str]) -> Iterator[None]:
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    yield
    cluster.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="module")
def teller(cluster: LocalCluster) -> Iterator[DryRunWarnings]:
    """The policies alone, in force; no webhook is needed for them."""
    api: ApiClient = new_client_from_config(str(cluster.kubeconfig))  # type: ignore[no-untyped-call]
    apply = ("apply", "--server-side", "--force-conflicts", "--field-manager=spotweave", "-f", str(MANIFEST))
    kubectl.call(*apply, kubeconfig=cluster.kubeconfig)
    with labelled_namespace(cluster, NAMESPACE, {names.PLACEMENT: names.ENABLED}):
        teller = DryRunWarnings(api)
        wait_for("the policy to be in force", lambda: teller.about({names.SPOT_RATIO: "70"}))
        yield teller
    api.rest_client.pool_manager.clear()
    api.close()  # type: ignore[no-untyped-call]


def is_undecided(mistake: Mistake) -> bool:
    """What no shape can tell: a window of the right shape whose time zone does not exist or whose range is empty."""
    setting = BY_ANNOTATION.get(mistake.annotation)
    return setting is not None and setting.annotation == names.REBALANCE_WINDOW and has_shape(setting, mistake.value)


def has_shape(setting: Setting, text: str) -> bool:
    trimmed = text.strip(WHITE_SPACE)
    return len(text) <= LONGEST_VALUE and all(re.fullmatch(shape, trimmed, re.ASCII) for shape in setting.shapes)


def compare(teller: DryRunWarnings, annotations: dict[str, str]) -> None:
    """The API server warns of exactly the annotations in which the parser finds a mistake."""
    expected = {each.annotation for each in mistakes_in(annotations, "workload") if not is_undecided(each)}
    told = teller.about(annotations)
    warned = {annotation for annotation in annotations if any(f" {annotation}: '" in each for each in told)}
    assert warned == expected, (annotations, told)


# --- the policy and the parser ---------------------------------------------------------------------------------------

EDGES = ["", " ", "0", "00", "1", "1.", ".", ".0", "1.0", "1.000000000", "1.0000000000", "1.1", "0.999999999", "%"]
EDGES += ["0%", "00%", "000%", "0000%", "100%", "0100%", "100.0%", "100.000001%", "099.999999%", "99.9999999%", "999%"]
EDGES += ["0.0000001%", "0.000001%", ".5%", "5.%", " 70%\n", "70 %", "\u00a070%\u3000", "\x1c70%", "70%\x00", "auto "]
EDGES += [
    "999999999",
    "1000000000",
    "-0",
    "+1",
    "1_0",
    "٧٠%",
    "１",
    "nan",
    "inf",
    "1e0",
    "0x1",
    "ünïcödé",
    "'\"\\",
    "a\tb",
]
EDGES += ["99999999d", "100000000d", "1s" * 6, "1s" * 7, "0s", "1S", "zone:", "zone:soft,zone:hard", "zone,", ",zone"]
EDGES += ["zone\u00a0,host", "zone ,\thost", "none ", "None", "x" * 60, "x" * 61, "x" * 500, "x" * 501, "x" * 200_000]
EDGES += [" " * 499 + "1", " " * 500 + "1", "ü" * 501, "on-demand", "wait", "spot", "plan-only", "fast\r", "kubernetes"]


def corpus(setting: Setting) -> list[str]:
    own = [text for name, text, _ in VALID.values() if name == setting.name]
    own += [text for name, text in INVALID.values() if name == setting.name]
    if setting.annotation == names.REBALANCE_WINDOW:
        own += [text for text, _ in WINDOWS.values()] + list(BAD_WINDOWS.values())
        own += [
            "0-70/50 * * * * 1h",
            "5-1 * * * * 1h",
            "*,1-2/03 23 31 12 7 1h30m UTC",
            "*/0 * * * * 1h",
            "0 0 32 * * 1h",
        ]
    return [text for text in own + EDGES if "\ud800" not in text]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_the_policy_warns_exactly_where_the_parser_finds_a_mistake(teller: DryRunWarnings, setting: Setting) -> None:
    """Every value of the parser's own tests, and the edges of every shape, judged by the real API server."""
    for text in corpus(setting):
        compare(teller, {setting.annotation: text})


everything = st.fixed_dictionaries({}, optional={each.annotation: shaped(each) for each in SETTINGS})
unknown = st.dictionaries(
    st.from_regex(r"[a-zA-Z0-9]([a-zA-Z0-9._-]{0,20}[a-zA-Z0-9])?", fullmatch=True).map(names.PREFIX.__add__)
    | st.sampled_from(["example.com/spot-ratio", "spot-ratio", names.PREFIX + "placements"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    max_size=2,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.builds(lambda known, others: {**others, **known}, everything, unknown))
def test_policy_and_parser_agree_on_whatever_is_written(teller: DryRunWarnings, annotations: dict[str, str]) -> None:
    """300 Deployments with up to 13 annotations each: right ones, nearly right ones, and noise."""
    compare(teller, {key: text for key, text in annotations.items() if key != names.PLACEMENT})


def test_the_sentence_is_the_parsers(teller: DryRunWarnings) -> None:
    """To the letter, for each setting; all mistakes are told at once."""
    wrong = {setting.annotation: "never" for setting in SETTINGS}
    assert set(teller.about(wrong)) == {str(mistake) for mistake in mistakes_in(wrong, "workload")}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_all_that_lint_finds_offline_is_told(teller: DryRunWarnings, kind: str) -> None:
    """Also unknown annotations, settings as labels or on the pod template, and an opt-out that is none."""
    annotations = {names.SPOT_RATIO: "70", names.PREFIX + "x": "1", names.PLACEMENT: "off"}
    raw = raw_workload(kind, "web", 1, annotations)
    raw["metadata"]["labels"] = {names.PLACEMENT: "no", names.REBALANCE: "off"}
    raw["spec"]["template"]["metadata"]["labels"][names.PLACEMENT] = "never"
    raw["spec"]["template"]["metadata"]["annotations"] = {names.SPREAD: "none", names.PREFIX + "pod-group": "a"}
    found = findings_in(
        LintedObject(
            "workload",
            annotations,
            raw["metadata"]["labels"],
            raw["spec"]["template"]["metadata"]["annotations"],
            raw["spec"]["template"]["metadata"]["labels"],
        )
    )
    told = teller.told(f"/apis/apps/v1/namespaces/{NAMESPACE}/{kind.lower()}s", raw)
    assert sorted(told) == sorted(f"workload {each}" for each in found)


GANG_EDGES = [text for text in GANG_TEXTS if "\n" not in text]


@pytest.mark.parametrize("annotation", [names.POD_GROUP, *ROWS])
def test_a_gangs_mistakes_are_told_on_the_template_of_a_job(teller: DryRunWarnings, annotation: str) -> None:
    """Exactly where the parser finds them; a value that is not supported yet is told, too."""
    jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
    template = raw_template("train", restartPolicy="Never")
    for text in GANG_EDGES:
        written = {names.POD_GROUP: "a", annotation: text}
        template["metadata"]["annotations"] = written
        told = teller.told(jobs, {"metadata": {"name": "train"}, "spec": {"template": template}})
        is_wrong = bool(terms_of(written)[1]) and (text, annotation) not in UNDECIDED
        assert any(f" {annotation}: '" in each for each in told) is is_wrong, (text, told)


def test_a_job_whose_policy_counts_evictions_is_told(teller: DryRunWarnings) -> None:
    """Only a rule that ignores the condition helps; Deployments and Jobs without a gang have no such fault."""
    jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
    template = raw_template("train", restartPolicy="Never")
    template["metadata"]["annotations"] = {names.POD_GROUP: "train"}
    on_disruption = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    ignored, counted = ({"rules": [{"action": action, **on_disruption}]} for action in ("Ignore", "Count"))
    for policy, is_told in ((None, True), (counted, True), (ignored, False)):
        spec = {"template": template, **({"podFailurePolicy": policy} if policy is not None else {})}
        told = teller.told(jobs, {"metadata": {"name": "train"}, "spec": spec})
        assert (JOB_COUNTS_EVICTIONS in told) is is_told, (policy, told)
    plain = raw_template("train", restartPolicy="Never")
    assert teller.told(jobs, {"metadata": {"name": "train"}, "spec": {"template": plain}}) == []
    deployment = raw_workload("Deployment", "train", 1)
    deployment["spec"]["template"]["metadata"]["annotations"] = {names.POD_GROUP: "train"}
    assert teller.told(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", deployment) == []


def test_what_is_said_of_no_gang_is_told(teller: DryRunWarnings) -> None:
    """Without a name there is none; a Job elsewhere is not looked at."""
    template = raw_template("train", restartPolicy="Never")
    template["metadata"]["annotations"] = {names.POD_GROUP_SIZE: "4"}
    raw = {"metadata": {"name": "train"}, "spec": {"template": template}}
    (told,) = teller.told(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", raw)
    assert told == f"workload {names.POD_GROUP_SIZE}: '4' is ignored; expected {GROUP_EXPECTED}"
    assert teller.told("/apis/batch/v1/namespaces/default/jobs", raw) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 5000, "x" * SHOWN_LENGTH + "…"),
        ("a\nb\tc\x7f\x85d", "a?b?c?d"),
        ('"quoted" \\ ü 漢', '"quoted" \\ ü 漢'),
    ],
    ids=["too long", "control characters", "quotes and other alphabets"],
)
def test_any_value_can_be_shown(teller: DryRunWarnings, text: str, shown: str) -> None:
    """A warning with a line break would be dropped by the API server, and one without end by nobody."""
    (told,) = teller.about({names.SPOT_RATIO: text})
    assert told.startswith(f"workload {names.SPOT_RATIO}: '{shown}' is ignored; expected ")


def test_much_text_is_within_the_budget(teller: DryRunWarnings) -> None:
    """As many annotations as the API allows (256 KiB), ours and others': still every mistake is told."""
    others = {f"example.com/{number}": "x" * 50 for number in range(2000)}
    ours = {setting.annotation: "9" * 8000 for setting in SETTINGS}
    compare(teller, {**others, **ours})


def test_a_workload_that_opted_out_is_left_in_peace(teller: DryRunWarnings) -> None:
    """Nothing that it says has an effect."""
    assert teller.about({names.SPOT_RATIO: "70", names.PLACEMENT: "disabled"}) == []


def test_namespaces_that_are_not_opted_in_are_left_in_peace(cluster: LocalCluster, teller: DryRunWarnings) -> None:
    """Nothing there is ours."""
    with labelled_namespace(cluster, "lint-plain", {}):
        assert teller.about({names.SPOT_RATIO: "70"}, namespace="lint-plain") == []


def test_a_namespaces_own_annotations_are_told(teller: DryRunWarnings) -> None:
    """They are defaults; a label that opts nobody in is told, too."""
    metadata = {
        "name": "n",
        "labels": {names.PLACEMENT: "enable", names.SPREAD: "none"},
        "annotations": {names.SPOT_RATIO: "70"},
    }
    found = findings_in(LintedObject("namespace", metadata["annotations"], metadata["labels"], {}, {}))  # type: ignore[arg-type]
    assert sorted(teller.told("/api/v1/namespaces", {"metadata": metadata})) == sorted(
        f"namespace {each}" for each in found
    )
    assert teller.told("/api/v1/namespaces", {"metadata": {"name": "n"}}) == []


def test_kubectl_prints_it_and_applies_all_the_same(cluster: LocalCluster, teller: DryRunWarnings) -> None:
    """What a person sees."""
    raw = raw_workload("Deployment", "seen", 0, {names.SPOT_RATIO: "70"})
    command = [str(kubectl.find()), "--kubeconfig", str(cluster.kubeconfig), "--cache-dir", kubectl.NO_CACHE]
    done = subprocess.run(
        [*command, "-n", NAMESPACE, "apply", "-f", "-"],
        input=json.dumps(raw),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "deployment.apps/seen created\n"
    assert f"{names.SPOT_RATIO}: '70' is ignored; expected a percentage such as 70%" in done.stderr


def test_the_api_server_finds_no_fault_with_the_policies(cluster: LocalCluster, teller: DryRunWarnings) -> None:
    """Its own type check of the expressions has nothing to say."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def status(name: str) -> dict[str, Any]:
        raw = json.loads(
            teller.api.rest_client.pool_manager.request("GET", f"{teller.api.configuration.host}{path}/{name}").data
        )
        return raw.get("status") or {}

    for name in (names.LINT_POLICY, names.LINT_NAMESPACES_POLICY):
        wait_for("the type check", lambda: "typeChecking" in status(name))  # noqa: B023
        assert status(name)["typeChecking"] == {}


# --- events ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def as_webhook(cluster: LocalCluster, installed: Installed, admin: Client, tmp_path: Path) -> Iterator[Client]:
    """A client with the webhook's own rights."""
    access = tmp_path / "access"
    access.write_bytes(access_for(cluster.kubeconfig, admin, names.WEBHOOK_ACCOUNT))
    client = connect(access, user_agent="spotweave-tests")
    yield client
    client.close()


def test_a_mistake_is_an_event_on_the_workload(user: NamespaceUser) -> None:
    """Fifty pods, one Event."""
    user.create(raw_workload("Deployment", "typo", 50, {names.SPOT_RATIO: "70"}))
    user.rest("typo")
    path = f"/apis/events.k8s.io/v1/namespaces/{user.namespace}/events"

    def told() -> list[str]:
        return [each["note"] for each in user.client.get_json(path)["items"] if each["reason"] == names.EVENT_MISTAKE]

    wait_for("the Event", told)
    (mistake,) = mistakes_in({names.SPOT_RATIO: "70"}, "workload")
    assert told() == [str(mistake)]


def test_an_event_is_written_with_the_webhooks_rights_and_counted(user: NamespaceUser, as_webhook: Client) -> None:
    """Told 500 times: one Event on the workload. A restarted replica raises its count; kubectl describe shows it."""
    uid = user.create(raw_workload("Deployment", "typo", 0))["metadata"]["uid"]
    typo = Workload(Kind.DEPLOYMENT, user.namespace, "typo", uid, 0)
    for replica in ("webhook-0", "webhook-1"):
        writer = EventWriter(as_webhook, replica)
        writer.start()
        for _ in range(500):
            writer.tell(typo, names.EVENT_MISTAKE, "'70' does not count")
        writer.stop(30)
    path = f"/apis/events.k8s.io/v1/namespaces/{user.namespace}/events"
    (event,) = [each for each in user.client.get_json(path)["items"] if each["reason"] == names.EVENT_MISTAKE]
    assert (event["series"]["count"], event["regarding"]["uid"]) == (2, uid)
    shown = kubectl.call("describe", "deployment", "typo", "-n", user.namespace, kubeconfig=user.kubeconfig)
    assert names.EVENT_MISTAKE in shown
    assert "'70' does not count" in shown
