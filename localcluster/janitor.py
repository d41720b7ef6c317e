"""Cleans up after a parent that could not: `python janitor.py PARENT-PID`, with a pipe from the parent as input.

The parent writes one JSON line for each process that it starts and each directory that it makes. When the pipe ends,
because the parent closed it or was killed, what is left of them is killed and removed. Run as a script with the bare
interpreter: it must be there before anything else and cost nothing.
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
    """When the process began, in clock ticks since boot; with the pid it names a process for good. None: it is gone.

    A zombie is gone only when all its threads are: until then they hold its ports and files open.
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
    """The kernel's letter for what the process does: R, S, T (stopped), Z…; empty if there is none."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the program's name, which may itself hold blanks and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def sweep(processes: list[tuple[int, int]], directories: list[str]) -> None:
    """Kill the processes that are still the ones we were told of, wait for their end, remove the directories."""
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
    """The file that names the owner goes last: as long as it is there, so may be the rest."""
    if directory.is_dir():
        for child in directory.iterdir():
            if child.is_dir():
                shutil.rmtree(child, ignore_errors=True)
            elif child.name != OWNER:
                child.unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)


def read_until_orphaned(parent: int) -> bytes:
    """All that the parent writes until the pipe ends; or the parent, should a fork of it hold the pipe open.

    Whether the parent lives is asked before each look at the pipe, so that what it wrote last is read in any case.
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
    """Outlive every signal that is meant for the parent; it is the parent's end that we wait for."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    told = [json.loads(line) for line in read_until_orphaned(int(sys.argv[1])).split(b"\n")[:-1]]
    processes = [(entry["pid"], entry["started"]) for entry in told if "pid" in entry]
    sweep(processes, [entry["directory"] for entry in told if "directory" in entry])


if __name__ == "__main__":
    main()
