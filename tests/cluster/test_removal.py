"""The manifests are deleted in the midst of moves, without `spotweave uninstall` first: every pod keeps an owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.gangs import OVERLAY
from localcluster import kubectl
from placement import names
from tests.cluster.clustersetup import cluster_setup
from tests.cluster.longreleases import make_ready, serve_with_slow_replacements, start_releases
from tests.cluster.namespaceuser import wait_for
from tests.cluster.podhistory import is_released, recording_pods

pytestmark = pytest.mark.cluster

REPLICAS = 8


def test_without_spotweave_released_pods_go_with_their_deployment(tmp_path: Path) -> None:
    """`kubectl delete -k`, and the programs end: every pod has a controller, and none outlives its Deployment."""
    with cluster_setup(tmp_path, rebalancers=1) as setup, recording_pods(setup.user) as pod_history:
        user = setup.user
        serve_with_slow_replacements(setup, {"web": REPLICAS}, minAvailable="100%")
        setup.history.forget()
        start_releases(setup, "web", REPLICAS)
        kubectl.call("delete", "-k", str(OVERLAY), kubeconfig=user.kubeconfig)
        setup.installed.stop()
        assert not user.exists(f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}")
        make_ready(setup, "web")
        wait_for("the replacements to serve", lambda: setup.history.serving("web") > REPLICAS)
        assert any(is_released(pod["metadata"]) for pod in user.pods("web")), "no program is left to end the move"
        assert setup.history.worst("web") == REPLICAS
        assert pod_history.complaints() == []
        user.delete("Deployment", "web")
        wait_for("all pods of the Deployment to go", lambda: not user.pods("web"))
        assert pod_history.complaints() == []
