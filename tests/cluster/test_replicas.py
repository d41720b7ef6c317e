"""Several webhook replicas decide as one: exact in bursts, rollouts and scale-downs, and when one of them goes."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.supervisor import Installed, Process, wait_until_ready
from kube.client import connect
from localcluster import LocalCluster, Options, demo_profile
from placement import names
from report.status import WorkloadStatus
from tests.builders.api import raw_namespace, raw_workload
from tests.cluster.idleleader import holding_lease
from tests.cluster.killing import running
from tests.cluster.namespaceuser import WALKS, NamespaceUser, label, wait_for

pytestmark = pytest.mark.cluster

RATES = {"default rate": Options(), "200/400 a second": Options(controller_qps=200, controller_burst=400)}
UserAndInstalled = tuple[NamespaceUser, Installed]


CROWDS = [
    pytest.param((3, "200/400 a second"), id="three at 200/400 a second"),
    pytest.param((2, "default rate"), id="two at the default rate", marks=pytest.mark.soak),
    pytest.param((2, "200/400 a second"), id="two at 200/400 a second", marks=pytest.mark.soak),
    pytest.param((3, "default rate"), id="three at the default rate", marks=pytest.mark.soak),
]


@pytest.fixture(params=CROWDS, scope="module")
def user_and_installed(request: pytest.FixtureRequest) -> Iterator[UserAndInstalled]:
    """A cluster with two or three webhooks behind one address."""
    replicas, rate = request.param
    with (
        LocalCluster.start(demo_profile(), options=RATES[rate]) as cluster,
        running(cluster.kubeconfig, replicas, log_level="warning") as installed,
    ):
        client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
        client.post("/api/v1/namespaces", raw_namespace("shop"))
        label(client, "shop")
        with holding_lease(client):
            yield NamespaceUser(client, Path(cluster.kubeconfig), "shop"), installed
        client.close()


@pytest.fixture(autouse=True)
def nothing_left(user_and_installed: UserAndInstalled) -> Iterator[None]:
    """What a test leaves, however it ends, is not the next one's."""
    yield
    user, _ = user_and_installed
    for each in user.client.get_json(user.path("Deployment"))["items"]:
        user.delete("Deployment", each["metadata"]["name"])
    wait_for("the pods to go", lambda: not user.client.get_json(user.pods_path)["items"])


def is_safe(status: WorkloadStatus) -> bool:
    """Off by at most one pod, and never with too few on on-demand; nobody was missed."""
    surplus = status.actual.on_demand - status.wanted.on_demand
    return 0 <= surplus <= 1 and not status.missed


def told(status: WorkloadStatus) -> str:
    slots = sorted(each.pod.slot for each in status.pods if each.pod.slot is not None)
    return f"{status.actual}, wanted {status.wanted}, missed {status.missed}, slots {slots}"


def test_bursts_rollouts_and_scale_downs_together_stay_within_one(user_and_installed: UserAndInstalled) -> None:
    """A burst of 500, one of 200, a rollout of 60 and a scale-down from 150 to 20, at once."""
    user, _ = user_and_installed
    user.create(raw_workload("Deployment", "rolling", 60))
    user.create(raw_workload("Deployment", "shrinking", 150))
    user.rest("rolling")
    user.rest("shrinking")
    user.create(raw_workload("Deployment", "large", 500))
    user.create(raw_workload("Deployment", "small", 200))
    user.roll_out("rolling")
    user.scale("shrinking", 20)
    for name in ("large", "small", "rolling", "shrinking"):
        status = user.rest(name)
        assert is_safe(status), f"{name}: {told(status)}: {dict(failed_calls(user))}"
    assert user.events("FailedCreate") == []


@WALKS
def test_a_walk_of_sizes_with_a_rollout_and_deletions_stays_within_one(
    user_and_installed: UserAndInstalled, walks: int, steps: int
) -> None:
    """Every second another size and two pods deleted, a rollout half-way; at each rest the mix is right."""
    user, _ = user_and_installed
    chance = random.Random(5)
    user.create(raw_workload("Deployment", "walk", 20))
    user.rest("walk")
    for _ in range(walks):
        user.walk("walk", steps, chance)
        status = user.rest_without_holes("walk")
        assert is_safe(status), f"{told(status)}: {dict(failed_calls(user))}"


def failed_calls(user: NamespaceUser) -> Counter[str]:
    """Why the API server created pods without us so far, in its own words: `EOF`, `context deadline exceeded`."""
    lines = (user.kubeconfig.parent / "logs" / "kube-apiserver.log").read_text(errors="replace").splitlines()
    return Counter(line.rpartition('": ')[2] for line in lines if "Failed calling webhook, failing open" in line)


