"""What all tests share: how thorough hypothesis is, and the control plane, which is got ready before the first test."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import nullcontext

import pytest
from hypothesis import HealthCheck, settings

from localcluster.errors import ClusterError
from localcluster.programs import chosen_kubernetes, get_programs
from localcluster.progress import Progress
from tests.examples import TIMES

pytest_plugins = ["tests.clusterfixtures"]

SLOW = [HealthCheck.too_slow]  # machines are noisy; how long an example takes says nothing
settings.register_profile("check", derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.register_profile("soak", deadline=None, max_examples=100 * TIMES, suppress_health_check=SLOW)
settings.load_profile("soak" if os.environ.get("SPOTWEAVE_SOAK") else "check")

MISSING = pytest.StashKey[dict[str, str]]()  # what is missing on this machine, and what to do about it
# What tests of each marker need on PATH, from which of Debian's packages, and what is said where it is missing.
TOOLS = {
    "prometheus": (("prometheus", "promtool"), "prometheus", "NOT TESTED WITH A REAL PROMETHEUS"),
    "browser": (("chromium",), "chromium", "NOT TESTED IN A REAL BROWSER"),
}

# Whoever starts us in the background may have had SIGINT ignored, which programs that we start would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out soaks unless asked for; builds the programs once, or leaves out, loudly, what needs them."""
    if not os.environ.get("SPOTWEAVE_SOAK"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("soak")])
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
    config.stash[MISSING] = {}
    if config.option.collectonly:
        return
    for marker, (programs, package, headline) in TOOLS.items():
        lacking = [name for name in programs if shutil.which(name) is None]
        if lacking and _marked(items, marker):
            told = f"{' and '.join(lacking)} not found on PATH: install Debian's package {package}"
            _leave_out(config, items, marker, headline, told)
    if not _marked(items, "cluster"):
        return
    try:
        capture = config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            get_programs(chosen_kubernetes(), Progress())
    except ClusterError as error:
        _leave_out(config, items, "cluster", "NOT TESTED ON A REAL CONTROL PLANE", str(error))


def _marked(items: list[pytest.Item], marker: str) -> list[pytest.Item]:
    return [item for item in items if item.get_closest_marker(marker)]


def _leave_out(config: pytest.Config, items: list[pytest.Item], marker: str, headline: str, told: str) -> None:
    if os.environ.get("SPOTWEAVE_REQUIRE_CLUSTER"):
        raise pytest.UsageError(f"{headline.lower()}, and that is required: {told}")
    config.stash[MISSING][headline] = told
    for item in _marked(items, marker):
        item.add_marker(pytest.mark.skip(reason=headline.lower()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for headline, told in config.stash.get(MISSING, {}).items():
        terminalreporter.write_sep("!", headline, red=True, bold=True)
        terminalreporter.write_line(told)
