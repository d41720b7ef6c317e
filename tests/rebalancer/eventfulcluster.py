"""What may happen to a cluster in a week, and what must hold whatever happens (design §8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from placement import names
from placement.model import Budget, Class, Kind, Namespace, Needs, Node, Pod, Quota, Rollout, Workload
from placement.outcome import Outcome
from placement.plan.marks import former_owner, released
from tests.rebalancer.rebalancing import SimulatedRebalancer, mix_of
from tests.rebalancer.simulation import TERMINATION, Making, SimulatedCluster, is_serving
from tests.rebalancer.thirdparties import SimulatedDrainer

LATE_SECONDS = 60 + 120  # beyond its time, a release is undone: by the sweep, tries that fail, and what lags
FILLING = Needs(requests={"cpu": 3000}, node_selector={names.CAPACITY: "on-demand"})
RATIOS = ("0%", "30%", "50%", "70%", "90%", "100%")


class EventfulCluster:
    """A small cluster with a workload of each kind, and the events that befall it."""

    def __init__(self, seed: int = 0, lag_seconds: float = 0.0) -> None:
        self.cluster = cluster = SimulatedCluster(seed)
        cluster.opt_in("shop")
        cluster.put(Namespace("others"))
        cluster.add_nodes(Class.SPOT, 4, "ab", ("m", "r"))
        cluster.add_nodes(Class.ON_DEMAND, 4, "ab")
        cluster.webhook_lag = lag_seconds / 2
        cluster.third_parties.append(SimulatedDrainer(cluster))
        self.web = cluster.deploy("web", 6)
        self.api = cluster.deploy("api", 2, making=Making(start_seconds=4))
        self.once = cluster.deploy("once", 2, rollout=Rollout(recreate=True))
        self.db = cluster.deploy_stateful("db", 3)
        self.log = cluster.deploy_stateful("log", 2, {names.SPOT_RATIO: "50%"}, ordered=True)
        cluster.budget(self.api, min_available="100%")
        self.filler = cluster.deploy("filler", 0, namespace="others", making=Making(FILLING))
        self.gone: list[Node] = []
        self.told: list[str] = []
        self._excused: dict[str, float] = {}
        self._is_refusing = False
        self._is_labelled = True
        self._count = 0
        cluster.run(30)
        self.rebalancer = SimulatedRebalancer(cluster, lag_seconds)

    @property
    def workloads(self) -> list[Workload]:
        return [each for each in self.cluster.workloads if each.namespace == "shop"]

    # --- time --------------------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """By the second at first; what is quiet for long is looked at more rarely."""
        self.told.append(f"wait {seconds:.0f}")
        left = seconds
        while left > 0:
            self.cluster.step_seconds = 1.0 if seconds - left < 180 else 10.0
            self.cluster.step()
            left -= self.cluster.step_seconds
            self.check()
        self.cluster.step_seconds = 1.0

    def check(self) -> None:
        assert self.rebalancer.violations == [], (self.rebalancer.violations, self.told)
        self._check_released()

    def _check_released(self) -> None:
        nodes, leaving = self.cluster.nodes, self.cluster.configuration.leaving_taints
        for pod in self.cluster.pods:
            if names.RELEASED not in pod.annotations or pod.terminating:
                continue
            state, node = released(pod), nodes.get(pod.node)
            assert state is not None
            is_nobodys = not self._is_labelled and self.rebalancer.workload_of(pod) is None
            is_stopped = self.rebalancer.is_paused or self._is_refusing or is_nobodys
            is_needed = node is None or not node.ready or (node.is_leaving(leaving) and not self._is_replaced(pod))
            if is_stopped or is_needed:
                self._excused[pod.uid] = self.cluster.now  # nobody may act, or there is nowhere else to serve from
            since = max(state.until, self._excused.get(pod.uid, 0.0))
            assert self.cluster.now <= since + LATE_SECONDS, (f"{pod.name} stays released", self.told)

    def _is_replaced(self, pod: Pod) -> bool:
        """Its ReplicaSet has as many as it wants, on nodes that stay, and enough of them on on-demand."""
        cluster, leaving = self.cluster, self.cluster.configuration.leaving_taints
        owner = next((each for each in cluster.objects["replica_sets"].values() if each.uid == former_owner(pod)), None)
        if owner is None:
            return True
        nodes = {name: node for name, node in cluster.nodes.items() if not node.is_leaving(leaving)}
        serving = [each for each in cluster.owned(owner.uid) if is_serving(each, nodes)]
        on_demand = sum(cluster.class_of(each) is Class.ON_DEMAND for each in serving)
        parent = owner.owner.uid if owner.owner is not None else ""
        workload = next((each for each in cluster.workloads if each.uid == parent), None)
        if workload is None:
            return True
        return len(serving) >= owner.replicas and on_demand >= self.rebalancer.floor(workload)

    # --- events ------------------------------------------------------------------------------------------------------

    def tell(self, text: str) -> None:
        self.told.append(f"{self.cluster.now - 1_750_000_000:.0f}: {text}")

    def scale(self, which: int, replicas: int) -> None:
        workload = self._workload(which)
        self.tell(f"scale {workload.name} to {replicas}")
        self.cluster.change(workload, replicas=replicas)

    def roll_out(self, which: int) -> None:
        workload = self._workload(which)
        self.tell(f"roll out {workload.name}")
        self.cluster.roll_out(workload)

    def ratio(self, which: int, ratio: str, floor: int) -> None:
        workload = self._workload(which)
        self.tell(f"ratio of {workload.name} {ratio}, floor {floor}")
        self.cluster.annotate(workload, spot_ratio=ratio, min_on_demand=str(floor))

    def lose(self, which: int, proof: bool) -> None:
        node = self._node(which)
        if node is not None:
            self.tell(f"lose {node.name}, proof {proof}")
            self.gone.append(replace(node, taints=tuple(t for t in node.taints if t != TERMINATION), ready=True))
            self.cluster.lose(node.name, proof=proof)

    def lose_all_spot(self) -> None:
        self.tell("lose all spot")
        for name, node in self.cluster.nodes.items():
            if node.labels[names.CAPACITY] == "spot":
                self.gone.append(replace(node, unschedulable=False, ready=True))
                self.cluster.lose(name)

    def come_back(self) -> None:
        """The one that has been gone for longest registers anew, under its name."""
        if self.gone:
            node = self.gone.pop(0)
            self.tell(f"{node.name} comes back")
            taints = tuple(taint for taint in node.taints if taint != TERMINATION)
            self.cluster.put(replace(node, taints=taints, unschedulable=False, created=self.cluster.now))
            self.cluster.gone_at.pop(node.name, None)
            for pod in self.cluster.pods:  # its kubelet was there all the time, or the machine is another one
                if pod.node == node.name and not pod.ready:
                    self.cluster.delete_pod(pod, 0)

    def leave(self, which: int, notice: bool) -> None:
        node = self._node(which)
        if node is not None and TERMINATION not in node.taints:
            self.tell(f"{node.name} leaves, by notice: {notice}")
            self.cluster.cordon(node.name, *([TERMINATION] if notice else []))

    def stay(self) -> None:
        for name, node in self.cluster.nodes.items():
            if node.unschedulable or TERMINATION in node.taints:
                self.tell(f"{name} stays")
                self.cluster.uncordon(name)

    def webhook(self, is_up: bool) -> None:
        self.tell(f"webhook up: {is_up}")
        self.cluster.webhook_is_up = is_up

    def crash(self, which: int, seconds: float) -> None:
        pods = [pod for pod in self.cluster.pods if pod.ready and not pod.terminating]
        if pods:
            pod = pods[which % len(pods)]
            self.tell(f"{pod.name} crashes")
            self.cluster.crash(pod, seconds)

    def quota(self, spare: int | None) -> None:
        self.tell(f"quota with {spare} to spare")
        used = self.cluster.used_quota("shop")["pods"]
        self.cluster.put(Quota("shop", "pods", {"pods": 10_000 if spare is None else used + spare}))

    def label(self, is_there: bool) -> None:
        self.tell(f"label: {is_there}")
        self._is_labelled = is_there
        labels = {names.PLACEMENT: names.ENABLED} if is_there else {}
        self.cluster.put(Namespace("shop", labels))

    def kill(self) -> None:
        self.tell("the rebalancer is killed")
        self.rebalancer.kill()

    def budget(self, which: int, amount: str) -> None:
        workload = self._workload(which)
        self.tell(f"budget of {workload.name}: {amount}")
        self.cluster.budget(workload, max_unavailable=int(amount)) if amount.isdecimal() else self.cluster.budget(
            workload, min_available=amount
        )

    def delete(self, which: int) -> None:
        """And another one of its kind is created."""
        workload = self._workload(which)
        self._count += 1
        name = f"{workload.name[:4]}-{self._count}"
        self.tell(f"delete {workload.name}, create {name}")
        self.cluster.delete(workload)
        self.cluster.remove(Budget(workload.namespace, workload.name))
        if workload.kind is Kind.DEPLOYMENT:
            self.cluster.deploy(name, 3, workload.annotations, rollout=workload.rollout)
        else:
            self.cluster.deploy_stateful(name, 3, workload.annotations, ordered=workload.ordered)

    def pause(self, is_paused: bool) -> None:
        self.tell(f"paused: {is_paused}")
        self.rebalancer.is_paused = is_paused

    def pause_rollout(self, which: int, is_paused: bool) -> None:
        workload = self._workload(which)
        if workload.kind is Kind.DEPLOYMENT:
            self.tell(f"rollout of {workload.name} paused: {is_paused}")
            self.cluster.change(workload, rollout=replace(workload.rollout, paused=is_paused))

    def mode(self, which: int, mode: str) -> None:
        workload = self._workload(which)
        self.tell(f"rebalance of {workload.name}: {mode}")
        self.cluster.annotate(workload, rebalance=mode)

    def fill(self, pods: int) -> None:
        """Strangers take on-demand: two for each node fill it but for two places."""
        self.tell(f"{pods} strangers on on-demand")
        self.cluster.change(self.filler, replicas=pods)

    def refuse(self, share: float) -> None:
        """So many of all writes fail or time out."""
        self.tell(f"{share:.0%} of all writes fail")
        self._is_refusing = share > 0
        random = self.cluster.random
        outcomes = (Outcome.BUSY, Outcome.BLOCKED, Outcome.IMPOSSIBLE)
        self.rebalancer.refuses = lambda _verb, _pod: random.choice(outcomes) if random.random() < share else None
        self.rebalancer.loses_answer = lambda _verb, _pod: random.random() < share / 2

    def _workload(self, which: int) -> Workload:
        return self.workloads[which % len(self.workloads)]

    def _node(self, which: int) -> Node | None:
        nodes = sorted(self.cluster.nodes.values(), key=lambda node: node.name)
        return nodes[which % len(nodes)] if len(nodes) > 2 else None

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Nothing happens any more, and there is room: every mix becomes exact, and then nothing is left to do."""
        self.tell("the end")
        self.webhook(True)
        self.label(True)
        self.pause(False)
        self.refuse(0.0)
        self.fill(0)
        for index in range(len(self.workloads)):
            self.pause_rollout(index, False)
            self.mode(index, "")
        self.quota(None)
        self.stay()
        for workload in self.workloads:
            self.cluster.budget(workload, max_unavailable=1)
        while self.gone:
            self.come_back()
        self.cluster.add_nodes(Class.SPOT, 4, "ab", ("m", "r"))
        self.cluster.add_nodes(Class.ON_DEMAND, 4, "ab")
        self.wait(400)  # every few minutes the loop looks at all workloads anew
        self._wait_until(self._is_done, 5 * 3600, lasting=90)
        writes = len(self.rebalancer.writes)
        self.wait(900)
        assert self.writes(writes) == [], (self.writes(writes), self.told)

    def writes(self, since: int = 0) -> list[str]:
        return [
            f"{write.at - 1_750_000_000:.0f}: {write.verb} {write.pod.name if write.pod else ''} {write.outcome}"
            for write in self.rebalancer.writes[since:]
        ]

    def _is_done(self) -> bool:
        plan = self.rebalancer.plan
        is_calm = self.rebalancer.is_calm() and plan is not None and not plan.skipped
        return is_calm and all(self.rebalancer.is_exact(each) for each in self.workloads)

    def _wait_until(self, condition: Callable[[], bool], seconds: float, lasting: float) -> None:
        """Until it has held for so long."""
        began = since = self.cluster.now
        while self.cluster.now - since < lasting:
            took = self.cluster.now - began
            assert took < seconds, (self.state(), self.told)
            self.cluster.step_seconds = 1.0 if took < 300 else 5.0
            self.cluster.step()
            self.check()
            if not condition():
                since = self.cluster.now
        self.cluster.step_seconds = 1.0

    def state(self) -> dict[str, object]:
        found: dict[str, object] = {
            each.name: (str(mix_of(self.cluster, each)), "wanted " + str(self.rebalancer.wanted(each)))
            for each in self.workloads
        }
        found["skipped"] = [each.text for each in self.rebalancer.plan.skipped] if self.rebalancer.plan else None
        found["actions"] = [each.raw() for each in self.rebalancer.plan.actions] if self.rebalancer.plan else None
        return found
