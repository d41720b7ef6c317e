"""Compares two recordings: first whatever differs in behaviour, then, apart from it, sentences that differ."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from tests.recordings.record import SENTENCES

MOST_LINES = 8  # that are shown of one file
MOST_FILES = 25


def compare(before: Path, after: Path) -> tuple[int, list[str]]:
    """The exit code, and what to print."""
    files = sorted({*_files(before), *_files(after)})
    behaviour = [name for name in files if SENTENCES not in name]
    differing = [name for name in behaviour if _text(before / name) != _text(after / name)]
    lines = [line for name in differing[:MOST_FILES] for line in _shown(name, before, after)]
    lines += [f"… and {len(differing) - MOST_FILES} more files"] if len(differing) > MOST_FILES else []
    sentences = [name for name in files if SENTENCES in name and _text(before / name) != _text(after / name)]
    if sentences:
        lines.append(f"sentences differ in {len(sentences)} files (no behaviour), the first: {sentences[0]}")
    if differing or not behaviour:
        lines.append(f"different: {len(differing)} of {len(behaviour)} files")
        return 1, lines
    return 0, [*lines, f"equal: {len(behaviour)} files, {_reviews(before)} reviews"]


def _files(folder: Path) -> Iterator[str]:
    return (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _shown(name: str, before: Path, after: Path) -> Iterator[str]:
    old, new = _text(before / name), _text(after / name)
    if old is None or new is None:
        yield f"{name}: only {'after' if old is None else 'before'}"
        return
    changes = [
        line
        for line in difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    yield f"{name}: {len(changes)} lines differ"
    yield from (f"  {line[:200]}" for line in changes[:MOST_LINES])


def _reviews(folder: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in folder.glob("*/reviews.jsonl"))
