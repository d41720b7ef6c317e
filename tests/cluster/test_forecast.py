"""`plan --opt-in` on a real cluster: workloads of odd shapes have, once opted in, the mix that was foretold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from localcluster import Profile, demo_profile
from placement import names
from placement.plan.actions import Blocked
from tests.builders.api import raw_pod_spec, raw_template
from tests.cluster.clustersetup import PLAIN, ClusterSetup, cluster_setup
from tests.cluster.namespaceuser import label, wait_for

# The corpus shows the same of whole applications in every run (`test_corpus.py`).
pytestmark = [pytest.mark.cluster, pytest.mark.soak]

ALL_SPOT = {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}
MINUTES_SECONDS = 180.0


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    with cluster_setup(tmp_path_factory.mktemp("config"), rebalancers=1, profile=profile()) as made:
        taint_spot(made)
        yield replace(made, user=replace(made.user, namespace=PLAIN))


def profile() -> Profile:
    """Spot nodes are half as large as the others."""
    demo = demo_profile()
    pools = (pool if pool.capacity_class == "spot" else replace(pool, cpu="16") for pool in demo.pools)
    return replace(demo, pools=tuple(pools))


def taint_spot(setup: ClusterSetup) -> None:
    """As many clusters have it: whatever does not ask for spot begins on on-demand."""
    taint = {"key": names.CAPACITY, "value": "spot", "effect": "NoSchedule"}
    for pool in setup.cluster.profile.pools:
        for node in pool.node_names if pool.capacity_class == "spot" else ():
            setup.user.client.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})


def apart(name: str) -> dict[str, Any]:
    """No two on one host."""
    term = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": names.HOSTNAME}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def with_port(number: int) -> dict[str, Any]:
    container = raw_pod_spec()["containers"][0]
    return {"containers": [{**container, "ports": [{"containerPort": number, "hostPort": number}]}]}


def populate(setup: ClusterSetup) -> dict[str, Blocked | None]:
    """Each workload's name, and why it will not have what it asks for; None: it will."""
    create = setup.create
    on_demand = {"nodeSelector": {names.CAPACITY: "on-demand"}}
    create("plain", 4)
    create("guarded", 3, maxUnavailable=0)
    create("db", 3, kind="StatefulSet")
    create("strict-db", 3, kind="StatefulSet", maxUnavailable=0)
    create("lone-db", 1, ALL_SPOT, kind="StatefulSet")
    create("again", 3, spec={"strategy": {"type": "Recreate"}})
    create("lone-again", 1, ALL_SPOT, spec={"strategy": {"type": "Recreate"}})
    create("apart", 3, spec={"template": raw_template("apart", **apart("apart"))})
    create("port", 2, spec={"template": raw_template("port", **with_port(8080))})
    create("pinned", 3, spec={"template": raw_template("pinned", **on_demand)})
    create("off", 3, {names.REBALANCE: "off"})
    create("none", 0)
    create("large", 3, spec={"template": raw_template("large", **asking("9"))})
    return {
        **dict.fromkeys(("plain", "guarded", "db", "again", "apart", "port", "none"), None),
        "strict-db": Blocked.BUDGET,
        "lone-db": Blocked.LAST,
        "lone-again": Blocked.LAST,
        "pinned": Blocked.OWN_TERMS,
        "off": Blocked.OFF,
        "large": Blocked.NO_PLACE,
    }


def asking(cpu: str) -> dict[str, Any]:
    return {"containers": [{**raw_pod_spec()["containers"][0], "resources": {"requests": {"cpu": cpu}}}]}


def test_what_is_foretold_of_odd_workloads_comes_true(setup: ClusterSetup, capsys: pytest.CaptureFixture[str]) -> None:
    """The mix of each, within three minutes and lasting; and each that does not get its own has a reason that lasts."""
    expected = populate(setup)
    wait_for("all to serve", partial(are_ready, setup, expected))
    capsys.readouterr()
    setup.spotweave("plan", "--opt-in", PLAIN, "-o", "json")
    told = {each["name"]: each for each in json.loads(capsys.readouterr().out)["workloads"]}
    for name, blocked in expected.items():
        assert told[name]["blocked"] == ([] if blocked is None else [str(blocked)]), name
        assert (told[name]["then"] == told[name]["wanted"]) is (blocked is None), name
        assert told[name]["exposureAfter"]["blastRadius"]["spot"] == told[name]["then"]["spot"], name
    label(setup.user.client, PLAIN)

    def differing() -> dict[str, Any]:
        actual = {name: setup.user.status(name).actual for name in expected}
        mixes = {name: {"spot": mix.spot, "onDemand": mix.on_demand} for name, mix in actual.items()}
        return {name: mix for name, mix in mixes.items() if mix != told[name]["then"]}

    wait_for("every mix to be as foretold", lambda: not differing(), MINUTES_SECONDS)
    setup.falls_silent()
    assert differing() == {}


def are_ready(setup: ClusterSetup, workloads: dict[str, Blocked | None]) -> bool:
    """By their own status."""
    user = setup.user
    found = [each for kind in ("Deployment", "StatefulSet") for each in user.client.get_json(user.path(kind))["items"]]
    ready = [each["status"].get("readyReplicas", 0) == each["spec"]["replicas"] for each in found]
    return len(found) == len(workloads) and all(ready)
