"""`LocalCluster`: starts the parts in order, watches them, stops them, and leaves nothing behind.

with LocalCluster.start(demo_profile()) as cluster:
    subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, "get", "nodes"])
"""

import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from localcluster import parts
from localcluster.api import AdminApi, NoAnswerError
from localcluster.errors import BAD_INPUT, ClusterError
from localcluster.janitor import process_state
from localcluster.kwok import restrict_kwok
from localcluster.layout import Layout
from localcluster.neighbours import Neighbour
from localcluster.nodes import LEASES, await_ready, create_nodes, raw_nodes
from localcluster.owner import claim, remove_stale
from localcluster.parts import APISERVER, ETCD, KWOK, PARTS, Options
from localcluster.pki import write_pki
from localcluster.process import Janitor, spawn, tail
from localcluster.profile import Profile
from localcluster.programs import Programs, chosen_kubernetes, get_programs
from localcluster.progress import Progress, Silent
from localcluster.reclaim import Choice, Reclaimed, Restored, Way, reclaim, restore
from localcluster.stages import merged_stages

__all__ = ["LocalCluster", "Options", "PartStatus"]

log = logging.getLogger("localcluster")

START_TIMEOUT_SECONDS = 90.0
STOP_TIMEOUT_SECONDS = 3.0
POLL_SECONDS = 0.05
WATCH_SECONDS = 0.5
START_ATTEMPTS = 3  # a port can be taken between our check and the program's bind
SHARED_MEMORY = Path("/dev/shm")
SHARED_MEMORY_ROOM_BYTES = 2 * 2**30
PREFIX = "spotweave-cluster-"
SETTLED_PATHS = (  # a pod or a Service could be refused before these exist
    "/api/v1/namespaces/default/serviceaccounts/default",
    "/api/v1/namespaces/default/services/kubernetes",
)


class PortTakenError(ClusterError):
    """A part lost the race for its port. Another attempt uses other ports."""


@dataclass(frozen=True)
class PartStatus:
    """The state of a part: running, paused, killed (by us) or died (by itself)."""

    name: str
    state: str
    pid: int | None
    detail: str = ""


