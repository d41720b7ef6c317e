"""Serves on its own thread, beside a program without an event loop."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import uvloop

from serving.listener import BACKLOG, Listener, bind


@contextmanager
def on_a_thread(listener: Listener, address: str, name: str, workers: int) -> Iterator[int]:
    """Serves at HOST:PORT while the context is open; yields the port. `workers` are threads for slow answers."""
    with bind(address) as sock:
        sock.listen(BACKLOG)
        loop, ending = uvloop.new_event_loop(), asyncio.Event()
        loop.set_default_executor(executor := ThreadPoolExecutor(workers, name))

        async def serve() -> None:
            await listener.start(sock)
            await ending.wait()
            await _end(listener, executor)

        thread = threading.Thread(target=_run, args=(loop, serve()), name=name, daemon=True)
        thread.start()
        try:
            yield _port(sock)
        finally:
            loop.call_soon_threadsafe(ending.set)
            thread.join()


def _port(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])


async def _end(listener: Listener, executor: ThreadPoolExecutor) -> None:
    """Waits for answers that are being computed, and drops those that have not begun."""
    await listener.stop(0.0)
    executor.shutdown(wait=False, cancel_futures=True)
    await asyncio.get_running_loop().shutdown_default_executor()


def _run(loop: asyncio.AbstractEventLoop, serving: Coroutine[Any, Any, None]) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(serving)
    finally:
        loop.close()
