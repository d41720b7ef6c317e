"""Gets the programs: those that the user gives, where their version fits; all others built once, into a cache.

The cache (`$SPOTWEAVE_CACHE`, `$XDG_CACHE_HOME/spotweave` or `~/.cache/spotweave`):

    programs/kubernetes-1.36.4-0123456789ab/    complete or absent: renamed into place when built
    programs/etcd-3.6.14-…/  programs/kwok-0.8.0-…/{kwok,stages/}
    programs/karpenter-1.14.1-…/{karpenter,crds/}  programs/descheduler-0.36.0-…/    only if a test asked for them
    building/                                   modules, build cache, toolchain; only there while something is built
    lock                                        held while something is built

The hexadecimal part is the hash of what the programs are built from, so that a change of go.mod or of a flag rebuilds.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from localcluster.build import ETCD, GIBIBYTE, KWOK, TAGS, Go, GoModule, build, kubernetes_source
from localcluster.errors import BAD_INPUT, ClusterError
from localcluster.progress import Progress
from localcluster.toolchain import get_go

DEFAULT_KUBERNETES = "1.36"
KUBERNETES_MINORS = ("1.36", "1.37")
ETCD_MINOR = "3.6"
KWOK_MINOR = "0.8"
VERSION_TIMEOUT_SECONDS = 20


@dataclass(frozen=True)
class Programs:
    """The path of each program, and which of the user's were refused, with the reason."""

    kubernetes: str
    paths: Mapping[str, Path]
    versions: Mapping[str, str]
    stages: Path
    refused: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Path:
        return self.paths[name]


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Where programs are kept; outside the repository, and ours alone."""
    if given := environment.get("SPOTWEAVE_CACHE"):
        return Path(given).absolute()
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "spotweave"


def chosen_kubernetes(given: str | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """The minor version asked for by option, else by `SPOTWEAVE_KUBERNETES`, else 1.36."""
    minor = given or environment.get("SPOTWEAVE_KUBERNETES") or DEFAULT_KUBERNETES
    if minor not in KUBERNETES_MINORS:
        raise ClusterError(
            f"Kubernetes {minor} is not supported", f"Choose one of {', '.join(KUBERNETES_MINORS)}.", BAD_INPUT
        )
    return minor


def sources(kubernetes: str) -> tuple[GoModule, ...]:
    return (ETCD, KWOK, kubernetes_source(kubernetes))


def source_key(source: GoModule) -> str:
    """Names a build by its input: `etcd-3.6.14-` and a hash of go.mod, go.sum and the flags."""
    digest = hashlib.sha256()
    for part in ((source.directory / "go.mod").read_bytes(), (source.directory / "go.sum").read_bytes()):
        digest.update(part)
    digest.update(f"{TAGS} {source.linker_flags} {source.programs}".encode())
    return f"{source.name}-{source.version}-{digest.hexdigest()[:12]}"


def get_programs(kubernetes: str, progress: Progress, environment: Mapping[str, str] = os.environ) -> Programs:
    """All programs for one version of Kubernetes; immediate if they are built already."""
    cache = cache_directory(environment)
    given, refused = given_programs(kubernetes, environment.get("SPOTWEAVE_PROGRAMS"))
    for reason in refused:
        progress.out.write(f"not used from SPOTWEAVE_PROGRAMS: {reason}\n")
    needed = [source for source in sources(kubernetes) if any(name not in given for name, _ in source.programs)]
    if any(not _target(cache, source).exists() for source in needed):
        _build_missing(cache, needed, progress)
    paths = {name: _target(cache, source) / name for source in needed for name, _ in source.programs} | given
    built = {name: source.version for source in needed for name, _ in source.programs}
    versions = built | {name: program_version(path) for name, path in given.items()}
    return Programs(kubernetes, paths, versions, paths["kwok"].with_name("stages"), tuple(refused))


def get_neighbour(source: GoModule, progress: Progress, environment: Mapping[str, str] = os.environ) -> Path:
    """The directory of a program that runs beside the control plane; immediate if it is built already.

    It is always built, because Karpenter does not report a version by which a user's own could be judged.
    """
    cache = cache_directory(environment)
    if not _target(cache, source).exists():
        _build_missing(cache, [source], progress)
    return _target(cache, source)


def is_built(kubernetes: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether `get_programs` would have nothing to build."""
    cache = cache_directory(environment)
    return all(_target(cache, source).exists() for source in sources(kubernetes))


