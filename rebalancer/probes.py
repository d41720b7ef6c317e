"""The rebalancer's probes and metrics, on a thread of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

from rebalancer.metrics import RebalancerMetrics
from serving.listener import Listener
from serving.messages import Answer, Request, Response
from serving.parser import Limits
from serving.probes import exposed, probe_routes
from serving.routes import Routes
from serving.threads import on_a_thread

LIMITS = Limits(connections=200)
WORKERS = 2


def probes(
    metrics: RebalancerMetrics, missing: Callable[[], str | None], hang: Callable[[], str | None] = lambda: None
) -> Answer:
    """`missing` gives what is missing until it is ready, `hang` what only a restart helps against, or None."""

    async def metrics_text(_request: Request) -> Response:
        """On another thread: a large cluster's take a while, and the kubelet does not wait for long."""
        return exposed(await asyncio.to_thread(metrics.text))

    return Routes(probe_routes(missing, metrics_text, hang)).answer


def serving_probes(answer: Answer, address: str) -> AbstractContextManager[int]:
    """Serves them at HOST:PORT meanwhile; gives the port."""
    return on_a_thread(Listener(answer, LIMITS), address, "probes", WORKERS)
