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
from webhook.admission import Admission, Caches
from webhook.review import AdmissionCall, Verdict, answer

Raw = dict[str, Any]
PODS = Decoder(PodObject, pod)
OPTED_IN = {names.PLACEMENT: "enabled"}
DEPLOYMENT = Owner("Deployment", "web", "d")
REPLICA_SET = Owner("ReplicaSet", "web-abc", "rs")
STATEFUL_SET = Owner("StatefulSet", "db", "ss")


class World:
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
        self.put(Namespace("shop", OPTED_IN), Node("spot-1", {names.CAPACITY: "spot"}), Node("demand-1"))
        self.put(Workload(Kind.DEPLOYMENT, "shop", "web", "d", 10), Workload(Kind.STATEFUL_SET, "shop", "db", "ss", 10))
        self.put(ReplicaSet("shop", "web-abc", "rs", DEPLOYMENT, 10))
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


def raw_pod(owner: Owner | None = REPLICA_SET, name: str = "", **metadata: Any) -> Raw:
    """A pod as its controller creates it. `spec` may be given among the metadata."""
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "schedulerName": "default-scheduler",
        **metadata.pop("spec", {}),
    }
    version = f"{owner.api_group}/v1" if owner and owner.api_group else "v1"
    reference = owner and {
        "apiVersion": version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }
    return {
        "metadata": {
            **({"name": name} if name else {"generateName": "web-abc-"}),
            **({"ownerReferences": [reference]} if reference else {}),
            **metadata,
        },
        "spec": spec,
    }


def review(pod: Any, **request: Any) -> bytes:
    """The call that the API server makes."""
    written = {"uid": "u1", "operation": "CREATE", "namespace": "shop", "object": pod, **request}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": written}).encode()
