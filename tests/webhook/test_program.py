"""The webhook, put together: its certificates are kept whatever goes wrong, and peers are told an address to call."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from threading import Event
from typing import cast
from urllib.parse import urlsplit

import pytest

from certs.reconcile import Keeper
from certs.renewal import Bundle
from kube.client import Client
from kube.resources import CONFIGURATION_VERSIONS, Version
from placement.configuration import Configuration
from tests.certs.test_publish import BUNDLE
from webhook.peers import HttpsLines, NoAnswer
from webhook.program import SOON_SECONDS, WebhookProgram, peer_address


class Looking(Keeper):
    """A keeper that sees what it is told to, pass by pass: a bundle, or a failure. The last pass is the end."""

    def __init__(self, *passes: Bundle | Exception, trusted: bytes = b"") -> None:
        super().__init__(cast(Client, None))
        self._passes = list(passes)
        self._trusted = trusted
        self.done = 0
        self.seconds = 0.001

    @property
    def pass_seconds(self) -> float:
        return self.seconds

    @property
    def trusted(self) -> bytes:
        return self._trusted

    def look(self, now: datetime) -> Bundle | None:
        if self.done == len(self._passes):
            raise asyncio.CancelledError
        self.done += 1
        seen = self._passes[self.done - 1]
        if isinstance(seen, Exception):
            raise seen
        return seen


def keep(keeper: Looking) -> WebhookProgram:
    """Runs the chores of a webhook until the keeper has seen all that it should."""

    async def chores() -> WebhookProgram:
        program = WebhookProgram(cast(Client, None), Configuration(), "", keeper)
        with pytest.raises(asyncio.CancelledError):
            await program.chores()
        return program

    return asyncio.run(chores())


def expiry_of(program: WebhookProgram) -> float:
    return program.metrics.registry.get_sample_value("spotweave_certificate_expiry_timestamp_seconds") or 0.0


def test_whatever_fails_in_a_pass_the_next_one_is_made(caplog: pytest.LogCaptureFixture) -> None:
    """An error that nobody thought of is told, and does not end the program."""
    keeper = Looking(RuntimeError("something nobody thought of"), TimeoutError("slow"), BUNDLE)
    program = keep(keeper)
    assert keeper.done == 3
    assert "something nobody thought of" in caplog.text
    assert expiry_of(program) > 0


def test_a_leaf_that_cannot_be_loaded_does_not_keep_out_the_next(caplog: pytest.LogCaptureFixture) -> None:
    """It is told in each pass until there is another one."""
    keeper = Looking(replace(BUNDLE, leaf_key=b"junk"), BUNDLE)
    assert expiry_of(keep(keeper)) > 0
    assert "certificates: " in caplog.text


def test_what_peers_are_judged_by_does_not_keep_out_our_own_leaf() -> None:
    """Garbled authorities stop calls between replicas; the API server's calls go on."""
    assert expiry_of(keep(Looking(BUNDLE, trusted=b"junk"))) > 0


def test_a_changed_configuration_is_looked_at_at_once() -> None:
    """And not when the next pass is due, which is in an hour here."""
    keeper = Looking(BUNDLE)
    keeper.seconds = 3600.0

    async def scenario() -> None:
        program = WebhookProgram(cast(Client, None), Configuration(), "", keeper)
        chores = asyncio.ensure_future(program.chores())
        while not keeper.done:
            await asyncio.sleep(0.001)
        program.followed.stores.of(CONFIGURATION_VERSIONS).put(Version("spotweave", "2"))
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(chores, 60)

    asyncio.run(scenario())


class Synced(WebhookProgram):
    """One whose caches and certificates are there."""

    def _unable(self) -> str | None:
        return None


def test_no_call_is_taken_before_memory_is_spared() -> None:
    """A full collection stops the program, and the API server waits for three seconds only."""

    async def scenario() -> bool:
        program, spared = Synced(cast(Client, None), Configuration(), "", Looking()), Event()
        program.is_spared = spared.is_set
        able = asyncio.ensure_future(program.able())
        await asyncio.sleep(2 * SOON_SECONDS)
        too_soon = able.done()
        spared.set()
        await asyncio.wait_for(able, 60)
        return too_soon

    assert asyncio.run(scenario()) is False


ADDRESSES = {
    "IPv4": ("10.0.0.5", "0.0.0.0:8443", "10.0.0.5:8443"),
    "IPv6, in brackets": ("fd00::5", "0.0.0.0:8443", "[fd00::5]:8443"),
    "IPv6 throughout": ("fd00::5", "[::]:9443", "[fd00::5]:9443"),
    "no address: alone": ("", "0.0.0.0:8443", ""),
}


@pytest.mark.parametrize(("pod_ip", "listen", "expected"), ADDRESSES.values(), ids=ADDRESSES.keys())
def test_peers_are_told_an_address_that_a_url_can_hold(pod_ip: str, listen: str, expected: str) -> None:
    """Host and port can be told apart again; a bare `fd00::5:8443` would make every call between replicas fail."""
    assert peer_address(pod_ip, listen) == expected
    if expected:
        url = urlsplit(f"https://{expected}/mutate")
        assert (url.hostname, url.port) == (pod_ip, int(listen.rpartition(":")[2]))


def test_peers_reach_each_other_over_ipv6() -> None:
    """A real connection to the address that is told, as far as it concerns the address: nobody trusts anybody here."""

    async def scenario() -> str:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "::1", 0)
        port = server.sockets[0].getsockname()[1]
        lines = HttpsLines()
        async with server:
            try:
                await lines.post(peer_address("::1", f"[::]:{port}"), "/mutate", b"", {}, 5.0)
            except NoAnswer as error:
                return str(error)
            finally:
                await lines.close()
        return ""

    assert "InvalidURL" not in asyncio.run(scenario())
