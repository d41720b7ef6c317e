"""Releases that last as long as a test needs them: replacements become ready when the test says so."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from kube.errors import NotFound
from localcluster.stages import READY_AFTER_ANNOTATION
from tests.cluster.clustersetup import ClusterSetup
from tests.cluster.namespaceuser import wait_for
from tests.cluster.podhistory import Meta, is_released

SLOW_SECONDS = 600  # longer than any test


def make_ready(setup: ClusterSetup, name: str) -> None:
    """The pods that are there become ready now. Later ones take as long as their template says."""
    now = {"metadata": {"annotations": {READY_AFTER_ANNOTATION: "0s"}}}
    for pod in setup.user.pods(name):
        with suppress(NotFound):
            setup.user.client.patch(f"{setup.user.pods_path}/{pod['metadata']['name']}", now)


def has_pods(setup: ClusterSetup, name: str, count: int) -> bool:
    return len(setup.user.pods(name)) == count


def has_none_released(setup: ClusterSetup, name: str) -> bool:
    return not setup.released(name)


def serve_with_slow_replacements(
    setup: ClusterSetup, replicas: dict[str, int], *, ready_after: int = SLOW_SECONDS, **more: Any
) -> None:
    """Deployments that serve in their mixes at once. All later pods take so many seconds to become ready."""
    for name, count in replicas.items():
        setup.create(name, count, ready_after=ready_after, **more)
    for name, count in replicas.items():
        wait_for(f"the pods of {name}", partial(has_pods, setup, name, count))
        make_ready(setup, name)
    setup.settles(*replicas)


def start_releases(setup: ClusterSetup, name: str, replicas: int, **settings: str | None) -> dict[str, Meta]:
    """Changes the mix; waits until pods are released and each has a replacement. Gives the released ones by UID."""
    setup.annotate(name, "Deployment", **(settings or {"spot_ratio": "30%"}))

    def is_under_way() -> bool:
        count = len(setup.released(name))
        return count > 0 and has_pods(setup, name, replicas + count)

    wait_for(f"moves of {name} to be under way", is_under_way)
    metas = [pod["metadata"] for pod in setup.user.pods(name)]
    return {meta["uid"]: meta for meta in metas if is_released(meta)}


# --- rebalancers -----------------------------------------------------------------------------------------------------


def have_two_rebalancers(setup: ClusterSetup) -> None:
    """Two rebalancers live, and one of them leads."""
    while len(setup.rebalancers) < 2:
        setup.start()
    wait_for_leader(setup)


def wait_for_leader(setup: ClusterSetup) -> None:
    wait_for("a rebalancer to lead", lambda: any(map(setup.leads, setup.rebalancers)))


def kill_leader(setup: ClusterSetup) -> None:
    """SIGKILL: it can tidy up nothing."""
    (leader,) = filter(setup.leads, setup.rebalancers)
    leader.process.kill()
    leader.process.wait()
