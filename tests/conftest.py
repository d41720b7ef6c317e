"""What all tests share: how thorough hypothesis is, and the control plane, which is got ready before the first test."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext

import pytest
from hypothesis import HealthCheck, settings

from localcluster.errors import ClusterError
from localcluster.programs import chosen_kubernetes, get_programs
from localcluster.progress import Progress

pytest_plugins = ["tests.clusterfixtures"]

SLOW = [HealthCheck.too_slow]  # machines are noisy; how long an example takes says nothing
settings.register_profile("check", derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.register_profile("soak", deadline=None, max_examples=5_000, suppress_health_check=SLOW)
settings.load_profile("soak" if os.environ.get("SPOTWEAVE_SOAK") else "check")

MISSING = pytest.StashKey[str]()

# Whoever starts us in the background may have had SIGINT ignored, which programs that we start would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out soaks unless asked for; builds the programs once, or leaves out, loudly, what needs them."""
    if not os.environ.get("SPOTWEAVE_SOAK"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("soak")])
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
    on_cluster = [item for item in items if item.get_closest_marker("cluster")]
    if not on_cluster or config.option.collectonly:
        return
    try:
        capture = config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            get_programs(chosen_kubernetes(), Progress())
    except ClusterError as error:
        if os.environ.get("SPOTWEAVE_REQUIRE_CLUSTER"):
            raise pytest.UsageError(f"no control plane, and it is required: {error}") from error
        config.stash[MISSING] = str(error)
        for item in on_cluster:
            item.add_marker(pytest.mark.skip(reason="no control plane on this machine"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    missing = config.stash.get(MISSING, "")
    if missing:
        terminalreporter.write_sep("!", "NOT TESTED ON A REAL CONTROL PLANE", red=True, bold=True)
        terminalreporter.write_line(missing)
