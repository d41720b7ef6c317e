"""Starts programs that die with us, and reports their state."""

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from localcluster.janitor import start_time

JANITOR = Path(__file__).with_name("janitor.py")
LAUNCH = Path(__file__).with_name("launch.py")


def spawn(
    command: Sequence[str],
    output: IO[bytes] | int,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    descriptors: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `command` in its own session, so that Ctrl-C reaches only us and we stop it in order.

    The kernel kills it when the *thread* that calls this ends: call it from one that lives as long as the program.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(LAUNCH), str(os.getpid()), *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=cwd,
        pass_fds=descriptors,
        start_new_session=True,
    )


def lines(process: subprocess.Popen[bytes], on_pulse: Callable[[], None]) -> Iterator[str]:
    """The output of the process, line by line; calls `on_pulse` at least every second, even without output."""
    assert process.stdout is not None
    rest = b""
    with selectors.DefaultSelector() as selector, process.stdout as output:
        selector.register(output, selectors.EVENT_READ)
        while True:
            chunk = os.read(output.fileno(), 65_536) if selector.select(timeout=1.0) else None
            on_pulse()
            if chunk == b"":
                return
            *complete, rest = (rest + (chunk or b"")).split(b"\n")
            for line in complete:
                yield line.decode(errors="replace")


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL the process and all its children that stayed in its process group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Janitor:
    """The parent's end of the janitor. Register everything with it before it can be left behind."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(JANITOR), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def watch_process(self, pid: int) -> None:
        if (started := start_time(pid)) is not None:
            self._tell({"pid": pid, "started": started})

    def watch_directory(self, directory: Path) -> None:
        self._tell({"directory": str(directory)})

    def dismiss(self) -> None:
        """Let the janitor clean up, and wait for it. There is only one way of cleaning up."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _tell(self, entry: dict[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(entry).encode() + b"\n")
        self._process.stdin.flush()


def tail(path: Path, lines: int = 8) -> str:
    """The last lines of a log, with long lines shortened."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 16_384))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(f"  {line[:300]}" for line in text.splitlines()[-lines:])