class LocalCluster:
    """A running control plane. Made by `start`; a context manager that stops it."""

    def __init__(
        self, profile: Profile, programs: Programs, layout: Layout, options: Options, janitor: Janitor
    ) -> None:
        self.profile = profile
        self.programs = programs
        self.layout = layout
        self.options = options
        self.api = AdminApi(layout)
        self._janitor = janitor
        # The kernel kills the parts when the thread that forked them ends, so one thread forks them all and stays.
        self._keeper = ThreadPoolExecutor(max_workers=1, thread_name_prefix="localcluster-keeper")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._neighbours: dict[str, Neighbour] = {}
        self._killed: set[str] = set()
        self._stopping = threading.Event()
        self._lock = threading.RLock()

    @classmethod
    def start(
        cls,
        profile: Profile,
        directory: Path | None = None,
        kubernetes: str | None = None,
        options: Options | None = None,
        progress: Progress | None = None,
        timeout_seconds: float = START_TIMEOUT_SECONDS,
    ) -> Self:
        """Get the programs, start all parts, create the nodes; returns when everything is ready, or leaves nothing.

        `directory` must not exist or be empty; it is removed with the cluster. Without it, a temporary one is made.
        """
        shown = progress or Silent()
        programs = get_programs(chosen_kubernetes(kubernetes), shown)
        chosen = options or Options()
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                return cls._attempt(profile, directory, programs, chosen, shown, timeout_seconds)
            except PortTakenError as error:
                log.warning("%s (attempt %d of %d)", error.message, attempt, START_ATTEMPTS)
                lost = error
        raise lost

    @classmethod
    def _attempt(
        cls,
        profile: Profile,
        directory: Path | None,
        programs: Programs,
        options: Options,
        progress: Progress,
        timeout_seconds: float,
    ) -> Self:
        janitor = Janitor()
        layout = _make_directories(directory, options, janitor)
        cluster = cls(profile, programs, layout, options, janitor)
        complete = False
        try:
            cluster._bring_up(progress, time.monotonic() + timeout_seconds)
            complete = True
        finally:
            if not complete:
                progress.failed()
                cluster.stop(grace_seconds=0.0)  # nothing in it needs an orderly end
        return cluster

    @property
    def directory(self) -> Path:
        return self.layout.directory

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig. It names files in `directory`, so it is valid while the cluster runs."""
        return self.layout.kubeconfig

    @property
    def kubectl(self) -> Path:
        return self.programs["kubectl"]

    @property
    def parts(self) -> Mapping[str, PartStatus]:
        """The state of each part and neighbour, now."""
        return {name: self._status(name) for name in (*PARTS, *self._neighbours)}

    def add(self, neighbour: Neighbour, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Start a program beside the control plane. From now on it is a part: it can be killed, and stops with us."""
        with self._lock:
            if neighbour.name in self.parts:
                raise ClusterError(f"{neighbour.name} is a part already", exit_code=BAD_INPUT)
            self._neighbours[neighbour.name] = neighbour
            self._spawn(neighbour.name)
        self._await_healthy(neighbour.name, time.monotonic() + timeout_seconds)

    def kill(self, part: str) -> None:
        """SIGKILL the part; it stays down until `start_part`."""
        with self._lock:
            process = self._running(part)
            self._killed.add(part)
            process.kill()
            process.wait()

    def start_part(self, part: str, timeout_seconds: float = 30.0) -> None:
        """Start a part that was killed or has died, with the same arguments and ports; returns when it is healthy."""
        with self._lock:
            if self._status(self._known(part)).state in ("running", "paused"):
                raise ClusterError(f"{part} is running", exit_code=BAD_INPUT)
            if part == KWOK:
                self._free_leases()
            self._spawn(part)
        self._await_healthy(part, time.monotonic() + timeout_seconds)

    def pause(self, part: str) -> None:
        """SIGSTOP: the part hangs, its connections stay open."""
        with self._lock:
            process = self._running(part)
            process.send_signal(signal.SIGSTOP)
        self.wait(f"{part} to be paused", lambda: process_state(process.pid) == "T", 5.0)

    def resume(self, part: str) -> None:
        """SIGCONT after `pause`."""
        with self._lock:
            self._running(part).send_signal(signal.SIGCONT)

    def reclaim(self, choice: Choice, way: Way = Way.CLOUD, notice_seconds: float = 0.0) -> Reclaimed:
        """Remove nodes; see `localcluster.reclaim`."""
        return reclaim(self.api, choice, way, notice_seconds)

    def restore(self, choice: Choice | None = None) -> Restored:
        """Restore removed nodes; returns when they accept pods."""
        return restore(self.api, self.profile, self.wait, choice)

    def watch(self, on_death: Callable[[PartStatus], None]) -> threading.Thread:
        """Report, from a thread, each part that dies by itself; ends with the cluster."""
        thread = threading.Thread(target=self._watch, args=(on_death,), name="localcluster-watch", daemon=True)
        thread.start()
        return thread

    def wait(self, what: str, condition: Callable[[], bool], timeout_seconds: float = 30.0) -> None:
        """Poll until the condition holds, else raise; an API server that does not answer counts as no."""
        self._wait(what, condition, time.monotonic() + timeout_seconds)

    def stop(self, grace_seconds: float = STOP_TIMEOUT_SECONDS) -> None:
        """Stop all parts in order, by force when the grace is over, then remove every file. May be called twice."""
        with self._lock:
            if self._stopping.is_set():
                return
            self._stopping.set()
            self._terminate(time.monotonic() + grace_seconds)
            self._janitor.dismiss()
            self._keeper.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _bring_up(self, progress: Progress, deadline: float) -> None:
        layout = self.layout
        layout.log(ETCD).parent.mkdir()
        write_pki(layout, datetime.now(UTC))
        layout.stages.write_text(merged_stages(self.programs.stages, self.options.stage_files))
        progress.step(f"starting the control plane (Kubernetes {self.programs.kubernetes})")
        for part in (ETCD, APISERVER):  # the API server waits for etcd by itself
            self._spawn(part)
        for part in (ETCD, APISERVER):
            self._await_healthy(part, deadline)
        restrict_kwok(self.api)
        for part in PARTS[2:]:
            self._spawn(part)
        create_nodes(self.api, raw_nodes(self.profile))
        for part in PARTS[2:]:
            self._await_healthy(part, deadline)
        for path in SETTLED_PATHS:
            self._wait(path, lambda path=path: self.api.exists(path), deadline)  # type: ignore[misc]
        await_ready(self.api, self.profile.node_names, lambda what, holds: self._wait(what, holds, deadline))
        progress.done()

    def _spawn(self, part: str) -> None:
        command, environment = self._command(part)
        with self.layout.log(part).open("ab") as output:
            process = self._keeper.submit(spawn, command, output, environment, self.layout.directory).result()
        self._janitor.watch_process(process.pid)
        self._processes[part] = process
        self._killed.discard(part)

    def _command(self, part: str) -> tuple[list[str], Mapping[str, str] | None]:
        if neighbour := self._neighbours.get(part):
            return [str(neighbour.program), *neighbour.arguments], neighbour.environment
        return [str(self.programs[part]), *parts.command(part, self.layout, self.options)], None

    def _await_healthy(self, part: str, deadline: float) -> None:
        neighbour = self._neighbours.get(part)
        url = neighbour.health_url if neighbour else parts.health_url(part, self.layout)
        self._wait(f"{part} to become ready", lambda: self.api.is_healthy(url), deadline, part)

    def _wait(self, what: str, condition: Callable[[], bool], deadline: float, part: str = APISERVER) -> None:
        while not _holds(condition):
            self._check_parts()
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"timed out waiting for {what}; the end of {part}'s log:\n{tail(self.layout.log(part))}"
                )
            time.sleep(POLL_SECONDS)

    def _check_parts(self) -> None:
        """If a part died while we wait for something, report that instead."""
        for part in self._processes:
            status = self._status(part)
            if status.state == "died":
                kind = PortTakenError if "address already in use" in status.detail else ClusterError
                raise kind(f"{part} died:\n{status.detail}")

    def _status(self, part: str) -> PartStatus:
        process = self._processes.get(part)
        if process is None:
            return PartStatus(part, "not started", None)
        if process.poll() is None:
            return PartStatus(part, "paused" if process_state(process.pid) == "T" else "running", process.pid)
        if part in self._killed:
            return PartStatus(part, "killed", None)
        ending = f"  {_ending(process.returncode)}; the end of its log:"
        return PartStatus(part, "died", None, f"{ending}\n{tail(self.layout.log(part))}")

    def _running(self, part: str) -> subprocess.Popen[bytes]:
        status = self._status(self._known(part))
        if status.pid is None:
            raise ClusterError(f"{part} is not running: {status.state}", exit_code=BAD_INPUT)
        return self._processes[part]

    def _known(self, part: str) -> str:
        if part not in self.parts:
            raise ClusterError(f"no part is called `{part}`", f"The parts are {', '.join(self.parts)}.", BAD_INPUT)
        return part

    def _free_leases(self) -> None:
        """A new KWOK has a new identity and would wait 40 s until the old one's claims on the nodes expire."""
        try:
            for lease in self.api.get(LEASES)["items"]:
                self.api.delete(f"{LEASES}/{lease['metadata']['name']}")
        except NoAnswerError:
            log.warning("the API server does not answer: KWOK may take 40 s to manage the nodes again")

    def _watch(self, on_death: Callable[[PartStatus], None]) -> None:
        told: set[int] = set()
        while not self._stopping.wait(WATCH_SECONDS):
            for part, process in list(self._processes.items()):
                status = self._status(part)
                if status.state == "died" and process.pid not in told and not self._stopping.is_set():
                    told.add(process.pid)
                    on_death(status)

    def _terminate(self, deadline: float) -> None:
        """Terminate all but etcd, which the others need to end properly; then kill etcd, whose data is not needed."""
        others = [process for part, process in self._processes.items() if part != ETCD and process.poll() is None]
        for process in others:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
        while any(process.poll() is None for process in others) and time.monotonic() < deadline:
            time.sleep(0.01)
        for process in self._processes.values():
            process.kill()
            process.wait()


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except NoAnswerError:
        return False


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _make_directories(directory: Path | None, options: Options, janitor: Janitor) -> Layout:
    """Create the cluster's directories, each registered with the janitor before anything is in it."""
    try:
        data = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_roomy_directory()))
        janitor.watch_directory(data)
        claim(data)
        if directory is None:
            return Layout(data, data, options.find_ports(), options.service_range)
        claim(directory)
        janitor.watch_directory(directory.absolute())
        return Layout(directory.absolute(), data, options.find_ports(), options.service_range)
    except OSError as error:
        janitor.dismiss()
        raise ClusterError(f"the cluster's directory cannot be made: {error}") from error
    except ClusterError:
        janitor.dismiss()
        raise


def remove_stale_directories() -> list[Path]:
    """Remove what clusters left behind when the whole machine, or the janitor too, went down."""
    places = {SHARED_MEMORY, Path(tempfile.gettempdir())}
    return [path for place in places for path in place.glob(f"{PREFIX}*") if remove_stale(path)]


def _roomy_directory() -> Path | None:
    """tmpfs if there is room for a cluster's data; else the usual place for temporary files."""
    usable = SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK)
    roomy = usable and shutil.disk_usage(SHARED_MEMORY).free >= SHARED_MEMORY_ROOM_BYTES
    return SHARED_MEMORY if roomy else None
