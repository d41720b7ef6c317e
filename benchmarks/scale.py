"""What a rebalancer costs in a cluster at Kubernetes' own limits, and in one of a tenth of that size.

The whole program, as `spotweave rebalancer` puts it together, leads in its own process, against a server with a
synthetic cluster. The benchmark measures its memory (after requests for the page and the metrics), the CPU time of its
pod informer per listed pod (including HTTP and the stores) and per watch event, and the time until all is synced. Plans
and passes are measured on stores in memory, with the real loop. CPU time is taken per thread, so that the server and
noisy neighbours disturb it as little as possible. There is one event for each workload: several events of one workload
within a pass cost one assessment, so in a smaller cluster the same number of events would cost less.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from kubernetes.client import Configuration
from rich.console import Console
from rich.table import Table

from benchmarks.feed import page
from benchmarks.report import rounds_wanted
from benchmarks.stores import index_in_memory
from benchmarks.synthetic import Size
from dashboard.access import Guard, known_hosts
from dashboard.answercache import AnswerCache
from dashboard.server import serving_page
from dashboard.viewer import Around, Viewer
from kube.client import Client
from kube.crashpoints import NO_FAULTS
from kube.following import Stores
from kube.gctuning import THRESHOLDS
from kube.resources import DEPLOYMENTS, NODES, PAGE_SIZE, PODS_IN_FULL, REPLICA_SETS_IN_USE, STATEFUL_SETS
from kube.store import Store
from placement import configuration, names
from placement.model import Class, Pod, Sign
from placement.outage import Outages
from placement.plan.actions import Plan
from placement.plan.scene import Scene
from placement.plan.select import plan
from rebalancer.executor import Done, Executor
from rebalancer.index import Index
from rebalancer.loop import Loop, Watched
from rebalancer.metrics import RebalancerMetrics
from rebalancer.probes import probes, serving_probes
from rebalancer.program import RebalancerProgram
from report.history import History

ROOT = Path(__file__).parent.parent
OUT = ROOT / "out" / "bench"
FULL = Size()
SIZES = (FULL.tenth(), FULL)
DECODED_PODS = 15_000
FASTEST_OF = 5
ROUNDS = rounds_wanted(3)
SYNC_SECONDS = 600.0
PASSES = 200
PODS_INFORMER = f"informer-{PODS_IN_FULL.name}"

Figures = dict[str, float]

# The figures to show, in this order, if they were measured.
SHOWN = {
    "pods": "pods",
    "nodes": "nodes",
    "workloads": "workloads",
    "replica_sets": "ReplicaSets",
    "bytes_per_pod": "bytes of a pod's JSON",
    "rss_start_mib": "RSS before, MiB",
    "rss_mib": "RSS with all synced, MiB",
    "rss_events_mib": "RSS after the events, MiB",
    "rss_peak_mib": "peak RSS, MiB",
    "sync_seconds": "until all is synced, s",
    "skim_us": "skimming JSON, which nobody is spared, µs a pod",
    "decode_us": "decode alone, first time, µs a pod",
    "again_us": "decode alone, when siblings are known, µs a pod",
    "list_us": "list, informer's CPU, µs a pod",
    "event_us": "watch, informer's CPU, µs an event",
    "decide_us": "loop, all its work for the events, µs an event",
    "plan_idle_seconds": "full plan, nothing to do, s",
    "plan_off_seconds": "full plan, 1 % of the workloads off, s",
    "plan_lost_seconds": "full plan, all spot lost, s",
    "pass_us": "a pass for one event, µs",
    "pass_one_us": "the same, one workload blocked, µs",
    "pass_blocked_us": "the same, 1 % of the workloads blocked, µs",
    "pass_off_us": "the same, 1 % of the workloads off and no place for them, µs",
}


def main() -> None:
    measured = [{**_followed(size), **_planned(size)} for size in SIZES]
    _report(measured)


# --- following a cluster: in a process of its own ------------------------------------------------------------------


def _followed(size: Size) -> Figures:
    """The median of some rounds; memory hardly differs between them."""
    rounds = [_followed_once(size) for _ in range(ROUNDS)]
    return {name: median(each[name] for each in rounds) for name in rounds[0]}


def _followed_once(size: Size) -> Figures:
    with _feeding(size) as port:
        return {**_measured("follow", size, port), **_measured("decode", size)}


def _measured(what: str, size: Size, *more: int) -> Figures:
    """In a new process, with the settings of the image."""
    command = (sys.executable, "-m", "benchmarks.scale", what, *map(str, (size.nodes, size.workloads, *more)))
    settings = {**os.environ, "MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "131072"}
    told = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, env=settings)
    figures: Figures = json.loads(told.stdout)
    return figures


@contextmanager
def _feeding(size: Size) -> Iterator[int]:
    command = (sys.executable, "-m", "benchmarks.feed", str(size.nodes), str(size.workloads), str(size.workloads))
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as feed:
        try:
            assert feed.stdout is not None
            yield int(feed.stdout.readline())
        finally:
            feed.kill()


def follow(size: Size, port: int) -> Figures:
    """The measured program."""
    client = Client(Configuration(host=f"http://127.0.0.1:{port}"), user_agent="spotweave-bench")
    program = RebalancerProgram(client, configuration.Configuration(), NO_FAULTS)
    start_mib, began = _memory_mib("VmRSS"), time.monotonic()
    answer, guard = probes(program.metrics, program.missing), Guard(known_hosts(None, []))
    cache = AnswerCache(program.viewer, program.history)
    runs = threading.Thread(target=program.run, name="loop")
    with (
        serving_probes(answer, "127.0.0.1:0") as probes_port,
        serving_page(cache, guard, "127.0.0.1:0") as page_port,
    ):
        runs.start()
        _await(lambda: program.missing() is None)
        sync_seconds, list_seconds = time.monotonic() - began, _cpu_seconds(PODS_INFORMER)
        _await(lambda: program.viewer.view() is not None)
        _look(probes_port, page_port)
        synced_mib, planned_seconds = _memory_mib("VmRSS"), _cpu_seconds("loop")
        event_seconds = _heard(client, program.followed.stores.of(PODS_IN_FULL), size.workloads) - list_seconds
        time.sleep(2.0)  # until everything is decided
        loop_seconds = _cpu_seconds("loop") - planned_seconds
        _look(probes_port, page_port)
        program.loop.stop()
        runs.join()
    return {
        "rss_start_mib": start_mib,
        "rss_mib": synced_mib,
        "rss_events_mib": _memory_mib("VmRSS"),
        "rss_peak_mib": _memory_mib("VmHWM"),
        "sync_seconds": sync_seconds,
        "list_us": list_seconds / size.pods * 1e6,
        "event_us": event_seconds / size.workloads * 1e6,
        "decide_us": loop_seconds / size.workloads * 1e6,
        **{name: float(count) for name, count in _counted(program.followed.stores).items()},
    }


def _await(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SYNC_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError("the program is not ready")
        time.sleep(0.02)


def _look(probes_port: int, page_port: int) -> None:
    """Requests what Prometheus and a person would."""
    paths = ((probes_port, "metrics"), *((page_port, path) for path in ("", "api/v1/overview", "api/v1/workloads")))
    for port, path in paths:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=SYNC_SECONDS) as answer:
            answer.read()


def _heard(client: Client, pods: Store[Pod], changes: int) -> float:
    """The informer's CPU time until this many changes are in the store."""
    left, done = [changes], threading.Event()

    def count(_old: Pod | None, _new: Pod | None) -> None:
        left[0] -= 1
        if not left[0]:
            done.set()

    pods.subscribe(count)
    client.post("/speak", {})
    if not done.wait(SYNC_SECONDS):
        raise TimeoutError(f"{left[0]} changes were not heard")
    return _cpu_seconds(PODS_INFORMER)


