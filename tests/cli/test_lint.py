"""`spotweave lint`: files in, findings with their lines out."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from cli import lint
from generators.lintpolicy import policy_text

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  annotations:
    spotweave.dev/spot-ratio: "70"
    spotweave.dev/min-on-demand: "1"
spec:
  replicas: 3
"""
RATIO_EXPECTED = "a percentage such as 70%, a decimal from 0 to 1 such as 0.7, or auto"


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    lint.add_parser(parser.add_subparsers(), argparse.ArgumentParser(add_help=False))
    return parser.parse_args(["lint", *arguments])


def run(*arguments: str) -> int:
    return lint.run(parsed(*arguments))


def found_in(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    run(*arguments, "-o", "json")
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_a_mistake_is_told_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """file:line: object: annotation: 'value' …, and exit code 1."""
    file = write(tmp_path / "web.yaml", DEPLOYMENT)
    assert run("-f", file) == 1
    assert capsys.readouterr().out == (
        f"{file}:7: Deployment shop/web: spotweave.dev/spot-ratio: '70' is ignored; expected {RATIO_EXPECTED}\n"
    )


def test_machines_get_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A list of {file, line, object, annotation, value, expected}."""
    file = write(tmp_path / "web.yaml", DEPLOYMENT)
    assert found_in(capsys, "-f", file) == [
        {
            "file": file,
            "line": 7,
            "object": "Deployment shop/web",
            "annotation": "spotweave.dev/spot-ratio",
            "value": "70",
            "expected": RATIO_EXPECTED,
        }
    ]


def test_nothing_found_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 and no word; for machines an empty list."""
    file = write(tmp_path / "web.yaml", DEPLOYMENT.replace('"70"', '"70%"'))
    assert run("-f", file) == 0
    assert capsys.readouterr().out == ""
    assert found_in(capsys, "-f", file) == []


NO_MANIFESTS = {
    "nothing": "",
    "comments": "---\n# nothing\n",
    "text": "hello",
    "a mapping of something": "replicas: 3\n",
}


@pytest.mark.parametrize("text", NO_MANIFESTS.values(), ids=NO_MANIFESTS.keys())
def test_no_manifests_are_not_fine(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong path in CI must not be green: in a file, in a directory, on standard input."""
    file = write(tmp_path / "web.yaml", text)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    for source, named in ((file, file), (str(tmp_path), str(tmp_path)), ("-", "standard input")):
        assert run("-f", source) == 2
        assert capsys.readouterr().err == f"spotweave: error: no manifests found in {named}\n"


def test_an_empty_directory_is_told_beside_what_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each `-f` counts by itself."""
    (tmp_path / "empty").mkdir()
    file = write(tmp_path / "web.yaml", DEPLOYMENT)
    assert run("-f", str(tmp_path / "empty"), "-f", file) == 2
    told = capsys.readouterr()
    assert "spot-ratio" in told.out
    assert told.err == f"spotweave: error: no manifests found in {tmp_path / 'empty'}\n"


def test_manifests_that_are_none_of_ours_are_fine(tmp_path: Path) -> None:
    """A directory of Services holds no mistake."""
    assert run("-f", write(tmp_path / "service.yaml", "apiVersion: v1\nkind: Service\n")) == 0


DOCUMENTS: dict[str, tuple[str, list[tuple[int, str, str]]]] = {
    "a number without quotes": (
        DEPLOYMENT.replace('"70"', "0.7"),
        [(7, "spotweave.dev/spot-ratio", 'a string in quotes: "0.7"')],
    ),
    "off without quotes is false": (
        DEPLOYMENT.replace('spot-ratio: "70"', "rebalance: off"),
        [(7, "spotweave.dev/rebalance", 'a string in quotes: "off"')],
    ),
    "no value is the empty text": (DEPLOYMENT.replace('"70"', ""), [(7, "spotweave.dev/spot-ratio", RATIO_EXPECTED)]),
    "several documents, the line is the file's": (
        "---\n# nothing\n---\n[1, 2]\n---\n" + DEPLOYMENT,
        [(12, "spotweave.dev/spot-ratio", RATIO_EXPECTED)],
    ),
    "in a List": (
        "apiVersion: v1\nkind: List\nitems:\n" + indent(DEPLOYMENT, "  ").replace("  api", "- api", 1),
        [(10, "spotweave.dev/spot-ratio", RATIO_EXPECTED)],
    ),
    "in an anchor that is merged": (
        "apiVersion: apps/v1\nkind: Deployment\nx: &ours\n  spotweave.dev/spot-ratio: '70'\n"
        "metadata: {name: web, annotations: {<<: *ours, a: b}}\n",
        [(4, "spotweave.dev/spot-ratio", RATIO_EXPECTED)],
    ),
    "JSON is YAML": (
        '{"apiVersion": "apps/v1",\n"kind": "StatefulSet",'
        '"metadata": {"name": "a", "annotations": {\n"spotweave.dev/spot-ratio": "x"}}}',
        [(3, "spotweave.dev/spot-ratio", RATIO_EXPECTED)],
    ),
    "of another group": (DEPLOYMENT.replace("apps/v1", "example.com/v1"), []),
    "of another kind": (DEPLOYMENT.replace("Deployment", "Service"), []),
    "opted out": (DEPLOYMENT.replace("  namespace", "  labels: {spotweave.dev/placement: disabled}\n  namespace"), []),
    "a namespace": (
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n  labels:\n    spotweave.dev/placement: enable\n"
        "  annotations:\n    spotweave.dev/spot-ratio: '70'\n",
        [
            (6, "spotweave.dev/placement", "enabled or disabled"),
            (8, "spotweave.dev/spot-ratio", RATIO_EXPECTED),
        ],
    ),
    "on the pod template": (
        DEPLOYMENT.replace('"70"', '"70%"')
        + "  template:\n    metadata:\n      annotations:\n        spotweave.dev/spread: none\n",
        [(14, "spotweave.dev/spread", "it on the workload itself; it has no effect on a pod template")],
    ),
}


@pytest.mark.parametrize(("text", "expected"), DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_documents_are_read_as_they_stand(
    text: str, expected: list[tuple[int, str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every form of YAML that people use; each finding on its own line."""
    found = found_in(capsys, "-f", write(tmp_path / "a.yaml", text))
    assert [(each["line"], each["annotation"], each["expected"]) for each in found] == expected


BROKEN: dict[str, tuple[str, str]] = {
    "broken YAML": ("a: [1\nb: 2\n", ":2: "),
    "a template of Helm": ("{{ if x }}\na: b\n", ":"),
    "a tag that nobody knows": ("apiVersion: apps/v1\nkind: Deployment\nspec: !x 1\n", ":3: "),
    "a count that is none": (DEPLOYMENT.replace("3", "many"), ":1: Deployment: Expected `int"),
    "an alias of itself": ("apiVersion: apps/v1\nkind: Deployment\nspec: &a {a: *a}\n", ":1: Deployment: "),
    "a control character": ("a: \x01\n", ":1: "),
}


@pytest.mark.parametrize(("text", "named"), BROKEN.values(), ids=BROKEN.keys())
def test_what_cannot_be_read_is_named_with_its_line(
    text: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2; what was found elsewhere is told all the same."""
    broken = write(tmp_path / "broken.yaml", text)
    write(tmp_path / "web.yaml", DEPLOYMENT)
    assert run("-f", str(tmp_path)) == 2
    told = capsys.readouterr()
    assert f"{broken}{named}" in told.err
    assert told.err.count("\n") == 1
    assert "web.yaml:7:" in told.out


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2."""
    assert run("-f", str(tmp_path / "none.yaml")) == 2
    assert "none.yaml: No such file or directory" in capsys.readouterr().err


def test_a_file_that_is_no_text_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2."""
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\xff")
    assert run("-f", str(tmp_path)) == 2
    assert "a.yaml: not UTF-8" in capsys.readouterr().err


def test_directories_are_read_to_the_bottom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files of YAML and JSON alone, in order."""
    for name in ("b.yaml", "a/deep/c.yml", "a/d.json", "a/e.txt"):
        write(tmp_path / name, DEPLOYMENT)
    found = found_in(capsys, "-f", str(tmp_path))
    assert [str(Path(each["file"]).relative_to(tmp_path)) for each in found] == ["a/d.json", "a/deep/c.yml", "b.yaml"]


def test_standard_input_is_a_dash(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`kustomize build | spotweave lint -f -`."""
    monkeypatch.setattr("sys.stdin", io.StringIO(DEPLOYMENT))
    assert run("-f", "-") == 1
    assert capsys.readouterr().out.startswith("-:7: Deployment shop/web: ")


NAMESPACE = """\
apiVersion: v1
kind: Namespace
metadata:
  name: shop
  labels: {spotweave.dev/placement: enabled}
  annotations: {spotweave.dev/spot-ratio: "80%"}
"""
PLAIN = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: {replicas: 10}\n"


def test_a_rollout_is_judged_by_the_namespace_in_another_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """80 % of 10 comes from the namespace, 25 % is the API's own: both on-demand pods may go at once."""
    write(tmp_path / "web.yaml", PLAIN)
    assert found_in(capsys, "-f", str(tmp_path)) == []  # nobody knows whether it is opted in
    write(tmp_path / "namespace.yaml", NAMESPACE)
    (found,) = found_in(capsys, "-f", str(tmp_path))
    assert (found["line"], found["object"]) == (1, "Deployment shop/web")
    assert (found["annotation"], found["value"]) == ("spotweave.dev/min-on-demand", "1")
    assert found["expected"] == "at least 3, or a smaller maxUnavailable"
    run("-f", str(tmp_path))
    assert "keeps 2 of 10 replicas on on-demand, but a rollout may remove 2 at a time" in capsys.readouterr().out


def test_a_rollout_is_told_at_the_setting_that_makes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The floor's line, else the ratio's."""
    for setting in ("min-on-demand: '2'", "spot-ratio: 80%"):
        text = PLAIN.replace("shop}", "shop,\n  annotations: {a: b,\n    spotweave.dev/" + setting + "}}")
        text = text.replace("10}", "10, strategy: {rollingUpdate: {maxUnavailable: 3}}}")
        (found,) = found_in(capsys, "-f", write(tmp_path / "web.yaml", text))
        assert (found["annotation"], found["line"]) == ("spotweave.dev/min-on-demand", 5)


def test_limits_of_a_configuration_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where somebody wrote what a limit takes back: once, not again at each workload that inherits it."""
    config = write(tmp_path / "config.txt", "limits: [{maxSpotRatio: 50%}]\n")
    write(tmp_path / "namespace.yaml", NAMESPACE)
    write(tmp_path / "web.yaml", PLAIN)
    (found,) = found_in(capsys, "-f", str(tmp_path), "--config", config)
    assert (found["object"], found["value"]) == ("Namespace shop", "80%")
    assert found["expected"] == "at most 50% (limited by the configuration)"


def test_the_policies_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """`spotweave lint --policy > manifests/base/lint.yaml`."""
    assert run("--policy") == 0
    assert capsys.readouterr().out == policy_text()


@pytest.mark.parametrize("arguments", [(), ("-f", "a", "--policy")], ids=["neither", "both"])
def test_something_must_be_asked_for(arguments: tuple[str, ...]) -> None:
    """Files, or the policies."""
    with pytest.raises(SystemExit) as ended:
        parsed(*arguments)
    assert ended.value.code == 2
