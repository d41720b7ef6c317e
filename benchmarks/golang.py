"""Builds the benchmarks' Go programs; they use the standard library alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from localcluster.programs import cache_directory


def build(module: Path, into: Path, *packages: str) -> None:
    """The build cache is kept beside the control plane's programs."""
    environment = {
        **os.environ,
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
        "GOCACHE": str(cache_directory() / "bench"),
    }
    subprocess.run(["go", "build", "-o", f"{into}/", *packages], cwd=module, env=environment, check=True)
