"""Callers that mean harm, in a process of their own: `attack CA ADDRESS SILENT SLOW LARGE`. Ends with its input.

- SILENT connections finish their handshake and never send a byte. Those that are closed come back, 50 a second.
- SLOW ones send a byte a second: a third in the TLS handshake, a third in the head, a third in the body.
- LARGE ones send bodies of 7 MiB without a pause, each on a connection of its own.
Prints `ready` when the silent ones have been opened, and how much of each was done at the end, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from certs.publish import HOSTS

LARGE_BYTES = 7 * 1024**2
PIECE = b"x" * 65536
OPENED_AT_ONCE = 16
RETURN_SECONDS = 0.02  # between two silent ones that come back
SLOW_SECONDS = 1.0
HELLO = bytes.fromhex("1603010200010001fc0303") + b"x" * 500  # the beginning of TLS: a byte of it at a time
HEAD = b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Attack:
    """How many of each kind there are."""

    silent: int = 0
    slow: int = 0
    large: int = 0


class Attackers:
    """All of them."""

    def __init__(self, authority: str, address: str) -> None:
        self._context = ssl.create_default_context(cafile=authority)
        self._host, _, self._port = address.partition(":")
        self._returning = asyncio.Lock()
        self.done: Counter[str] = Counter()

    async def run(self, attack: Attack) -> None:
        opening = asyncio.Semaphore(OPENED_AT_ONCE)
        opened = [asyncio.Event() for _ in range(attack.silent)]
        self._tasks = [asyncio.ensure_future(self._silent(opening, each)) for each in opened]
        slow = (self._slow_handshake, self._slow_head, self._slow_body)
        self._tasks += [asyncio.ensure_future(self._again(slow[n % 3])) for n in range(attack.slow)]
        await asyncio.gather(*(each.wait() for each in opened))
        self._tasks += [asyncio.ensure_future(self._again(self._large)) for _ in range(attack.large)]

    async def _open(self) -> Streams:
        return await asyncio.open_connection(
            self._host, int(self._port), ssl=self._context, server_hostname=HOSTS[0], limit=4096
        )

    async def _silent(self, opening: asyncio.Semaphore, opened: asyncio.Event) -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                async with opening:
                    reader, writer = await self._open()
                self.done["silent"] += 1
                opened.set()
                await reader.read()
                writer.close()
            opened.set()
            async with self._returning:
                await asyncio.sleep(RETURN_SECONDS)

    async def _again(self, once: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                await once()
            await asyncio.sleep(0.01)

    async def _slow_handshake(self) -> None:
        reader, writer = await asyncio.open_connection(self._host, int(self._port))
        await self._drip(reader, writer, HELLO, "slow handshakes")

    async def _slow_head(self) -> None:
        reader, writer = await self._open()
        await self._drip(reader, writer, HEAD + b"a: b\r\n" * 100, "slow heads")

    async def _slow_body(self) -> None:
        reader, writer = await self._open()
        writer.write(HEAD + b"content-length: 10000\r\n\r\n")
        await self._drip(reader, writer, b"x" * 10000, "slow bodies")

    async def _drip(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, what: bytes, kind: str) -> None:
        """Until it is cut off."""
        ended = asyncio.ensure_future(reader.read())
        try:
            for byte in what:
                writer.write(bytes((byte,)))
                self.done[f"{kind}: bytes"] += 1
                await asyncio.wait([ended], timeout=SLOW_SECONDS)
                if ended.done():
                    self.done[f"{kind}: cut off"] += 1
                    break
        finally:
            ended.cancel()
            writer.close()

    async def _large(self) -> None:
        reader, writer = await self._open()
        try:
            writer.write(HEAD + b"content-length: %d\r\n\r\n" % LARGE_BYTES)
            for _ in range(LARGE_BYTES // len(PIECE)):
                writer.write(PIECE)
                await writer.drain()
            status = (await reader.readline()).split()[1:2]
            self.done[f"large: {b''.join(status).decode()}"] += 1
        finally:
            writer.close()


async def main(authority: str, address: str, *counts: str) -> None:
    attackers = Attackers(authority, address)
    await attackers.run(Attack(*map(int, counts)))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(attackers.done), flush=True)


@contextmanager
def attacking(authority: Path, address: str, attack: Attack) -> Iterator[dict[str, int]]:
    """Meanwhile; what they have done is there at the end."""
    # At idle priority: real attackers do not compete with the webhook for the same cores.
    command = ["chrt", "--idle", "0", sys.executable, "-m", "benchmarks.attack", str(authority), address]
    counts = map(str, (attack.silent, attack.slow, attack.large))
    done: dict[str, int] = {}
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, *counts], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the attack did not begin")
            yield done
            process.stdin.close()
            done.update(json.loads(process.stdout.readline()))
        finally:
            process.kill()


def most_memory(process_id: int) -> float:
    """The most that a process has had, in MiB."""
    status = Path(f"/proc/{process_id}/status").read_text()
    (line,) = [each for each in status.splitlines() if each.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
