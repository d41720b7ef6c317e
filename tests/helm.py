"""The real helm of the development environment, on the chart of the source tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from generators.files import ROOT

CHART = ROOT / "manifests" / "chart"
NAMESPACE = "spotweave-system"


def helm(*arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What it printed, and its exit code. Of Debian's or anybody's configuration it reads nothing."""
    command = [str(Path(sys.executable).parent / "helm"), *arguments]
    variables = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "KUBECONFIG": str(kubeconfig or "/nonexistent")}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def rendered(*options: str, kubernetes: str = "1.36.0", release_namespace: str = "default") -> list[dict[str, Any]]:
    """The objects that the chart makes of these values."""
    call = ("template", "spotweave", str(CHART), "--kube-version", kubernetes, "--namespace", release_namespace)
    done = helm(*call, *options)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]
