"""What viewers of the dashboard cost the rebalancer: its CPU seconds per pass with fifty viewers and with none.

A separate process has a rebalancer's index of 30,000 pods in 2,000 workloads, its real loop, metrics, history and
dashboard. Pods become unready and ready again at a steady rate. Each change is decoded from a line of a watch, as in an
informer. There is no API server, no Lease and no Event. A real rebalancer does more, which is not counted, so the ratio
is worse here than in a cluster. The contenders are: no viewers; fifty pages, which poll as the page does; and fifty
scripts, which fetch the overview every two seconds, each time on a new connection and without `If-None-Match`. CPU
seconds are those of the whole process; passes are those of the loop in the same time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import aiohttp
import msgspec

from benchmarks.report import Round, rounds_wanted, tell
from benchmarks.stores import index_in_memory
from benchmarks.synthetic import Size, raw_pod
from dashboard.access import Guard
from dashboard.answercache import AnswerCache
from dashboard.server import serving_page
from dashboard.viewer import Around, Viewer
from kube.following import Stores
from kube.resources import PODS_IN_FULL
from placement.outage import Outages
from placement.outcome import Outcome
from placement.plan.actions import Plan
from rebalancer.executor import Executor, LastLook
from rebalancer.index import Index
from rebalancer.loop import Loop, Watched
from rebalancer.metrics import RebalancerMetrics
from report.history import History

ROOT = Path(__file__).parent.parent
SIZE = Size(500, 2000, old_revisions=2)
ROUNDS = 7
SECONDS = 12.0
CLIENTS = 50
RATES = (0, 10, 100)  # changes per second: at rest; an ordinary day; rollouts
CHANGED = 600  # pods, in turn
POLL_SECONDS = 2.0
NOBODY, PAGES, SCRIPTS = "nobody", f"{CLIENTS} pages", f"{CLIENTS} scripts"
FIGURES = {
    "cpu_ms_per_pass": "CPU of the process, ms a pass",
    "loop_ms_per_pass": "CPU of the loop's thread, ms a pass",
    "cpu_ms_per_second": "CPU of the process, ms a second",
    "passes_per_second": "passes a second",
    "answers_per_second": "answers a second",
}


def main() -> None:
    with _rebalancer() as running:
        for rate in RATES:
            running.measured(NOBODY, rate)  # warm up
            rounds = [_round(running, number, rate) for number in range(rounds_wanted(ROUNDS))]
            title = f"{CLIENTS} clients of the dashboard, {rate} changes a second"
            tell(f"polling-{rate}", title, rounds, FIGURES, [(PAGES, NOBODY), (SCRIPTS, NOBODY)])


def _round(running: Running, number: int, rate: int) -> Round:
    order = [NOBODY, PAGES, SCRIPTS]
    random.Random(number).shuffle(order)
    found = {which: running.measured(which, rate) for which in order}
    return {which: found[which] for which in (NOBODY, PAGES, SCRIPTS)}


@dataclass(frozen=True)
class Running:
    """The measured program and its address."""

    process: subprocess.Popen[str]
    port: int

    def measured(self, which: str, rate: int) -> dict[str, float]:
        clients = None if which == NOBODY else self._clients(which)
        if clients is not None:
            assert clients.stdout is not None
            clients.stdout.readline()  # all were answered twice: they poll at their steady pace
            time.sleep(POLL_SECONDS / 2)  # half-way to the next time that all of them poll
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{rate}\n")
        self.process.stdin.flush()
        figures: dict[str, float] = json.loads(self.process.stdout.readline())
        answers = 0.0
        if clients is not None:
            clients.terminate()
            answers = float(clients.communicate()[0])
        return {**figures, "answers_per_second": answers}

    def _clients(self, which: str) -> subprocess.Popen[str]:
        return _spawned("pages" if which == PAGES else "scripts", str(self.port))


def _spawned(*arguments: str) -> subprocess.Popen[str]:
    command = (sys.executable, "-m", "benchmarks.polling", *arguments)
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextmanager
def _rebalancer() -> Iterator[Running]:
    with _spawned("serve") as process:
        try:
            assert process.stdout is not None
            yield Running(process, int(process.stdout.readline()))
        finally:
            process.kill()


# --- the program that is measured ------------------------------------------------------------------------------------


class _Nobody:
    """Writes nothing: this replica does not lead."""

    def __getattr__(self, name: str) -> Outcome:
        raise AssertionError(f"a replica that does not lead was asked to {name}")


class Passes:
    """The loop's passes: their number and their cost."""

    def __init__(self, index: Index) -> None:
        self.count = 0
        around = Around(lambda: False, lambda: True, lambda: Outages(), lambda: None)
        self.viewer, self.history = Viewer(index, around), History()
        self._metrics = RebalancerMetrics(self.viewer.view, lambda: False)
        self.wake = threading.Event()
        nobody = _Nobody()
        executor = Executor(
            nobody,  # type: ignore[arg-type]
            nobody,  # type: ignore[arg-type]
            ThreadPoolExecutor(1),
            ThreadPoolExecutor(1),
            LastLook(lambda: False, lambda: False, lambda _: None, lambda _: None, lambda _: None),
        )
        watched = Watched(lambda: True, lambda: False, lambda: Outages(), lambda _now: False)
        self._loop = Loop(index, executor, watched, self._tell, self.wake)
        self.thread = threading.Thread(target=self._loop.run, daemon=True)
        self.thread.start()

    def _tell(self, made: Plan, _done: object, plan_seconds: float, pass_seconds: float) -> None:
        self._metrics.tell(made, [], plan_seconds, pass_seconds)
        now = time.time()
        self.history.note(self.viewer.take(made, now), (), now)
        self.count += 1

    @property
    def cpu_seconds(self) -> float:
        assert self.thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self.thread.ident))


