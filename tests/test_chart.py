"""The Helm chart: the same objects as kustomize builds, for each documented combination; wrong values are refused.

If a test says that a file is not up to date: make generated.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from functools import cache
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cli import __version__
from generators import chart
from generators.build import MANIFESTS, built
from generators.files import ROOT
from localcluster import kubectl
from localcluster.errors import ClusterError
from placement.configuration import ConfigurationError, parse_configuration
from placement.leavingtaints import WHENS
from tests.helm import CHART, helm, rendered

Raw = dict[str, Any]
HOOK = "helm.sh/hook"
# kustomize's part; the values that are to give the same; the server's version, if it matters.
COMBINATIONS: dict[str, tuple[str | tuple[str, ...], tuple[str, ...], str]] = {
    "the defaults": ((), (), "1.36.0"),
    **{
        overlay: (overlay, ("-f", str(CHART / "ci" / f"{overlay}-values.yaml")), "1.36.0")
        for overlay in (
            *("plan-only", "high-availability", "karpenter", "eks", "gke", "aks"),
            *("cert-manager", "narrow"),
        )
    },
    "gangs": (("gangs",), ("--set", "gangs.enabled=true"), "1.36.0"),
    "gangs, chosen by hand": (("gangs",), ("--set", "gangs.enabled=true,gangs.gate=policy"), "1.33.0"),
    "gangs on an older server": (("gangs", "gangs-before-1.36"), ("--set", "gangs.enabled=true"), "1.35.2"),
    "everything": (
        ("gangs", "cert-manager", "high-availability"),
        ("--set", "gangs.enabled=true,certManager.enabled=true,highAvailability=true"),
        "1.36.4",
    ),
    "everything on an older server": (
        ("gangs", "gangs-before-1.36", "cert-manager", "high-availability"),
        ("--set", "gangs.enabled=true,certManager.enabled=true,highAvailability=true"),
        "1.30.0",
    ),
}
OWN_KINDS = ("Certificate", "Issuer", "PodMonitor", "PrometheusRule")  # of others; no schema comes with Kubernetes


@pytest.fixture(scope="module", autouse=True)
def _kustomize() -> None:
    try:
        kubectl.find()
    except ClusterError as error:  # pragma: no cover - a machine without kubectl
        pytest.skip(str(error))


@cache
def base() -> list[Raw]:
    return built(["base"])


def by_identity(objects: list[Raw]) -> dict[tuple[str, str], Raw]:
    """Hooks are Helm's own: no installation has them for longer than a moment."""
    installed = [each for each in objects if HOOK not in each["metadata"].get("annotations", {})]
    found = {(each["kind"], each["metadata"]["name"]): comparable(each) for each in installed}
    assert len(found) == len(installed)
    return found


def comparable(raw: Raw) -> Raw:
    """Texts that are YAML count by what they say. Helm restarts programs by an annotation, which kustomize has not."""
    raw = deepcopy(raw)
    if raw["metadata"]["name"] == "spotweave-config":
        raw["data"]["config.yaml"] = yaml.safe_load(raw["data"]["config.yaml"])
        raw["data"]["config.yaml"].pop("gangs", None)  # with kustomize, people switch gangs on in two places
    if raw["kind"] == "Deployment":
        raw["spec"]["template"]["metadata"]["annotations"].pop("checksum/config", None)
        (container,) = raw["spec"]["template"]["spec"]["containers"]
        container.pop("imagePullPolicy", None)
    return raw


@pytest.mark.parametrize(("parts", "values", "kubernetes"), COMBINATIONS.values(), ids=COMBINATIONS.keys())
def test_helm_makes_the_objects_that_kustomize_builds(
    parts: str | tuple[str, ...], values: tuple[str, ...], kubernetes: str
) -> None:
    """One by one, and no others; each is valid to the letter where Kubernetes knows its kind."""
    expected = built([f"overlays/{parts}"]) if isinstance(parts, str) else built(["base"], parts) if parts else base()
    objects = rendered(*values, kubernetes=kubernetes)
    made, wanted = by_identity(objects), by_identity(expected)
    assert made.keys() == wanted.keys()
    for identity, raw in wanted.items():
        assert made[identity] == raw
    for each in objects:
        if each["kind"] not in OWN_KINDS:
            kubernetes_validate.validate(each, "1.36", strict=True)


def test_monitoring_is_what_the_folders_hold() -> None:
    """The operator's objects with labels of one's own; the dashboards to the letter."""
    objects = rendered("--set", "monitoring.operator=true,monitoring.grafana=true,monitoring.labels.release=prometheus")
    made, plain = by_identity(objects), by_identity(base())
    wanted = by_identity([*built(["monitoring/operator"]), *built(["monitoring/grafana"])])
    for kind in ("PodMonitor", "PrometheusRule"):
        wanted[kind, "spotweave"]["metadata"]["labels"]["release"] = "prometheus"
    assert {identity: raw for identity, raw in made.items() if identity not in plain} == wanted


