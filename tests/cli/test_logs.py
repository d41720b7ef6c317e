"""Logs that strangers can make us write: bounded in number and in length."""

from __future__ import annotations

import logging

from cli.logs import LONGEST_LINE, Calm


def record(message: str, at: float, line: int = 1, level: int = logging.WARNING) -> logging.LogRecord:
    made = logging.LogRecord("webhook.reviewer", level, "reviewer.py", line, "%s", (message,), None)
    made.created = at
    return made


def test_a_flood_of_one_line_is_thinned_out_and_counted() -> None:
    """Twenty at once, then one a second; the next one says how many there were."""
    calm = Calm()
    written = [each for each in (record("malformed", 0.0) for _ in range(1000)) if calm.filter(each)]
    assert len(written) == 20
    later = record("malformed", 1.5)
    assert calm.filter(later)
    assert later.getMessage() == "malformed (and 980 more like this)"
    assert not calm.filter(record("malformed", 1.5))


def test_other_lines_are_not_held_back() -> None:
    """Nor what somebody asked for with --log-level debug."""
    calm = Calm()
    for _ in range(100):
        calm.filter(record("malformed", 0.0))
    assert calm.filter(record("certificates: renewed", 0.0, line=2))
    assert all(calm.filter(record("detail", 0.0, level=logging.DEBUG)) for _ in range(100))


def test_a_line_is_one_line_and_not_endless() -> None:
    """Nobody writes lines of his own into our log."""
    forged = record("request x\nERROR webhook: all is lost\r" + "y" * 10_000, 0.0)
    assert Calm().filter(forged)
    assert len(forged.getMessage()) == LONGEST_LINE + len("…\\n\\r") - 2
    assert not {"\n", "\r"} & set(forged.getMessage())
