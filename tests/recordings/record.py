"""Records clusters into a folder: what went in, what came out, and sentences in files of their own."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import jsonpatch

from tests.recordings import clusters, product, workloads
from tests.recordings.api import serving
from tests.recordings.clusters import Raw, RawCluster
from tests.recordings.planrunner import PlanRunner
from tests.recordings.reviews import COUNT, Review, reviews
from tests.recordings.sentences import parted, parted_metrics
from tests.recordings.workloads import RawRevision

CLUSTERS = 8
ROUNDS = 5
SENTENCES = ".sentences"  # how the stem of a file ends that holds nothing else


def record(folder: Path, numbers: Sequence[int] = range(CLUSTERS), count: int = COUNT) -> None:
    """Records these clusters, with so many reviews of each."""
    logging.disable()  # in this process alone: what is logged is no behaviour that anybody relies on
    with tempfile.TemporaryDirectory() as scratch:
        for number in numbers:
            cluster, revisions = build(number)
            kubeconfig = Path(scratch, f"kubeconfig-{number}")
            with serving(cluster, kubeconfig):
                Recording(folder / f"cluster-{number}", cluster, revisions, kubeconfig).make(count)


def build(number: int) -> tuple[RawCluster, list[RawRevision]]:
    cluster = RawCluster(number, Random(number))
    clusters.add_nodes(cluster)
    clusters.add_namespaces(cluster)
    clusters.add_priority_classes(cluster)
    clusters.add_state(cluster)
    revisions = workloads.add_workloads(cluster)
    clusters.add_quotas(cluster)
    workloads.add_strangers(cluster)
    workloads.add_events(cluster)
    return cluster, revisions


class Recording:
    """The recording of one cluster."""

    def __init__(self, folder: Path, cluster: RawCluster, revisions: Sequence[RawRevision], kubeconfig: Path) -> None:
        self._folder = folder
        self._cluster = cluster
        self._revisions = revisions
        self._kubeconfig = kubeconfig
        self._chance = Random(1000 + cluster.number)

    def make(self, count: int) -> None:
        self._folder.mkdir(parents=True)
        made = reviews(self._revisions, self._chance, count)
        self._write_input(made)
        for index, arguments in enumerate(self._commands()):
            self._record_command(index, arguments)
        self._record_webhook(made)
        self._record_rounds()  # which change the cluster
        self._record_command(90, ["status"])

    # --- commands ----------------------------------------------------------------------------------------------------

    def _commands(self) -> Iterator[list[str]]:
        nodes = [each["metadata"]["name"] for each in self._cluster.objects[clusters.NODES]]
        yield ["status"]
        yield ["status", "--pods", "-n", "shop"]
        yield ["status", "--left-over"]
        yield ["status", "-n", "nowhere"]
        yield ["plan"]
        yield ["plan", "-n", "pay"]
        yield ["plan", "--opt-in", "lab"]
        yield ["plan", "--opt-in", "kube-system"]
        yield ["plan", "--set", "shop/web1", "spot-ratio=50%", "min-on-demand=2"]
        yield ["plan", "--set", "shop/web1", "spot-ratio=50"]
        yield ["drill", "spot"]
        yield from (["drill", f"zone={zone}"] for zone in clusters.ZONES[:2])
        yield ["drill", "zone=zone-z"]
        yield from (["drill", f"node={name}"] for name in self._chance.sample(nodes, 2))
        yield ["drill", f"pool=zone-a/{self._chance.choice(sorted(clusters.TYPES))}"]
        yield ["outage", "list"]
        yield from (["explain", name] for name in self._names())
        yield ["explain", "shop/nothing"]

    def _names(self) -> Iterator[str]:
        """Some workloads, and pods in states that differ."""
        yield from ("deploy/web0", "pay/web2", "sts/db0", "lab/web0")
        pods = self._cluster.objects[clusters.PODS]
        placed = [each for each in pods if each["metadata"]["namespace"] in clusters.OPTED_IN]
        released = [each for each in placed if "spotweave.dev/released" in each["metadata"].get("annotations", {})]
        waiting = [each for each in placed if each["status"]["phase"] == "Pending"]
        missed = [each for each in placed if "spotweave.dev/class" not in each["metadata"]["labels"]]
        for found in (released, waiting, missed, placed):
            for pod in found[:2]:
                yield f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"

    def _record_command(self, index: int, arguments: list[str]) -> None:
        code, out, err = product.run_command([*arguments, "-o", "json", "--kubeconfig", str(self._kubeconfig)])
        try:
            printed = json.loads(out) if out.strip() else None
        except ValueError:
            printed = {"text": out}
        masked, sentences = parted(printed)
        name = f"{index:02d}-{arguments[0]}"
        self._write(f"{name}.json", {"command": arguments, "exitCode": code, "output": masked})
        self._write(f"{name}{SENTENCES}.json", {**sentences, "standardError": err})

    # --- the rebalancer ----------------------------------------------------------------------------------------------

    def _record_rounds(self) -> None:
        """A plan, then what follows from it, then the next plan."""
        runner = PlanRunner(self._cluster, self._revisions, self._kubeconfig)
        for number in range(ROUNDS):
            rebalancer = product.RecordedRebalancer(self._kubeconfig)
            plan = rebalancer.plan()
            self._write_parted(f"round-{number}-plan", plan)
            self._write_metrics(f"round-{number}-rebalancer", rebalancer.metrics())
            self._write_parted(f"round-{number}-events", _events(rebalancer.events()))
            self._write_parted(f"round-{number}-page", _ordered(rebalancer.page()))
            runner.go_on(plan)

    # --- the webhook -------------------------------------------------------------------------------------------------

    def _record_webhook(self, made: Sequence[Review]) -> None:
        webhook = product.RecordedWebhook(self._kubeconfig, self._cluster.unled_seconds)
        try:
            self._hide(webhook)
            answered, sentences = [], []
            for index, review in enumerate(made):
                if index == len(made) // 2:
                    self._change(webhook)
                line, said = self._answered(webhook, index, review)
                answered.append(line)
                sentences.append(said)
            self._write_lines("reviews.jsonl", answered)
            self._write_lines(f"reviews{SENTENCES}.jsonl", sentences)
            self._write_metrics("webhook", webhook.metrics())
            self._write_parted("webhook-events", _events(webhook.events))
        finally:
            webhook.close()

    def _hide(self, webhook: product.RecordedWebhook) -> None:
        """Of some owners the caches have not heard yet; they are looked up."""
        for raw in self._chance.sample(self._cluster.objects[clusters.REPLICA_SETS], 2):
            webhook.forget(clusters.REPLICA_SETS, raw)
        webhook.forget(clusters.STATEFUL_SETS, self._chance.choice(self._cluster.objects[clusters.STATEFUL_SETS]))

    def _change(self, webhook: product.RecordedWebhook) -> None:
        """Nodes, a namespace and a workload change, and budgets go: what was remembered must not be used."""
        for raw in self._cluster.objects[clusters.NODES][::3]:
            webhook.see(clusters.NODES, {**raw, "spec": {**raw["spec"], "unschedulable": True}})
        for collection in (clusters.NAMESPACES, clusters.DEPLOYMENTS):
            raw = copy.deepcopy(self._cluster.objects[collection][0])
            raw["metadata"]["annotations"]["spotweave.dev/spot-ratio"] = "20%"
            webhook.see(collection, raw)
        for raw in self._cluster.objects[clusters.BUDGETS]:
            webhook.forget(clusters.BUDGETS, raw)
        webhook.see(clusters.PRIORITY_CLASSES, {"metadata": {"name": "spotweave-overflow"}, "value": -5})

    def _answered(self, webhook: product.RecordedWebhook, index: int, review: Review) -> tuple[Raw, Raw]:
        status, body = webhook.answer(review.body)
        digest = hashlib.sha256(body).hexdigest()
        if status != 200:
            return {"review": index, "kind": review.kind, "status": status}, {"text": body.decode(), "bytes": digest}
        answer = json.loads(body)
        patch = answer["response"].get("patch")
        operations = None if patch is None else json.loads(base64.b64decode(patch))
        if patch is not None:
            answer["response"]["patch"] = operations  # its bytes hold sentences
        if review.pod is not None and self._chance.random() < 0.5:
            self._create(webhook, index, review, operations or [])
        masked, sentences = parted(answer)
        line = {"review": index, "kind": review.kind, "status": status, "answer": masked}
        return line, {**sentences, "bytes": digest}

    def _create(self, webhook: product.RecordedWebhook, index: int, review: Review, operations: list[Raw]) -> None:
        """The pod is created as patched, and the caches see it; some are gone again."""
        created: Raw = jsonpatch.apply_patch(review.pod, operations)
        name = created["metadata"].get("name") or f"{created['metadata'].get('generateName', 'pod-')}new{index}"
        created["metadata"] |= {"name": name, "namespace": review.namespace, "uid": f"created-{index}"}
        webhook.see(clusters.PODS, {**created, "status": {"phase": "Pending"}})
        if self._chance.random() < 0.2:
            webhook.forget(clusters.PODS, created)

    # --- files -------------------------------------------------------------------------------------------------------

    def _write_input(self, made: Sequence[Review]) -> None:
        """So that a difference in the recorder itself shows as such."""
        objects = json.dumps(self._cluster.objects, sort_keys=True).encode()
        calls = b"\n".join(each.body for each in made)
        digests = {"objects": hashlib.sha256(objects).hexdigest(), "reviews": hashlib.sha256(calls).hexdigest()}
        counts = {path: len(found) for path, found in sorted(self._cluster.objects.items())}
        self._write("input.json", {**digests, "counts": counts})

    def _write_metrics(self, program: str, text: str) -> None:
        series, helps = parted_metrics(text)
        (self._folder / f"{program}-metrics.txt").write_text(series)
        (self._folder / f"{program}-metrics{SENTENCES}.txt").write_text(helps)

    def _write_parted(self, stem: str, value: Any) -> None:
        masked, sentences = parted(value)
        self._write(f"{stem}.json", masked)
        self._write(f"{stem}{SENTENCES}.json", sentences)

    def _write(self, name: str, value: Any) -> None:
        (self._folder / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")

    def _write_lines(self, name: str, values: Sequence[Any]) -> None:
        (self._folder / name).write_text("".join(json.dumps(each) + "\n" for each in values))


def _events(told: Sequence[tuple[str, str, str]]) -> list[Raw]:
    """Sorted: in which order one pass tells of several workloads is chance."""
    return [{"about": about, "reason": reason, "text": text} for about, reason, text in sorted(told)]


def _ordered(page: Raw) -> Raw:
    """The same of what the page remembers."""
    page["overview"]["events"].sort(key=lambda each: (json.dumps({**each, "text": ""}), each["text"]))
    return page
