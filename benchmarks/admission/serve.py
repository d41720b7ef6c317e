"""Serves our webhook from caches in memory, without an API server: `serve CERT KEY ADDRESS`."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace
from pathlib import Path

import uvloop

from kube.gctuning import spare_caches
from placement import names
from placement.configuration import Configuration
from placement.model import Class, Kind, Namespace, Node, Owner, Pod, ReplicaSet, Workload
from placement.outage import Outages
from serving.listener import RECEIVED_BYTES, bind
from webhook.admission import Admission, Caches
from webhook.metrics import WebhookMetrics
from webhook.reviewer import Reviewer
from webhook.routes import ports
from webhook.server import TlsIdentity, serve

MEMORY_BYTES = 512 * 1024**2  # as the manifests have it
UID = "7e2b1f5c-0000-4000-8000-000000000001"


def stores() -> Caches:
    """A Deployment on twelve nodes."""
    filled = Caches()
    filled.namespaces.put(Namespace("shop", {names.PLACEMENT: names.ENABLED}))
    for index in range(12):
        capacity = Class.SPOT if index % 2 else Class.ON_DEMAND
        labels = {
            names.CAPACITY: str(capacity),
            names.ZONE: f"zone-{'abc'[index % 3]}",
            names.INSTANCE_TYPE: "m5.large",
        }
        filled.nodes.put(Node(f"node-{index}", labels))
    deployment = Owner("Deployment", "web", "uid-web")
    selector = {"matchLabels": {"app": "web", names.POD_TEMPLATE_HASH: "abc"}}
    filled.deployments.put(Workload(Kind.DEPLOYMENT, "shop", "web", "uid-web", 1000))
    filled.replica_sets.put(ReplicaSet("shop", "web-abc", UID, deployment, 1000, selector))
    return filled


def running_pods(into: Caches) -> None:
    """Eleven pods, so that the next slot is spot, which has the larger patch."""
    for slot in range(11):
        annotations = {names.SLOT: str(slot)}
        owner = Owner("ReplicaSet", "web-abc", UID)
        pod = Pod("shop", f"web-abc-{slot}", f"pod-{slot}", owner, {}, annotations, f"node-{slot}", "Running", True)
        into.pods.put(replace(pod, decision=f"{UID}/{slot}"))


async def forever() -> None:
    await asyncio.Event().wait()


async def main(certificate: str, key: str, address: str) -> None:
    known, metrics, identity = stores(), WebhookMetrics(), TlsIdentity()
    admission = Admission(
        known,
        Configuration(),
        is_synced=lambda: True,
        outages=Outages,
        now=time.time,
        look_up=lambda _owner, _namespace: None,
    )
    running_pods(known)
    spare_caches(lambda _seconds: True)  # as the program itself does
    identity.load(Path(certificate).read_bytes(), Path(key).read_bytes())
    both = ports(Reviewer(admission, metrics), metrics, lambda: None)
    sockets = [bind(address, received_bytes=RECEIVED_BYTES)], bind("127.0.0.1:0")
    await serve(both, identity, *sockets, background=forever, memory=lambda: MEMORY_BYTES)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:4]))
