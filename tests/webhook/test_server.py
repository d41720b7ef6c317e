"""TLS on loopback: the real server, a real certificate, callers as the API server is one."""

import asyncio
import http.client
import signal
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from typing import Any

import pytest
import uvloop

from certs.authority import issue, new_authority
from placement import names
from serving.listener import bind
from tests.builders.api import raw_new_pod, review
from tests.webhook.admissionharness import patched
from tests.webhook.test_reviewer import webhook
from webhook.server import LARGEST_BODY, TlsIdentity, serve

NOW = datetime.now(UTC)
AUTHORITY = new_authority(NOW)
LEAF = issue(AUTHORITY, ("localhost",), NOW)
SECONDS = 10.0


class Caller:
    """Speaks to the served ports, from a thread of its own."""

    def __init__(self, tls: socket.socket, plain: socket.socket) -> None:
        self._tls = tls.getsockname()[1]
        self._plain = plain.getsockname()[1]
        self.context = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())

    def secure(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("localhost", self._tls, context=self.context, timeout=SECONDS)

    def plain(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("localhost", self._plain, timeout=SECONDS)

    def silent(self) -> ssl.SSLSocket:
        """A connection that finishes TLS and never sends a byte, as Go's transport leaves them."""
        raw = socket.create_connection(("127.0.0.1", self._tls), timeout=SECONDS)
        try:
            return self.context.wrap_socket(raw, server_hostname="localhost")
        except ssl.SSLError:
            raw.close()
            raise

    def served_serial(self) -> str:
        with self.silent() as connection:
            certificate: Any = connection.getpeercert()
            return str(certificate["serialNumber"])


def asked(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, content_type: str = ""
) -> tuple[int, bytes]:
    headers = {"content-type": content_type} if content_type else {}
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    return response.status, response.read()


def mutated(connection: http.client.HTTPConnection, pod: dict[str, Any]) -> dict[str, Any]:
    status, body = asked(connection, "POST", names.WEBHOOK_PATH, review(pod), "application/json")
    assert status == 200
    return patched(pod, body)


def served(scenario: Callable[[Caller, TlsIdentity], None]) -> None:
    """Serves for as long as the scenario lasts, then stops as a SIGTERM does."""
    identity = TlsIdentity()
    identity.load(LEAF.certificate, LEAF.key)
    hook = webhook()
    with bind("127.0.0.1:0") as tls, bind("127.0.0.1:0") as plain:
        tls.listen(128)  # callers may come before the server does
        plain.listen(128)
        failures: list[BaseException] = []

        async def background() -> None:
            try:
                await asyncio.to_thread(scenario, Caller(tls, plain), identity)
            except BaseException as failure:  # noqa: BLE001 - told after the server has stopped
                failures.append(failure)
            finally:
                signal.raise_signal(signal.SIGTERM)

        uvloop.run(serve(hook.ports, identity, [tls], plain, background=background))
    if failures:
        raise failures[0]


def test_pods_are_placed_over_tls() -> None:
    """Verified against our authority, several calls on one connection."""

    def scenario(caller: Caller, _identity: TlsIdentity) -> None:
        with closing(caller.secure()) as connection:
            decisions = [
                mutated(connection, raw_new_pod())["metadata"]["annotations"][names.DECISION] for _ in range(2)
            ]
            assert decisions == ["rs/u1", "rs/u1"]
            assert mutated(connection, raw_new_pod(None)) == raw_new_pod(None)

    served(scenario)


def check_routes(connection: http.client.HTTPConnection) -> None:
    assert asked(connection, "GET", "/healthz") == (200, b"ok\n")
    assert asked(connection, "GET", "/readyz?verbose") == (200, b"ok\n")
    assert b"spotweave_admission_fail_open_total 0.0" in asked(connection, "GET", "/metrics")[1]
    assert asked(connection, "GET", "/nowhere")[0] == 404
    assert asked(connection, "GET", "//[")[0] == 400


def check_admission(connection: http.client.HTTPConnection) -> None:
    assert asked(connection, "POST", names.WEBHOOK_PATH, review(raw_new_pod()), "text/plain")[0] == 415
    status, told = asked(connection, "POST", names.WEBHOOK_PATH, b"{", "application/json")
    assert (status, told[:8]) == (400, b"not JSON")
    assert mutated(connection, raw_new_pod())["metadata"]["labels"] == {names.CLASS: "on-demand"}


def test_probes_are_served_on_both_ports() -> None:
    """Probes and metrics also in plain text, admission over TLS alone; what is wrong gets its status."""

    def scenario(caller: Caller, _identity: TlsIdentity) -> None:
        with closing(caller.secure()) as secure, closing(caller.plain()) as plain:
            check_routes(secure)
            check_routes(plain)
            check_admission(secure)
            assert asked(plain, "POST", names.WEBHOOK_PATH, review(raw_new_pod()), "application/json")[0] == 404

    served(scenario)


@pytest.mark.parametrize(
    "path", ["/mutate", "/%6dutate", "//mutate", "/./mutate", "http://localhost/mutate", "/hand-over"]
)
def test_the_plain_port_has_no_way_to_admission(path: str) -> None:
    """However the path is written: in plain text anybody's review could use up slots."""

    def scenario(caller: Caller, _identity: TlsIdentity) -> None:
        with closing(caller.plain()) as plain, closing(caller.secure()) as secure:
            assert asked(plain, "POST", path, review(raw_new_pod()), "application/json")[0] == 404
            assert b"spotweave_admission_seconds_count 0.0" in asked(plain, "GET", "/metrics")[1]
            assert asked(secure, "POST", path, review(raw_new_pod()), "application/json")[0] in (200, 400, 404)

    served(scenario)


def test_a_caller_without_our_authority_is_turned_away() -> None:
    """Its handshake fails, which must not disturb others."""

    def scenario(caller: Caller, _identity: TlsIdentity) -> None:
        good, caller.context = caller.context, ssl.create_default_context()
        with pytest.raises(ssl.SSLCertVerificationError):
            caller.silent()
        caller.context = good
        with closing(caller.secure()) as connection:
            assert asked(connection, "GET", "/healthz")[0] == 200

    served(scenario)


def test_silent_connections_do_not_stop_answers() -> None:
    """Fifty that finish TLS and never send a byte: a thread per connection would starve."""

    def scenario(caller: Caller, _identity: TlsIdentity) -> None:
        with ExitStack() as open_connections:
            for _ in range(50):
                open_connections.enter_context(caller.silent())
            connection = open_connections.enter_context(closing(caller.secure()))
            assert mutated(connection, raw_new_pod())["metadata"]["labels"] == {names.CLASS: "on-demand"}

    served(scenario)


def test_a_certificate_is_exchanged_while_serving() -> None:
    """New connections get the new one; one that is open goes on with the old."""
    renewed = issue(AUTHORITY, ("localhost",), NOW)

    def scenario(caller: Caller, identity: TlsIdentity) -> None:
        with closing(caller.secure()) as connection:
            mutated(connection, raw_new_pod())
            before = caller.served_serial()
            identity.load(renewed.certificate, renewed.key)
            assert caller.served_serial() != before
            assert mutated(connection, raw_new_pod())["metadata"]["annotations"][names.SLOT] == "0"

    served(scenario)


def test_a_body_may_arrive_in_pieces() -> None:
    """Large pods do."""
    whole = review(raw_new_pod())

    def scenario(caller: Caller, _identity: TlsIdentity) -> None:
        fields = f"content-type: application/json\r\ncontent-length: {len(whole)}"
        head = f"POST {names.WEBHOOK_PATH} HTTP/1.1\r\n{fields}\r\n\r\n"
        with caller.silent() as connection:
            for piece in (head[:20].encode(), head[20:].encode() + whole[:10], whole[10:11], whole[11:]):
                connection.sendall(piece)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert patched(raw_new_pod(), answer.read())["metadata"]["labels"] == {names.CLASS: "on-demand"}

    served(scenario)


def test_requests_that_come_together_are_answered_in_their_order() -> None:
    """Two in one packet: nobody is lost, nobody is mixed up."""

    def scenario(caller: Caller, _identity: TlsIdentity) -> None:
        with caller.silent() as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n\r\nGET /nowhere HTTP/1.1\r\nconnection: close\r\n\r\n")
            told = b"".join(iter(lambda: connection.recv(65536), b""))
            assert told.index(b"HTTP/1.1 200 OK") < told.index(b"HTTP/1.1 404 Not Found")

    served(scenario)


def test_a_body_without_end_is_not_kept() -> None:
    """It is refused as soon as it is larger than any review, before it fills the memory."""

    def scenario(caller: Caller, _identity: TlsIdentity) -> None:
        with caller.silent() as connection:
            size = LARGEST_BODY * 3
            connection.sendall(f"POST /mutate HTTP/1.1\r\ncontent-length: {size}\r\n\r\n".encode())
            with suppress(OSError):  # it may be closed while we still send
                connection.sendall(b" " * (LARGEST_BODY + 1))
            assert connection.recv(12) == b"HTTP/1.1 413"

    served(scenario)


def test_what_is_no_http_is_turned_away() -> None:
    """With a sentence, and the connection is closed."""

    def scenario(caller: Caller, _identity: TlsIdentity) -> None:
        with caller.silent() as connection:
            connection.sendall(b"\x00\x01 nonsense\r\n\r\n")
            told = b"".join(iter(lambda: connection.recv(65536), b""))
            assert told.startswith(b"HTTP/1.1 400")

    served(scenario)


FLOODS = {
    "a field without end": (b"GET /healthz HTTP/1.1\r\na: ", b"x" * 100_000, b"HTTP/1.1 431"),
    "a URL without end": (b"GET /", b"x" * 100_000, b"HTTP/1.1 4"),
    "fields without end": (
        b"GET /healthz HTTP/1.1\r\n",
        b"".join(b"a%d: b\r\n" % n for n in range(500)),
        b"HTTP/1.1 431",
    ),
    "requests without end": (b"", b"GET /healthz HTTP/1.1\r\n\r\n" * 5000, b"HTTP/1.1 "),
}


@pytest.mark.parametrize(("begin", "flood", "told"), FLOODS.values(), ids=FLOODS.keys())
def test_a_flood_is_turned_away_and_holds_nobody_up(begin: bytes, flood: bytes, told: bytes) -> None:
    """One caller must not stall the others: what has no end is cut short, and the connection closed."""

    def scenario(caller: Caller, _identity: TlsIdentity) -> None:
        with caller.silent() as flooding, closing(caller.secure()) as other:
            with suppress(OSError):  # it may be closed while we still send
                flooding.sendall(begin + flood)
            assert mutated(other, raw_new_pod())["metadata"]["labels"] == {names.CLASS: "on-demand"}
            answers = b"".join(iter(lambda: read(flooding), b""))
            assert answers.startswith(told) or not answers  # nothing where what we sent too much cut it off
            assert answers.count(b"HTTP/1.1 200") <= 10

    served(scenario)


def read(connection: ssl.SSLSocket) -> bytes:
    """What is there; nothing where the connection was cut."""
    try:
        return connection.recv(65536)
    except OSError:
        return b""


def test_it_listens_once_it_has_entered_and_ends_if_it_never_does() -> None:
    """Who connects sooner is refused rather than let down; told to stop before that, it ends."""
    hook, identity = webhook(), TlsIdentity()
    identity.load(LEAF.certificate, LEAF.key)

    async def enter() -> None:
        await asyncio.Event().wait()

    with bind("127.0.0.1:0") as tls, bind("127.0.0.1:0") as plain:
        refused: list[bool] = []

        async def background() -> None:
            refused.append(tls.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0)
            signal.raise_signal(signal.SIGTERM)
            await asyncio.Event().wait()

        uvloop.run(serve(hook.ports, identity, [tls], plain, background=background, enter=enter))
        assert refused == [True]


def test_when_the_chores_fail_the_program_ends_and_says_why() -> None:
    """Certificates that nobody keeps any more would run out unseen; a restart is better."""
    hook, identity = webhook(), TlsIdentity()
    identity.load(LEAF.certificate, LEAF.key)

    async def background() -> None:
        raise RuntimeError("something nobody thought of")

    with bind("127.0.0.1:0") as tls, bind("127.0.0.1:0") as plain, pytest.raises(RuntimeError, match="nobody thought"):
        uvloop.run(serve(hook.ports, identity, [tls], plain, background=background))
