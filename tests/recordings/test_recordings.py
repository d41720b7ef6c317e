"""The recorder: two recordings of the same code are equal, and a comparison finds what differs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recordings.compare import compare
from tests.recordings.sentences import MASK, parted, parted_metrics

ROOT = Path(__file__).parent.parent.parent


def run(*arguments: object, seed: int = 0) -> subprocess.CompletedProcess[str]:
    """In a process of its own, because it stops the clocks before it imports the product."""
    command = [sys.executable, "-m", "tests.recordings", *map(str, arguments)]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings") / "first"
    made = run(folder, "--clusters", 1, "--reviews", 60, seed=1)
    assert made.returncode == 0, made.stderr
    return folder


def test_two_recordings_are_equal(recording: Path, tmp_path: Path) -> None:
    """Neither time, nor threads, nor the order of sets shows in a recording."""
    again = tmp_path / "again"
    assert run(again, "--clusters", 1, "--reviews", 60, seed=2).returncode == 0
    compared = run("--compare", recording, again)
    assert compared.stdout.splitlines()[-1].endswith("files, 60 reviews"), compared.stdout
    assert compared.returncode == 0


def test_a_changed_byte_is_found(recording: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(recording, tmp_path / "changed"))
    file = changed / "cluster-0" / "reviews.jsonl"
    file.write_text(file.read_text().replace('"allowed": true', '"allowed": false', 1))
    code, lines = compare(recording, changed)
    assert code == 1
    assert lines[0] == "cluster-0/reviews.jsonl: 2 lines differ"


def test_a_file_that_is_missing_is_found(recording: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(recording, tmp_path / "changed"))
    (changed / "cluster-0" / "00-status.json").unlink()
    code, lines = compare(recording, changed)
    assert code == 1
    assert lines[0] == "cluster-0/00-status.json: only before"


def test_a_changed_sentence_is_reported_apart(recording: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(recording, tmp_path / "changed"))
    file = changed / "cluster-0" / "reviews.sentences.jsonl"
    text = file.read_text()
    assert "is ignored" in text
    file.write_text(text.replace("is ignored", "is left out"))
    code, lines = compare(recording, changed)
    assert code == 0
    assert lines[0].startswith("sentences (no behaviour)")
    assert "is left out" in lines[1]


def test_nothing_recorded_is_not_equal(tmp_path: Path) -> None:
    assert compare(tmp_path / "one", tmp_path / "other")[0] == 1


def test_sentences_are_masked_and_codes_are_not() -> None:
    operation = {"op": "add", "path": "/metadata/annotations/spotweave.dev~1reason", "value": "slot 1 is spot"}
    masked, found = parted({"skipped": [{"reason": "paused"}], "actions": [{"reason": "slot"}], "patch": [operation]})
    assert masked["skipped"] == [{"reason": MASK}]
    assert masked["actions"] == [{"reason": "slot"}]
    assert masked["patch"] == [{**operation, "value": MASK}]
    assert list(found.values()) == ["paused", "slot 1 is spot"]


def test_metrics_lose_help_and_time() -> None:
    text = "# HELP spotweave_a A.\n# TYPE spotweave_a gauge\nspotweave_a 1.0\nspotweave_plan_seconds_sum 0.2\n"
    assert parted_metrics(text) == ("# TYPE spotweave_a gauge\nspotweave_a 1.0\n", "# HELP spotweave_a A.\n")