def clean(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Remove the cache and all in it, unless something is being built there; returns what was removed."""
    cache = cache_directory(environment)
    if not cache.exists():
        return None
    with _open_lock(cache) as lock:
        if not _take(lock):
            raise ClusterError(f"{cache} is in use: programs are being built", "Try again when that is done.")
        for child in ("programs", "building"):
            shutil.rmtree(cache / child, ignore_errors=True)
        (cache / "lock").unlink(missing_ok=True)
    if not any(cache.iterdir()):
        cache.rmdir()
    return cache


def given_programs(kubernetes: str, directory: str | None) -> tuple[dict[str, Path], list[str]]:
    """The user's programs that fit, and for each that does not, why."""
    if not directory:
        return {}, []
    if not Path(directory).is_dir():
        raise ClusterError(f"SPOTWEAVE_PROGRAMS={directory} is not a directory", "", BAD_INPUT)
    fitting: dict[str, Path] = {}
    refused: list[str] = []
    for name, wanted in _wanted_versions(kubernetes).items():
        path = (Path(directory) / name).absolute()
        if path.exists():
            if reason := _misfit(path, wanted):
                refused.append(f"{path}: {reason}")
            else:
                fitting[name] = path
    return fitting, refused


def reported_version(text: str) -> str:
    """The first version number in a program's output: `Kubernetes v1.36.4` → `1.36.4`."""
    found = re.search(r"\bv?(\d+\.\d+\.\d+)", text)
    return found[1] if found else ""


def program_version(path: Path) -> str:
    """The version that the program reports; empty if it reports none."""
    command = [str(path), *(["version", "--client"] if path.name == "kubectl" else ["--version"])]
    told = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_TIMEOUT_SECONDS, check=False)
    return reported_version(told.stdout + told.stderr)


def _wanted_versions(kubernetes: str) -> dict[str, str]:
    wanted = {name: kubernetes for name, _ in kubernetes_source(kubernetes).programs}
    return {**wanted, "etcd": ETCD_MINOR, "kwok": KWOK_MINOR}


def _misfit(path: Path, wanted: str) -> str:
    """Why a program of the user's cannot be used; empty if it can."""
    try:
        version = program_version(path)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it cannot be run ({error})"
    if not version.startswith(f"{wanted}."):
        return f"its version is {version or 'unknown'}, but {wanted} is needed"
    if path.name == "kwok" and not path.with_name("stages").is_dir():
        return "there is no directory `stages` with KWOK's Stage files beside it"
    return ""


def _target(cache: Path, source: GoModule) -> Path:
    return cache / "programs" / source_key(source)


def _build_missing(cache: Path, needed: list[GoModule], progress: Progress) -> None:
    """Build what is missing in the cache, one process at a time. A process that waited finds it done."""
    with locked(cache, progress):
        missing = [source for source in needed if not _target(cache, source).exists()]
        if not missing:
            return
        building = cache / "building"
        try:
            check_room(cache, shutil.disk_usage(cache).free, missing)
            go = Go(get_go(building / "toolchain", progress), building)
            for number, source in enumerate(missing, 1):
                label = f"building {source.name} {source.version} ({number} of {len(missing)})"
                build(source, go, _target(cache, source), progress, label)
        finally:
            shutil.rmtree(building, ignore_errors=True)


def check_room(cache: Path, free: int, missing: list[GoModule]) -> None:
    """Fail now if the disk would be full after five minutes of building."""
    needed = max(source.room_bytes for source in missing)
    if free < needed:
        raise ClusterError(
            f"not enough disk space to build the programs in {cache}: "
            f"{free / GIBIBYTE:.1f} GiB free, {needed // GIBIBYTE} GiB needed",
            "Free some space, or set SPOTWEAVE_CACHE to a directory on another disk. Only 0.4 GiB of it is kept.",
        )


@contextmanager
def locked(cache: Path, progress: Progress) -> Iterator[None]:
    """Hold the cache's lock; the kernel releases it when we die."""
    _make_cache(cache)
    with _open_lock(cache) as lock:
        if not _take(lock):
            progress.step("waiting for another process that builds the programs")
            while not _take(lock):
                progress.tick("still waiting")
                time.sleep(0.2)
            progress.done()
        yield


def _make_cache(cache: Path) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ClusterError(
            f"the cache directory cannot be created: {error}", "Set SPOTWEAVE_CACHE to a directory that can be written."
        ) from error


@contextmanager
def _open_lock(cache: Path) -> Iterator[int]:
    lock = os.open(cache / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield lock
    finally:
        os.close(lock)


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