@pytest.mark.parametrize("bursts", [1, pytest.param(25, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_replicas_that_leave_and_join_miss_no_pod(user_and_installed: UserAndInstalled, bursts: int) -> None:
    """In each burst of 400 one gets SIGTERM and another one joins: every pod is placed, and each mix is right.

    No call is cut. One that the API server gave up after its three seconds shows a machine that stood still.
    """
    user, installed = user_and_installed
    found: list[WorkloadStatus] = []
    before = failed_calls(user)
    for number in range(bursts):
        leaving = next(each for each in installed.processes if each.process.poll() is None)
        user.create(raw_workload("Deployment", f"burst-{number}", 400))
        wait_for("the burst to begin", lambda: len(user.pods(f"burst-{number}")) > 40)  # noqa: B023
        leaving.process.terminate()
        joining = installed.add()
        found.append(user.rest(f"burst-{number}"))
        wait_until_ready([joining])
        assert leaving.process.wait(30) == 0
        user.delete("Deployment", f"burst-{number}")
        wait_for("the pods to go", lambda: not user.client.get_json(user.pods_path)["items"])
    failed = failed_calls(user) - before
    assert [why for why in failed if "deadline exceeded" not in why] == []
    wrong = [told(each) for each in found if not is_safe(each)]
    assert wrong == [], f"{sum(len(each.missed) for each in found)} of {400 * bursts} missed: {dict(failed)}"


BURST = 400
HURT = {"killed": signal.SIGKILL, "hung": signal.SIGSTOP}
NEAR = 3  # of those that were placed; ADR 7: off by one was seen. Those that were missed go where the scheduler likes


def decided(installed: Installed, process: Process) -> float:
    """How many decisions a webhook has made so far."""
    lines = installed.metrics(process.name).splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(names.METRIC_DECISIONS))


def hurt_in_a_burst(user_and_installed: UserAndInstalled, name: str, how: signal.Signals) -> WorkloadStatus:
    """In a burst, the webhook that decides on it is killed or stopped. Afterwards there are as many as before."""
    user, installed = user_and_installed
    live = [each for each in installed.processes if each.process.poll() is None]
    before = {each.name: decided(installed, each) for each in live}
    user.create(raw_workload("Deployment", name, BURST))
    wait_for("the burst to begin", lambda: len(user.pods(name)) > 40)
    deciding = max(live, key=lambda each: decided(installed, each) - before[each.name])
    os.kill(deciding.process.pid, how)
    try:
        status = user.rest(name)
    finally:
        os.kill(deciding.process.pid, signal.SIGCONT)
    if how is signal.SIGKILL:
        deciding.process.wait(30)
        wait_until_ready([installed.add()])
    user.delete("Deployment", name)
    wait_for("the pods to go", lambda: not user.client.get_json(user.pods_path)["items"])
    return status


@pytest.mark.parametrize("bursts", [1, pytest.param(10, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
@pytest.mark.parametrize("how", HURT)
def test_the_loss_of_the_deciding_replica_costs_no_pod(
    user_and_installed: UserAndInstalled, how: str, bursts: int
) -> None:
    """All are created, none is refused; the mix of those that were placed is as near as ADR 7 says."""
    wrong: list[str] = []
    for number in range(bursts):
        status = hurt_in_a_burst(user_and_installed, f"{how}-{number}", HURT[how])
        taken = Counter(each.pod.slot for each in status.pods if each.pod.slot is not None)
        twice, surplus = taken.total() - len(taken), status.actual.on_demand - status.wanted.on_demand
        line = f"{how}: {status.actual}, wanted {status.wanted}, missed {len(status.missed)}, taken twice {twice}"
        print(line)
        if abs(surplus) > NEAR + len(status.missed):
            wrong.append(line)
    assert wrong == []
    assert user_and_installed[0].events("FailedCreate") == []


# The API server keeps a connection idle for 90 s, the webhook for 120 s and looks every 5 s.
GAPS_SECONDS = (89.0, 89.5, 90.0, 90.5, 91.0, 119.0, 120.0, 121.0, 125.0)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_pods_that_come_when_connections_are_given_up_are_not_missed(user_and_installed: UserAndInstalled) -> None:
    """Twenty at a time, so that many connections are idle, after just as long as either side keeps them."""
    user, _ = user_and_installed
    user.create(raw_workload("Deployment", "rare", 20))
    user.rest("rare")
    for number, gap in enumerate(GAPS_SECONDS):
        time.sleep(gap)  # what is tested
        user.scale("rare", 40 + 20 * number)
    status = user.rest("rare")
    assert is_safe(status), f"{told(status)}: {dict(failed_calls(user))}"
