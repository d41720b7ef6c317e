"""Calls kubectl: ours if it is built, else the one on PATH, else ours is built."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

from localcluster.errors import ClusterError
from localcluster.programs import chosen_kubernetes, get_programs, is_built
from localcluster.progress import Progress

NO_CACHE = "/dev/null"  # kubectl would leave a cache in the home directory; where it cannot, it does without


@cache
def find() -> Path:
    kubernetes = chosen_kubernetes()
    on_path = shutil.which("kubectl")
    if on_path and not is_built(kubernetes):
        return Path(on_path)
    return get_programs(kubernetes, Progress())["kubectl"]


def call(*arguments: str, kubeconfig: Path | None = None, stdin: str | None = None) -> str:
    """What kubectl printed; ClusterError with its complaint if it failed."""
    access = [] if kubeconfig is None else ["--kubeconfig", str(kubeconfig)]
    command = [str(find()), "--cache-dir", NO_CACHE, *access, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"kubectl {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout
