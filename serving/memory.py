"""How much a listener may take, from what the container may use.

A quarter of the memory limit is for connections. One costs 50 KiB when it is silent and up to 200 KiB when it has sent
something; OpenSSL and uvloop keep buffers of that size. A sixteenth is for bodies. 512 MiB: 682 connections and 32 MiB.
"""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

from serving.parser import KIB, MIB, Limits

LIMIT_FILES = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
USUAL_BYTES = 512 * MIB  # where there is no limit: as the manifests have it
MOST_BYTES = 4096 * MIB
CONNECTION_BYTES = 192 * KIB
FEWEST_CONNECTIONS = 64
SPARE_FILES = 128  # for everything else that is open


def memory_limit(files: tuple[Path, ...] = LIMIT_FILES) -> int:
    """The container's, in bytes."""
    for path in files:
        try:
            written = path.read_text().strip()
        except OSError:
            continue
        if written.isdigit():
            return min(int(written), MOST_BYTES)
        return USUAL_BYTES  # "max"
    return USUAL_BYTES


def open_files_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def fitted(limits: Limits, memory_bytes: int, open_files: int) -> Limits:
    """The same limits with as many connections and bodies as there is memory for, and files."""
    by_memory = memory_bytes // 4 // CONNECTION_BYTES
    connections = max(FEWEST_CONNECTIONS, min(by_memory, open_files - SPARE_FILES))
    return replace(limits, connections=connections, held_bytes=max(memory_bytes // 16, 2 * limits.body_bytes))