def decode(size: Size) -> Figures:
    """Decoding alone, from memory: once in sequence, as in a list; then the fastest of several times."""
    pods = min(size.pods, DECODED_PODS)
    bodies = [
        page(size, PODS_IN_FULL.name, first, PAGE_SIZE) for first in range(size.pods - pods, size.pods, PAGE_SIZE)
    ]
    kept: list[object] = []
    figures = {
        "decode_us": _cpu_seconds_of(lambda body: kept.append(PODS_IN_FULL.shape.page(body)), bodies, 1) * 1e6,
        "again_us": _cpu_seconds_of(PODS_IN_FULL.shape.page, bodies, FASTEST_OF) * 1e6,
        "skim_us": _cpu_seconds_of(_skim, bodies, FASTEST_OF) * 1e6,
        "bytes_per_pod": float(sum(map(len, bodies))),
    }
    return {name: figure / pods for name, figure in figures.items()}


def _cpu_seconds_of(read: Callable[[bytes], object], bodies: list[bytes], times: int) -> float:
    """The sum over all bodies of the fastest of several times."""
    return sum(min(_once(read, body) for _ in range(times)) for body in bodies)


def _once(read: Callable[[bytes], object], body: bytes) -> float:
    began = time.thread_time()
    read(body)
    return time.thread_time() - began


class _Nothing(msgspec.Struct):
    """Decoding into it reads every byte and keeps none."""


_skim = msgspec.json.Decoder(_Nothing).decode


def _counted(stores: Stores) -> dict[str, int]:
    return {
        "pods": len(stores.of(PODS_IN_FULL)),
        "nodes": len(stores.of(NODES)),
        "workloads": len(stores.of(DEPLOYMENTS)) + len(stores.of(STATEFUL_SETS)),
        "replica_sets": len(stores.of(REPLICA_SETS_IN_USE)),
    }


