"""The owner of a cluster's directory: a file in it names the process, so that remains of a crash are recognised."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from localcluster.errors import BAD_INPUT, ClusterError
from localcluster.janitor import OWNER, start_time

__all__ = ["OWNER", "OwningProcess", "claim", "read_owner", "remove_stale"]


@dataclass(frozen=True)
class OwningProcess:
    """A process, identified by its pid and the time of its start."""

    pid: int
    started: int

    @property
    def is_alive(self) -> bool:
        return start_time(self.pid) == self.started


def read_owner(directory: Path) -> OwningProcess | None:
    """The owner that a directory names; None if it is not a cluster's directory."""
    try:
        raw = json.loads((directory / OWNER).read_text())
        return OwningProcess(raw["pid"], raw["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def claim(directory: Path) -> None:
    """Claim a directory, to be removed later. One that contains anything but a dead cluster is refused."""
    remove_stale(directory)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if os.listdir(directory):
        running = read_owner(directory)
        raise ClusterError(
            f"{directory} holds a running cluster" if running else f"{directory} is not empty",
            "Name a directory that is empty or does not exist.",
            BAD_INPUT,
        )
    started = start_time(os.getpid())
    try:
        with (directory / OWNER).open("x") as file:
            json.dump({"pid": os.getpid(), "started": started}, file)
    except FileExistsError as error:
        raise ClusterError(f"another process just started a cluster in {directory}", exit_code=BAD_INPUT) from error


def remove_stale(directory: Path) -> bool:
    """Remove the directory if its process no longer exists, as after a power failure."""
    owner = read_owner(directory)
    if owner is None or owner.is_alive:
        return False
    shutil.rmtree(directory, ignore_errors=True)
    return True
