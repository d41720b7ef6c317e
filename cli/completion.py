"""`spotweave completion`: what a shell offers when Tab is pressed, made from the parsers themselves.

The script holds all words, so that Tab costs no start of Python; kubectl, which has no other way, starts us.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SHELLS = ("bash", "zsh")
FILES_TOO = 0  # kubectl's directive: offer files where we offer nothing


@dataclass(frozen=True, slots=True)
class Command:
    """What may follow a command: subcommands, options, and the values of options and arguments that are known."""

    commands: Mapping[str, Command] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by option; none where they may be anything
    arguments: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """Options are offered to who has begun one, or where there is nothing else."""
        return (*self.commands, *self.arguments) or self.options


def add_parser(commands: Any, top: Callable[[], argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "completion", help="print a completion script for a shell", description="Print a completion script for a shell."
    )
    parser.add_argument("shell", choices=SHELLS, help="for example: source <(spotweave completion bash)")
    parser.set_defaults(run=lambda args: run(args, top()))


def run(args: argparse.Namespace, top: argparse.ArgumentParser) -> int:
    sys.stdout.write(script(command_of(top), args.shell))
    return 0


def command_of(parser: argparse.ArgumentParser) -> Command:
    """The tree of commands below a parser."""
    commands: dict[str, Command] = {}
    options: list[str] = []
    values: dict[str, tuple[str, ...]] = {}
    arguments: tuple[str, ...] = ()
    for action in parser._actions:  # argparse shows them no other way
        choices = tuple(map(str, action.choices or ()))
        if isinstance(action, argparse._SubParsersAction):
            commands |= {name: command_of(below) for name, below in action.choices.items()}
        elif action.option_strings:
            options += action.option_strings
            values |= {} if action.nargs in (0, "?") else dict.fromkeys(action.option_strings, choices)
        else:
            arguments += choices
    return Command(commands, tuple(options), values, arguments)


def candidates(top: Command, words: Sequence[str]) -> list[str]:
    """What may stand in the place of the last word, given those before it."""
    *before, begun = words or [""]
    here, previous = top, ""
    for word in before:
        here, previous = here.commands.get(word, here), word
    offered = here.values.get(previous, here.options if begun.startswith("-") else here.words)
    return [word for word in offered if word.startswith(begun)]


def lines_for_kubectl(top: Command, words: Sequence[str]) -> str:
    """A candidate a line, then what else to offer."""
    return "\n".join([*candidates(top, words), f":{FILES_TOO}"])


# --- the script ------------------------------------------------------------------------------------------------------


def script(top: Command, shell: str, program: str = "spotweave") -> str:
    paths = dict(_paths(top))
    known = "|".join(shlex.quote(path) for path in paths if path)
    values = [
        f"    {shlex.quote(f'{path}:{option}')}) words={_joined(offered)} ;;"
        for path, command in paths.items()
        for option, offered in command.values.items()
    ]
    words = [
        f"    {shlex.quote(f'{path}:')}*) words={_joined(command.words)}; "
        f'[[ "$begun" == -* ]] && words={_joined(command.options)} ;;'
        for path, command in paths.items()
    ]
    lines = [
        f"# {shell} completion of {program}, printed by `{program} completion {shell}`.",
        *(
            ["autoload -U +X compinit && compinit", "autoload -U +X bashcompinit && bashcompinit"]
            if shell == "zsh"
            else []
        ),
        f"_{program}() {{",
        '  local begun="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" path="" word words=""',
        '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        f'    case "${{path:+$path }}$word" in {known}) path="${{path:+$path }}$word" ;; esac',
        "  done",
        '  case "$path:$before" in',
        *values,
        *words,
        "  esac",
        '  COMPREPLY=($(compgen -W "$words" -- "$begun"))',
        "}",
        f"complete -o default -F _{program} {program}",
        "",
    ]
    return "\n".join(lines)


def _paths(command: Command, path: str = "") -> Iterator[tuple[str, Command]]:
    """`outage list` and the like; the top has none."""
    yield path, command
    for name, below in command.commands.items():
        yield from _paths(below, f"{path} {name}".strip())


def _joined(words: Sequence[str]) -> str:
    return shlex.quote(" ".join(words))