def _cpu_seconds(name: str) -> float:
    """The CPU time of a thread since it began."""
    (thread,) = (each for each in threading.enumerate() if each.name == name)
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def _memory_mib(field: str) -> float:
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


# --- planning: on stores in memory -----------------------------------------------------------------------------------


def _planned(size: Size) -> Figures:
    """CPU time of a plan, from nothing assessed to all actions chosen, and of an event."""
    stores, index = index_in_memory(size)
    gc.set_threshold(*THRESHOLDS)  # as the program (`kube.gctuning`)
    gc.freeze()  # what was read is not collected again and again
    now = time.time()
    idle = _plan_seconds(index, now)
    loop = _loop(index)
    loop.once()
    gc.collect()  # otherwise the next events would pay for collecting what the full plan left
    gc.freeze()
    figures = {"pass_us": _pass_us(stores, loop)}
    nodes = stores.of(NODES).values()
    off = stores.of(DEPLOYMENTS).values()[:: len(stores.of(DEPLOYMENTS)) // max(1, size.workloads // 100)]
    other_ratio = {names.SPOT_RATIO: "30%"}
    for blocked, figure in ((off[:1], "pass_one_us"), (off, "pass_blocked_us")):
        for each in blocked:
            stores.of(DEPLOYMENTS).put(replace(each, annotations=other_ratio | {names.REBALANCE: "plan-only"}))
        figures[figure] = _pass_us(stores, loop)
    for each in off:
        stores.of(DEPLOYMENTS).put(replace(each, annotations=other_ratio))
    some = _plan_seconds(index, now)
    figures["pass_off_us"] = _pass_us(stores, loop)
    for node in nodes:
        if node.labels.get(names.CAPACITY) == str(Class.SPOT):
            stores.of(NODES).put(replace(node, ready=False))
            said = names.SIGN_NODE_DELETED
            index.observe(None, Sign("default", f"{said}-{node.name}", said, node.name, now, node.uid, "Node"))
            stores.of(NODES).remove(node.key)
    lost = _plan_seconds(index, now)
    return {"plan_idle_seconds": idle, "plan_off_seconds": some, "plan_lost_seconds": lost, **figures}


def _plan_seconds(index: Index, now: float) -> float:
    began = time.thread_time()
    index.drain()
    index.refresh(now, all_of_them=True)
    plan(_scene(index, now))
    return time.thread_time() - began


def _loop(index: Index) -> Loop:
    """With all observers of a pass, but without a writer: no planned action is carried out."""
    nobody: Any = None
    around = Around(lambda: True, lambda: True, Outages, lambda: None)
    viewer, history = Viewer(index, around), History()
    metrics = RebalancerMetrics(viewer.view, lambda: True)

    def tell(made: Plan, done: Sequence[Done], plan_seconds: float, pass_seconds: float) -> None:
        metrics.tell(made, done, plan_seconds, pass_seconds)
        now = time.time()
        history.note(viewer.take(made, now), (), now)

    watched = Watched(lambda: True, lambda: False, Outages, lambda _now: False)
    return Loop(index, Executor(nobody, nobody, nobody, nobody, nobody), watched, tell)


def _pass_us(stores: Stores, loop: Loop) -> float:
    """A pod becomes unready and ready again, with one pass each."""
    loop.once()
    store = stores.of(PODS_IN_FULL)
    pods = store.values()[:: max(1, len(store) // PASSES)][:PASSES]
    began = time.thread_time()
    for pod in pods:
        for changed in (replace(pod, ready=False), pod):
            store.put(changed)
            loop.once()
    return (time.thread_time() - began) / (2 * len(pods)) * 1e6


def _scene(index: Index, now: float) -> Scene:
    return Scene(
        index.restless(),
        index.ground,
        index.used,
        now,
        lost=index.lost,
        budgets=index.budgets_of,
        waiting=index.waiting,
        neighbours=index.neighbours,
    )


def _report(measured: list[Figures]) -> None:
    table = Table(title=f"following a cluster, median of {ROUNDS} rounds")
    table.add_column("")
    for figures in measured:
        table.add_column(f"{figures['nodes']:,.0f} nodes", justify="right")
    for name, told in SHOWN.items():
        if name in measured[0]:
            table.add_row(told, *(_shown(figures[name]) for figures in measured))
    Console().print(table)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "scale.json").write_text(json.dumps(measured, indent=2))


def _shown(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}"


if __name__ == "__main__":
    _what, _nodes, _workloads, *_port = sys.argv[1:]
    _size = Size(int(_nodes), int(_workloads))
    json.dump(follow(_size, int(_port[0])) if _what == "follow" else decode(_size), sys.stdout)
