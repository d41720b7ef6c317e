"""The real rebalancer on a simulated cluster, with checks that hold it to the rules (design §8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor as Pool
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from threading import Event
from typing import Any

from placement import names
from placement.autoratio import settled
from placement.availability import BudgetIndex
from placement.model import NOTHING, Class, Key, Namespace, Node, NodeRequirement, Owner, Pod, ReplicaSet, Workload
from placement.outage import Outage, ended, noted
from placement.outcome import Outcome
from placement.plan.actions import How, Plan
from placement.plan.marks import former_owner, former_slot, moved
from placement.policy import Policy, resolve
from placement.slots import Mix
from rebalancer.executor import Done, Executor, LastLook
from rebalancer.index import Index
from rebalancer.loop import Loop, Watched
from tests.rebalancer.simulation import Feed, SimulatedCluster, is_serving

SLOW_ENDS = 0.3  # of the ends of moves so many outlast their pass


class Here(Pool):
    """A pool that does the work at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = Future[Any]()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as any pool does
            future.set_exception(error)
        return future


class Slow(Here):
    """A pool that does some of its work at once, and some of the rest each time that it is told to go on."""

    def __init__(self, random: Random, share: float) -> None:
        self._random = random
        self._share = share
        self._left: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._random.random() >= self._share:
            return super().submit(fn, *args, **kwargs)
        self._left.append((Future[Any](), partial(fn, *args, **kwargs)))
        return self._left[-1][0]

    def go_on(self) -> None:
        for each in [each for each in self._left if self._random.random() < 0.5]:
            self._left.remove(each)
            each[0].set_result(each[1]())


class Killed(BaseException):
    """The process was ended, there and then."""


@dataclass(frozen=True)
class WriteRecord:
    """What the rebalancer did, and what came of it."""

    at: float
    verb: str  # annotate, release, undo, finish, evict, replace, bury, note, end
    pod: Pod | None
    outcome: Outcome


@dataclass
class CrashAtWrite:
    """Ends the process before or after the n-th write."""

    at: int
    after: bool = False
    seen: int = 0

    def strike(self, is_after: bool) -> None:
        self.seen += not is_after
        if self.seen == self.at and self.after == is_after:
            self.at = -1
            raise Killed


