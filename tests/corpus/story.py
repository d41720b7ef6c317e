"""What happens to the corpus: applied, opted in while it runs, scaled, all spot lost, all spot back. Twice at once.

Everything is done to an application in a namespace of ours and to its control, which is never opted in, on the same
nodes. Complaints are collected, not raised: one run shows all of them.
"""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import yaml

from localcluster import kubectl
from localcluster.reclaim import Choice
from placement.model import Key
from placement.slots import Mix
from tests.cluster.clustersetup import ClusterSetup
from tests.cluster.namespaceuser import label
from tests.corpus.applications import CLUSTER, Application, CorpusWorkload, Raw, control_of, load
from tests.corpus.exceptions import ON_DEMAND_HOSTS, ORDERED, PER_HOST, exceptions_of
from tests.corpus.tally import ServingTally
from tests.timing import JUDGES

log = logging.getLogger(__name__)

RIGHT_SECONDS = 180.0  # what is promised: mixes are right so long after the last change, which `make soak` judges
PATIENCE_SECONDS = RIGHT_SECONDS if JUDGES else 3 * RIGHT_SECONDS  # so long is waited for it
FALLBACK_SECONDS = 60.0  # the built-in spot-fallback-after
START_SECONDS = 300.0
LOSS = "lose all spot"
POLL_SECONDS = 0.2
# As published: 70 % on spot, at least one on on-demand, on-demand rounded up.
MIXES = {1: Mix(0, 1), 2: Mix(1, 1), 3: Mix(2, 1), 5: Mix(3, 2), 10: Mix(7, 3)}


@dataclass
class Chapter:
    """What was seen between one change and the rest after it."""

    name: str
    began: float = field(default_factory=time.monotonic)
    right_after: dict[str, float] = field(default_factory=dict)  # seconds
    wrong: dict[str, str] = field(default_factory=dict)
    short: dict[str, tuple[float, float]] = field(default_factory=dict)  # seconds: ours, the control's
    fewer: list[str] = field(default_factory=list)  # workloads that had fewer pods than can be, in the end
    lost: list[str] = field(default_factory=list)  # serving replicas, in moves

    def __str__(self) -> str:
        """How long the slowest workloads took, and how long they and their controls were short of pods."""
        slowest = sorted(self.right_after.items(), key=lambda each: -each[1])[:3]
        longest = sorted(self.short.items(), key=lambda each: each[1][1] - each[1][0])[:3]
        told = f"{self.name}: slowest {slowest}; short of pods, with us and without: {longest}"
        return "\n".join([told, *map(str, self.wrong.items()), *self.fewer, *self.lost])


@dataclass
class Promise:
    """What `plan --opt-in` said of a workload."""

    then: Mix
    blocked: list[str]


