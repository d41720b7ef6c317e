"""The manifests are deleted in the midst of moves, without `spotweave uninstall` first: every pod keeps an owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.supervisor import OVERLAY
from localcluster import kubectl
from placement import names
from tests.cluster.company import hurry, is_released, released_from, slow, written
from tests.cluster.scene import staged
from tests.cluster.world import wait_for

pytestmark = pytest.mark.cluster

REPLICAS = 8


def test_without_spotweave_released_pods_go_with_their_deployment(tmp_path: Path) -> None:
    """`kubectl delete -k`, and the programs end: every pod has a controller, and none outlives its Deployment."""
    with staged(tmp_path, rebalancers=1) as scene, written(scene.world) as diary:
        world = scene.world
        slow(scene, {"web": REPLICAS}, minAvailable="100%")
        scene.watcher.forget()
        released_from(scene, "web", REPLICAS)
        kubectl.call("delete", "-k", str(OVERLAY), kubeconfig=world.kubeconfig)
        scene.installed.stop()
        assert not world.exists(f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}")
        hurry(scene, "web")
        wait_for("the replacements to serve", lambda: scene.watcher.serving("web") > REPLICAS)
        assert any(is_released(pod["metadata"]) for pod in world.pods("web")), "no program is left to end the move"
        assert scene.watcher.worst("web") == REPLICAS
        assert diary.complaints() == []
        world.delete("Deployment", "web")
        wait_for("all pods of the Deployment to go", lambda: not world.pods("web"), 30)
        assert diary.complaints() == []
