"""Refusals: what never becomes a pod because of our patch is let in without it, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from placement import names
from placement.decide import Reason
from placement.model import Budget, Class, Key, Owner, Pod, PriorityClass, ReplicaSet, Workload
from placement.outage import Outage, Outages
from placement.refusal import FIRST_SECONDS
from tests.builders.api import raw_new_pod
from tests.builders.model import DEPLOYMENT, REPLICA_SET, STATEFUL_SET
from tests.webhook.admissionharness import AdmissionHarness
from webhook.metrics import WebhookMetrics
from webhook.refusals import MOST_ASKED, MOST_TRIES, QUIET_SECONDS, TRIES, UNSEEN_SECONDS, Refusals

DENIED = (
    "pods \"web-abc-1\" is forbidden: ValidatingAdmissionPolicy 'no-tolerations' with binding 'all' denied request: no"
)
QUOTA = 'pods "web-abc-1" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=9, limited: pods=9'


class Refusing:
    """A world whose API server may refuse pods, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.message = ""  # that the controller reports
        self.asked: list[Owner] = []
        self.told: list[tuple[str, str, str]] = []
        self.refusals = Refusals(self._ask, self._tell, lambda: self.now)
        self.harness = AdmissionHarness(refusals=self.refusals, now=lambda: self.now)
        self._names = 0

    def _ask(self, owner: Owner, _namespace: str) -> str:
        self.asked.append(owner)
        return self.message

    def _tell(self, workload: Workload, reason: str, text: str) -> None:
        self.told.append((workload.name, reason, text))

    def admit(self, pod: dict[str, Any] | None = None, **call: Any) -> Reason:
        """A pod that nobody sees afterwards."""
        return self.harness.place(pod or raw_new_pod(), **call).reason

    def create(self, pod: dict[str, Any] | None = None) -> dict[str, Any]:
        """One that is seen."""
        self._names += 1
        return self.harness.create(pod or raw_new_pod(), f"web-abc-{self._names}")

    def refuse(self, times: int = TRIES, pod: dict[str, Any] | None = None) -> list[Reason]:
        """The controller tries so often, and each try is refused; then some time passes."""
        reasons = [self.admit(pod) for _ in range(times)]
        self.wait(QUIET_SECONDS)
        return reasons

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.refusals.look()

    def series(self) -> str:
        metrics = WebhookMetrics()
        metrics.show_refusals(self.refusals.let_in)
        lines = metrics.text().decode().splitlines()
        return "\n".join(line for line in lines if line.startswith(names.METRIC_REFUSED))


@pytest.fixture
def scenario() -> Refusing:
    return Refusing()


def spot_only(scenario: Refusing) -> None:
    """The slots of on-demand are taken by pods that are there."""
    scenario.harness.put(*(seen_pod(slot) for slot in (0, 3, 6)))


def seen_pod(slot: int) -> Pod:
    return Pod(
        "shop", f"old-{slot}", f"old-{slot}", REPLICA_SET, {}, {names.SLOT: str(slot)}, decision=f"rs/old-{slot}"
    )


def test_decisions_that_a_policy_refuses_end_in_unpatched_pods(scenario: Refusing) -> None:
    """Three tries that become no pods, and the ReplicaSet's own word: the next pod carries nothing of ours."""
    spot_only(scenario)
    scenario.message = DENIED
    assert scenario.refuse() == [Reason.SLOT] * TRIES
    assert scenario.asked == [REPLICA_SET]
    created = scenario.create()
    assert names.DECISION not in (created["metadata"].get("annotations") or {})
    assert "affinity" not in created["spec"]
    assert len(scenario.harness.admission.ledger) == TRIES  # the unpatched pod holds no slot


def test_it_is_told_when_a_pod_was_created_without_the_patch(scenario: Refusing) -> None:
    """Not before: until then the patch may have nothing to do with it. Event and metric name the policy."""
    spot_only(scenario)
    scenario.message = DENIED
    scenario.refuse()
    assert scenario.told == []
    assert scenario.series() == ""
    scenario.create()
    scenario.refusals.look()
    ((name, reason, text),) = scenario.told
    assert (name, reason) == ("web", names.EVENT_REFUSED)
    assert 'ValidatingAdmissionPolicy "no-tolerations"' in text
    assert scenario.series() == 'spotweave_patch_refused{by="policy",name="no-tolerations"} 1.0'


