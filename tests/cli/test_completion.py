"""Completion: what Tab offers, in a real bash and to kubectl."""

from __future__ import annotations

import subprocess
from configparser import ConfigParser
from importlib import import_module

import pytest

from cli.completion import SHELLS, candidates, command_of, script
from cli.main import PLUGIN, complete, main, parser
from generators.files import ROOT

TOP = command_of(parser())
TABS: dict[str, tuple[list[str], set[str], set[str]]] = {
    "a command that has begun": (["st"], {"status"}, {"plan"}),
    "no word yet": ([""], {"status", "drill", "completion"}, {"--version"}),
    "an option that has begun": (["status", "--w"], {"--watch"}, {"--output"}),
    "the values of an option": (["status", "-o", ""], {"table", "json", "yaml"}, {"--watch"}),
    "the values, after other options": (["outage", "set", "--zone", "a", "--class", "s"], {"spot"}, {"on-demand"}),
    "a command of a command": (["outage", ""], {"list", "set", "clear"}, {"status"}),
    "an argument that is one of a few": (["completion", "z"], {"zsh"}, {"bash"}),
    "nothing where anything goes, so that files are offered": (["status", "--kubeconfig", ""], set(), {"--watch"}),
    "an option without a value is followed by others": (["status", "--pods", "--p"], {"--pods"}, {"table"}),
}


def in_bash(words: list[str]) -> list[str]:
    """What bash itself makes of the script."""
    typed = " ".join(f"'{word}'" for word in ("spotweave", *words))
    ask = f'COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _spotweave; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", f"{script(TOP, 'bash')}\n{ask}"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(("words", "offered", "not_offered"), TABS.values(), ids=TABS.keys())
def test_tab_offers_what_may_follow(words: list[str], offered: set[str], not_offered: set[str]) -> None:
    """In bash and by kubectl alike."""
    found = in_bash(words)
    assert set(found) >= offered
    assert set(found) & not_offered == set()
    assert bool(found) == bool(offered)
    assert candidates(TOP, words) == found


def test_kubectl_is_told_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Then what else to offer: files."""
    assert complete(["dri"]) == 0
    assert capsys.readouterr().out == "drill\n:0\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """To be sourced; zsh is taught to understand bash's."""
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert text == script(TOP, shell)
    assert ("bashcompinit" in text) == (shell == "zsh")


def test_programs_are_there_under_the_names_that_kubectl_looks_for() -> None:
    """A plugin is a program called kubectl-NAME, and its completion kubectl_complete-NAME."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options.entry_points"]["console_scripts"].split("\n")
    programs = dict(line.split(" = ") for line in lines if line)
    assert set(programs) == {"spotweave", "kubectl-spotweave", "kubectl_complete-spotweave"}
    for place in programs.values():
        module, _, function = place.partition(":")
        assert callable(getattr(import_module(module), function))


def test_the_plugin_calls_itself_as_it_was_called(capsys: pytest.CaptureFixture[str]) -> None:
    """So that what its help says can be typed."""
    with pytest.raises(SystemExit):
        main(["drill", "--help"], PLUGIN)
    assert capsys.readouterr().out.startswith("usage: kubectl spotweave drill")
