"""`auto` in a cluster: what is observed of losses, what is chosen, when it is written, and that all programs agree."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.configmaps import ObservedMemory
from kube.errors import NotFound
from kube.resources import ConfigMap
from kube.store import Store
from placement import autostate, names, observation
from placement.autostate import AutoState, WorkloadRecord, autostate_text, key_of, parse_chosen
from placement.configuration import Configuration
from placement.intent import intent_of
from placement.model import Class, Kind, Namespace, NodeTaint, Workload
from placement.observation import NOTHING_OBSERVED, Observed, PoolRecord, Rates, extended, observed_text
from placement.promise import DAY_SECONDS, LARGEST, AutoStanding, SpotLimit
from rebalancer import promises
from rebalancer.interruptions import Change as ObservedChange
from rebalancer.interruptions import Observer
from rebalancer.promises import LOOK_SECONDS, REGULAR_SECONDS, Noted, Promises
from tests.placement.invariants import many
from tests.rebalancer.rebalancing import SimulatedRebalancer
from tests.rebalancer.simulation import TERMINATION, SimulatedCluster

AUTO = {names.SPOT_RATIO: "auto", names.MIN_AVAILABLE: "8"}


class PromiseSetup:
    """A cluster with a rebalancer that keeps promises, and what it has written."""

    def __init__(self, annotations: Mapping[str, str] = AUTO) -> None:
        self.cluster = SimulatedCluster()
        self.cluster.opt_in("shop")
        self.spot = [node.name for zone in "abcd" for node in self.cluster.add_nodes(Class.SPOT, 2, zone)]
        self.cluster.add_nodes(Class.ON_DEMAND, 3, "abc")
        self.web = self.cluster.deploy("web", 10, annotations)
        self.rebalancer = SimulatedRebalancer(self.cluster)
        self.is_leading, self.is_down, self.is_there = True, False, False
        self.is_full, self.garbled = False, ""
        self.observed: Observed = NOTHING_OBSERVED
        self.state = AutoState()
        self.written: list[tuple[float, AutoState]] = []
        self.start_anew()
        self.cluster.actors.append(self._look)
        self.cluster.run(30)

    def start_anew(self) -> None:
        """Another leader."""
        index = self.rebalancer.index
        self.promises = Promises(index, lambda: self.is_leading, self._noted, self._write)
        self.observer = Observer(index, lambda: self.is_leading, self._observe, hear=self.promises.hear)

    def _noted(self) -> Noted:
        store: Store[ConfigMap] = Store()
        memory = ObservedMemory(store, lambda _: None)
        data = {autostate.KEY: self.garbled or autostate_text(self.state)} if self.is_there else {}
        store.put(ConfigMap(names.SYSTEM_NAMESPACE, names.STATE_MAP, data))
        return replace(Noted.of(memory), observed=self.observed)

    def _look(self) -> None:
        self.observer.look(self.cluster.now)
        self.promises.look(self.cluster.now)

    def _observe(self, change: ObservedChange) -> None:
        self.observed = change(self.observed)

    def _write(self, state: AutoState) -> bool:
        if self.is_down:
            raise NotFound("PUT /", 404, "NotFound", "gone")
        if self.is_full:
            return False
        self.state, self.is_there, self.garbled = state, True, ""
        self.written.append((self.cluster.now, state))
        self.cluster.rates = replace(self.cluster.rates, chosen=parse_chosen(autostate_text(state)))
        return True

    @property
    def record(self) -> WorkloadRecord:
        return self.state.workloads[key_of(self.web.uid)]

    @property
    def ratio(self) -> Fraction:
        return self.rebalancer.index.assessments[self.web.uid].group.policy.ratio

    def busy(self) -> str:
        """A spot node with pods."""
        return next(pod.node for pod in self.cluster.pods if pod.node in self.spot)

    def roughen(self) -> None:
        """Pools that are often lost."""
        pools = {f"{zone}/m": PoolRecord(hours=2000.0, losses=2000.0, seen=self.cluster.now) for zone in "abcd"}
        self.observed = replace(self.observed, pools=pools)


def test_it_begins_with_what_the_pods_got() -> None:
    """Before anything is chosen pods got 70 %; so the first choice is 70 %, and rises from there, within limits."""
    setup = PromiseSetup()
    assert setup.written[0][1].workloads[key_of(setup.web.uid)].standing.step in (14, LARGEST)
    setup.cluster.run(2 * LOOK_SECONDS)
    assert setup.ratio == Fraction(setup.record.standing.step or 0, 20)
    assert setup.record.standing.rises <= 10


def test_it_falls_when_pools_turn_rough() -> None:
    """To what needs no assumption, if that is all that the target pays for; and says why."""
    setup = PromiseSetup()
    setup.roughen()
    setup.cluster.run(3 * LOOK_SECONDS)
    found = setup.rebalancer.index.assessments[setup.web.uid].group.policy
    assert found.slots.spot(10) == 2
    assert str(SpotLimit.RISK) in found.explain()


def test_a_loss_is_observed() -> None:
    """How long the replacements took, that there was no notice, and what it cost of the budget."""
    setup = PromiseSetup()
    setup.cluster.lose(setup.busy())
    setup.cluster.run(REGULAR_SECONDS + 60)
    assert (setup.record.recoveries.total, setup.record.notices.total) == (1, 1)
    assert setup.record.notices.longest() <= 15
    assert setup.record.missed.longest() > 0


def test_a_notice_is_observed() -> None:
    """The node goes a minute after it is announced."""
    setup = PromiseSetup()
    name = setup.busy()
    setup.cluster.cordon(name, TERMINATION)
    setup.cluster.run(100)
    setup.cluster.delete_node(name)
    setup.cluster.run(REGULAR_SECONDS)
    assert setup.record.notices.longest() == 120


def test_a_dead_node_whose_object_stays_is_gone() -> None:
    """Its replicas are missed from when it is not ready; nothing deletes it."""
    setup = PromiseSetup()
    name = setup.busy()
    setup.cluster.cordon(name, TERMINATION)
    setup.cluster.unready(name)
    setup.cluster.run(10)
    assert name in setup.rebalancer.index.ground.sites
    setup.cluster.run(REGULAR_SECONDS + 60)
    assert setup.record.notices.longest() <= 15
    assert setup.record.missed.longest() > 1


def test_our_own_moves_are_no_losses() -> None:
    """Nor is the end of a node that a person has cordoned."""
    setup = PromiseSetup()
    setup.roughen()
    setup.cluster.run(3 * LOOK_SECONDS)
    name = next(node for node in setup.spot if any(pod.node == node for pod in setup.cluster.pods))
    setup.cluster.cordon(name)
    setup.cluster.run(5)
    setup.cluster.delete_node(name)
    setup.cluster.run(REGULAR_SECONDS)
    assert setup.record.recoveries.total == 0
    assert setup.record.standing.short_seconds == 0


def test_a_deleted_note_is_written_again() -> None:
    """And no ratio changes meanwhile."""
    setup = PromiseSetup()
    setup.roughen()
    setup.cluster.run(3 * LOOK_SECONDS)
    before, ratio = setup.record.standing.step, setup.ratio
    setup.is_there, setup.state = False, AutoState()
    setup.cluster.run(30)
    assert setup.is_there
    assert (setup.record.standing.step, setup.ratio) == (before, ratio)


def test_a_garbled_note_is_written_again(caplog: pytest.LogCaptureFixture) -> None:
    """Within seconds, by a new leader, too; of a note with one garbled entry, all others count."""
    setup = PromiseSetup()
    more = setup.cluster.deploy("more", 4, AUTO)
    setup.roughen()
    setup.cluster.run(REGULAR_SECONDS + 60)
    before, good = setup.record.standing, autostate_text(setup.state)
    (bad,) = (row for key, row in json.loads(good)["workloads"].items() if key == key_of(more.uid))
    setup.garbled = good.replace(json.dumps(bad, separators=(",", ":")), "[99]")
    assert setup.garbled != good
    setup.written.clear()
    setup.start_anew()
    setup.cluster.run(15)
    assert setup.garbled == ""
    assert (setup.record.standing.since, setup.record.standing.step) == (before.since, before.step)
    assert setup.state.workloads.keys() == {key_of(setup.web.uid), key_of(more.uid)}
    assert caplog.text.count("starts from empty") == 1


def test_another_leader_goes_on() -> None:
    """With the budget and the ratio that the last one noted."""
    setup = PromiseSetup()
    setup.roughen()
    setup.cluster.run(3 * LOOK_SECONDS)
    before = setup.record.standing
    setup.start_anew()
    setup.cluster.run(REGULAR_SECONDS + 60)
    assert (setup.record.standing.since, setup.record.standing.step) == (before.since, before.step)


def test_a_new_leader_keeps_what_it_has_not_looked_at_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """After two days without a leader the first write comes before all workloads were looked at; gone ones go."""
    setup = PromiseSetup()
    more = [setup.cluster.deploy(f"web-{number}", 2, AUTO) for number in range(4)]
    setup.cluster.run(REGULAR_SECONDS + 60)
    old = {key: _aged(record, 2 * DAY_SECONDS) for key, record in setup.state.workloads.items()}
    setup.state = AutoState(setup.state.version, {**old, "gone": next(iter(old.values()))})
    monkeypatch.setattr(promises, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(promises, "SOONEST_SECONDS", 1.0)
    setup.start_anew()
    setup.roughen()
    setup.written.clear()
    while not setup.written:
        setup.cluster.run(1)
    assert setup.written[0][1].workloads.keys() == {key_of(each.uid) for each in (setup.web, *more)}


def _aged(record: WorkloadRecord, seconds: float) -> WorkloadRecord:
    standing = record.standing
    return replace(record, standing=replace(standing, since=standing.since - seconds, at=standing.at - seconds))


def test_what_is_too_large_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """The last note stays; what is chosen is written when it fits."""
    setup = PromiseSetup()
    setup.is_full, count = True, len(setup.written)
    setup.cluster.run(3 * REGULAR_SECONDS)
    assert len(setup.written) == count
    assert caplog.text.count("too large") == 1
    setup.is_full = False
    setup.cluster.run(REGULAR_SECONDS + 60)
    assert len(setup.written) > count


def test_only_the_leader_writes() -> None:
    """And what could not be written is written later."""
    setup = PromiseSetup()
    count = len(setup.written)
    setup.is_leading = False
    setup.roughen()
    setup.cluster.run(3 * LOOK_SECONDS)
    assert len(setup.written) == count
    setup.is_leading, setup.is_down = True, True
    setup.cluster.run(3 * LOOK_SECONDS)
    assert len(setup.written) == count
    setup.is_down = False
    setup.cluster.run(30)
    assert setup.rebalancer.index.assessments[setup.web.uid].group.policy.slots.spot(10) == 2


def test_a_workload_that_has_not_grown_yet_gets_no_choice() -> None:
    """With one replica there is nothing to choose; when it has ten, the estimate for ten counts first."""
    setup = PromiseSetup()
    small = setup.cluster.deploy("small", 1, AUTO)
    setup.roughen()
    setup.cluster.run(2 * REGULAR_SECONDS)
    assert key_of(small.uid) not in setup.state.workloads
    setup.cluster.put(replace(small, replicas=10))
    setup.cluster.run(2 * LOOK_SECONDS)
    assert key_of(small.uid) in setup.state.workloads
    setup.cluster.put(replace(small, replicas=1))
    setup.cluster.run(REGULAR_SECONDS + 60)
    assert key_of(small.uid) in setup.state.workloads  # what was chosen is kept for when it grows again


def test_what_was_on_a_node_in_doubt_is_what_was_there_at_first() -> None:
    """Karpenter drains it before it is known that the cloud takes it: then it is empty, but its replicas were lost."""
    setup = PromiseSetup()
    name = setup.busy()
    node = setup.cluster.nodes[name]
    for fields in ({"deleting": True, "outlives_machine": True}, {"taints": (NodeTaint("karpenter.sh/disrupted"),)}):
        setup.cluster.put(node := replace(node, **fields))
        setup.cluster.run(1)
    for pod in [pod for pod in setup.cluster.pods if pod.node == name]:
        setup.cluster.remove(pod)
    setup.cluster.delete_node(name)
    setup.cluster.run(REGULAR_SECONDS + 60)
    assert setup.record.recoveries.total == 1


def test_a_fixed_ratio_is_left_alone() -> None:
    """Nothing is chosen for it."""
    setup = PromiseSetup({names.SPOT_RATIO: "50%"})
    setup.cluster.run(3 * LOOK_SECONDS)
    assert not setup.written


STEPS = st.integers(0, LARGEST)


@many
@given(st.lists(st.tuples(STEPS, st.sampled_from(["note", "delete", "break", "restart", "rates"])), max_size=12))
def test_all_programs_agree_on_every_ratio(history: list[tuple[int, str]]) -> None:
    """Two programs that read the same ConfigMap, one of them restarted at times, give every workload the same policy.

    A restarted program reads the ConfigMap as it is. It may differ only while the note is deleted or unreadable, which
    the leader repairs within seconds.
    """
    workload = Workload(Kind.DEPLOYMENT, "shop", "web", "uid-web", 10, annotations={names.SPOT_RATIO: "auto"})
    data: dict[str, str] = {}
    observed = NOTHING_OBSERVED
    first, second = _reader(data), _reader(data)
    for number, (step, what) in enumerate(history):
        text = autostate_text(AutoState(number, {key_of("uid-web"): WorkloadRecord(AutoStanding(0.0, 0.0, step=step))}))
        if what == "rates":
            observed = replace(observed, rates=Rates(number, {"a/m": float(step + 1)}))
            data[observation.KEY] = observed_text(extended(observed, {}, (), 0.0))
        elif what == "delete":
            data.pop(autostate.KEY, None)
        elif what != "restart":
            data[autostate.KEY] = text if what == "note" else "{"
        _show(first, data)
        if what == "restart":
            second = _reader(data)
        _show(second, data)
        readable = data.get(autostate.KEY, "{") != "{"
        if readable or "restart" not in [each for _, each in history[: number + 1]]:
            assert _policy(first, workload) == _policy(second, workload)
        if readable and what == "note":
            assert _policy(first, workload).endswith(f"auto ({_percent(step)} for the target 99.9%: {SpotLimit.RISK})")


Reader = tuple[ObservedMemory, Store[ConfigMap]]


def _reader(data: Mapping[str, str]) -> Reader:
    store: Store[ConfigMap] = Store()
    memory = ObservedMemory(store, lambda _: None)
    _show((memory, store), data)
    return memory, store


def _show(reader: Reader, data: Mapping[str, str]) -> None:
    reader[1].put(ConfigMap(names.SYSTEM_NAMESPACE, names.STATE_MAP, dict(data)))


def _policy(reader: Reader, workload: Workload) -> str:
    namespace = Namespace("shop")
    found = intent_of(workload, namespace, (), reader[0].current.rates, Configuration()).policy
    return found.explain().removesuffix(", min-on-demand 1")


def _percent(step: int) -> str:
    return f"{5 * step}%"
