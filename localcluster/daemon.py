"""A cluster that outlives the terminal: a detached process owns it, and answers on a socket in its directory.

    DIR/owner.json    the daemon's pid                      DIR/kubeconfig   the administrator's
    DIR/state.json    what clients need; there when ready   DIR/profile.yaml the nodes, for `restore`
    DIR/control.sock  one JSON line in, one JSON line out   DIR/logs/        one file for each part, and the daemon's

All of it goes when the cluster does.
"""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from localcluster.api import AdminApi, NoAnswerError
from localcluster.cluster import LocalCluster, Options, PartStatus
from localcluster.errors import UNREACHABLE, ClusterError
from localcluster.janitor import start_time
from localcluster.layout import Layout, Ports
from localcluster.nodes import CAPACITY_LABEL, INSTANCE_TYPE_LABEL, POOL_LABEL, ZONE_LABEL, is_ready, list_nodes
from localcluster.owner import OwningProcess, read_owner
from localcluster.process import lines
from localcluster.profile import Profile, load_profile
from localcluster.progress import Progress

log = logging.getLogger("localcluster")

STATE = "state.json"
SOCKET = "control.sock"
PROFILE = "profile.yaml"
STOP_TIMEOUT_SECONDS = 20.0
CALL_TIMEOUT_SECONDS = 60.0
ACCEPT_SECONDS = 0.2


@dataclass(frozen=True)
class DaemonRequest:
    """What `up` asks of the new process."""

    directory: str
    profile: str
    kubernetes: str
    service_range: str
    controller_qps: float | None = None
    controller_burst: int | None = None
    stage_files: tuple[str, ...] = ()

    @property
    def options(self) -> Options:
        files = tuple(Path(path) for path in self.stage_files)
        return Options(self.service_range, self.controller_qps, self.controller_burst, files)


@dataclass(frozen=True)
class RunningCluster:
    """A client's view of the cluster in a directory."""

    directory: Path
    owner: OwningProcess
    state: Mapping[str, Any]

    @classmethod
    def find(cls, directory: Path) -> Self:
        """The cluster that runs in `directory`; raises ClusterError if there is none."""
        owner = read_owner(directory)
        if owner is None or not owner.is_alive:
            raise ClusterError(
                f"no cluster is running in {directory}", "`spotweave cluster up` starts one.", UNREACHABLE
            )
        try:
            state = json.loads((directory / STATE).read_text())
        except (OSError, ValueError) as error:
            raise ClusterError(f"the cluster in {directory} is just starting or stopping", "Try again.") from error
        return cls(directory, owner, state)

    @property
    def layout(self) -> Layout:
        raw = self.state["layout"]
        return Layout(Path(raw["directory"]), Path(raw["data"]), Ports(**raw["ports"]), raw["service_range"])

    @property
    def api(self) -> AdminApi:
        return AdminApi(self.layout)

    @property
    def profile(self) -> Profile:
        return load_profile(self.directory / PROFILE)

    def ask(self, do: str, part: str = "") -> Any:
        """Send the daemon a request; its errors are raised here."""
        try:
            answer = json.loads(_exchange(self.directory, json.dumps({"do": do, "part": part})))
        except (OSError, ValueError) as error:
            raise ClusterError(f"the daemon of the cluster in {self.directory} does not answer: {error}") from error
        if "error" in answer:
            raise ClusterError(answer["error"], answer["hint"], answer["exitCode"])
        return answer["result"]


