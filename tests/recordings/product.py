"""Everything that the recorder asks of the product. Where the product's modules move, only this module changes.

What it gives is plain: text, bytes and what JSON can hold.
"""

from __future__ import annotations

import asyncio
import io
import json
import selectors
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import msgspec

from cli.main import main
from cli.plan import Planned, planned, take_picture, view_of
from kube import resources
from kube.client import Client, connect
from kube.configmaps import read_configuration, read_observed, read_outages
from kube.owners import look_up
from kube.snapshot import read_all
from placement.outcome import Outcome
from placement.plan.actions import Action
from placement.plan.release import ends_of
from rebalancer.executor import Done
from rebalancer.metrics import RebalancerMetrics
from rebalancer.notify import Teller
from report import answers, whatif
from report.exposure import Domain
from report.history import History
from report.view import View
from tests.recordings import clusters
from tests.recordings.clock import NOW
from webhook.admission import Admission, Caches
from webhook.metrics import WebhookMetrics
from webhook.mistakes import Mistakes
from webhook.review import MalformedReview
from webhook.reviewer import Reviewer

Raw = dict[str, Any]

# --- the command line ------------------------------------------------------------------------------------------------


def run_command(arguments: Sequence[str]) -> tuple[int, str, str]:
    """The exit code of `spotweave …`, and what it prints to standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(list(arguments))
        except SystemExit as end:  # bad usage
            code = int(end.code or 0)
    return code, out.getvalue(), err.getvalue()


# --- the webhook -----------------------------------------------------------------------------------------------------


class RecordedWebhook:
    """The webhook with full caches. It answers calls through the entry that production uses."""

    def __init__(self, kubeconfig: Path, unled_seconds: float) -> None:
        self._client = client = connect(kubeconfig, user_agent="recorder")
        self._stores = stores = Caches()
        self._followed: Mapping[str, tuple[resources.Resource[Any], Any]] = {
            clusters.NAMESPACES: (resources.NAMESPACES, stores.namespaces),
            clusters.NODES: (resources.NODES, stores.nodes),
            clusters.PODS: (resources.PODS, stores.pods),
            clusters.REPLICA_SETS: (resources.REPLICA_SETS, stores.replica_sets),
            clusters.DEPLOYMENTS: (resources.DEPLOYMENTS, stores.deployments),
            clusters.STATEFUL_SETS: (resources.STATEFUL_SETS, stores.stateful_sets),
            clusters.PRIORITY_CLASSES: (resources.PRIORITY_CLASSES, stores.priority_classes),
            clusters.BUDGETS: (resources.BUDGETS, stores.budgets),
        }
        self.events: list[tuple[str, str, str]] = []  # workload, reason, text
        outages, rates = read_outages(client)[0], read_observed(client).rates
        admission = Admission(
            stores,
            read_configuration(client),
            is_synced=lambda: True,
            outages=lambda: outages,
            now=lambda: NOW,
            look_up=lambda owner, namespace: look_up(client, owner, namespace),
            mistakes=Mistakes(_teller(self.events)),
            rates=lambda: rates,
            unled_seconds=lambda: unled_seconds,
        )
        for resource, store in self._followed.values():
            for item in read_all(client, resource):
                store.put(item)
        self._metrics = WebhookMetrics()
        self._metrics.show_outages(lambda: outages.standing(NOW))
        self._metrics.outage_version.set_function(lambda: outages.version)
        self._metrics.ledger.set_function(lambda: len(admission.ledger))
        self._reviewer = Reviewer(admission, self._metrics, _AtOnce())
        self._runner = asyncio.Runner(loop_factory=_RecordedLoop)

    def answer(self, body: bytes) -> tuple[int, bytes]:
        """The HTTP status and the body of the answer."""
        try:
            answer = self._reviewer.answer(body)
            return 200, answer if isinstance(answer, bytes) else self._runner.run(_awaited(answer))
        except MalformedReview as error:
            return 400, str(error).encode()

    def see(self, collection: str, raw: Raw) -> None:
        """The caches hear of an object that is new or has changed."""
        resource, store = self._followed[collection]
        store.put(resource.shape.single(json.dumps(raw).encode()))

    def forget(self, collection: str, raw: Raw) -> None:
        """The caches hear that an object is gone; or never hear of it."""
        resource, store = self._followed[collection]
        store.remove(resource.shape.single(json.dumps(raw).encode()).key)

    def metrics(self) -> str:
        return self._metrics.text().decode()

    def close(self) -> None:
        self._runner.close()
        self._client.close()


async def _awaited(answer: Any) -> bytes:
    made: bytes = await answer
    return made


def _teller(events: list[tuple[str, str, str]]) -> Callable[..., None]:
    def tell(workload: Any, reason: str, text: str, *_: Any, **__: Any) -> None:
        events.append((f"{workload.kind} {workload.key}", reason, text))

    return tell


class _AtOnce(Executor):
    """Runs what it is given right away, so that nothing depends on threads."""

    def submit(self, call: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(call(*args, **kwargs))
        return done


class _RecordedSelector(selectors.DefaultSelector):
    """Its clock jumps over every wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(None if timeout is None else 0)
        self.now += 0.0001 if ready or not timeout else timeout
        return ready


