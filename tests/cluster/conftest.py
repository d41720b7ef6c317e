"""Spotweave on the session's cluster with a labelled namespace for each test; or on a cluster of a module's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.run import Installed, running
from kube.client import Client, connect
from localcluster import LocalCluster
from tests.cluster.lead import Lead, leading
from tests.cluster.scene import Scene, staged
from tests.cluster.world import World, label


@pytest.fixture(scope="session")
def installation(cluster: LocalCluster, admin: Client) -> Iterator[tuple[Installed, Lead]]:
    """Spotweave with one webhook, as `spotweave run` installs it, and somebody who leads; shared by the session."""
    with running(cluster.kubeconfig, log_level="warning") as spotweave, leading(admin) as lead:
        yield spotweave, lead


@pytest.fixture(scope="session")
def installed(installation: tuple[Installed, Lead]) -> Installed:
    return installation[0]


@pytest.fixture
def no_leader(installation: tuple[Installed, Lead]) -> Iterator[None]:
    """For a test that leads itself."""
    with installation[1].aside():
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
