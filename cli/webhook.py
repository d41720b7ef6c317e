"""`spotweave webhook`: the webhook program, what the image runs."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from certs import publish
from certs.renewal import Bundle, expiry, verifies
from cli import __version__
from cli.configuration import load_configuration
from kube import resources
from kube.client import Client, connect
from kube.configmaps import STATE, ConfigMap, OutageMemory
from kube.errors import ApiError
from kube.informer import Informer, InformerSet
from kube.owners import look_up
from kube.store import Store
from webhook.admission import Admission, Stores
from webhook.app import Door, create_app
from webhook.metrics import Metrics
from webhook.server import Gateway, Identity, bind, serve

log = logging.getLogger(__name__)

CHORE_SECONDS = 10.0  # how often certificates are looked at
RETRY_SECONDS = 1.0


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("webhook", parents=[common], help="run the admission webhook")
    parser.add_argument("--kubeconfig", type=Path, help="how to reach the cluster (default: as kubectl, or in-cluster)")
    parser.add_argument("--config", type=Path, help="configuration file (default: the ConfigMap spotweave-config)")
    parser.add_argument("--listen", default="0.0.0.0:8443", metavar="HOST:PORT", help="admission, over TLS")
    parser.add_argument("--metrics-listen", default="0.0.0.0:8080", metavar="HOST:PORT", help="probes and metrics")
    parser.add_argument("--share-port", action="store_true", help="let several processes listen on the same port")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    threading.excepthook = _end
    client = connect(args.kubeconfig, user_agent=f"spotweave-webhook/{__version__}")
    program = Program(client, load_configuration(args.config, client))
    tls = bind(args.listen, shared=args.share_port)
    plain = bind(args.metrics_listen)
    program.informers.start()
    uvloop.run(serve(program.gateway, program.identity, tls, plain, background=program.chores))
    program.informers.stop()
    return 0


def _end(failure: threading.ExceptHookArgs) -> None:
    """A thread that dies leaves caches that nobody fills any more: better to start anew."""
    name = failure.thread.name if failure.thread else "?"
    trace = (failure.exc_type, failure.exc_value or failure.exc_type(), failure.exc_traceback)
    log.critical("thread %s died; ending the program", name, exc_info=trace)
    os._exit(1)


class Program:
    """The webhook, put together."""

    def __init__(self, client: Client, configuration: Any) -> None:
        self._client = client
        self._bundle: Bundle | None = None
        stores, states = Stores(), Store[ConfigMap]()
        outages = OutageMemory(states)
        self.metrics = Metrics()
        self.identity = Identity()
        self.informers = InformerSet(
            [
                Informer(client, resources.NAMESPACES, stores.namespaces),
                Informer(client, resources.NODES, stores.nodes),
                Informer(client, resources.PODS, stores.pods),
                Informer(client, resources.REPLICA_SETS, stores.replica_sets),
                Informer(client, resources.DEPLOYMENTS, stores.deployments),
                Informer(client, resources.STATEFUL_SETS, stores.stateful_sets),
                Informer(client, resources.PRIORITY_CLASSES, stores.priority_classes),
                Informer(client, STATE, states),
            ]
        )
        self.admission = Admission(
            stores,
            configuration,
            is_synced=lambda: self.informers.synced,
            outages=lambda: outages.current,
            now=time.time,
            look_up=lambda owner, namespace: look_up(client, owner, namespace),
        )
        door = Door(self.admission, self.metrics, ThreadPoolExecutor(4, "look-up"))
        self.gateway = Gateway(create_app(door, self.metrics, self.missing), door)

    def missing(self) -> str | None:
        """What is missing until pods can be placed."""
        self._measure()
        if self._bundle is None:
            return "no certificate yet"
        if not self.informers.synced:
            waiting = [informer.resource.name for informer in self.informers if not informer.synced]
            return f"not synced: {', '.join(waiting)}"
        if not verifies(self._bundle, publish.HOSTS, datetime.now(UTC)):
            return "the served certificate does not verify against the published bundle"
        return None

    async def chores(self) -> None:
        """Keeps the certificates as they should be, for as long as the program runs."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._serve_with(await loop.run_in_executor(None, publish.reconcile, self._client, datetime.now(UTC)))
                await asyncio.sleep(CHORE_SECONDS)
            except (ApiError, TimeoutError) as error:
                log.warning("certificates: %s", error)
                await asyncio.sleep(RETRY_SECONDS)

    def _serve_with(self, bundle: Bundle) -> None:
        if bundle != self._bundle:
            self.identity.load(bundle.leaf, bundle.leaf_key)
            self._bundle = bundle
            self.metrics.certificate_expiry.set(expiry(bundle.leaf).timestamp())
            log.info("certificates: serving a leaf that is valid until %s", expiry(bundle.leaf).isoformat())

    def _measure(self) -> None:
        self.metrics.ledger.set(len(self.admission.ledger))
        self.metrics.cache_age.set(self.informers.age_seconds(time.monotonic()))
