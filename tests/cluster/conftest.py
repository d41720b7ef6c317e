"""Spotweave on the session's cluster, and a labelled namespace for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.run import Installed, running
from kube.client import Client, connect
from localcluster import LocalCluster
from tests.cluster.world import World


@pytest.fixture(scope="session")
def installed(cluster: LocalCluster) -> Iterator[Installed]:
    """Spotweave with one webhook, as `spotweave run` installs it; shared by the session."""
    with running(cluster.kubeconfig, log_level="warning") as spotweave:
        yield spotweave


@pytest.fixture(scope="session")
def admin(cluster: LocalCluster) -> Iterator[Client]:
    client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
    yield client
    client.close()


def label(client: Client, namespace: str) -> None:
    client.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"spotweave.dev/placement": "enabled"}}})


@pytest.fixture
def plain(cluster: LocalCluster, installed: Installed, admin: Client, namespace: str) -> World:
    """A namespace that is not opted in."""
    return World(admin, Path(cluster.kubeconfig), namespace)


@pytest.fixture
def world(plain: World) -> World:
    """A namespace that is opted in."""
    label(plain.client, plain.namespace)
    return plain