def test_pods_that_nobody_refuses_keep_their_patch(scenario: Refusing) -> None:
    """The policy refuses what spot slots get; on-demand slots of the same ReplicaSet go on as ever."""
    spot_only(scenario)
    scenario.message = DENIED
    scenario.refuse()
    assert scenario.admit() is Reason.REFUSED
    scenario.harness.stores.pods.remove(Key("shop", "old-0"))
    assert scenario.admit() is Reason.SLOT


def test_the_patch_is_tried_again_after_a_growing_pause(scenario: Refusing) -> None:
    """After 5 minutes a pod carries it; refused again, after 10."""
    spot_only(scenario)
    scenario.message = DENIED
    scenario.refuse()
    scenario.create()
    scenario.wait(FIRST_SECONDS)
    assert scenario.refuse() == [Reason.SLOT] * TRIES
    scenario.wait(2 * FIRST_SECONDS - 10)
    assert scenario.admit() is Reason.REFUSED
    scenario.wait(20)
    assert scenario.admit() is Reason.SLOT


def test_the_first_patched_pod_ends_it(scenario: Refusing) -> None:
    """The policy was changed: all is as if it had never been, and the next refusal starts with a short pause."""
    spot_only(scenario)
    scenario.message = DENIED
    scenario.refuse()
    scenario.wait(FIRST_SECONDS)
    scenario.create()
    scenario.refusals.look()
    assert scenario.refusals.standing == {}
    scenario.refuse()
    (standing,) = scenario.refusals.standing.values()
    assert standing.times == 0


def test_where_unpatched_pods_are_refused_too_the_patch_returns(scenario: Refusing) -> None:
    """It is none of ours. That is not tried again for a while, nothing is told, and no pod flaps."""
    spot_only(scenario)
    scenario.message = DENIED
    scenario.refuse()
    assert scenario.refuse() == [Reason.REFUSED] * TRIES
    for _ in range(20):
        assert scenario.refuse() == [Reason.SLOT] * TRIES
    assert scenario.told == []
    assert scenario.series() == ""


def test_a_full_quota_changes_nothing(scenario: Refusing) -> None:
    """It counts nothing that we patch, so pods without the patch would be refused, too."""
    spot_only(scenario)
    scenario.message = QUOTA
    for _ in range(10):
        assert scenario.refuse() == [Reason.SLOT] * TRIES
    assert scenario.refusals.standing == {}


def test_a_quota_for_our_priority_class_is_met(scenario: Refusing) -> None:
    """Spot is out, and what is more than must serve gets `spotweave-overflow`, which the quota refuses."""
    scenario.harness.put(PriorityClass(names.OVERFLOW_PRIORITY, -5))
    scenario.harness.put(Budget("shop", "web", {"matchLabels": {"app": "web"}}, min_available=0))
    scenario.harness.outages = Outages(1, (Outage(Class.SPOT, 5000.0),))
    web = scenario.harness.stores.deployments.get(Key("shop", "web"))
    assert web is not None
    scenario.harness.put(replace(web, annotations={names.MIN_AVAILABLE: "0"}))
    spot_only(scenario)
    scenario.message = QUOTA.replace("compute", "no-overflow")
    assert scenario.refuse() == [Reason.SPOT_OUT] * TRIES
    assert scenario.admit() is Reason.REFUSED


def test_a_stateful_sets_pods_are_let_in_too(scenario: Refusing) -> None:
    """They have no ledger; the same ordinal is asked for again and again."""
    scenario.message = f"create Pod db-1 in StatefulSet db failed error: {DENIED}"
    pod = raw_new_pod(STATEFUL_SET, "db-1")
    scenario.refuse(pod=pod)
    assert scenario.asked == [STATEFUL_SET]
    assert scenario.admit(pod) is Reason.REFUSED


