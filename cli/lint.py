"""`spotweave lint`: mistakes in manifests, told offline; for CI."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cli import output
from generators.lintpolicy import policy_text
from kube import resources
from kube.configmaps import parse_configuration_text
from kube.configuration import read_text
from kube.decode import Decoder
from placement import names
from placement.configuration import Configuration
from placement.lint import Finding, LintedObject, Place, findings_in, rollout_finding
from placement.model import Kind, Namespace, Workload
from placement.policy import Level, Limit, mistakes_in, resolve

FINE, FINDING, BAD_INPUT = 0, 1, 2
SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
NAMESPACE = "Namespace"
SHAPES: Mapping[str, Decoder[Any]] = {
    Kind.DEPLOYMENT: resources.DEPLOYMENTS.shape,
    Kind.STATEFUL_SET: resources.STATEFUL_SETS.shape,
    NAMESPACE: resources.NAMESPACES.shape,
}
GROUPS = {Kind.DEPLOYMENT: "apps/", Kind.STATEFUL_SET: "apps/", NAMESPACE: "v1"}
PLACES: Mapping[Place, tuple[str, ...]] = {
    "annotations": ("metadata", "annotations"),
    "labels": ("metadata", "labels"),
    "template annotations": ("spec", "template", "metadata", "annotations"),
    "template labels": ("spec", "template", "metadata", "labels"),
}
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where it is there


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "lint",
        parents=[common],
        help="find mistakes in manifests, without a cluster",
        description="Find mistakes in the annotations of manifests, without a cluster.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "-f",
        "--file",
        action="append",
        metavar="FILE|DIR",
        help="file or directory of manifests, - for standard input; repeatable",
    )
    source.add_argument(
        "--policy", action="store_true", help="print the admission policies that warn about the same mistakes"
    )
    parser.add_argument("--config", type=Path, help="configuration file, for its defaults and limits")
    output.add_option(parser, "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 where something was found, 2 where something could not be read."""
    if args.policy:
        sys.stdout.write(policy_text())
        return FINE
    configuration = parse_configuration_text(read_text(args.config)) if args.config else Configuration()
    read = read_all(args.file)
    found = list(reports(read.objects, configuration))
    if args.output != "text":
        output.write([each.as_json() for each in found], args.output)
    else:
        for each in found:
            print(each)
    for problem in read.problems:
        print(f"spotweave: error: {problem}", file=sys.stderr)
    if read.problems:
        return BAD_INPUT
    return FINDING if found else FINE


# --- what to say -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """A value as it stands in a file. `is_text` is false for what YAML takes for a number or a truth value."""

    value: str
    line: int
    is_text: bool = True


@dataclass(frozen=True, slots=True)
class Manifest:
    """A Deployment, StatefulSet or Namespace in a file."""

    file: str
    line: int
    item: Workload | Namespace
    texts: Mapping[Place, Mapping[str, Text]]

    @property
    def object(self) -> str:
        kind = NAMESPACE if isinstance(self.item, Namespace) else self.item.kind
        return f"{kind} {self.item.key}"

    def line_of(self, finding: Finding) -> int:
        """Of the annotation; where a finding is about what nobody wrote, of the ratio or else the object."""
        written = self.texts[finding.place]
        found = written.get(finding.annotation) or written.get(names.SPOT_RATIO)
        return found.line if found else self.line


@dataclass(frozen=True, slots=True)
class Report:
    """A finding and where it stands."""

    manifest: Manifest
    finding: Finding

    def __str__(self) -> str:
        return f"{self.manifest.file}:{self.manifest.line_of(self.finding)}: {self.manifest.object}: {self.finding}"

    def as_json(self) -> dict[str, Any]:
        return {
            "file": self.manifest.file,
            "line": self.manifest.line_of(self.finding),
            "object": self.manifest.object,
            "annotation": self.finding.annotation,
            "value": self.finding.value,
            "expected": self.finding.expected,
        }


def reports(manifests: Iterable[Manifest], configuration: Configuration) -> Iterator[Report]:
    """In the order of the files and of their lines."""
    every = list(manifests)
    namespaces = {each.item.name: each.item for each in every if isinstance(each.item, Namespace)}
    for manifest in every:
        if isinstance(manifest.item, Workload) and manifest.item.is_opted_out:
            continue  # nothing that it says has an effect
        found = [*_not_text(manifest), *_findings(manifest, namespaces, configuration)]
        found.sort(key=manifest.line_of)
        yield from (Report(manifest, finding) for finding in found)


def _findings(
    manifest: Manifest, namespaces: Mapping[str, Namespace], configuration: Configuration
) -> Iterator[Finding]:
    item = manifest.item
    if isinstance(item, Namespace):
        yield from findings_in(LintedObject.on_namespace(item))
        yield from _clamped("namespace", item.annotations, configuration.limits_of(item.labels))
        return
    on_template = {key: text.value for key, text in manifest.texts["template annotations"].items()}
    yield from findings_in(LintedObject.on_workload(item, on_template))
    namespace = namespaces.get(item.namespace)
    limits = configuration.limits_of(namespace.labels if namespace else {})
    yield from _clamped("workload", item.annotations, limits)
    if _is_placed(item, namespace):
        inherited = namespace.annotations if namespace else {}
        policy, _ = resolve(item.annotations, inherited, configuration.defaults, limits)
        finding = rollout_finding(item, policy)
        if finding:
            yield finding


def _clamped(level: Level, written: Mapping[str, str], limits: tuple[Limit, ...]) -> Iterator[Finding]:
    """What a limit of the configuration takes back, told at the level where it was written."""
    workload, namespace = (written, {}) if level == "workload" else ({}, written)
    _, mistakes = resolve(workload, namespace, limits=limits)
    plain = tuple(mistakes_in(written, level))
    yield from (Finding.of(each) for each in mistakes if each not in plain)