def test_the_templates_are_up_to_date() -> None:
    """make generated"""
    templates = chart.templates(built)
    assert {path: (ROOT / path).read_text() for path in templates} == templates
    schema = (ROOT / chart.SCHEMA).read_text()
    assert chart.schema(schema) == schema
    made = {ROOT / path for path in templates}
    stale = [
        path
        for path in (CHART / "templates").glob("*.yaml")
        if path not in made and path.read_text().startswith(chart.HEADER)
    ]
    assert stale == []


def test_everything_that_values_set_takes_effect() -> None:
    """Image, replicas, resources, nodes, policies and the restart when the configuration changes."""
    values = (
        *("--set", "image.repository=registry.example/spotweave,image.tag=9.9.9,image.pullPolicy=Always"),
        *("--set", "image.pullSecrets[0].name=login,replicas.webhook=1,replicas.rebalancer=5"),
        *("--set", "resources.webhook.limits.memory=700Mi,nodeSelector.pool=system,tolerations[0].key=system"),
        *("--set", "networkPolicies.enabled=false,presets={karpenter,eks},configuration.cordon=move"),
    )
    made, plain = by_identity(rendered(*values)), by_identity(rendered())
    webhook = made["Deployment", "spotweave-webhook"]["spec"]
    pod = webhook["template"]["spec"]
    (container,) = pod["containers"]
    assert (webhook["replicas"], made["Deployment", "spotweave-rebalancer"]["spec"]["replicas"]) == (1, 5)
    assert container["image"] == "registry.example/spotweave:9.9.9"
    assert container["resources"]["limits"] == {"memory": "700Mi"}
    assert (pod["imagePullSecrets"], pod["nodeSelector"]) == ([{"name": "login"}], {"pool": "system"})
    assert pod["tolerations"] == [{"key": "system"}]
    assert {kind for kind, _ in plain} - {kind for kind, _ in made} == {"NetworkPolicy"}
    assert ("PodDisruptionBudget", "spotweave-webhook") not in made  # it would stop every drain of a single replica
    config = made["ConfigMap", "spotweave-config"]["data"]["config.yaml"]
    assert config == {"classes": ["karpenter", "eks"], "cordon": "move"}
    (digest,) = by_identity(rendered("--set", "image.digest=sha256:" + 64 * "a"))["Deployment", "spotweave-webhook"][
        "spec"
    ]["template"]["spec"]["containers"]
    assert digest["image"] == "spotweave@sha256:" + 64 * "a"