def test_a_controller_that_is_gone_or_wants_no_pods_is_refused_none(scenario: Refusing) -> None:
    """A new revision took its place, or somebody deleted it: the metric, and the alert on it, end at once."""
    web_abc = scenario.harness.stores.replica_sets.get(Key("shop", "web-abc"))
    assert web_abc is not None
    for after in (replace(web_abc, replicas=0), None):
        scenario.harness.put(web_abc)
        spot_only(scenario)
        scenario.message = DENIED
        scenario.refuse()
        scenario.create()
        scenario.refusals.look()
        assert scenario.series() != ""
        if after is None:
            scenario.harness.stores.replica_sets.remove(web_abc.key)
        else:
            scenario.harness.put(after)
        scenario.refusals.look()
        assert scenario.series() == ""
        assert scenario.refusals.standing == {}


def test_a_slow_api_server_is_asked_about_a_few_at_a_time(scenario: Refusing) -> None:
    """Those that wait for longest come first, so none is forgotten."""
    for number in range(3 * MOST_ASKED):
        scenario.harness.put(ReplicaSet("shop", f"web-{number}", f"rs-{number}", DEPLOYMENT, 10))
        for _ in range(2 * TRIES):  # of both classes
            scenario.admit(raw_new_pod(Owner("ReplicaSet", f"web-{number}", f"rs-{number}")))
    scenario.now += UNSEEN_SECONDS
    for looks in range(1, 4):
        scenario.refusals.look()
        assert len({owner.uid for owner in scenario.asked}) == looks * MOST_ASKED


# --- what is no refusal ----------------------------------------------------------------------------------------------


def test_a_slow_informer_is_no_refusal(scenario: Refusing) -> None:
    """Five hundred decisions and no pod for a minute: the API server is asked, at most once a second, and says no."""
    for second in range(60):
        for _ in range(8):
            assert scenario.admit() is not Reason.REFUSED
        scenario.wait(1.0)
        assert len(scenario.asked) <= second + 1
    assert scenario.refusals.standing == {}


def test_a_burst_asks_nobody(scenario: Refusing) -> None:
    """Pods that are seen within half a second are as good as there."""
    scenario.message = DENIED
    for _ in range(300):
        scenario.create()
    scenario.wait(UNSEEN_SECONDS - 0.1)
    scenario.wait(60.0)
    assert scenario.asked == []


def test_dry_runs_are_no_tries(scenario: Refusing) -> None:
    """They become no pods, however many there are. While pods are let in unpatched they show that."""
    spot_only(scenario)
    scenario.message = DENIED
    for _ in range(10):
        scenario.admit(dry_run=True)
    scenario.wait(QUIET_SECONDS)
    assert scenario.asked == []
    scenario.refuse()
    for _ in range(10):
        assert scenario.admit(dry_run=True) is Reason.REFUSED
    scenario.wait(QUIET_SECONDS)
    assert len(scenario.asked) == 1


def test_a_pod_that_is_created_and_deleted_at_once_was_created(scenario: Refusing) -> None:
    """Its creation is seen, whatever comes after."""
    scenario.message = DENIED
    for number in range(1, 20):
        scenario.create()
        scenario.harness.stores.pods.remove(Key("shop", f"web-abc-{number}"))
        scenario.wait(QUIET_SECONDS)
    assert scenario.asked == []


def test_a_few_tries_are_no_suspicion(scenario: Refusing) -> None:
    """Two that failed, and a third an hour later, have nothing to do with each other."""
    scenario.message = DENIED
    scenario.refuse(TRIES - 1)
    scenario.wait(3600.0)
    scenario.refuse(TRIES - 1)
    assert scenario.asked == []


def test_a_restart_forgets_and_finds_out_again(scenario: Refusing) -> None:
    """Nothing is kept but in memory: a new replica counts its own tries."""
    spot_only(scenario)
    scenario.message = DENIED
    scenario.refuse()
    assert scenario.admit() is Reason.REFUSED
    other = Refusing()
    spot_only(other)
    assert other.admit() is Reason.SLOT


def test_what_is_remembered_is_bounded(scenario: Refusing) -> None:
    """A controller that tries for days takes no more room."""
    spot_only(scenario)
    for _ in range(50):
        scenario.refuse(10)
    pages = scenario.refusals._pages["rs"].values()
    assert max(len(page.patched) for page in pages) <= MOST_TRIES
