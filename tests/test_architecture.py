"""The laws of the code base that a test can hold: who may import whom, and how small things stay."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Each package, and which others of ours it may import. Rows further down stand on rows further up.
MAY_IMPORT: dict[str, set[str]] = {
    "placement": set(),
    "report": {"placement"},
    "serving": set(),
    "kube": {"placement"},
    "certs": {"kube", "placement"},
    "dashboard": {"placement", "report", "serving"},
    "webhook": {"certs", "kube", "placement", "serving"},
    "rebalancer": {"certs", "dashboard", "kube", "placement", "report", "serving"},
    "localcluster": set(),
    "generators": {"localcluster", "placement"},  # its kubectl builds the chart's objects
    "demo": {"kube", "localcluster", "placement", "report"},
    "cli": {
        *("placement", "report", "kube", "certs", "dashboard", "webhook", "rebalancer"),
        *("localcluster", "generators", "demo"),
    },
}
# Modules that know time, chance, files, processes or the network; none of them has a place in pure code.
IMPURE = {"os", "sys", "time", "random", "socket", "subprocess", "threading", "asyncio", "logging", "pathlib", "io"}
PURE = [
    *sorted((ROOT / "placement").rglob("*.py")),
    *sorted((ROOT / "report").rglob("*.py")),
    ROOT / "kube" / "election.py",
    ROOT / "certs" / "authority.py",
    ROOT / "certs" / "read.py",
    ROOT / "certs" / "renewal.py",
    ROOT / "webhook" / "review.py",
    ROOT / "serving" / "messages.py",
    ROOT / "serving" / "parser.py",
]
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "handler", "misc"}
# Modules of more than 400 lines, each with its reason.
LARGE = {
    "placement/metrics.py": "one table of metrics: data, no logic",
    "placement/model.py": "all facts that decisions are made from, in one place to look them up",
    "placement/policy.py": "one table of annotations with its parsers",
    "kube/wire.py": "one struct for each part of the API's objects that is read: data, no logic",
    "kube/convert.py": "one function for each field of the API's objects, all alike",
    "kube/resources.py": "one row for each resource that is read: data, little logic",
    "generators/grafana.py": "panels, one after the other: data, no logic",
}
MODULES = sorted(path for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """The top-level names that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_packages_import_only_what_stands_below_them(path: Path) -> None:
    """webhook and rebalancer do not import each other, placement imports nobody, localcluster is for cli and tests."""
    package = path.relative_to(ROOT).parts[0]
    ours = set(imports(path)) & set(MAY_IMPORT) - {package}
    assert ours <= MAY_IMPORT[package]


def imported(path: Path) -> set[str]:
    """The modules that a module imports, anywhere in it, as `package.module`; names that are no modules among them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_no_modules_import_each_other() -> None:
    """Not in a circle either: every module can be read after those that it rests on."""
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in MODULES}
    graph = {module: imported(path) & set(modules) - {module} for module, path in modules.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names them


@pytest.mark.parametrize("path", sorted((ROOT / "placement").rglob("*.py")), ids=named)
def test_placement_uses_the_standard_library_alone(path: Path) -> None:
    """What decides where pods go depends on nothing that could change under it."""
    assert set(imports(path)) <= sys.stdlib_module_names | {"placement"}


@pytest.mark.parametrize("path", PURE, ids=named)
def test_pure_modules_have_no_io_no_clock_and_no_logging(path: Path) -> None:
    """Facts in, decisions out: time is an argument, and whoever calls does the talking."""
    source = path.read_text()
    assert set(imports(path)) & IMPURE == set()
    assert re.findall(r"\.now\(|\.today\(|\bopen\(|\bprint\(", source) == []


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_modules_are_named_for_what_they_are_and_open_with_a_sentence(path: Path) -> None:
    """A newcomer finds a behaviour from the folder names, and each module says what it is for."""
    assert path.stem not in VAGUE
    if path.read_text().strip():
        assert ast.get_docstring(ast.parse(path.read_text())), "no docstring"


def test_only_the_boundaries_catch_everything() -> None:
    """An unexpected error is met where it can be answered.

    In the webhook's reviewers, where its certificates are kept, in the rebalancer's loop, and in the index, where one
    workload is not to stop all others (ADR 10).
    """
    catching = {
        named(path)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")))
        and not any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
    }
    reviewers = {"webhook/reviewer.py", "webhook/evictions.py", "webhook/gangs.py"}
    assert catching <= {*reviewers, "webhook/program.py", "rebalancer/loop.py", "rebalancer/index.py"}


def test_modules_and_functions_stay_small() -> None:
    """A module fits into a head, a function onto a screen."""
    large = [
        f"{named(path)}:{node.lineno} {node.name}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno > 60
    ]
    assert large == []
    assert {named(path) for path in MODULES if path.read_text().count("\n") > 400} == set(LARGE)


def test_no_class_name_is_given_twice() -> None:
    """A name says what it is, in tests and benchmarks too."""
    found: dict[str, list[str]] = {}
    for path in (*MODULES, *(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(named(path))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_the_dashboard_is_the_web_alone() -> None:
    """What people are shown is worked out in `report`; only who wires the programs imports the page."""
    wiring = {"rebalancer/program.py", "cli/rebalancer.py"}
    offline = {"cli/plan.py"}  # makes one view, as the page does, of a cluster that it has read itself
    importing = {
        named(path) for path in MODULES if path.parent.name != "dashboard" and "dashboard" in set(imports(path))
    }
    assert importing <= wiring | offline


def test_names_reach_a_path_only_where_they_are_checked() -> None:
    """A name such as `../../secrets?watch=true` is another path; `kube.paths` refuses it. Constants are ours."""
    collections = "namespaces|nodes|pods|events|leases|services|serviceaccounts|[A-Z]+}"
    made = re.compile(rf'f"[^"]*(?:{collections})/{{(?!names\.|[A-Z_]+}})')
    modules = [
        path for path in MODULES if path.relative_to(ROOT).parts[0] not in ("localcluster", "placement", "report")
    ]
    assert {named(path) for path in modules if made.search(path.read_text())} == {"kube/paths.py"}


def test_no_registry_is_named_anywhere() -> None:
    """Packages are named, never the hosts that they come from; those are the machine's business."""
    hosts = ("proxy.golang" + ".org", "pypi" + ".org", "files.pythonhosted" + ".org", "registry.npmjs" + ".org")
    texts = (
        path for path in ROOT.rglob("*") if path.suffix in (".py", ".md", ".txt", ".cfg", ".toml", ".yaml", ".mod")
    )
    named_hosts = [
        f"{named(path)}: {host}"
        for path in texts
        if ".venv" not in path.parts
        for host in hosts
        if host in path.read_text(errors="replace")
    ]
    assert named_hosts == []


def _is_url(line: str) -> bool:
    """A URL alone on its line, which cannot be broken; `- `, `<…>` and `[name]: …` may stand around it."""
    return re.fullmatch(r"\s*(?:- )?(?:\[[^]]+\]: )?<?https?://\S+", line) is not None


def test_lines_of_the_documents_are_short() -> None:
    """README, docs/, CHANGELOG and CONTRIBUTING are read in editors and terminals: at most 120 characters a line."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    long_lines = [
        f"{named(page)}:{number} has {len(line)} characters"
        for page in sorted(pages)
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if len(line) > 120 and not _is_url(line)
    ]
    assert long_lines == []