def _is_placed(workload: Workload, namespace: Namespace | None) -> bool:
    """Whether its namespace is opted in; where no file has that, whether somebody has written anything for us."""
    if namespace is not None:
        return namespace.is_opted_in
    return any(key.startswith(names.PREFIX) for key in workload.annotations)


def _not_text(manifest: Manifest) -> Iterator[Finding]:
    """`0.7` and `off` without quotes are no text, and the API server takes nothing else."""
    for place, texts in manifest.texts.items():
        for key, text in texts.items():
            if key.startswith(names.PREFIX) and not text.is_text:
                yield Finding(place, key, text.value, f'a string in quotes: "{text.value}"', "is not a string")


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Manifests:
    """What was found in all files, and what could not be read."""

    objects: list[Manifest] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seen: int = 0  # manifests of any kind, ours to read or not


def read_all(sources: Iterable[str]) -> Manifests:
    read = Manifests()
    for source in sources:
        before = read.seen, len(read.problems)
        for file in _files(source):
            _read_file(file, read)
        if before == (read.seen, len(read.problems)):  # a wrong path must not pass for manifests without mistakes
            read.problems.append(f"no manifests found in {'standard input' if source == STDIN else source}")
    return read


def _files(source: str) -> Iterator[str]:
    path = Path(source)
    if source == STDIN or not path.is_dir():
        yield source
        return
    yield from sorted(str(each) for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())


def _read_file(file: str, read: Manifests) -> None:
    """Objects before the place where a file breaks are kept: all mistakes are told at once."""
    try:
        text = sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
        for loader, node in objects_in(text):
            read.seen += 1
            if _is_ours(loader, node):
                read.objects.append(_manifest(file, loader, node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        read.problems.append(f"{file}:{mark.line + 1 if mark else 1}: {error.problem or error.context}")
    except yaml.YAMLError as error:
        read.problems.append(f"{file}:1: {' '.join(str(error).split())}")
    except OSError as error:
        read.problems.append(f"{file}: {error.strerror or error}")
    except UnicodeDecodeError as error:
        read.problems.append(f"{file}: not UTF-8: {error.reason} at byte {error.start}")
    except Unreadable as error:
        read.problems.append(f"{file}:{error.line}: {error}")


class Unreadable(ValueError):
    """An object that the API server would not take either."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


def objects_in(text: str) -> Iterator[tuple[yaml.SafeLoader, yaml.MappingNode]]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            document = loader.get_node()
            for node in _objects(loader, document):
                yield loader, node
    finally:
        loader.dispose()


def _objects(loader: yaml.SafeLoader, node: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    """Whatever says its kind; also inside a List."""
    kind = _scalar(_child(loader, node, "kind"))
    if not isinstance(node, yaml.MappingNode) or not kind:
        return
    if kind == "List":
        items = _child(loader, node, "items")
        for item in items.value if isinstance(items, yaml.SequenceNode) else ():
            yield from _objects(loader, item)
    else:
        yield node


def _is_ours(loader: yaml.SafeLoader, node: yaml.MappingNode) -> bool:
    kind, version = (_scalar(_child(loader, node, key)) for key in ("kind", "apiVersion"))
    return kind in SHAPES and version.startswith(GROUPS[kind])


def _manifest(file: str, loader: yaml.SafeLoader, node: yaml.MappingNode) -> Manifest:
    kind = _scalar(_child(loader, node, "kind"))
    texts = {place: _texts(loader, _at(loader, node, path)) for place, path in PLACES.items()}
    line = node.start_mark.line + 1
    try:
        raw = loader.construct_document(node)
        for place, path in PLACES.items():
            _set_texts(raw, path, {key: text.value for key, text in texts[place].items()})
        item = SHAPES[kind].single(msgspec.json.encode(raw))
    except (ValueError, TypeError, RecursionError) as error:  # a month 13; a key that is a list; an alias of itself
        raise Unreadable(line, f"{kind}: {error}") from error
    return Manifest(file, line, item, texts)


def _set_texts(raw: Any, path: tuple[str, ...], texts: dict[str, str]) -> None:
    """Puts values as they were written where YAML has read numbers, so that the rest can be looked at."""
    *parents, last = path
    for key in parents:
        raw = raw.get(key) if isinstance(raw, dict) else None
    if isinstance(raw, dict) and isinstance(raw.get(last), dict):
        raw[last] = texts


def _at(loader: yaml.SafeLoader, node: yaml.Node | None, path: tuple[str, ...]) -> yaml.Node | None:
    for key in path:
        node = _child(loader, node, key)
    return node


def _child(loader: yaml.SafeLoader, node: yaml.Node | None, key: str) -> yaml.Node | None:
    return next((value for name, value in _entries(loader, node) if name.value == key), None)


def _entries(loader: yaml.SafeLoader, node: yaml.Node | None) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    """A mapping's entries, those of merged mappings (`<<`) among them; the last of a name first, since it counts."""
    if not isinstance(node, yaml.MappingNode):
        return []
    loader.flatten_mapping(node)
    return [(key, value) for key, value in reversed(node.value) if isinstance(key, yaml.ScalarNode)]


def _texts(loader: yaml.SafeLoader, node: yaml.Node | None) -> dict[str, Text]:
    found: dict[str, Text] = {}
    for key, value in _entries(loader, node):
        is_null = value.tag == "tag:yaml.org,2002:null"
        text = "" if is_null else _scalar(value)
        is_text = is_null or value.tag == "tag:yaml.org,2002:str"
        found.setdefault(key.value, Text(text, key.start_mark.line + 1, is_text))
    return found


def _scalar(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""
