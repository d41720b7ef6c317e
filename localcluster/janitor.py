"""Cleans up after a parent that was killed: `python janitor.py PARENT-PID`, with a pipe from the parent as input.

The parent writes one JSON line for each process that it starts and each directory that it makes. When the pipe ends,
because the parent closed it or was killed, the remaining ones are killed and removed. It runs as a script with the bare
interpreter, because it must start before anything else and be cheap.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

GONE_TIMEOUT_SECONDS = 10.0
OWNER = "owner.json"  # in each directory of a cluster: whose it is
PARENT_CHECK_SECONDS = 1.0


def start_time(pid: int) -> int | None:
    """When the process began, in clock ticks since boot; None if it is gone. With the pid it identifies a process.

    A zombie is gone only when all its threads are. Until then they hold its ports and files open.
    """
    fields = _stat(pid)
    if not fields or (fields[0] == "Z" and len(_threads(pid)) <= 1):
        return None
    return int(fields[19])


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def process_state(pid: int) -> str:
    """The kernel's letter for the state of the process: R, S, T (stopped), Z…; empty if it does not exist."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the program's name, which may itself contain blanks and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def sweep(processes: list[tuple[int, int]], directories: list[str]) -> None:
    """Kill those of the reported processes that still run, wait for their end, remove the directories."""
    for pid, started in processes:
        if start_time(pid) == started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + GONE_TIMEOUT_SECONDS
    while any(start_time(pid) == started for pid, started in processes) and time.monotonic() < deadline:
        time.sleep(0.01)
    for directory in directories:
        _remove(Path(directory))


def _remove(directory: Path) -> None:
    """The file that names the owner is removed last: while it exists, other files may remain."""
    if directory.is_dir():
        for child in directory.iterdir():
            if child.is_dir():
                shutil.rmtree(child, ignore_errors=True)
            elif child.name != OWNER:
                child.unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)


def read_until_orphaned(parent: int) -> bytes:
    """All that the parent writes until the pipe or the parent ends. A fork of the parent may hold the pipe open.

    Each round checks first whether the parent is alive, then reads the pipe. So its last lines are always read.
    """
    told = b""
    while True:
        alive = os.getppid() == parent
        if select.select([0], [], [], PARENT_CHECK_SECONDS if alive else 0)[0]:
            chunk = os.read(0, 65_536)
            if not chunk:
                return told
            told += chunk
        elif not alive:
            return told


def main() -> None:
    """Ignore every signal that is meant for the parent, and wait for the parent's end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    told = [json.loads(line) for line in read_until_orphaned(int(sys.argv[1])).split(b"\n")[:-1]]
    processes = [(entry["pid"], entry["started"]) for entry in told if "pid" in entry]
    sweep(processes, [entry["directory"] for entry in told if "directory" in entry])


if __name__ == "__main__":
    main()