@dataclass
class CorpusStory:
    """The corpus on a cluster, and what is known of it."""

    setup: ClusterSetup
    tally: ServingTally
    applications: list[Application]
    chapters: list[Chapter] = field(default_factory=list)
    forecasts: dict[str, Promise] = field(default_factory=dict)
    before: dict[str, Mix] = field(default_factory=dict)  # mixes at the moment of opting in
    after: dict[str, Mix] = field(default_factory=dict)  # mixes at the rest after it
    promised: dict[str, Mix] = field(default_factory=dict)  # mixes of the policy, then
    explained: dict[str, str] = field(default_factory=dict)  # what `explain` said then
    drawn: set[str] = field(default_factory=set)  # those that the scheduler's own choice kept from the mix, then
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def workloads(self) -> list[CorpusWorkload]:
        return [each for application in self.applications for each in application.workloads]

    # --- what happens ------------------------------------------------------------------------------------------------

    def apply(self) -> None:
        """Everything runs, and nothing is opted in."""
        names = [application.name for application in self.applications]
        namespaces = [name for each in names for name in (control_of(each), each)]
        self._create([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}} for each in namespaces])
        objects = list(load(CLUSTER).placed("kube-system"))
        for application in self.applications:
            for namespace in (control_of(application.name), application.name):
                objects += [each for each in application.placed(namespace) if each not in objects]
        self._create(objects)
        for each in self.workloads:
            self._expect(each, each.size(each.published))
        self._wait(START_SECONDS, lambda: not self._restless())

    def opt_in(self) -> None:
        """While it runs; what is foretold a moment before is kept."""
        chapter = self._begin("opt in")
        names = [application.name for application in self.applications]
        options = [option for name in names for option in ("--opt-in", name)]
        raw = json.loads(self._printed("plan", "-o", "json", *options))
        for found in raw["workloads"]:
            self.forecasts[f"{found['namespace']}/{found['name']}"] = _forecast(found)
        self.before = self._mixes()
        self.promised = {each.full_name: self.wanted(each) for each in self.workloads}
        for name in names:
            label(self.setup.user.client, name)
        self._rest(chapter)
        self.after = self._mixes()
        for each in self.workloads:
            self.explained[each.full_name] = explained = self._explain(each)
            is_ordered = ORDERED in exceptions_of(each, self.sizes[each.full_name])
            if is_ordered and not self._is_right(each) and self.is_excused(each, explained):
                self.drawn.add(each.full_name)

    def scale(self, replicas: int) -> None:
        """All that may be, to a size, at once."""
        chapter = self._begin(f"scale to {replicas}")
        for each in self.workloads:
            size = each.size(replicas)
            for key in (each.control, each.key):
                path = f"/apis/apps/v1/namespaces/{key.namespace}/{each.kind.lower()}s/{key.name}"
                self.setup.user.client.patch(path, {"spec": {"replicas": size}})
            self._expect(each, size)
        self._rest(chapter, counts_serving=False)

    def lose_spot(self) -> None:
        """All spot nodes go. At rest, every workload and its control have as many pods as can be."""
        chapter = self._begin(LOSS)
        self.setup.cluster.reclaim(Choice(all_spot=True))
        self._wait(PATIENCE_SECONDS + FALLBACK_SECONDS, lambda: not self._behind())
        behind = self._behind()
        chapter.fewer = [f"{each.full_name}: {self._explain(each)}" for each in self.workloads if each.key in behind]
        self._count(chapter, counts_serving=False)

    def restore_spot(self) -> None:
        chapter = self._begin("spot is back")
        self.setup.cluster.restore()
        self._rest(chapter)

    # --- what is seen ------------------------------------------------------------------------------------------------

    def wanted(self, workload: CorpusWorkload) -> Mix:
        return MIXES[self.sizes[workload.full_name]]

    def _begin(self, name: str) -> Chapter:
        chapter = Chapter(name)
        self.chapters.append(chapter)
        self.tally.begin()
        self._at_first = {each.full_name: self._serving(each) for each in self.workloads}
        return chapter

    def _rest(self, chapter: Chapter, counts_serving: bool = True) -> None:
        """Waits until all mixes are right; notes which never were, and why."""

        def are_right() -> bool:
            open_ = False
            for each in self.workloads:
                if self._is_right(each):
                    chapter.right_after.setdefault(each.full_name, round(time.monotonic() - chapter.began, 1))
                else:
                    chapter.right_after.pop(each.full_name, None)
                    open_ = open_ or not self._may_differ(each)
            return not open_

        def are_fine() -> bool:
            return all(map(self._is_fine, self.workloads))

        self._wait(PATIENCE_SECONDS, are_right)
        self._wait(chapter.began + PATIENCE_SECONDS - time.monotonic(), are_fine)
        self._wait(PATIENCE_SECONDS, lambda: not any(self.tally.is_short(each.control) for each in self.workloads))
        # Meanwhile what was at rest may have begun to move, such as the pods of a StatefulSet that return one by one.
        self._wait(chapter.began + PATIENCE_SECONDS - time.monotonic(), are_fine)
        for each in self.workloads:
            if not self._is_right(each):
                self._complain(chapter, each)
        self._count(chapter, counts_serving)

    def _complain(self, chapter: Chapter, workload: CorpusWorkload) -> None:
        """An exception is no complaint as long as its own reason is what stands in the way."""
        explained = self._explain(workload)
        if not self.is_excused(workload, explained):
            seen = self.tally.serving(workload.key)
            chapter.wrong[workload.full_name] = f"{seen} instead of {self.wanted(workload)}\n{explained}"

    def _is_fine(self, workload: CorpusWorkload) -> bool:
        """Right; or as an exception lets it be, and not in the midst of something."""
        if self._is_right(workload):
            return True
        is_at_rest = not self.tally.is_moving(workload.key)
        return is_at_rest and self._may_differ(workload) and self.is_excused(workload, self._explain(workload))

    def _may_differ(self, workload: CorpusWorkload) -> bool:
        return any(exceptions_of(workload, self.sizes[workload.full_name]))

    def is_excused(self, workload: CorpusWorkload, explained: str) -> bool:
        """All replicas serve, in a mix that a named exception allows."""
        seen, wanted, size = self.tally.serving(workload.key), self.wanted(workload), self.sizes[workload.full_name]
        named = exceptions_of(workload, size)
        return seen.spot + seen.on_demand == size and any(each.excuses(wanted, seen, explained) for each in named)

    def _is_right(self, workload: CorpusWorkload) -> bool:
        key = workload.key
        return self.tally.serving(key) == self.wanted(workload) and not self.tally.is_moving(key)

    def _behind(self) -> list[Key]:
        """Ours and controls that have fewer pods on nodes than they can have."""
        each_with_key = [(each, key) for each in self.workloads for key in (each.key, each.control)]
        return [key for each, key in each_with_key if self.tally.bound(key) < self._attainable(each)]

    def _attainable(self, workload: CorpusWorkload) -> int:
        """Without spot: all that it should have, or one for each host that is left."""
        size = self.sizes[workload.full_name]
        return min(size, ON_DEMAND_HOSTS) if workload.full_name in PER_HOST else size

    def _count(self, chapter: Chapter, counts_serving: bool) -> None:
        for each in self.workloads:
            ours, control = (self.tally.longest_short(key) for key in (each.key, each.control))
            chapter.short[each.full_name] = (round(ours, 1), round(control, 1))
            spared = 0 if each.runs_beside_itself else 1
            least = self._at_first[each.full_name] - spared
            if counts_serving and (fewest := self.tally.fewest(each.key)) < least:
                chapter.lost.append(f"{each.full_name}: {fewest} served instead of {least} at least")
        print(chapter, flush=True)

    def _restless(self) -> list[Key]:
        keys = [key for each in self.workloads for key in (each.key, each.control)]
        return [key for key in keys if self.tally.is_moving(key)]

    def _mixes(self) -> dict[str, Mix]:
        return {each.full_name: self.tally.serving(each.key) for each in self.workloads}

    def _serving(self, workload: CorpusWorkload) -> int:
        mix = self.tally.serving(workload.key)
        return mix.spot + mix.on_demand

    def _expect(self, workload: CorpusWorkload, size: int) -> None:
        self.sizes[workload.full_name] = size
        for key in (workload.key, workload.control):
            self.tally.expect(key, size)

    def _explain(self, workload: CorpusWorkload) -> str:
        return self._printed("explain", workload.full_name)

    def _printed(self, *arguments: str) -> str:
        with redirect_stdout(io.StringIO()) as printed:
            self.setup.spotweave(*arguments)
        return printed.getvalue()

    def _create(self, objects: list[Raw]) -> None:
        text = yaml.safe_dump_all(objects)
        kubectl.call("create", "--validate=strict", "-f", "-", kubeconfig=self.setup.user.kubeconfig, stdin=text)

    def _wait(self, seconds: float, condition: Callable[[], bool]) -> None:
        """What does not come true is found by those who look afterwards."""
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    # --- what is none of ours ----------------------------------------------------------------------------------------

    def foreign(self) -> dict[str, Any]:
        """All objects but pods: what their owners wrote of them, by kind, namespace and name."""
        kinds = "deployments,statefulsets,daemonsets,jobs,cronjobs,poddisruptionbudgets,horizontalpodautoscalers"
        found = self._listed(f"{kinds},services,persistentvolumeclaims")
        return {f"{each['kind']} {_name(each)}": _written(each) for each in found if _is_lasting(each)}

    def strange_pods(self) -> Iterator[tuple[str, Raw]]:
        """Pods that no Deployment or StatefulSet of an application owns, as they are."""
        for pod in self._listed("pods"):
            owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", ())}
            is_ours = pod["metadata"]["namespace"] in {application.name for application in self.applications}
            if not is_ours or not owners & {"ReplicaSet", "StatefulSet", "Deployment"}:
                yield _name(pod), pod

    def refusals(self) -> list[str]:
        """What controllers could not create."""
        found = self._listed("events", "--field-selector", "reason=FailedCreate")
        about = [(each["involvedObject"], each["message"]) for each in found]
        return [f"{owner['namespace']}/{owner['name']}: {message}" for owner, message in about]

    def _listed(self, kinds: str, *options: str) -> list[Raw]:
        text = kubectl.call("get", kinds, "-A", "-o", "json", *options, kubeconfig=self.setup.user.kubeconfig)
        found: list[Raw] = json.loads(text)["items"]
        return found


def _forecast(raw: Raw) -> Promise:
    then: Raw = raw["then"] if "then" in raw else raw["wanted"]
    return Promise(Mix(then["spot"], then["onDemand"]), list(raw["blocked"]))


def _name(raw: Raw) -> str:
    return f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"


def _is_lasting(raw: Raw) -> bool:
    """Jobs of CronJobs come and go, and so do claims."""
    return raw["kind"] != "PersistentVolumeClaim" and not raw["metadata"].get("ownerReferences")


def _written(raw: Raw) -> Raw:
    """Without what the API server, its controllers and a scaling make of it."""
    spec = {key: value for key, value in raw["spec"].items() if key != "replicas"}
    meta = raw["metadata"]
    return {"spec": spec, "labels": meta.get("labels"), "annotations": _own(meta.get("annotations", {}))}


def _own(annotations: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if not key.startswith("deployment.kubernetes.io/")}
