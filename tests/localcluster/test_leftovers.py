"""Who cleans up: the janitor, and the file that names a directory's owner."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster.errors import BAD_INPUT, ClusterError
from localcluster.janitor import process_state, start_time, sweep
from localcluster.owner import OWNER, claim, read_owner, remove_stale
from localcluster.process import Janitor, spawn, tail
from tests.localcluster.awaiting import until


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_sweep_kills_what_it_was_told_of_and_removes_directories(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """The process is gone and so is the directory, with all that is in it."""
    claim(tmp_path / "d")
    (tmp_path / "d" / "sub").mkdir()
    (tmp_path / "d" / "sub" / "file").touch()
    sweep([(sleeper.pid, start_time(sleeper.pid) or 0)], [str(tmp_path / "d")])
    assert sleeper.wait(timeout=5) == -signal.SIGKILL
    assert not (tmp_path / "d").exists()


def test_sweep_spares_a_process_that_took_over_the_pid(sleeper: subprocess.Popen[bytes]) -> None:
    """A pid is used again some day; the start time tells the processes apart."""
    sweep([(sleeper.pid, (start_time(sleeper.pid) or 0) - 1)], [])
    assert process_state(sleeper.pid) in ("R", "S")


def test_janitor_cleans_up_when_it_is_dismissed(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """Dismissing returns when everything is gone; before that nothing is touched."""
    (tmp_path / "d").mkdir()
    janitor = Janitor()
    janitor.watch_directory(tmp_path / "d")
    janitor.watch_process(sleeper.pid)
    assert process_state(janitor.pid) in ("R", "S")
    assert (tmp_path / "d").exists()
    janitor.dismiss()
    assert not (tmp_path / "d").exists()
    assert sleeper.wait(timeout=5) == -signal.SIGKILL


def test_janitor_outlives_signals_meant_for_its_parent(tmp_path: Path) -> None:
    """A terminal that closes or a service manager that stops us signals everyone; the janitor still has work to do."""
    (tmp_path / "d").mkdir()
    janitor = Janitor()
    janitor.watch_directory(tmp_path / "d")
    ignored = 1 << (signal.SIGTERM - 1) | 1 << (signal.SIGINT - 1) | 1 << (signal.SIGHUP - 1)
    until(lambda: _ignored_signals(janitor.pid) & ignored == ignored, "the janitor to ignore signals")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(janitor.pid, number)
    janitor.dismiss()
    assert not (tmp_path / "d").exists()


def _ignored_signals(pid: int) -> int:
    fields = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    return int(fields["SigIgn"], 16)


def test_janitor_notices_a_dead_parent_whose_fork_holds_the_pipe(tmp_path: Path) -> None:
    """A forked child of the owner (multiprocessing, say) inherits the pipe: its end alone would come too late."""
    (tmp_path / "d").mkdir()
    code = (
        "import os, sys, time; from pathlib import Path; from localcluster.process import Janitor\n"
        "janitor = Janitor(); janitor.watch_directory(Path(sys.argv[1]))\n"
        "child = os.fork()\n"
        "if child == 0: time.sleep(60)\n"
        "print(child, flush=True); os._exit(0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "d")], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            parent.wait(timeout=10)
            until(lambda: not (tmp_path / "d").exists(), "the directory to go")
            assert start_time(child) is not None
        finally:
            os.kill(child, signal.SIGKILL)


def test_spawned_program_dies_with_its_parent(tmp_path: Path) -> None:
    """`kill -9` of the parent gives it no chance to stop its children; the kernel does it."""
    code = (
        "import sys; from localcluster.process import spawn\n"
        "print(spawn(['/bin/sleep', '60'], 2).pid, flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "the program to run")
        parent.kill()
        parent.wait()
        until(lambda: start_time(pid) is None, "the program to die")


def test_program_whose_parent_is_gone_already_does_not_start(tmp_path: Path) -> None:
    """Between fork and prctl the parent may die: then nobody would ever kill the program."""
    launch = Path(spawn.__code__.co_filename).with_name("launch.py")
    marker = tmp_path / "marker"
    command = [sys.executable, "-I", "-S", str(launch), "1", "/bin/touch", str(marker)]
    assert subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode != 0
    assert not marker.exists()


def test_claimed_directory_names_its_owner(tmp_path: Path) -> None:
    """A second claim of the same directory is refused as long as the owner lives."""
    claim(tmp_path / "d")
    owner = read_owner(tmp_path / "d")
    assert owner is not None
    assert owner.pid == os.getpid()
    assert owner.is_alive
    with pytest.raises(ClusterError, match="holds a running cluster"):
        claim(tmp_path / "d")


def test_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    """What we claim we remove later: nobody's files may be in it."""
    (tmp_path / "precious").touch()
    with pytest.raises(ClusterError, match="is not empty") as caught:
        claim(tmp_path)
    assert caught.value.exit_code == BAD_INPUT
    assert (tmp_path / "precious").exists()


def test_directory_of_a_dead_owner_is_taken_over(tmp_path: Path) -> None:
    """After a power failure the next start must not complain about the last."""
    claim(tmp_path / "d")
    (tmp_path / "d" / "old").touch()
    (tmp_path / "d" / OWNER).write_text(json.dumps({"pid": os.getpid(), "started": 1}))
    assert remove_stale(tmp_path / "d")
    claim(tmp_path / "d")
    assert [path.name for path in (tmp_path / "d").iterdir()] == [OWNER]


def test_foreign_directory_is_never_stale(tmp_path: Path) -> None:
    """Without our file, or with a broken one, it is not ours to remove."""
    (tmp_path / OWNER).write_text("[]")
    assert not remove_stale(tmp_path)
    assert not remove_stale(tmp_path / "none")
    assert (tmp_path / OWNER).exists()


def test_tail_shows_the_last_lines(tmp_path: Path) -> None:
    """The end of a long log, indented; nothing for a log that is not there."""
    (tmp_path / "log").write_text("".join(f"line {number}\n" for number in range(5000)))
    assert tail(tmp_path / "log", 2) == "  line 4998\n  line 4999"
    assert tail(tmp_path / "none") == ""
