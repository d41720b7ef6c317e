"""The ledger: slots of pods that were seen, and of decisions that were not seen yet."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kube.store import Store
from placement import names
from placement.model import Class, Key, Owner, Pod
from placement.slots import Mix, Slots
from tests.builders.model import pod
from tests.examples import examples
from tests.manualclock import ManualClock
from webhook.ledger import UNSEEN_SECONDS, Ledger

SEVENTY = Slots(Fraction(7, 10), 1)


@pytest.fixture
def timer() -> ManualClock:
    return ManualClock(0.0)


@pytest.fixture
def ledger(timer: ManualClock) -> Ledger:
    return Ledger(timer)


def unknown(_pod: Pod) -> Class | None:
    return None


def by_label(pod: Pod) -> Class | None:
    return Class(pod.labels["class"]) if "class" in pod.labels else None


def take(ledger: Ledger, decision_id: str, replicas: int = 100, uid: str = "rs", **changes: Any) -> int | None:
    return ledger.take(uid, decision_id, SEVENTY, replicas, changes.pop("class_of", unknown), **changes)


def decided(decision_id: str, slot: int, uid: str = "rs", **changes: Any) -> Pod:
    made = pod(f"web-{decision_id}", slot, owner=uid, phase="Running", decision=f"{uid}/{decision_id}")
    return replace(made, **changes)


def missed(name: str, of: str | None = None) -> Pod:
    return pod(name, labels={"class": of} if of else {}, phase="Running")


def test_slots_are_taken_from_the_lowest(ledger: Ledger) -> None:
    """Decisions count before any pod is seen; each revision counts for itself."""
    assert [take(ledger, decision_id) for decision_id in "abc"] == [0, 1, 2]
    assert take(ledger, "d", uid="other") == 0
    assert len(ledger) == 4


def test_a_repeated_decision_gets_its_slot_again(ledger: Ledger) -> None:
    """A duplicate call counts nothing."""
    assert [take(ledger, decision_id) for decision_id in ("a", "b", "a", "b", "c")] == [0, 1, 0, 1, 2]
    assert len(ledger) == 3


def test_decisions_that_were_not_seen_can_be_taken_over(ledger: Ledger, timer: ManualClock) -> None:
    """Another ledger goes on where this one was; a pod that is seen takes its decision out of both."""
    other = Ledger(timer)
    assert ledger.recent("rs") is None
    assert [take(ledger, decision_id) for decision_id in "abc"] == [0, 1, 2]
    ledger.observe(None, decided("a", 0))
    handed = ledger.recent("rs")
    assert handed == {"b": 1, "c": 2}
    other.take_over("rs", handed)
    other.observe(None, decided("b", 1))
    assert other.recent("rs") == {"c": 2}
    assert [take(other, decision_id) for decision_id in "de"] == [0, 3]


def test_an_owner_is_recent_for_as_long_as_a_decision_may_be_unseen(ledger: Ledger, timer: ManualClock) -> None:
    """Also when its last decision was seen here: others may not have seen it."""
    take(ledger, "a")
    ledger.observe(None, decided("a", 0))
    assert ledger.recent("rs") == {}
    timer.now += UNSEEN_SECONDS
    assert ledger.recent("rs") is None


def test_a_dry_run_counts_nothing(ledger: Ledger) -> None:
    """It is told the slot that a real call would get."""
    assert [take(ledger, decision_id, keep=False) for decision_id in "abc"] == [0, 0, 0]
    assert len(ledger) == 0
    assert take(ledger, "d") == 0


def test_decisions_stay_longer_where_pods_are_seen_late(ledger: Ledger, timer: ManualClock) -> None:
    """One was seen after four seconds, so others are waited for twice as long: eight."""
    take(ledger, "a")
    take(ledger, "b")
    timer.now = 4.0
    ledger.observe(None, decided("a", 0))
    timer.now = 7.9
    assert take(ledger, "c") == 2
    timer.now = 8.1
    assert take(ledger, "d") == 1


def test_a_decision_counts_until_it_expires(ledger: Ledger, timer: ManualClock) -> None:
    """Admission is not persistence: a create that failed later must not hold its slot for ever."""
    assert take(ledger, "a") == 0
    timer.now = UNSEEN_SECONDS - 0.1
    assert take(ledger, "b") == 1
    timer.now = UNSEEN_SECONDS + 0.1
    assert (take(ledger, "c"), len(ledger)) == (0, 2)
    timer.now = 2 * UNSEEN_SECONDS - 0.05
    assert (take(ledger, "d"), len(ledger)) == (1, 2)
    timer.now = 10 * UNSEEN_SECONDS
    assert len(ledger) == 0


def test_a_seen_decision_counts_as_its_pod(ledger: Ledger, timer: ManualClock) -> None:
    """Once seen it does not expire, and when the pod goes its slot is free at once."""
    take(ledger, "a")
    take(ledger, "b")
    ledger.observe(None, decided("a", 0))
    assert len(ledger) == 1
    timer.now = 10 * UNSEEN_SECONDS
    assert take(ledger, "c") == 1
    ledger.observe(decided("a", 0), None)
    assert take(ledger, "d") == 0


def test_a_pod_that_is_first_seen_dying_frees_its_slot(ledger: Ledger) -> None:
    """Created and deleted between two events of the watch."""
    take(ledger, "a")
    ledger.observe(None, decided("a", 0, terminating=True))
    assert (len(ledger), take(ledger, "b")) == (0, 0)


FREED: dict[str, dict[str, Any]] = {
    "on its way out": {"terminating": True},
    "failed": {"phase": "Failed"},
    "finished": {"phase": "Succeeded"},
    "released": {
        "annotations": {names.SLOT: "0", names.RELEASED: "until…"},
        "labels": {names.POD_TEMPLATE_HASH: "released-h"},
    },
    "released, and its Deployment's": {
        "owner": Owner("Deployment", "web", "d"),
        "annotations": {names.SLOT: "0", names.RELEASED: "until…"},
        "labels": {names.POD_TEMPLATE_HASH: "released-h"},
    },
}


@pytest.mark.parametrize("change", FREED.values(), ids=FREED.keys())
def test_a_slot_is_free_when_its_pod_does_not_count(ledger: Ledger, change: dict[str, Any]) -> None:
    """The replacement gets the same slot, and so the same class; the end of the old pod then changes nothing."""
    ledger.observe(None, decided("a", 0))
    ledger.observe(decided("a", 0), decided("a", 0, **change))
    assert take(ledger, "b") == 0
    ledger.observe(None, decided("b", 0))
    ledger.observe(decided("a", 0, **change), None)
    assert take(ledger, "c") == 1


def test_a_released_pod_that_is_put_back_holds_its_slot_again(ledger: Ledger) -> None:
    """An undone release."""
    for change in ("released", "released, and its Deployment's"):
        released = decided("a", 0, **FREED[change])
        ledger.observe(None, released)
        ledger.observe(released, decided("a", 0))
        assert take(ledger, "b", keep=False) == 1
        ledger.observe(decided("a", 0), None)


def test_two_pods_on_one_slot_both_hold_it(ledger: Ledger) -> None:
    """Two webhooks can take the same slot; it is free when both are gone."""
    ledger.observe(None, decided("a", 0))
    ledger.observe(None, decided("b", 0))
    ledger.observe(decided("a", 0), None)
    assert take(ledger, "c") == 1
    ledger.observe(decided("b", 0), None)
    assert take(ledger, "d") == 0


def test_a_rewritten_slot_moves(ledger: Ledger) -> None:
    """The rebalancer may hand slots out anew."""
    ledger.observe(None, decided("a", 0))
    ledger.observe(decided("a", 0), decided("a", 2))
    assert [take(ledger, decision_id) for decision_id in "bcd"] == [0, 1, 3]


def test_beyond_the_replicas_a_patient_caller_waits(ledger: Ledger) -> None:
    """A ReplicaSet never has more pods than replicas: the caches are behind, and nothing is noted."""
    assert [take(ledger, decision_id, replicas=2, patient=True) for decision_id in "ab"] == [0, 1]
    assert take(ledger, "c", replicas=2, patient=True) is None
    assert len(ledger) == 2
    assert take(ledger, "a", replicas=2, patient=True) == 0
    ledger.observe(None, decided("a", 0))
    ledger.observe(decided("a", 0), None)
    assert take(ledger, "c", replicas=2, patient=True) == 0


def test_beyond_the_replicas_the_longest_unseen_slot_is_given_again(ledger: Ledger, timer: ManualClock) -> None:
    """If waiting did not help, a create must have failed after we had decided on it."""
    for decision_id in "abc":
        take(ledger, decision_id, replicas=3)
        timer.now += 1
    ledger.observe(None, decided("a", 0))
    assert take(ledger, "dry", replicas=3, keep=False) == 1
    assert len(ledger) == 2
    assert take(ledger, "d", replicas=3) == 1
    assert take(ledger, "e", replicas=3) == 2
    assert take(ledger, "f", replicas=3) == 1
    assert len(ledger) == 2


def test_a_slot_that_is_given_again_is_one_of_the_replicas(ledger: Ledger) -> None:
    """Ten creates were refused; scaled to one, the single replica is on-demand, whichever was refused first."""
    for number in range(10):
        take(ledger, f"refused-{number}", replicas=10)
    assert take(ledger, "a", replicas=1) == 0
    assert take(ledger, "b", replicas=1) == 0


def test_beyond_the_replicas_with_all_seen_there_is_one_more(ledger: Ledger) -> None:
    """No decision is in doubt, so the cache of the ReplicaSet is behind: the next slot is the best guess."""
    ledger.observe(None, decided("a", 0))
    assert take(ledger, "b", replicas=1) == 1


def test_missed_pods_count_by_their_class(ledger: Ledger) -> None:
    """Ten that admission missed are all on on-demand: they hold 0, 3 and 6, and the next pod goes to spot."""
    for number in range(10):
        ledger.observe(None, missed(f"m{number}", "on-demand"))
    assert [take(ledger, decision_id, class_of=by_label) for decision_id in "ab"] == [1, 2]
    ledger.observe(missed("m0", "on-demand"), None)
    assert take(ledger, "c", class_of=by_label) == 4


def test_a_missed_pod_that_is_given_a_slot_counts_by_it(ledger: Ledger) -> None:
    """The rebalancer annotates it; from then on it is a pod like others."""
    ledger.observe(None, missed("web-a"))
    assert take(ledger, "x", keep=False) == 1
    ledger.observe(missed("web-a"), decided("a", 5))
    assert [take(ledger, decision_id) for decision_id in "bcdefg"] == [0, 1, 2, 3, 4, 6]


def test_copied_annotations_hold_no_slot(ledger: Ledger) -> None:
    """A decision for another controller does not count; the pod is one that admission missed."""
    for number in range(3):
        copied = replace(missed(f"m{number}", "spot"), annotations={names.SLOT: "0"}, decision="other/a")
        ledger.observe(None, copied)
    assert take(ledger, "b", class_of=by_label) == 0


def test_pods_without_an_owner_hold_nothing(ledger: Ledger) -> None:
    """Bare pods, and pods that a ReplicaSet has disowned."""
    ledger.observe(None, Pod("shop", "bare"))
    ledger.observe(decided("a", 0, owner=None), None)
    ledger.observe(None, decided("a", 0))
    ledger.observe(decided("a", 0), decided("a", 0, owner=None))
    assert take(ledger, "b") == 0


def test_nothing_is_kept_of_owners_that_are_gone(ledger: Ledger, timer: ManualClock) -> None:
    """Old revisions come and go for as long as the webhook runs."""
    ledger.observe(None, decided("a", 0))
    ledger.observe(None, missed("m"))
    ledger.observe(decided("a", 0), None)
    ledger.observe(missed("m"), None)
    take(ledger, "b", uid="never-seen")
    timer.now = UNSEEN_SECONDS
    assert (len(ledger), ledger._pages, len(ledger._unseen)) == (0, {}, 0)


def test_a_relist_keeps_the_ledger(ledger: Ledger) -> None:
    """The store tells the differences only; what was decided but not seen stays decided."""
    store: Store[Pod] = Store()
    store.subscribe(ledger.observe)
    for decision_id in "abcd":
        take(ledger, decision_id)
    store.replace([decided("a", 0), decided("b", 1)])
    store.replace([decided("a", 0), decided("b", 1)])
    assert len(ledger) == 2
    store.replace([decided("b", 1), decided("c", 2)])
    assert [take(ledger, decision_id) for decision_id in "ef"] == [0, 4]


class Histories(RuleBasedStateMachine):
    """A ReplicaSet, its pods, the API server and a cache that lags behind it, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.timer = ManualClock(0.0)
        self.ledger = Ledger(self.timer)
        self.cache: Store[Pod] = Store()
        self.cache.subscribe(self.ledger.observe)
        self.pods: dict[Key, Pod] = {}  # what the API server has
        self.decisions = 0
        self.replicas = 0

    @property
    def live(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.is_live]

    def create(self) -> None:
        """One admission, as the webhook does it: patient at first (the cache then catches up), then not."""
        self.decisions += 1
        decision_id = str(self.decisions)
        slot = take(self.ledger, decision_id, self.replicas, patient=True)
        if slot is None:
            self.see()
            slot = take(self.ledger, decision_id, self.replicas)
        assert slot is not None
        pod = decided(decision_id, slot)
        self.pods[pod.key] = pod

    @rule()
    def see(self) -> None:
        """The cache catches up."""
        self.cache.replace(self.pods.values())

    @rule(replicas=st.integers(0, 25))
    def scale(self, replicas: int) -> None:
        """Up by creates, down from the highest slot, as the deletion cost says."""
        self.replicas = replicas
        for _ in range(replicas - len(self.live)):
            self.create()
        for each in sorted(self.live, key=lambda pod: pod.slot or 0)[replicas:]:
            self.pods[each.key] = replace(each, terminating=True)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), fails=st.booleans())
    def lose(self, data: st.DataObject, fails: bool) -> None:
        """A pod is deleted or fails, and the ReplicaSet replaces it once that is seen."""
        pod = data.draw(st.sampled_from(self.live))
        self.pods[pod.key] = replace(pod, phase="Failed") if fails else replace(pod, terminating=True)
        self.see()
        self.create()
        assert self.live[-1].slot == pod.slot

    @precondition(lambda self: len(self.live) < len(self.pods))
    @rule()
    def finish(self) -> None:
        """What was on its way out is gone."""
        self.pods = {pod.key: pod for pod in self.live}

    @rule()
    def dry_run(self) -> None:
        take(self.ledger, "dry", self.replicas + 1, keep=False)

    @precondition(lambda self: len(self.cache) == len(self.pods))
    @rule()
    def refused(self) -> None:
        """A create is refused after our decision (quota); its slot is free again after a while."""
        self.see()
        take(self.ledger, f"refused-{self.decisions}", self.replicas + 1)
        self.timer.now += UNSEEN_SECONDS + 1

    @invariant()
    def slots_are_distinct_and_the_mix_is_exact(self) -> None:
        slots = [pod.slot for pod in self.live]
        assert sorted(slots, key=str) == sorted(map(int, range(self.replicas)), key=str)
        assert Mix.of(SEVENTY.class_of(slot or 0) for slot in slots) == SEVENTY.mix(self.replicas)

    def teardown(self) -> None:
        """After everything is seen, nothing is left in doubt."""
        self.see()
        self.timer.now += UNSEEN_SECONDS + 1
        assert len(self.ledger) == 0


TestHistories = Histories.TestCase
TestHistories.__doc__ = "Whatever the history, with one process live pods' slots are 0…n−1, so the mix is exact."
TestHistories.settings = settings(examples(40), stateful_step_count=25)
