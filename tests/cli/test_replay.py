"""`spotweave replay`, as a person and a script call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.main import main

CALM = "zone,start_s,duration_s,available\na,0,864000,1\nb,0,864000,1\n"
FLAPPING = "".join(f"{zone},{3600 * hour},3600,{hour % 2}\n" for zone in "ab" for hour in range(240))
ROUGH = "zone,start_s,duration_s,available\n" + FLAPPING


@pytest.fixture
def calm(tmp_path: Path) -> Path:
    path = tmp_path / "calm.csv"
    path.write_text(CALM)
    return path


def test_a_script_reads_json(calm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0: the target is met."""
    assert main(["replay", str(calm), "--spot-ratio", "50%", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["pools"], found["days"], found["targetMet"]) == (2, 10.0, True)
    assert found["share"] == pytest.approx(0.5, abs=0.01)
    assert "compared" not in found


def test_a_missed_target_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, and the sentence names the cheapest policy that meets the target."""
    path = tmp_path / "rough.csv"
    path.write_text(ROUGH)
    assert main(["replay", str(path), "--spot-ratio", "0.9", "--availability-target", "99.9%"]) == 1
    shown = capsys.readouterr().out
    assert "spot-ratio 90% misses the target of 99.9%" in shown
    assert "(hindsight)" in shown


def test_compare_shows_every_policy_once(calm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The asked ratio comes first."""
    assert main(["replay", str(calm), "--replicas", "5", "--min-available", "4", "--compare"]) == 0
    rows = capsys.readouterr().out.splitlines()[3:]
    policies = [row.split("  ")[0] for row in rows]
    assert policies[0] == "auto"
    assert len(set(policies)) == len(policies) == 9


BAD: dict[str, tuple[list[str], str]] = {
    "a bare number": (["--spot-ratio", "70"], "expected auto, a percentage such as 70%"),
    "no replicas": (["--replicas", "0"], "expected a count from 1 to 10000"),
    "a whole target": (["--availability-target", "100%"], "below 100%"),
    "no unit": (["--recovery", "195"], "expected a duration such as 195s"),
    "a price above on-demand": (["--price", "1.5"], "expected a percentage such as 33%"),
}


@pytest.mark.parametrize(("arguments", "told"), BAD.values(), ids=BAD.keys())
def test_bad_usage_says_what_is_right(
    calm: Path, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2."""
    with pytest.raises(SystemExit) as caught:
        main(["replay", str(calm), *arguments])
    assert caught.value.code == 2
    assert told in capsys.readouterr().err


def test_bad_input_says_where(tmp_path: Path, calm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2: the line and the column of a mistake; a file that is not there, or no text."""
    assert main(["replay", str(calm), "--min-available", "11"]) == 2
    assert "--min-available 11 is more than --replicas 10" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "none.csv")]) == 2
    assert "No such file" in capsys.readouterr().err
    calm.write_text(CALM + "b,5,5,up\n")
    assert main(["replay", str(calm)]) == 2
    assert "line 4, column available: expected 0, 1 or a count of instances, got 'up'" in capsys.readouterr().err
    calm.write_bytes(b"\xff\xfe\x00")
    assert main(["replay", str(calm)]) == 2
    assert "it is not UTF-8 text" in capsys.readouterr().err
