"""A small cluster in memory: the stores that informers would fill, an admission over them, and calls to it."""

import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import jsonpatch

from kube.convert import pod
from kube.decode import Decoder
from kube.wire import PodObject
from placement import names
from placement.configuration import Configuration
from placement.model import Budget, Kind, Namespace, Node, Owner, Pod, ReplicaSet, Workload
from placement.observation import Rates
from placement.outage import Outages
from tests.builders.api import Raw
from tests.builders.model import namespace, replica_set, workload
from webhook.admission import Admission, Caches
from webhook.review import AdmissionCall, Verdict, answer

PODS = Decoder(PodObject, pod)
WEB, WEB_ABC = workload(), replica_set()
DB = workload("db", kind=Kind.STATEFUL_SET, uid="ss")


class AdmissionHarness:
    """A namespace that is opted in, a Deployment and a StatefulSet of ten. Nothing here waits or sleeps."""

    def __init__(self, configuration: Configuration | None = None, **replaced: Any) -> None:
        self.stores = Caches()
        self.is_synced = True
        self.outages = Outages()
        self.rates = Rates()
        self.unled_seconds = 0.0
        self.looked_up: list[Owner] = []
        self.known_to_the_api: dict[str, ReplicaSet | Workload] = {}
        hooks: dict[str, Callable[..., Any]] = {
            "is_synced": lambda: self.is_synced,
            "outages": lambda: self.outages,
            "rates": lambda: self.rates,
            "unled_seconds": lambda: self.unled_seconds,
            "now": lambda: 1000.0,
            "look_up": self._look_up,
        }
        self._hooks = {**hooks, **replaced}
        self._configuration = configuration or Configuration()
        self.admission = self.anew()
        self.put(namespace(), Node("spot-1", {names.CAPACITY: "spot"}), Node("demand-1"))
        self.put(WEB, DB)
        self.put(WEB_ABC)
        self._requests = 0

    def anew(self) -> Admission:
        """Another admission over the same stores, which remembers nothing."""
        return Admission(self.stores, self._configuration, **self._hooks)

    def put(self, *objects: Any) -> None:
        for each in objects:
            store: Any = {
                Namespace: self.stores.namespaces,
                Node: self.stores.nodes,
                Pod: self.stores.pods,
                ReplicaSet: self.stores.replica_sets,
                Budget: self.stores.budgets,
            }.get(type(each), self.stores.priority_classes)
            if isinstance(each, Workload):
                store = self.stores.deployments if each.kind is Kind.DEPLOYMENT else self.stores.stateful_sets
            store.put(each)

    def request(self, raw_pod: Raw, *, namespace: str = "shop", dry_run: bool = False) -> AdmissionCall:
        self._requests += 1
        return AdmissionCall(f"request-{self._requests}", namespace, raw_pod, dry_run)

    def place(self, raw_pod: Raw, *, patient: bool = False, **call: Any) -> Verdict:
        return self.admission.place(self.request(raw_pod, **call), patient=patient)

    def create(self, raw_pod: Raw, name: str = "") -> Raw:
        """The whole way: placed, answered, patched by another library; with a name, also stored and seen."""
        request = self.request(raw_pod)
        created = patched(raw_pod, answer(request, self.admission.place(request)))
        if name:
            named = {**created, "metadata": {**created["metadata"], "name": name, "namespace": "shop"}}
            self.put(PODS.single(json.dumps(named).encode()))
        return created

    def _look_up(self, owner: Owner, _namespace: str) -> ReplicaSet | Workload | None:
        self.looked_up.append(owner)
        return self.known_to_the_api.get(owner.uid)


def patched(raw_pod: Raw, body: bytes) -> Raw:
    response = json.loads(body)["response"]
    assert response["allowed"] is True
    operations = json.loads(b64decode(response["patch"])) if "patch" in response else []
    result: Raw = jsonpatch.apply_patch(raw_pod, operations)
    return result
