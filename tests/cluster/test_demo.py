"""`spotweave demo` from its beginning to its end, as somebody watches it: the terminal and the page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.namespaceuser import wait_for

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parent.parent.parent
STORY = (
    "Four workloads",
    "web scales to 25",
    "web rolls out a new revision",
    "The cloud reclaims pool zone-",
    "All spot nodes disappear without notice",
    "Spot is back",
    "A training Job of 4 workers",
    "GangStarted on train",
    "A Job of 200 workers does not fit",
    "GangWaiting on too-large",
    "Six background workers",
    "An urgent gang needs their room",
    "GangPreempting on urgent",
    "GangPreempted on background",
    "Every workload had the wanted mix after every step",
)


@pytest.mark.timeout(300)
def test_the_demo_tells_its_story_and_ends_well() -> None:
    """In this order, in 80 columns; the page shows the loss and the recovery while they happen; exit code 0."""
    environment = {**os.environ, "COLUMNS": "80", "DEMO_ONCE": "1"}
    demo = [sys.executable, "-m", "cli.main", "demo"]
    process = subprocess.Popen(demo, cwd=ROOT, stdout=subprocess.PIPE, env=environment, text=True)
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    try:
        text = until(lines, "The dashboard")
        page = re.findall(r"http://127\.0\.0\.1:\d+/", text)[0]
        text += until(lines, "All spot nodes disappear")
        wait_for("the page to show no spot", lambda: shared(page)["spot"] == 0)
        assert shared(page)["onDemand"] > 0
        text += until(lines, "Spot is back")
        wait_for("the page to show spot again", lambda: shared(page)["spot"] > 0)
        text += "".join(lines)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert [text.find(part) for part in STORY] == sorted(text.find(part) for part in STORY)
    assert all(part in text for part in STORY)
    assert text.count(page) == 1  # early; what is told at the end would be dead a moment later
    assert "KUBECONFIG" not in text
    prose = [line.rstrip() for line in text.splitlines() if "kube" not in line]  # but for paths
    assert max(map(len, prose)) <= 80
    noticed, lost, back = (rows(part) for part in chapters(text))
    must, before, fewest, after = noticed["demo/web"]
    assert (must, before, after) == (8, 10, 10)
    assert fewest >= 8  # as its budget says to the drainer
    must, before, fewest, after = lost["demo/web"]
    assert (must, before, after) == (8, 10, 10)
    assert fewest < 8  # six of ten were on spot; on-demand had taken some when the last of them went
    assert back["demo/web"] == (8, 10, 10, 10)


def until(lines: Iterator[str], part: str) -> str:
    """What is told up to the line with these words."""
    told = ""
    for line in lines:
        told += line
        if part in line:
            return told
    pytest.fail(f"the demo ended before {part!r}:\n{told}")


def shared(page: str) -> Any:
    with urllib.request.urlopen(f"{page}api/v1/overview", timeout=5) as response:
        return json.load(response)["spotShare"]


def chapters(text: str) -> Iterator[str]:
    """The three in which something happens to nodes."""
    whole = text.split("▌ ")
    yield from (part for part in whole if part.startswith(("The cloud", "All spot", "Spot is back")))


def rows(chapter: str) -> dict[str, tuple[int, int, int, int]]:
    """By workload: how many must serve, and did before, at worst, after."""
    found = {}
    for line in chapter.splitlines():
        if row := re.fullmatch(r"(demo/\w+) +(\d+) +(\d+)  \S+ +\w+ +(\d+)  \S+ +\w+ +(\d+)  \S+ +\w+ *", line):
            found[row[1]] = (int(row[2]), int(row[3]), int(row[4]), int(row[5]))
    return found