def test_the_programs_restart_when_the_configuration_changes_and_only_then() -> None:
    """They read it at start."""

    def checksum(*values: str) -> str:
        found = next(each for each in rendered(*values) if each["kind"] == "Deployment")
        return str(found["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum("--set", "configuration.cordon=move") != checksum() == checksum("--set", "replicas.webhook=3")


def test_the_namespace_is_the_releases_or_the_charts() -> None:
    """`--create-namespace` has made it; else the chart does. Either way every object is in it."""
    for namespace, expected in (("default", 1), ("spotweave-system", 0)):
        objects = rendered(release_namespace=namespace)
        assert sum(each["kind"] == "Namespace" for each in objects) == expected
        assert {each["metadata"].get("namespace", "spotweave-system") for each in objects} == {"spotweave-system"}


def test_opting_in_is_a_job_with_the_right_to_these_namespaces_alone() -> None:
    """Valid to the letter, and as the command line takes it."""
    objects = rendered("--set", "optIn.shop=plan-only,optIn.bank=auto")
    hooks = {each["kind"]: each for each in objects if HOOK in each["metadata"].get("annotations", {})}
    assert set(hooks) == {"Job", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    for each in hooks.values():
        kubernetes_validate.validate(each, "1.36", strict=True)
    (rule,) = hooks["ClusterRole"]["rules"]
    assert (rule["resources"], rule["resourceNames"]) == (["namespaces"], ["bank", "shop"])
    assert sorted(rule["verbs"]) == ["get", "patch"]
    (container,) = hooks["Job"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["opt-in", "bank=auto", "shop=plan-only"]
    assert not any(HOOK in each["metadata"].get("annotations", {}) for each in rendered())


WRONG: dict[str, tuple[str, str]] = {
    "a value that does not exist": ("replica.webhook=3", "replica"),
    "no number": ("replicas.webhook=many", "replicas.webhook"),
    "a preset that does not exist": ("presets={gcp}", "presets.0"),
    "no preset": ("presets=null,presets=[]", "presets"),
    "a setting that does not exist": ("configuration.cordons=move", "cordons"),
    "a value of a setting that does not exist": ("configuration.cordon=maybe", "configuration.cordon"),
    "gangs in the wrong place": ("configuration.gangs.enabled=true", "configuration.gangs"),
    "a mode that does not exist": ("optIn.shop=yes", "optIn.shop"),
    "a namespace that cannot be": ("optIn.Shop=auto", "optIn"),
    "half a digest": ("image.digest=sha256:12", "image.digest"),
    "a text for a switch": ("certManager.enabled=on", "certManager.enabled"),
    "a gate that does not exist": ("gangs.gate=door", "gangs.gate"),
    "a leaving taint that counts at no known time": (
        "configuration.leavingTaints[0].key=a,configuration.leavingTaints[0].when=soon",
        "configuration.leavingTaints.0.when",
    ),
    "a leaving taint without a key": ("configuration.leavingTaints[0].when=deleting", "configuration.leavingTaints.0"),
    "a leaving taint that is a number": ("configuration.leavingTaints={1}", "configuration.leavingTaints.0"),
}


@pytest.mark.parametrize(("setting", "named"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_in_the_values_is_refused_and_named(setting: str, named: str) -> None:
    """Before anything is installed."""
    done = helm("template", "spotweave", str(CHART), "--set", setting)
    assert done.returncode != 0
    assert named in done.stderr


@pytest.mark.parametrize("file", sorted((CHART / "ci").glob("*.yaml")), ids=lambda path: path.name)
def test_helm_lint_finds_nothing(file: Any) -> None:
    """For each set of values that is documented."""
    done = helm("lint", "--strict", str(CHART), "-f", str(file))
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


def test_every_value_is_documented_and_in_the_schema() -> None:
    """Each key of values.yaml has a description, and each of the schema stands in values.yaml."""
    values, schema = (yaml.safe_load((CHART / name).read_text()) for name in ("values.yaml", "values.schema.json"))

    def compare(value: Raw, known: Raw, where: str) -> None:
        free = {"global"} if not where else set()
        assert set(value) == set(known) - free, where
        for key, each in value.items():
            assert known[key].get("description") or where.startswith("resources"), (where, key)
            if isinstance(each, dict) and each and "properties" in known[key]:
                compare(each, known[key]["properties"], f"{where}{key}.")

    compare(values, schema["properties"], "")


def test_the_schema_knows_the_settings_that_the_programs_know() -> None:
    """And takes every example of the documents."""
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())["properties"]
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration({"none": 1})
    known = caught.value.mistakes[0].partition("one of ")[2].split(", ")
    assert set(schema["configuration"]["properties"]) == set(known)
    page = (ROOT / "docs" / "configuration.md").read_text()
    for example in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL):
        raw = yaml.safe_load(example)
        raw.get("gangs", {}).pop("enabled", None)
        objects = rendered("--set-json", f"configuration={json.dumps(raw)}")
        (made,) = (each for each in objects if each["metadata"]["name"] == "spotweave-config")
        assert parse_configuration(yaml.safe_load(made["data"]["config.yaml"])) == parse_configuration(
            {"classes": ["default"], **raw}
        )


def test_a_leaving_taint_may_say_when_it_counts() -> None:
    """Both forms, as the programs take them; with each of the words that they know."""
    taints = ["example.com/gone", {"key": "example.com/plain"}, *({"key": "a/b", "when": when} for when in WHENS)]
    objects = rendered("--set-json", f"configuration.leavingTaints={json.dumps(taints)}")
    (made,) = (each for each in objects if each["metadata"]["name"] == "spotweave-config")
    raw = yaml.safe_load(made["data"]["config.yaml"])
    assert raw["leavingTaints"] == taints
    parse_configuration(raw)


def test_the_chart_has_the_version_of_the_programs() -> None:
    """And of the image that kustomize names."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    (image,) = yaml.safe_load((MANIFESTS / "base" / "kustomization.yaml").read_text())["images"]
    assert about["version"] == about["appVersion"] == image["newTag"] == __version__


@pytest.mark.parametrize("preset", ["karpenter", "eks", "gke", "aks", "plan-only"])
def test_an_overlay_sets_what_its_name_says(preset: str) -> None:
    """In a configuration that the programs take."""
    (found,) = (each for each in built([f"overlays/{preset}"]) if each["metadata"]["name"] == "spotweave-config")
    raw = yaml.safe_load(found["data"]["config.yaml"])
    parse_configuration(raw)
    assert raw == (
        {"classes": ["default"], "defaults": {"rebalance": preset}} if preset == "plan-only" else {"classes": [preset]}
    )


PAGE = (ROOT / "docs" / "install.md").read_text()


def test_what_the_installation_page_sets_is_taken() -> None:
    """Every value in its tables and commands, all of README's, and every folder that it names."""
    settings = set(re.findall(r"`((?:\w+\.)*\w+=[\w{}-]+)`", PAGE)) - {"rebalance=plan-only"}
    settings |= set(re.findall(r"--set (\S+)", PAGE + (ROOT / "README.md").read_text()))
    assert {"presets={karpenter}", "highAvailability=true", "image.repository=REGISTRY/spotweave"} <= settings
    rendered(*(part for each in sorted(settings) for part in ("--set", each)))
    folders = set(re.findall(r"`((?:overlays|monitoring|components)/[\w./-]+)`", PAGE))
    assert {"overlays/karpenter", "overlays/plan-only", "overlays/narrow"} <= folders
    assert [folder for folder in sorted(folders) if not (MANIFESTS / folder).is_dir()] == []
