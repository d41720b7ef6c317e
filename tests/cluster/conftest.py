"""Spotweave on the session's cluster with a labelled namespace for each test; or on a cluster of a module's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.supervisor import Installed
from kube.client import Client, connect
from localcluster import LocalCluster
from tests.cluster.clustersetup import ClusterSetup, cluster_setup
from tests.cluster.gangs import CONFIGURATION, GROUP, create, is_gated, raw_member
from tests.cluster.idleleader import IdleLeader, holding_lease
from tests.cluster.killing import running
from tests.cluster.namespaceuser import NamespaceUser, label, wait_for


@pytest.fixture(scope="session")
def installation(cluster: LocalCluster) -> Iterator[Installed]:
    """Spotweave with one webhook, as `spotweave run` installs it; shared by the session."""
    with running(cluster.kubeconfig, log_level="warning") as spotweave:
        yield spotweave


@pytest.fixture(scope="module")
def idle_leader(installation: Installed, admin: Client) -> Iterator[IdleLeader]:
    """A leader that does nothing else; for one module, since other tests use the Lease too."""
    with holding_lease(admin) as idle_leader:
        yield idle_leader


@pytest.fixture(scope="module")
def installed(installation: Installed, idle_leader: IdleLeader) -> Installed:
    return installation


@pytest.fixture
def no_leader(idle_leader: IdleLeader) -> Iterator[None]:
    """For a test that leads itself."""
    with idle_leader.aside():
        yield


@pytest.fixture(scope="session")
def admin(cluster: LocalCluster) -> Iterator[Client]:
    client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
    yield client
    client.close()


@pytest.fixture
def outsider(cluster: LocalCluster, installed: Installed, admin: Client, namespace: str) -> NamespaceUser:
    """The user of a namespace that is not opted in."""
    return NamespaceUser(admin, Path(cluster.kubeconfig), namespace)


@pytest.fixture
def user(outsider: NamespaceUser) -> NamespaceUser:
    """The user of a namespace that is opted in."""
    label(outsider.client, outsider.namespace)
    return outsider


@pytest.fixture(scope="module")
def shared_setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    """Two webhooks and a rebalancer; a module that wants others has its own."""
    with cluster_setup(tmp_path_factory.mktemp("config"), rebalancers=1) as made:
        yield made


@pytest.fixture
def setup(shared_setup: ClusterSetup) -> Iterator[ClusterSetup]:
    yield shared_setup
    shared_setup.clear()


@pytest.fixture(scope="module")
def gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    """A cluster with gangs switched on, one webhook and no rebalancer: whoever waits goes on waiting."""
    with cluster_setup(tmp_path_factory.mktemp("config"), configuration=CONFIGURATION, webhooks=1) as setup:
        wait_for("the gate", lambda: is_gated(create(setup.user, raw_member("probe", GROUP), dry=True)))
        yield setup
