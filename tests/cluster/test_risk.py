"""Interruptions are counted where everybody can read them, and `auto` follows them in both programs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kube.configmaps import PATH, change_observed, read_observed
from localcluster import Choice, Way
from placement import names
from placement.observation import Rates
from placement.promise import SpotLimit
from placement.slots import Mix
from tests.cluster.clustersetup import ClusterSetup
from tests.cluster.namespaceuser import wait_for

pytestmark = pytest.mark.cluster

AUTO = {names.SPOT_RATIO: "auto", names.AVAILABILITY_TARGET: "99.99%"}


def settle(setup: ClusterSetup, version: int, **rates: float) -> None:
    """As the leader does, once a day."""
    pools = {name.replace("_", "/"): rate for name, rate in rates.items()}
    change_observed(setup.user.client, lambda known: replace(known, rates=Rates(version, pools)))


def test_auto_is_the_same_in_both_programs(setup: ClusterSetup, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten under `minAvailable: 8`. One loss of ten minutes costs more than 99.99 % allows: two, for both programs."""
    setup.serves("web", 10, AUTO, minAvailable=8)
    wait_for("auto to choose", lambda: chosen(setup) == 5, 120)
    assert setup.settles("web")["web"].actual == Mix(2, 8)
    settle(setup, 1, a_m5=1.0, b_m5=1.0)
    before = setup.moves()
    setup.user.roll_out("web")
    setup.user.rest("web")
    assert setup.settles("web")["web"].actual == Mix(2, 8)
    assert setup.moves() == before  # the webhook has placed them as the rebalancer wants them
    capsys.readouterr()
    setup.spotweave("status", "-o", "json")
    [web] = json.loads(capsys.readouterr().out)["workloads"]
    assert {"incidentsPer30Days", "unavailability", "restsOn"} <= set(web["exposure"])
    setup.spotweave("explain", "shop/web")
    told = capsys.readouterr().out
    assert f"auto (25% for the target 99.99%: {SpotLimit.STRICT})" in " ".join(told.split())
    assert "incidents expected in 30 days" in told
    assert "(assumed)" in told
    delete_state(setup)
    wait_for("the choice to be noted again", lambda: chosen(setup) == 5, 60)
    assert setup.settles("web")["web"].actual == Mix(2, 8)
    assert setup.moves() == before


def chosen(setup: ClusterSetup) -> int | None:
    found = read_observed(setup.user.client).rates.chosen_for(setup.user.status("web").workload.uid)
    return None if found is None else found.step


def delete_state(setup: ClusterSetup) -> None:
    setup.user.client.delete(f"{PATH}/{names.STATE_MAP}")


def test_a_reclaim_is_counted_once(setup: ClusterSetup) -> None:
    """Notices on all of a pool's nodes, then the nodes go: one loss of each pool that had pods, in the shared state."""
    settle(setup, 0)
    setup.serves("web", 20)
    before = read_observed(setup.user.client)
    sites = [each.site for each in setup.user.status("web").pods if each.site is not None]
    used = {site.spot_pool for site in sites if site.spot_pool}
    setup.cluster.reclaim(Choice(all_spot=True), Way.CLOUD, notice_seconds=5)

    def counted() -> set[str]:
        known = read_observed(setup.user.client)
        grown = {name: record for name, record in known.pools.items() if record.taken > before.of(name).taken}
        return {name for name, record in grown.items() if record.losses + record.node_losses >= 1}

    wait_for("the losses to be noted", lambda: counted() >= used, 150)
    known = read_observed(setup.user.client)
    assert all(known.of(pool).losses <= before.of(pool).losses + 1 for pool in used)