class _RecordedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _RecordedSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


# --- the rebalancer and its page -------------------------------------------------------------------------------------


class RecordedRebalancer:
    """One plan for the cluster, and what follows from it. Nothing is carried out; outcomes are made up."""

    def __init__(self, kubeconfig: Path) -> None:
        client: Client = connect(kubeconfig, user_agent="recorder")
        try:
            picture = take_picture(client, None)
        finally:
            client.close()
        self._made: Planned = planned(picture)
        self._view: View = view_of(self._made, picture)
        outcomes = [*Outcome, None]
        self._done = [
            Done(action, outcomes[index % len(outcomes)]) for index, action in enumerate(self._made.plan.actions)
        ]

    def metrics(self) -> str:
        metrics = RebalancerMetrics(lambda: self._view, lambda: True)
        metrics.tell(self._made.plan, self._done, 0.0, 0.0)
        return metrics.text().decode()

    def plan(self) -> Raw:
        """The whole plan, with what would be written to each pod."""
        plan = self._made.plan
        return {
            "outages": [each.raw for each in plan.outages],
            "ended": [each.raw for each in plan.ended],
            "witnesses": [[str(workload.key), each.raw] for workload, each in plan.witnesses],
            "actions": [_action(each) for each in plan.actions],
            "ends": [_action(end) for each in self._made.index.left_behind() for end in ends_of(each)],
            "skipped": [{**each.raw(), "label": each.blocked.label, "why": str(each.why)} for each in plan.skipped],
            "left": plan.left,
        }

    def events(self) -> list[tuple[str, str, str]]:
        told: list[tuple[str, str, str]] = []
        teller, taken = Teller(_teller(told)), self._view.taken
        teller.told(self._made.plan, self._done)
        teller.watch(taken.assessments, taken.ground, NOW)
        return told

    def page(self) -> Raw:
        """What the page's API answers."""
        history = History()
        history.note(self._view.taken, [(each.action, each.outcome) for each in self._done], NOW)
        zones = whatif.choices(self._view)["zones"]
        answered = {
            "overview": answers.overview(self._view, history, with_pools=True),
            "workloads": answers.workloads(self._view, history, answers.Selection()),
            "exposed": answers.workloads(
                self._view, history, answers.Selection(only="exposed", sort="headroom", limit=5)
            ),
            "choices": whatif.choices(self._view),
            "drill": [whatif.drill(self._view, Domain.ZONE, zone) for zone in zones],
        }
        read: Raw = json.loads(msgspec.json.encode(answered))
        return read


def _action(action: Action) -> Raw:
    owner = action.owner
    return {
        **action.raw(),
        "workload": None if action.workload is None else f"{action.workload.kind} {action.workload.key}",
        "annotations": dict(action.annotations),
        "labels": dict(action.labels),
        "text": action.text,
        "restsOn": [str(each.key) for each in action.rests_on],
        "owner": None if owner is None else [owner.kind, owner.name, owner.uid],
        "inEveryMode": action.in_every_mode,
    }
