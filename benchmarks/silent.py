"""Whether silent connections slow admission down: its latency with 256 of them, and with none.

The API server's client dials ahead: such a connection has finished its handshake and never sends a byte. Reviews are
measured one after the other, on a connection that stays open (as the API server does) and on a new one for each.
"""

from __future__ import annotations

import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.admission.compare import load, prepare, server
from benchmarks.report import rounds_wanted, tell
from certs.publish import HOSTS

ROUNDS = 10
SILENT = 256
SECONDS = 3.0
WITHOUT, WITH = "none", f"{SILENT} silent"
FIGURES = {
    "kept_p50_ms": "kept connection: p50, ms",
    "kept_p99_ms": "kept connection: p99, ms",
    "anew_p50_ms": "new connections: p50, ms",
    "anew_p99_ms": "new connections: p99, ms",
    "failed": "failed",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        prepare(directory)
        with server(directory, "ours") as address:
            load(directory, address, 1, SECONDS)
            rounds = [_round(directory, address, number) for number in range(rounds_wanted(ROUNDS))]
    tell("silent", "admission over TLS beside silent connections", rounds, FIGURES, [(WITH, WITHOUT)])


def _round(directory: Path, address: str, number: int) -> dict[str, dict[str, float]]:
    order = (WITHOUT, WITH) if number % 2 else (WITH, WITHOUT)
    found = {which: _measure(directory, address, SILENT if which == WITH else 0) for which in order}
    return {which: found[which] for which in (WITHOUT, WITH)}


def _measure(directory: Path, address: str, silent: int) -> dict[str, float]:
    with _silent_connections(directory, address, silent):
        kept = load(directory, address, 1, SECONDS)
        anew = load(directory, address, 1, SECONDS, anew=True)
    return {
        "kept_p50_ms": kept["p50_ms"],
        "kept_p99_ms": kept["p99_ms"],
        "anew_p50_ms": anew["p50_ms"],
        "anew_p99_ms": anew["p99_ms"],
        "failed": kept["failed"] + anew["failed"],
    }


@contextmanager
def _silent_connections(directory: Path, address: str, count: int) -> Iterator[None]:
    """Raises at the end if the server has closed one of them, because the measurement is then invalid."""
    context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    host, _, port = address.partition(":")
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            plain = stack.enter_context(socket.create_connection((host, int(port))))
            opened.append(stack.enter_context(context.wrap_socket(plain, server_hostname=HOSTS[0])))
        yield
        closed = sum(not _is_open(each) for each in opened)
        if closed:
            raise AssertionError(f"{closed} of {count} silent connections were closed")


def _is_open(connection: ssl.SSLSocket) -> bool:
    """There is nothing to read and it was not closed."""
    connection.setblocking(False)
    try:
        connection.recv(1)
    except ssl.SSLWantReadError:
        return True
    except OSError:
        return False
    return False