def serve() -> None:
    stores, index = index_in_memory(SIZE)
    index.refresh(time.time(), all_of_them=True)
    lines = cycle(_lines())
    gc.collect()
    gc.freeze()
    passes = Passes(index)
    with serving_page(AnswerCache(passes.viewer, passes.history), Guard(), "127.0.0.1:0") as port:
        print(port, flush=True)
        for asked in sys.stdin:
            print(json.dumps(_measured(passes, stores, lines, int(asked))), flush=True)


def _measured(passes: Passes, stores: Stores, lines: Iterator[bytes], rate: int) -> dict[str, float]:
    count, cpu, loop, began = passes.count, time.process_time(), passes.cpu_seconds, time.monotonic()
    for number in range(int(rate * SECONDS)):
        event = PODS_IN_FULL.shape.event(next(lines))
        assert event.item is not None
        stores.of(PODS_IN_FULL).put(event.item)
        passes.wake.set()
        time.sleep(max(0.0, began + (number + 1) / rate - time.monotonic()))
    time.sleep(max(0.0, began + SECONDS - time.monotonic()))
    made, seconds = passes.count - count, time.monotonic() - began
    used = time.process_time() - cpu
    return {
        "cpu_ms_per_pass": used / made * 1e3,
        "loop_ms_per_pass": (passes.cpu_seconds - loop) / made * 1e3,
        "cpu_ms_per_second": used / seconds * 1e3,
        "passes_per_second": made / seconds,
    }


def _lines() -> list[bytes]:
    """Lines of a watch: pods of the whole cluster become unready, then all become ready again."""
    chosen = range(0, SIZE.pods, SIZE.pods // CHANGED)
    return [
        msgspec.json.encode({"type": "MODIFIED", "object": raw_pod(pod, SIZE, version=2 + ready, ready=bool(ready))})
        for ready in (0, 1)
        for pod in chosen
    ]


# --- who looks -------------------------------------------------------------------------------------------------------


@dataclass
class Looker:
    """One client."""

    url: str
    is_page: bool
    session: aiohttp.ClientSession
    answers: int = 0
    pace_seconds: float = POLL_SECONDS
    tag: str = ""

    async def looks(self, after_seconds: float) -> None:
        await asyncio.sleep(after_seconds)
        while True:
            await self._ask("overview?with=pools" if self.is_page else "overview")
            await asyncio.sleep(self.pace_seconds)

    async def _ask(self, path: str) -> None:
        headers = {"Accept-Encoding": "gzip"}
        if self.is_page and self.tag:
            headers["If-None-Match"] = self.tag
        async with self.session.get(f"{self.url}{path}", headers=headers) as answer:
            await answer.read()
            answer.raise_for_status()
            self.answers += 1
            if self.is_page:
                self.tag = answer.headers["ETag"]
                self.pace_seconds = json.loads(answer.headers["Spotweave-State"])["askAgainSeconds"]


async def look(port: int, *, is_page: bool) -> None:
    """Runs until it is stopped. Prints when all were answered and, at the end, the number of answers per second.

    Each viewer has its own connections, as each browser has. Pages that share them would be counted as fewer.
    """
    chance, url = random.Random(port), f"http://127.0.0.1:{port}/api/v1/"
    async with AsyncExitStack() as sessions:
        lookers = []
        for _ in range(CLIENTS):
            connector = aiohttp.TCPConnector(force_close=not is_page)
            session = await sessions.enter_async_context(aiohttp.ClientSession(connector=connector))
            lookers.append(Looker(url, is_page, session))
        tasks = [asyncio.create_task(each.looks(chance.random() * POLL_SECONDS)) for each in lookers]
        while not all(each.answers > 1 for each in lookers):  # until the first requests, all at once, are over
            await asyncio.sleep(0.05)
        print("ready", flush=True)
        began, before = time.monotonic(), sum(each.answers for each in lookers)
        stopping = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(15, stopping.set)
        await stopping.wait()
        print((sum(each.answers for each in lookers) - before) / (time.monotonic() - began), flush=True)
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        asyncio.run(look(int(sys.argv[2]), is_page=sys.argv[1] == "pages"))