class SimulatedRebalancer:
    """A rebalancer process: it can be killed and started anew, and remembers nothing then."""

    def __init__(self, cluster: SimulatedCluster, lag_seconds: float = 0.0, fault: CrashAtWrite | None = None) -> None:
        self.cluster = cluster
        self.lag_seconds = lag_seconds
        self.fault = fault or CrashAtWrite(-1)
        self.is_paused = False
        self.is_alive = True
        self.deaths = 0
        self.writes: list[WriteRecord] = []
        self.violations: list[str] = []
        self.plan: Plan | None = None
        self.passes: list[tuple[float, Plan, Sequence[Done]]] = []
        self.hears: Callable[[Plan, Sequence[Done]], None] = lambda _plan, _done: None
        self.refuses: Callable[[str, Pod], Outcome | None] = lambda _verb, _pod: None  # 403, 409, 429, 500
        self.loses_answer: Callable[[str, Pod], bool] = lambda _verb, _pod: False  # it is done, and times out
        self._evicted: set[str] = set()
        self._released_at: dict[str, float] = {}
        self._moved_from: dict[str, tuple[Class, float, Policy]] = {}
        self._luck = Random(1)
        self.start()
        cluster.actors.append(self.act)
        cluster.onlookers.append(self._check_owned)

    def start(self) -> None:
        cluster = self.cluster
        self.index = Index(cluster.configuration)
        self.feed = Feed(self.index.observe, lambda: self.lag_seconds * cluster.random.random(), is_sparing=True)
        self.feed.relist(cluster.objects)
        cluster.feeds.append(self.feed)
        stores = self.feed.stores
        sight = LastLook(
            is_leading=lambda: self.is_alive,
            is_paused=lambda: self.is_paused,
            pod=stores["pods"].get,
            node=stores["nodes"].get,
            namespace=stores["namespaces"].get,
            is_leaving=cluster.configuration.is_leaving,
        )
        self._ends = Slow(self._luck, SLOW_ENDS)
        executor = Executor(self, self, Here(), self._ends, sight, patience_seconds=0.0)
        watched = Watched(
            is_current=lambda: True,
            is_leading=lambda: self.is_alive,
            outages=lambda: cluster.outages,
            is_paused=lambda _now: self.is_paused,
            now=lambda: cluster.now,
            timer=lambda: cluster.now,
        )
        self.wake = Event()
        self.loop = Loop(self.index, executor, watched, self._tell, self.wake)

    def kill(self) -> None:
        """And another one takes over."""
        self.deaths += 1
        self.cluster.feeds.remove(self.feed)
        self.start()

    def act(self) -> None:
        if not self.is_alive:
            return
        self.index.observe(None, self.cluster.rates)
        try:
            self._ends.go_on()
            self.plan = self.loop.once()
        except Killed:
            self.kill()

    def _tell(self, plan: Plan, done: Sequence[Done], *_seconds: float) -> None:
        self.hears(plan, done)
        if done or plan.outages or plan.ended:
            self.passes.append((self.cluster.now, plan, done))

    # --- Writer ------------------------------------------------------------------------------------------------------

    def annotate(
        self,
        key: Key,
        uid: str,
        annotations: dict[str, str | None],
        labels: dict[str, str | None] = NOTHING,  # type: ignore[assignment]
    ) -> Outcome:
        pod = self.cluster.pod(key, uid)
        with_fault = self._guarded("annotate", pod)
        if pod is None:
            return with_fault(Outcome.GONE)
        if (refused := self.refuses("annotate", pod)) is not None:
            return with_fault(refused)
        apart = (names.DECISION, names.GANG_PLAN)
        others = {key: value for key, value in annotations.items() if key not in apart}
        changed = replace(
            pod,
            annotations=_patched(pod.annotations, others),
            labels=_patched(pod.labels, labels),
            decision=annotations.get(names.DECISION) or pod.decision,
            gang_plan=annotations.get(names.GANG_PLAN) or pod.gang_plan,
        )
        self.cluster.put(changed)
        before = moved(changed)
        if names.MOVED in annotations and before is not None:
            workload = self.workload_of(pod)
            self._moved_from[uid] = (Class(before.origin), self.cluster.now, self._policy(workload))
        return with_fault(Outcome.DONE)

    def hand_over(
        self, pod: Pod, owner: Owner, annotations: dict[str, str | None], labels: dict[str, str | None]
    ) -> Outcome:
        """A patch that tests what it changes: it applies to the pod as it was planned for, or not at all."""
        seen, pod_now = pod, self.cluster.pod(pod.key, pod.uid)
        verb = "release" if owner.kind == "Deployment" else "undo"
        with_fault = self._guarded(verb, pod_now)
        if pod_now is None:
            return with_fault(Outcome.GONE)
        if (refused := self.refuses(verb, pod_now)) is not None:
            return with_fault(refused)
        is_same = (seen.owner, seen.decision) == (pod_now.owner, pod_now.decision)
        if not is_same or not (_agree(seen, pod_now, annotations) and _agree(seen, pod_now, labels)):
            return with_fault(Outcome.BUSY)
        if verb == "release":
            self._check_release(pod_now)
            self._released_at[pod.uid] = self.cluster.now
        else:
            self._check_undo(pod_now, owner)
        written, labelled = _patched(pod_now.annotations, annotations), _patched(pod_now.labels, labels)
        self.cluster.put(replace(pod_now, owner=owner, annotations=written, labels=labelled))
        return with_fault(Outcome.DONE)

    def evict(self, key: Key, uid: str) -> Outcome:
        pod = self.cluster.pod(key, uid)
        verb = "evict"
        if pod is not None and names.RELEASED in pod.annotations:
            verb = "finish"
        elif pod is not None and not pod.node:
            verb = "replace"
        with_fault = self._guarded(verb, pod)
        if pod is None:
            return with_fault(Outcome.GONE)
        if (refused := self.refuses(verb, pod)) is not None:
            return with_fault(refused)
        self._check_eviction(pod, verb)
        answer = self.cluster.evict(pod)
        if not answer:
            self._evicted.add(uid)
        return with_fault({"": Outcome.DONE, "429": Outcome.BLOCKED, "500": Outcome.IMPOSSIBLE}[answer])

    def reserve(self, key: Key, uid: str, node: str, annotations: dict[str, str | None]) -> Outcome:
        return self._change("reserve", key, uid, nominated=node, gang_plan=annotations[names.GANG_PLAN])

    def unreserve(self, key: Key, uid: str, annotations: dict[str, str | None]) -> Outcome:
        return self._change("unreserve", key, uid, nominated="", gang_plan="")

    def suspend(self, owner: Owner, namespace: str) -> Outcome:
        job = self.cluster.objects["jobs"].get(Key(namespace, owner.name))
        with_fault = self._guarded("suspend", None)
        if job is None or job.uid != owner.uid:
            return with_fault(Outcome.GONE)
        self.cluster.put(replace(job, is_suspended=True))
        return with_fault(Outcome.DONE)

    def start_member(self, pod: Pod, nodes: Sequence[str], annotations: Mapping[str, str | None] = NOTHING) -> Outcome:
        only = NodeRequirement(names.HOSTNAME, "In", tuple(nodes))
        terms = tuple((*term, only) for term in pod.required_terms or ((),)) if nodes else pod.required_terms
        now = self.cluster.pod(pod.key, pod.uid) or pod
        written = _patched(now.annotations, annotations)
        return self._change("start", pod.key, pod.uid, gates=(), required_terms=terms, annotations=written)

    def ungate(self, pod: Pod) -> Outcome:
        return self._change("ungate", pod.key, pod.uid, gates=())

    def _change(self, verb: str, key: Key, uid: str, **changes: Any) -> Outcome:
        pod = self.cluster.pod(key, uid)
        with_fault = self._guarded(verb, pod)
        if pod is None:
            return with_fault(Outcome.GONE)
        if (refused := self.refuses(verb, pod)) is not None:
            return with_fault(refused)
        self.cluster.put(replace(pod, **changes))
        return with_fault(Outcome.DONE)

    def evict_replaced(self, key: Key, uid: str) -> Outcome:
        """As long as it is released."""
        pod = self.cluster.pod(key, uid)
        return Outcome.BUSY if pod is not None and not pod.is_released else self.evict(key, uid)

    def evict_waiting(self, key: Key, uid: str) -> Outcome:
        pod = self.cluster.pod(key, uid)
        return Outcome.BUSY if pod is not None and pod.node else self.evict(key, uid)

    def delete(self, key: Key, uid: str, grace_seconds: int | None = None) -> Outcome:
        """What is released and whose workload is gone or wants no pods; all else is evicted or buried."""
        pod = self.cluster.pod(key, uid)
        with_fault = self._guarded("delete", pod)
        if pod is None:
            return with_fault(Outcome.GONE)
        if (refused := self.refuses("delete", pod)) is not None:
            return with_fault(refused)
        workload = self.workload_of(pod)
        is_wanted = workload is not None and workload.replicas and self._is_opted_in(pod.namespace)
        is_bare_member = pod.is_member and pod.owner is None
        if (names.RELEASED not in pod.annotations or is_wanted) and not is_bare_member:
            self._violated(f"{pod.name} is deleted")
        self.cluster.delete_pod(pod)
        return with_fault(Outcome.DONE)

    def fail_lost(self, key: Key, uid: str, why: str) -> Outcome:
        pod = self.cluster.pod(key, uid)
        with_fault = self._guarded("bury", pod)
        if pod is None:
            return with_fault(Outcome.GONE)
        if (refused := self.refuses("bury", pod)) is not None:
            return with_fault(refused)
        if not pod.node or pod.node in self.cluster.nodes:
            return with_fault(Outcome.BUSY)
        if pod.node in self.cluster.unproven:
            self._violated(f"{pod.name} is buried without proof")
        self.cluster.delete_pod(pod, 0)
        return with_fault(Outcome.DONE)

    def _guarded(self, verb: str, pod: Pod | None) -> Callable[[Outcome], Outcome]:
        self.fault.strike(is_after=False)

        def done(outcome: Outcome) -> Outcome:
            if outcome is Outcome.DONE and pod is not None and self.loses_answer(verb, pod):
                outcome = Outcome.BUSY
            self.writes.append(WriteRecord(self.cluster.now, verb, pod, outcome))
            self.fault.strike(is_after=True)
            return outcome

        return done

    # --- Notebook ----------------------------------------------------------------------------------------------------

    def note(self, outages: Sequence[Outage]) -> None:
        done = self._guarded("note", None)
        for outage in outages:
            self.cluster.outages = noted(self.cluster.outages, outage, self.cluster.now)
        done(Outcome.DONE)

    def end(self, outages: Sequence[Outage]) -> None:
        done = self._guarded("end", None)
        self.cluster.outages = ended(self.cluster.outages, outages, self.cluster.now)
        done(Outcome.DONE)

    # --- the rules ---------------------------------------------------------------------------------------------------

    def count(self, *verbs: str) -> int:
        return sum(write.verb in verbs and write.outcome is Outcome.DONE for write in self.writes)

    def _violated(self, text: str) -> None:
        self.violations.append(f"{self.cluster.now - 1_750_000_000:.0f} s: {text}")

    def _is_opted_in(self, name: str) -> bool:
        namespace = self.feed.stores["namespaces"].get(Key("", name))
        return isinstance(namespace, Namespace) and namespace.is_opted_in

    def _check_owned(self) -> None:
        """Every pod has a controller at every moment, unless somebody else took it away."""
        for pod in self.cluster.pods:
            if pod.owner is None and not pod.terminating and pod.uid not in self.cluster.disowned:
                self._violated(f"{pod.name} has no controller")

    def _check_undo(self, pod: Pod, owner: Owner) -> None:
        """Onto the ReplicaSet that it was taken from, which is there and does not have too many."""
        found = next((each for each in self.feed.stores["replica_sets"].values() if each.uid == owner.uid), None)
        if found is None or found.name != owner.name or owner.uid != former_owner(pod):
            self._violated(f"{pod.name} is put back to {owner.name}, which is not there")
            return
        own = [each for each in self._picture().values() if each.owner is not None and each.owner.uid == owner.uid]
        if found.replicas < max(1, sum(each.is_live for each in own)):
            self._violated(f"{pod.name} is put back to {owner.name}, which deletes it")

    def _check_release(self, pod: Pod) -> None:
        """No pod goes back where it came from within the cool-down; leaving nodes are left all the same.

        How soon after an outage a soft pod returns is the outages' matter (ADR 9).
        """
        if names.RELEASED in pod.annotations:
            self._violated(f"{pod.name} is released twice")
        before = self._moved_from.get(pod.uid)
        node = self._seen_nodes().get(pod.node)
        workload = self.workload_of(pod)
        if before is None or node is None or workload is None or names.SOFT in pod.annotations:
            return
        if node.is_leaving(self.cluster.configuration.leaving_taints):
            return
        origin, at, policy = before
        slot = former_slot(pod)
        to = self._policy(workload).slots.class_of(slot) if slot is not None else None
        cool_down = self.cluster.configuration.moves.cool_down.total_seconds()
        if to is origin and policy == self._policy(workload) and self.cluster.now < at + cool_down - 1:
            self._violated(f"{pod.name} goes back to {to} within the cool-down")

    def _check_eviction(self, pod: Pod, verb: str) -> None:
        if pod.uid in self._evicted:
            self._violated(f"{pod.name} is evicted twice")
        picture = self._picture()
        seen = picture.get(pod.key)
        if seen is None or not is_serving(seen, self._seen_nodes()):
            return
        workload = self.workload_of(pod)
        if workload is None:
            return
        if verb == "finish":
            self._check_finish(pod, workload, picture)
        else:
            self._check_proof(pod, workload, picture)
        self._check_floor(pod, workload, picture)

    def _check_finish(self, pod: Pod, workload: Workload, picture: dict[Key, Pod]) -> None:
        """The replacement serves: as far as was known."""
        owner = self._former_set(pod)
        if owner is None or not owner.replicas:
            return
        nodes = self._seen_nodes()
        own = [each for each in picture.values() if each.owner is not None and each.owner.uid == owner.uid]
        ready = [each for each in own if each.is_live and is_serving(each, nodes) and self._is_ready_for_long(each)]
        since = self._released_at[pod.uid]
        others = [
            each
            for each in picture.values()
            if former_owner(each) == owner.uid and names.RELEASED in each.annotations and is_serving(each, nodes)
        ]
        left = len(ready) + sum(each.uid != pod.uid for each in others)
        is_its = any(each.slot == former_slot(pod) and each.created >= since for each in ready)
        if left < owner.replicas and not is_its:
            self._violated(f"{pod.name} of {workload.name} is evicted before its replacement serves")

    def _check_proof(self, pod: Pod, workload: Workload, picture: dict[Key, Pod]) -> None:
        """All its siblings serve, and a node of the other class has room for it."""
        nodes, of = self._seen_nodes(), self.cluster.class_of(pod)
        siblings = [each for each in picture.values() if each.owner is not None and each.owner == pod.owner]
        serving = [each for each in siblings if is_serving(each, nodes) and self._is_ready_for_long(each)]
        if len(serving) < max(len(siblings), workload.replicas):
            self._violated(f"{pod.name} is evicted while a sibling does not serve")
        used: Counter[str] = Counter()
        for each in self.cluster.pods:
            used[each.node] += each.needs.requests.get("cpu", 0)
        classes = self.cluster.configuration.classes
        places = [
            node
            for node in nodes.values()
            if (classes.of_node(node.labels) or Class.ON_DEMAND) is not of
            and node.allocatable["cpu"] - used[node.name] >= pod.needs.requests.get("cpu", 0)
        ]
        if not places and self.lag_seconds == 0:
            self._violated(f"{pod.name} is evicted without a place for its replacement")

    def _check_floor(self, pod: Pod, workload: Workload, picture: dict[Key, Pod]) -> None:
        node = self._seen_nodes()[pod.node]
        if self._seen_class(pod) is not Class.ON_DEMAND or node.is_leaving(self.cluster.configuration.leaving_taints):
            return
        owner = self._former_set(pod)
        replicas = owner.replicas if owner is not None else workload.replicas
        slots = self._policy(workload).slots
        nodes = self._seen_nodes()
        left = [
            each
            for each in picture.values()
            if each.namespace == pod.namespace and each.labels["app"] == pod.labels["app"] and each.uid != pod.uid
        ]
        serving = sum(is_serving(each, nodes) and self._seen_class(each) is Class.ON_DEMAND for each in left)
        if serving < min(slots.floor, slots.mix(replicas).on_demand):
            self._violated(f"{pod.name}: {workload.name} falls below its on-demand floor")

    def _is_ready_for_long(self, pod: Pod) -> bool:
        """For its workload's minReadySeconds."""
        workload = self.workload_of(pod)
        return workload is None or self.cluster.now - pod.changed >= workload.min_ready_seconds

    def _seen_nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.feed.stores["nodes"].values()}

    def _seen_class(self, pod: Pod) -> Class | None:
        node = self._seen_nodes().get(pod.node)
        return None if node is None else self.cluster.configuration.classes.of_node(node.labels) or Class.ON_DEMAND

    def _picture(self) -> dict[Key, Pod]:
        return {pod.key: pod for pod in self.feed.stores["pods"].values()}

    def _former_set(self, pod: Pod) -> ReplicaSet | None:
        uid = former_owner(pod)
        return next((each for each in self.feed.stores["replica_sets"].values() if each.uid == uid), None)

    def workload_of(self, pod: Pod) -> Workload | None:
        key = Key(pod.namespace, pod.labels["app"])
        found = self.feed.stores["deployments"].get(key) or self.feed.stores["stateful_sets"].get(key)
        assert found is None or isinstance(found, Workload)
        return found

    def _policy(self, workload: Workload | None) -> Policy:
        if workload is None:
            return Policy()
        namespace = self.feed.stores["namespaces"].get(Key("", workload.namespace))
        assert isinstance(namespace, Namespace)
        policy, _ = resolve(workload.annotations, namespace.annotations, self.cluster.configuration.defaults)
        budgets = BudgetIndex(self.feed.stores["budgets"].values()).of(workload)
        return settled(policy, workload, budgets, self.cluster.rates)

    # --- what tests ask ----------------------------------------------------------------------------------------------

    def wanted(self, workload: Workload) -> Mix:
        return self._policy(self.cluster.again(workload)).slots.mix(self.cluster.again(workload).replicas)

    def floor(self, workload: Workload) -> int:
        """So many must serve on on-demand."""
        return min(self._policy(self.cluster.again(workload)).slots.floor, self.wanted(workload).on_demand)

    def actual(self, workload: Workload) -> Mix:
        return mix_of(self.cluster, workload)

    def is_exact(self, workload: Workload) -> bool:
        """The mix is, each slot is held once, and nothing is under way."""
        pods = self.cluster.pods_of(workload)
        slots = sorted(int(pod.annotations.get(names.SLOT, "-1")) for pod in pods)
        return self.actual(workload) == self.wanted(workload) and slots == list(
            range(self.cluster.again(workload).replicas)
        )

    @property
    def skipped(self) -> set[str]:
        return {str(each.blocked) for each in self.plan.skipped} if self.plan is not None else set()

    def is_calm(self) -> bool:
        return self.plan is not None and not (self.plan.actions or self.plan.outages or self.plan.ended)


def mix_of(cluster: SimulatedCluster, workload: Workload) -> Mix:
    found = (cluster.class_of(pod) for pod in cluster.serving(workload))
    return Mix.of(of for of in found if of is not None)


def _agree(seen: Pod, now: Pod, changes: Mapping[str, str | None]) -> bool:
    """What is to change is what it was."""
    before, after = ({**each.labels, **each.annotations} for each in (seen, now))
    return all(before.get(key) == after.get(key) for key in changes)


def _patched(old: Any, changes: Any) -> dict[str, str]:
    patched = {**old, **changes}
    return {key: value for key, value in patched.items() if value is not None}


@dataclass
class LowestServing:
    """The fewest replicas of each workload that served at any moment since `begin`."""

    cluster: SimulatedCluster
    serving: dict[str, int] = field(default_factory=dict)
    nodes_of: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster.onlookers.append(self.look)

    def begin(self) -> None:
        self.serving = {}

    def look(self) -> None:
        for workload in self.cluster.workloads:
            serving = len(self.cluster.serving(workload))
            self.serving[workload.name] = min(serving, self.serving.get(workload.name, serving))


def hows(plan: Plan) -> Counter[How]:
    return Counter(action.how for action in plan.actions)
