"""Several replicas of the webhook in one process: each with its own caches and its own view of the others."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

from placement import names
from placement.configuration import Configuration
from serving.messages import Request
from tests.builders.api import Raw, raw_new_pod, review
from tests.builders.model import replica_set
from tests.serving.client import answered
from tests.webhook.admissionharness import PODS, AdmissionHarness, patched
from webhook.evictionledger import EvictionLedger
from webhook.evictions import EvictionReviewer
from webhook.metrics import WebhookMetrics
from webhook.ownership import Books, Tenure
from webhook.peers import NoAnswer, Peers
from webhook.reviewer import Reviewer
from webhook.routes import ports

UID = "rs"


@dataclass
class Network:
    """Who can be reached, and what was asked. Addresses are names."""

    replicas: dict[str, WebhookReplica] = field(default_factory=dict)
    posts: Counter[str] = field(default_factory=Counter)
    stored: list[tuple[int, Raw]] = field(default_factory=list)  # pods, and the version that each was stored at
    uids: int = 0
    slow: dict[str, asyncio.Event] = field(default_factory=dict)  # who answers no sooner than that

    async def post(
        self, address: str, path: str, body: bytes, headers: Mapping[str, str], seconds: float
    ) -> tuple[int, bytes]:
        self.posts[path] += 1
        raw_headers = {name.encode(): value.encode() for name, value in headers.items()}
        request = Request("POST", path, {**raw_headers, b"content-type": b"application/json"}, body)
        try:
            return await asyncio.wait_for(self._call(address, request), seconds)
        except TimeoutError as error:
            raise NoAnswer(address) from error

    async def _call(self, address: str, request: Request) -> tuple[int, bytes]:
        await asyncio.sleep(0)
        if address in self.slow:
            await self.slow[address].wait()
        replica = self.replicas.get(address)
        if replica is None:
            raise NoAnswer(f"{address} is dead")
        response = await answered(replica.ports.tls, request)
        await asyncio.sleep(0)
        return response.status, response.body

    async def create(self, at: str) -> int:
        """A pod is created, and the API server happens to ask this replica. Gives the slot."""
        self.uids += 1
        uid = f"u{self.uids}"
        body = review(raw_new_pod(), uid=uid)
        status, told = await self._call(at, Request("POST", "/mutate", {b"content-type": b"application/json"}, body))
        assert status == 200
        return self._store(patched(raw_new_pod(), told), f"web-abc-{uid}")

    def _store(self, pod: Raw, name: str) -> int:
        named = {**pod, "metadata": {**pod["metadata"], "name": name, "namespace": "shop"}}
        self.stored.append((len(self.stored) + 1, named))
        return int(pod["metadata"]["annotations"][names.SLOT])


class AtOnce(Executor):
    """Works in the caller's thread, because the clock of such tests does not wait for others."""

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*given, **named))
        return done


class WebhookReplica:
    """One of them. It knows of pods and of other replicas what it was told."""

    def __init__(self, network: Network, name: str, *members: str) -> None:
        self.name = name
        self.harness = AdmissionHarness()
        self.harness.put(replica_set(replicas=1000))
        self.members = {each: each for each in members}
        self.left: dict[str, str] = {}
        self.version = 0
        self._network = network
        self.metrics = WebhookMetrics()
        self.peers = Peers(name, lambda: self.members, lambda: self.left, network)
        ledger, admission = EvictionLedger(), self.harness.admission
        books = Books(admission.ledger, ledger)
        self.tenure = Tenure(self.peers, books, lambda: self.version, lambda: self.version)
        reviewer = Reviewer(admission, self.metrics, tenure=self.tenure)
        evictions = EvictionReviewer(
            admission,
            self.metrics,
            Configuration(),
            lambda _pod, text: text,
            executor=AtOnce(),
            ledger=ledger,
            tenure=self.tenure,
        )
        self.ports = ports(reviewer, self.metrics, lambda: None, evictions)
        network.replicas[name] = self

    def see_join(self, name: str) -> None:
        self.members[name] = name

    def see_leave(self, name: str) -> None:
        if name in self.members:
            self.left[name] = self.members.pop(name)

    def see_pods(self) -> None:
        """Its watch brings what was stored since."""
        for version, pod in self._network.stored[self.version :]:
            self.harness.put(PODS.single(json.dumps(pod).encode()))
            self.version = version

    @property
    def decided(self) -> int:
        """How many pods this very replica has placed."""
        lines = self.metrics.text().decode().splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(f"{names.METRIC_DECISIONS}_total"))
