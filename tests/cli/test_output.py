"""How findings are shown: for people and scripts, once and again, with colours on a terminal alone."""

from __future__ import annotations

import argparse
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from enum import StrEnum

import pytest
import yaml
from rich.table import Table
from rich.text import Text

from cli import output
from cli.main import parser
from generators.files import ROOT
from kube.errors import Unreachable


class PrintedSize(StrEnum):
    """As commands have them in what they print."""

    LARGE = "large"


RAW = {"size": PrintedSize.LARGE, "pods": ("a", "b"), "text": "≥ 1", "none": None}
FINDING = output.Result(RAW, lambda: Text("two pods", style="bold red"), 1)


def asked(output: str, watch: float | None = None) -> argparse.Namespace:
    return argparse.Namespace(output=output, watch=watch)


def test_scripts_read_the_same_in_both_formats(capsys: pytest.CaptureFixture[str]) -> None:
    """YAML is as JSON would be read: no enumerations, no tuples."""
    assert output.show(asked("json"), lambda: FINDING) == 1
    as_json = capsys.readouterr().out
    assert output.show(asked("yaml"), lambda: FINDING) == 1
    as_yaml = capsys.readouterr().out
    expected = {"size": "large", "pods": ["a", "b"], "text": "≥ 1", "none": None}
    assert json.loads(as_json) == yaml.safe_load(as_yaml) == expected
    assert "≥ 1" in as_json
    assert "≥ 1" in as_yaml


def test_no_colours_where_nobody_sees_them(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe or a file gets plain text."""
    assert output.show(asked("table"), lambda: FINDING) == 1
    assert capsys.readouterr().out == "two pods\n"


WATCHED = """
from argparse import Namespace
from cli import output
from tests.cli.test_output import FINDING, looks
output.show(Namespace(output="table", watch=0.0), looks(FINDING, FINDING))
"""


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_gets_colours_and_one_picture_in_the_place_of_the_other(no_color: str) -> None:
    """On a screen of its own, which is left at the end; no colours for who wants none."""
    ours, theirs = pty.openpty()
    variables = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": no_color, "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen([sys.executable, "-c", WATCHED], stdout=theirs, stdin=theirs, env=variables, cwd=ROOT)
    assert process.wait(30) == 0
    os.close(theirs)
    text = os.read(ours, 65_536).decode()
    os.close(ours)
    assert text.startswith("\x1b[?1049h")
    assert text.rstrip().endswith("\x1b[?25h") or "\x1b[?1049l" in text
    assert text.count("two pods") == 2
    assert ("\x1b[1;31m" in text) == (not no_color)


def looks(*findings: output.Result | Exception) -> Callable[[], output.Result]:
    """These one after the other; then Ctrl-C."""
    rest = iter((*findings, KeyboardInterrupt()))

    def look() -> output.Result:
        found = next(rest)
        if isinstance(found, BaseException):
            raise found
        return found

    return look


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_who_watches_gets_one_document_after_the_other(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON line by line, YAML with separators; the exit code is that of the last look."""
    second = output.Result({"pods": 2}, lambda: "", 0)
    assert output.show(asked(form, 0.0), looks(FINDING, second)) == 0
    text = capsys.readouterr().out
    documents = [*map(json.loads, text.splitlines())] if form == "json" else [*yaml.safe_load_all(text)]
    assert [each.get("pods") for each in documents] == [["a", "b"], 2]


def test_a_failed_look_is_told_and_not_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    """The API server is restarted, say."""
    refused = Unreachable("GET /api/v1/nodes", "connection refused")
    assert output.show(asked("table", 0.0), looks(FINDING, refused, FINDING)) == 1
    told = capsys.readouterr()
    assert told.out.count("two pods") == 2
    assert "connection refused" in told.err


WATCHED_COMMANDS = (["status"], ["plan"], ["explain", "x"], ["drill", "spot"], ["outage", "list"])


@pytest.mark.parametrize("command", WATCHED_COMMANDS, ids=" ".join)
def test_what_looks_at_the_cluster_can_be_watched(command: list[str]) -> None:
    """Every five seconds, or as often as one likes."""
    read = parser().parse_args
    assert read(command).watch is None
    assert read([*command, "--watch"]).watch == output.EVERY_SECONDS
    assert read([*command, "-w", "2"]).watch == 2.0


def test_names_are_neither_wrapped_nor_cut_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long they are, and however narrow the terminal is that the pipe was started from."""
    monkeypatch.setenv("COLUMNS", "40")
    names = [f"a-namespace-with-a-long-name/a-deployment-with-a-long-name-{number}" * 3 for number in range(3)]

    def table() -> Table:
        made = Table(box=None)
        made.add_column("WORKLOAD", overflow="fold")
        made.add_column("REQUIRES")
        for name in names:
            made.add_row(name, "on-demand")
        return made

    output.show(asked("table"), lambda: output.Result(None, table))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:]] == [[name, "on-demand"] for name in names]


def test_long_lines_of_a_text_are_left_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """So that one can search for what they say."""
    line = "a pod " * 30
    assert output.show(asked("text"), lambda: output.Result({}, lambda: Text(line))) == 0
    assert capsys.readouterr().out == f"{line}\n"


@pytest.mark.parametrize("seconds", ["0", "0.1", "nan", "soon", "4000"])
def test_nobody_watches_without_a_pause(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each look reads the whole cluster."""
    with pytest.raises(SystemExit) as raised:
        parser().parse_args(["status", "--watch", seconds])
    assert raised.value.code == 2
    assert "expected seconds from 0.5 to 3600" in capsys.readouterr().err


OUTAGES = (["outage", "set"], ["outage", "clear"])
COMMANDS = (*WATCHED_COMMANDS, *OUTAGES, ["lint", "-f", "x"], ["pause"], ["resume"], ["cluster", "status"])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_that_tells_something_speaks_yaml(command: list[str]) -> None:
    """And JSON."""
    for form in ("json", "yaml"):
        assert parser().parse_args([*command, "-o", form]).output == form


@pytest.mark.parametrize("command", ["status", "rebalancer", "webhook", "run --kubeconfig x"])
def test_programs_log_what_they_do_unless_told_otherwise(command: str) -> None:
    """The demo alone is quieter: its own default is not everybody's."""
    assert parser().parse_args(command.split()).log_level == "info"
    assert parser().parse_args(["demo"]).log_level == "error"
