"""Builds the programs from Go modules: one wrapper module each, so that they do not affect each other's versions."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from localcluster.errors import ClusterError
from localcluster.process import kill_session, lines, spawn
from localcluster.progress import Progress

WRAPPERS = Path(__file__).with_name("programs")
TAGS = "selinux,notest,grpcnotrace"
KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
KUBERNETES_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
GIBIBYTE = 2**30


@dataclass(frozen=True)
class GoModule:
    """One wrapper module and the programs built from it."""

    name: str
    wrapper: str  # directory under programs/
    module: str  # its version is the programs' version
    programs: tuple[tuple[str, str], ...]  # (name of the program, Go package)
    room_bytes: int  # disk space that building takes, modules and build cache included

    @property
    def directory(self) -> Path:
        return WRAPPERS / self.wrapper

    @property
    def version(self) -> str:
        """The version that go.mod asks for, without the v."""
        text = (self.directory / "go.mod").read_text()
        found = re.search(rf"^require {re.escape(self.module)} v(\S+)", text, re.MULTILINE)
        assert found, f"{self.wrapper}/go.mod does not require {self.module}"
        return found[1]

    @property
    def packages(self) -> list[str]:
        return [package for _, package in self.programs]

    @property
    def linker_flags(self) -> str:
        """Strip symbols, and set the version of Kubernetes. Otherwise its `/version` would report v0.0.0-master."""
        return " ".join(["-s", "-w", *(self._stamps() if self.module == "k8s.io/kubernetes" else ())])

    def _stamps(self) -> Iterator[str]:
        major, minor, _ = self.version.split(".", 2)
        values = {"gitVersion": f"v{self.version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        for package in KUBERNETES_VERSION_PACKAGES:
            for name, value in values.items():
                yield f"-X {package}.{name}={value}"


def kubernetes_source(minor: str) -> GoModule:
    """The four Kubernetes programs of one minor version, such as 1.36."""
    packages = tuple((name, f"k8s.io/kubernetes/cmd/{name}") for name in KUBERNETES_PROGRAMS)
    return GoModule("kubernetes", f"kubernetes-{minor}", "k8s.io/kubernetes", packages, 6 * GIBIBYTE)


ETCD = GoModule("etcd", "etcd", "go.etcd.io/etcd/server/v3", (("etcd", "go.etcd.io/etcd/server/v3"),), GIBIBYTE)
KWOK = GoModule("kwok", "kwok", "sigs.k8s.io/kwok", (("kwok", "sigs.k8s.io/kwok/cmd/kwok"),), 2 * GIBIBYTE)
# Programs that people run beside Spotweave. They are built only when a test asks for them.
KARPENTER = GoModule(
    *("karpenter", "karpenter", "sigs.k8s.io/karpenter"),
    (("karpenter", "sigs.k8s.io/karpenter/kwok"),),  # with the cloud provider that makes nodes for KWOK
    3 * GIBIBYTE,
)
DESCHEDULER = GoModule(
    *("descheduler", "descheduler", "sigs.k8s.io/descheduler"),
    (("descheduler", "sigs.k8s.io/descheduler/cmd/descheduler"),),
    3 * GIBIBYTE,
)
# Other ways to start gangs. They are built only by `make compare`.
KUEUE = GoModule(
    *("kueue", "kueue", "sigs.k8s.io/kueue"),
    (("kueue", "sigs.k8s.io/kueue/cmd/kueue"),),
    3 * GIBIBYTE,
)
COSCHEDULING = GoModule(
    *("coscheduling", "coscheduling", "sigs.k8s.io/scheduler-plugins"),
    (
        ("scheduler", "sigs.k8s.io/scheduler-plugins/cmd/scheduler"),
        ("controller", "sigs.k8s.io/scheduler-plugins/cmd/controller"),
    ),
    4 * GIBIBYTE,
)
# Directories of their modules with what they do not install themselves: CustomResourceDefinitions and, of Kueue, roles
# and webhook configurations.
MANIFESTS = {
    KARPENTER: ("kwok/charts/crds", "kwok/apis/crds"),
    KUEUE: ("config/components/crd/bases", "config/components/webhook"),
    COSCHEDULING: ("config/crd/bases",),
}


@dataclass(frozen=True)
class Go:
    """A Go toolchain with caches of our own, so that they can be dropped afterwards."""

    program: Path
    caches: Path

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "CGO_ENABLED": "0",
            "GOCACHE": str(self.caches / "build"),
            "GOFLAGS": "-mod=readonly -modcacherw",  # a read-only module cache could not be deleted
            "GOMODCACHE": str(self.caches / "modules"),
            "GOPROXY": without_direct(self._setting("GOPROXY")),
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
        }

    def _setting(self, name: str) -> str:
        told = subprocess.run([self.program, "env", name], capture_output=True, text=True, check=False)
        return told.stdout.strip()


def without_direct(proxies: str) -> str:
    """Without `direct`, a module that the proxy lacks is an error at once; with it, Go may hang."""
    return re.sub(r"[,|]direct$", "", proxies)


def build(source: GoModule, go: Go, target: Path, progress: Progress, label: str) -> None:
    """Build the programs of `source` into the directory `target`, which is either complete or absent.

    Intermediate results are in the caches of `go`. The caller that made them removes them, whatever happens here.
    """
    environment = go.environment()
    total = _list_packages(source, go, environment, progress, label)
    built = go.caches / "built" / target.name
    shutil.rmtree(built, ignore_errors=True)
    built.mkdir(parents=True)
    _compile(source, go, environment, built, total, progress, label)
    for name, package in source.programs:
        (built / default_output(package)).rename(built / name)
    if source is KWOK:
        _copy_stages(_module_directory(source, go, environment) / "kustomize/stage/fast", built / "stages")
    if source in MANIFESTS:
        _copy_manifests(source, _module_directory(source, go, environment), built / "crds")
    target.parent.mkdir(exist_ok=True)
    built.rename(target)


def default_output(package: str) -> str:
    """The file name that `go build` gives a program: the last part of its path that is not a major version."""
    parts = package.split("/")
    return parts[-2] if re.fullmatch(r"v\d+", parts[-1]) else parts[-1]


def _list_packages(source: GoModule, go: Go, environment: dict[str, str], progress: Progress, label: str) -> int:
    """Download the modules; returns how many packages there are to compile."""
    progress.step(f"{label}: downloading modules")
    counts = {"modules": 0, "packages": 0}

    def count(line: str) -> None:
        counts["modules" if line.startswith("go: downloading") else "packages"] += 1

    command = [str(go.program), "list", "-deps", *source.packages]
    _run(command, source, environment, count, lambda: progress.tick(f"{counts['modules']} modules"), progress)
    progress.done()
    return counts["packages"]


def _compile(
    source: GoModule, go: Go, environment: dict[str, str], built: Path, total: int, progress: Progress, label: str
) -> None:
    progress.step(f"{label}: compiling")
    compiled = 0

    def count(_line: str) -> None:
        nonlocal compiled
        compiled += 1

    options = ["-v", "-trimpath", "-tags", TAGS, "-ldflags", source.linker_flags, "-o", f"{built}/"]
    command = [str(go.program), "build", *options, *source.packages]
    _run(command, source, environment, count, lambda: progress.tick(f"{compiled} of {total} packages"), progress)
    progress.done()


def _module_directory(source: GoModule, go: Go, environment: dict[str, str]) -> Path:
    command = [str(go.program), "list", "-m", "-f", "{{.Dir}}", source.module]
    told = subprocess.run(
        command,
        cwd=source.directory,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return Path(told.stdout.strip())


def _copy_stages(kustomization: Path, target: Path) -> None:
    """KWOK has no built-in stages; they are files of its module, collected as kustomize would."""
    target.mkdir(exist_ok=True)
    for resource in yaml.safe_load((kustomization / "kustomization.yaml").read_text())["resources"]:
        path = (kustomization / resource).resolve()
        if path.is_dir():
            _copy_stages(path, target)
        else:
            shutil.copyfile(path, target / path.name)


def _copy_manifests(source: GoModule, module: Path, target: Path) -> None:
    """They do not install their CustomResourceDefinitions; these are files of their modules."""
    target.mkdir()
    for directory in MANIFESTS[source]:
        for path in (module / directory).glob("*.yaml"):
            shutil.copyfile(path, target / path.name)


def _run(
    command: list[str],
    source: GoModule,
    environment: dict[str, str],
    on_line: Callable[[str], None],
    on_pulse: Callable[[], None],
    progress: Progress,
) -> None:
    """Run Go in the wrapper module; calls `on_pulse` at least every second, even while Go prints nothing."""
    process = spawn(command, subprocess.PIPE, environment, source.directory)
    said: list[str] = []
    try:
        for line in lines(process, on_pulse):
            said.append(line)
            on_line(line)
        code = process.wait()
    finally:
        kill_session(process)
    if code:
        progress.failed()
        raise build_error(source, said)


REGISTRY_FAILURES = ("dial tcp", "no such host", "i/o timeout", "connection refused", "TLS handshake", "proxyconnect")


def build_error(source: GoModule, said: list[str]) -> ClusterError:
    """What went wrong, in plain words, with the last lines of Go's output."""
    name = f"{source.name} {source.version}"
    telling = [line for line in said if line.strip() and not line.startswith("go: downloading")]
    last = list(dict.fromkeys(telling))[-6:]  # Go repeats itself for each package
    quote = "".join(f"\n  {line[:300]}" for line in last)
    text = "\n".join(last)
    if "no space left on device" in text:
        return ClusterError(
            f"the disk is full: {name} was not built{quote}", "Free some space; nothing was left behind."
        )
    if "module lookup disabled" in text or any(sign in text for sign in REGISTRY_FAILURES):
        return ClusterError(
            f"the Go module registry could not be reached: {name} was not built{quote}",
            "Check the network and `go env GOPROXY`, or name a directory with the programs: SPOTWEAVE_PROGRAMS=DIR.",
        )
    return ClusterError(
        f"{name} could not be built{quote}", "Nothing was left behind; run it again, or set SPOTWEAVE_PROGRAMS=DIR."
    )
