"""Fixtures for tests on a real control plane: one cluster a session, one namespace a test."""

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import cast

import pytest

from localcluster import LocalCluster, Options, demo_profile
from localcluster.progress import Progress

# What many tests would wait for: Kubernetes lets the controller manager create 20 pods a second.
FAST_CONTROLLERS = Options(controller_qps=200, controller_burst=400)

_numbers = itertools.count()


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A running control plane with the demo's 12 nodes, shared by the whole session: leave its nodes as they were."""
    with _uncaptured(request):  # on a machine without the programs this builds them, which takes minutes
        running = LocalCluster.start(demo_profile(), options=FAST_CONTROLLERS, progress=Progress())
    with running:
        yield running


def _uncaptured(request: pytest.FixtureRequest) -> AbstractContextManager[None]:
    capture = request.config.pluginmanager.getplugin("capturemanager")
    return (
        nullcontext() if capture is None else cast(AbstractContextManager[None], capture.global_and_fixture_disabled())
    )


@pytest.fixture
def namespace(cluster: LocalCluster) -> Iterator[str]:
    """The name of a fresh namespace that takes pods at once; deleted afterwards, without waiting for it."""
    name = f"test-{next(_numbers)}"
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    cluster.wait("the namespace's default ServiceAccount", lambda: cluster.api.exists(account))
    yield name
    cluster.api.delete(f"/api/v1/namespaces/{name}")
