"""Spotweave on the session's cluster with a labelled namespace for each test; or on a cluster of a module's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.supervisor import Installed, running
from kube.client import Client, connect
from localcluster import LocalCluster
from tests.cluster.lead import Lead, leading
from tests.cluster.scene import Scene, staged
from tests.cluster.world import World, label


@pytest.fixture(scope="session")
def installation(cluster: LocalCluster) -> Iterator[Installed]:
    """Spotweave with one webhook, as `spotweave run` installs it; shared by the session."""
    with running(cluster.kubeconfig, log_level="warning") as spotweave:
        yield spotweave


@pytest.fixture(scope="module")
def lead(installation: Installed, admin: Client) -> Iterator[Lead]:
    """Somebody who leads; for one module, since other tests use the Lease too."""
    with leading(admin) as lead:
        yield lead


@pytest.fixture(scope="module")
def installed(installation: Installed, lead: Lead) -> Installed:
    return installation


@pytest.fixture
def no_leader(lead: Lead) -> Iterator[None]:
    """For a test that leads itself."""
    with lead.aside():
        yield


@pytest.fixture(scope="session")
def admin(cluster: LocalCluster) -> Iterator[Client]:
    client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
    yield client
    client.close()


@pytest.fixture
def plain(cluster: LocalCluster, installed: Installed, admin: Client, namespace: str) -> World:
    """A namespace that is not opted in."""
    return World(admin, Path(cluster.kubeconfig), namespace)


@pytest.fixture
def world(plain: World) -> World:
    """A namespace that is opted in."""
    label(plain.client, plain.namespace)
    return plain


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Two webhooks and a rebalancer; a module that wants others has its own."""
    with staged(tmp_path_factory.mktemp("config"), rebalancers=1) as made:
        yield made


@pytest.fixture
def scene(stage: Scene) -> Iterator[Scene]:
    yield stage
    stage.clear()
