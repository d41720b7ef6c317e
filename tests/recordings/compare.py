"""Compares two recordings: first whatever differs in behaviour, then, apart from it, sentences that differ."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
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
    lines += _sentences([name for name in files if SENTENCES in name], before, after)
    if differing or not behaviour:
        lines.append(f"different: {len(differing)} of {len(behaviour)} files")
        return 1, lines
    return 0, [*lines, f"equal: {len(behaviour)} files, {_reviews(before)} reviews"]


def _sentences(files: Sequence[str], before: Path, after: Path) -> Iterator[str]:
    """Which sentences became which others, the most frequent first; and how many answers differ in their bytes."""
    changes: Counter[tuple[str, str]] = Counter()
    answers = 0
    for name in files:
        old, new = _said(before / name), _said(after / name)
        for place in sorted({*old, *new}):
            pair = (old.get(place, ""), new.get(place, ""))
            is_bytes = place.endswith(" bytes")
            answers += is_bytes and pair[0] != pair[1]
            changes[pair] += pair[0] != pair[1] and not is_bytes
    distinct = [(pair, count) for pair, count in changes.most_common() if count]
    if distinct:
        yield f"sentences (no behaviour): {len(distinct)} differ, at {sum(count for _, count in distinct)} places"
        yield from (f"  {count} × {old[:90]!r} → {new[:90]!r}" for (old, new), count in distinct[:MOST_LINES])
    if answers:
        yield f"bytes of answers to reviews (no behaviour where only sentences differ): {answers} differ"


def _said(path: Path) -> dict[str, str]:
    """The sentences of a file by their place in it."""
    text = _text(path) or ""
    if path.suffix == ".txt":  # help lines: `# HELP name text`
        return {line.split(" ", 3)[2]: line for line in text.splitlines() if line.count(" ") > 2}
    documents = text.splitlines() if path.suffix == ".jsonl" else [text] if text else []
    return {f"{row} {key}": said for row, each in enumerate(documents) for key, said in json.loads(each).items()}


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