def launch(request: DaemonRequest, progress: Progress) -> RunningCluster:
    """Start the daemon and wait until its cluster is ready. Ctrl-C or an error: nothing is left."""
    directory = Path(request.directory)
    process = subprocess.Popen(
        [sys.executable, "-m", "localcluster.daemon", json.dumps(asdict(request))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        env={**os.environ, "PYTHONPATH": _python_path()},
        start_new_session=True,
    )
    owner = OwningProcess(process.pid, start_time(process.pid) or 0)
    progress.step(f"starting the control plane (Kubernetes {request.kubernetes})")
    ready = False
    try:
        _await_ready(process, progress)
        ready = True
    finally:
        if not ready:
            progress.failed()
            process.terminate()
            process.wait()
            _await_gone(directory, owner)
    progress.done()
    return RunningCluster.find(directory)


def stop(directory: Path) -> bool:
    """Stop the cluster in `directory` and wait until all of it is gone; False if there was none."""
    owner = read_owner(directory)
    if owner is None or not owner.is_alive:
        return False
    os.kill(owner.pid, signal.SIGTERM)
    _await_gone(directory, owner)
    return True


def _await_gone(directory: Path, owner: OwningProcess) -> None:
    """The daemon first, then its directory, which the janitor removes; a daemon that hangs is killed."""
    deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
    while owner.is_alive or read_owner(directory) == owner:
        if time.monotonic() > deadline:
            if not owner.is_alive:
                raise ClusterError(f"{directory} was not removed", "Remove it by hand.")
            os.kill(owner.pid, signal.SIGKILL)
            deadline += STOP_TIMEOUT_SECONDS
        time.sleep(0.02)


def _await_ready(process: subprocess.Popen[bytes], progress: Progress) -> None:
    """Read the daemon's output until it reports that it is ready; anything else is the reason why it is not."""
    said: list[str] = []
    for line in lines(process, lambda: progress.tick("waiting for all parts and nodes")):
        if line.startswith("{"):
            answer = json.loads(line)
            if "error" in answer:
                raise ClusterError(answer["error"], answer["hint"], answer["exitCode"])
            return
        said.append(line)
    raise ClusterError("the cluster's daemon ended: " + "\n".join(said[-8:]))


def _python_path() -> str:
    """The daemon must find this very package, wherever it was started from."""
    own = str(Path(__file__).resolve().parents[1])
    return os.pathsep.join(filter(None, [own, os.environ.get("PYTHONPATH")]))


@contextmanager
def _socket_path(directory: Path) -> Iterator[str]:
    """A short name for the socket: Unix allows 107 characters, directories are often longer."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def _exchange(directory: Path, line: str) -> str:
    with socket.socket(socket.AF_UNIX) as client, _socket_path(directory) as path:
        client.settimeout(CALL_TIMEOUT_SECONDS)
        client.connect(path)
        client.sendall(line.encode() + b"\n")
        with client.makefile() as answer:
            return answer.readline()


# What follows runs in the daemon.


def main() -> None:
    """Start the cluster, report it, serve until stopped. Before that, SIGTERM ends us and the janitor cleans up."""
    request = DaemonRequest(**json.loads(sys.argv[1]))
    directory = Path(request.directory)
    try:
        cluster = LocalCluster.start(
            load_profile(Path(request.profile)), directory, request.kubernetes, request.options
        )
    except ClusterError as error:
        print(json.dumps(_error(error)), flush=True)
        sys.exit(1)
    with cluster:
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        (directory / PROFILE).write_text(Path(request.profile).read_text())
        with _listen(directory) as listener:
            _write_state(cluster)
            print(json.dumps({"ready": True}), flush=True)
            _detach_output(cluster.layout.log("daemon"))
            cluster.watch(lambda part: log.error("%s died:\n%s", part.name, part.detail))
            _serve(cluster, listener, stopping)


def _listen(directory: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    with _socket_path(directory) as path:
        listener.bind(path)
    listener.listen()
    listener.settimeout(ACCEPT_SECONDS)
    return listener


def _write_state(cluster: LocalCluster) -> None:
    """Written to a temporary file and renamed, so that a client reads all of it or nothing."""
    layout = cluster.layout
    state = {
        "kubernetes": cluster.programs.kubernetes,
        "kubectl": str(cluster.kubectl),
        "layout": {
            "directory": str(layout.directory),
            "data": str(layout.data),
            "ports": asdict(layout.ports),
            "service_range": layout.service_range,
        },
    }
    draft = layout.directory / f"{STATE}.draft"
    draft.write_text(json.dumps(state))
    draft.rename(layout.directory / STATE)


def _detach_output(path: Path) -> None:
    """From now on there may be no reader at the other end of the pipe."""
    with path.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")


def _serve(cluster: LocalCluster, listener: socket.socket, stopping: threading.Event) -> None:
    while not stopping.is_set():
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        with connection:
            connection.settimeout(CALL_TIMEOUT_SECONDS)
            try:
                _answer(cluster, connection)
            except OSError as error:
                log.warning("a client went away: %s", error)


def _answer(cluster: LocalCluster, connection: socket.socket) -> None:
    with connection.makefile() as received:
        line = received.readline()
    connection.sendall(json.dumps(answer_to(cluster, line)).encode() + b"\n")


def answer_to(cluster: LocalCluster, line: str) -> dict[str, Any]:
    """Carry out one request; a failure is an answer too."""
    actions: Mapping[str, Callable[[str], object]] = {
        "status": lambda _: status(cluster),
        "kill": cluster.kill,
        "start": cluster.start_part,
        "pause": cluster.pause,
        "resume": cluster.resume,
    }
    try:
        request = json.loads(line)
        return {"result": actions[request["do"]](request["part"])}
    except ClusterError as error:
        return _error(error)
    except (ValueError, KeyError, TypeError) as error:
        return _error(ClusterError(f"the daemon does not understand {line!r}: {error}"))


def _error(error: ClusterError) -> dict[str, Any]:
    return {"error": error.message, "hint": error.hint, "exitCode": error.exit_code}


def status(cluster: LocalCluster) -> dict[str, Any]:
    """All that `spotweave cluster status` shows."""
    return {
        "kubernetes": cluster.programs.kubernetes,
        "directory": str(cluster.directory),
        "kubeconfig": str(cluster.kubeconfig),
        "server": cluster.layout.server,
        "serviceRange": cluster.layout.service_range,
        "daemon": {"pid": os.getpid(), "started": start_time(os.getpid())},
        "parts": [_part(cluster, part) for part in cluster.parts.values()],
        "nodes": _nodes(cluster.api),
    }


def _part(cluster: LocalCluster, part: PartStatus) -> dict[str, Any]:
    version = cluster.programs.versions[part.name]
    return {
        "name": part.name,
        "state": part.state,
        "pid": part.pid,
        "version": version,
        "log": str(cluster.layout.log(part.name)),
        "detail": part.detail,
    }


def _nodes(api: AdminApi) -> list[dict[str, Any]] | None:
    """None if the API server does not answer."""
    try:
        return [_node(node) for node in list_nodes(api)]
    except NoAnswerError:
        return None


def _node(raw: Mapping[str, Any]) -> dict[str, Any]:
    labels = raw["metadata"].get("labels", {})
    return {
        "name": raw["metadata"]["name"],
        "pool": labels.get(POOL_LABEL),
        "class": labels.get(CAPACITY_LABEL),
        "zone": labels.get(ZONE_LABEL),
        "instanceType": labels.get(INSTANCE_TYPE_LABEL),
        "ready": is_ready(raw),
        "cordoned": bool(raw["spec"].get("unschedulable")),
    }


if __name__ == "__main__":
    main()
