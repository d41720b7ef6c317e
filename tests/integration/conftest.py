"""Prints what was measured beside real neighbours."""

from __future__ import annotations

import pytest

from tests.integration.figures import FIGURES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIGURES:
        terminalreporter.write_sep("=", "measured beside real neighbours")
        for line in FIGURES:
            terminalreporter.write_line(line)
