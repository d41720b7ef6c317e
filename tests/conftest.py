"""What all tests share: how thorough hypothesis is, and the control plane, which is got ready before the first test."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import pytest
from hypothesis import HealthCheck, settings

from localcluster.build import DESCHEDULER, KARPENTER
from localcluster.errors import ClusterError
from localcluster.programs import chosen_kubernetes, get_neighbour, get_programs
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

CLUSTER = "cluster"
INTEGRATION = "integration"
# Markers of tests that run only when a variable asks for them.
ASKED_FOR = {"soak": "SPOTWEAVE_SOAK", INTEGRATION: "SPOTWEAVE_INTEGRATION"}

# Whoever starts us in the background may have had SIGINT ignored, which programs that we start would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """With several workers, what is missing is found, built or told here, once; they only leave tests out."""
    config.stash[MISSING] = {}
    if not getattr(config.option, "numprocesses", None) or config.option.collectonly or config.option.markexpr:
        return
    for marker in TOOLS:
        _look_for_tools(config, marker)
    _look_for_programs(config)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what nobody asked for; builds the programs once, or leaves out, loudly, what needs them."""
    for marker, variable in ASKED_FOR.items():
        if not os.environ.get(variable):
            config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker(marker)])
            items[:] = [item for item in items if not item.get_closest_marker(marker)]
    if config.option.collectonly:
        return
    for marker in (*TOOLS, CLUSTER, INTEGRATION):
        marked = [item for item in items if item.get_closest_marker(marker)]
        is_missing = marked and _look_for(config, marker)
        if is_missing:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=str(is_missing).lower()))


def _look_for(config: pytest.Config, marker: str) -> str:
    """The headline, where something is missing."""
    looks = {CLUSTER: _look_for_programs, INTEGRATION: _look_for_neighbours}
    return looks[marker](config) if marker in looks else _look_for_tools(config, marker)


def _look_for_tools(config: pytest.Config, marker: str) -> str:
    programs, package, headline = TOOLS[marker]
    lacking = [name for name in programs if shutil.which(name) is None]
    if not lacking:
        return ""
    return _missing(config, headline, f"{' and '.join(lacking)} not found on PATH: install Debian's package {package}")


def _look_for_programs(config: pytest.Config) -> str:
    """The control plane is built where it can be."""
    build = partial(get_programs, chosen_kubernetes())
    return _build(config, "NOT TESTED ON A REAL CONTROL PLANE", build)


def _look_for_neighbours(config: pytest.Config) -> str:
    builds = [partial(get_neighbour, source) for source in (KARPENTER, DESCHEDULER)]
    return _build(config, "NOT TESTED BESIDE THE REAL KARPENTER AND DESCHEDULER", *builds)


def _build(config: pytest.Config, headline: str, *builds: Callable[[Progress], object]) -> str:
    capture = config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            for build in builds:
                build(Progress())
    except ClusterError as error:
        return _missing(config, headline, str(error))
    return ""


def _missing(config: pytest.Config, headline: str, told: str) -> str:
    if os.environ.get("SPOTWEAVE_REQUIRE_CLUSTER") and not _is_worker(config):
        raise pytest.UsageError(f"{headline.lower()}, and that is required: {told}")
    config.stash[MISSING][headline] = told
    return headline


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for headline, told in config.stash.get(MISSING, {}).items():
        terminalreporter.write_sep("!", headline, red=True, bold=True)
        terminalreporter.write_line(told)
