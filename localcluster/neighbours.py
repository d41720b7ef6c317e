"""Programs that people run beside Spotweave, such as an autoscaler. They are started on a running local cluster."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Neighbour:
    """A program, what it is started with, and the address that answers 200 when it is ready."""

    name: str
    program: Path
    arguments: tuple[str, ...]
    environment: Mapping[str, str]  # all of it: what a user has set for other programs does not count
    health_url: str
