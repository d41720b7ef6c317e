"""Fixtures of the tests of `kube`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.client import Client
from tests.kube.authority import LoopbackAuthority, make_authority
from tests.kube.scripted import Script, scripted_api, serving


@pytest.fixture
def api() -> Iterator[tuple[Script, Client]]:
    """A scripted API server, and a client of it."""
    with scripted_api() as pair:
        yield pair


@pytest.fixture
def script(api: tuple[Script, Client]) -> Script:
    return api[0]


@pytest.fixture
def client(api: tuple[Script, Client]) -> Client:
    return api[1]


@pytest.fixture(scope="session")
def authority() -> LoopbackAuthority:
    return make_authority()


@pytest.fixture
def tls_api(authority: LoopbackAuthority, tmp_path: Path) -> Iterator[tuple[Script, str]]:
    """A scripted API server that asks for a client certificate, and its URL."""
    script = Script()
    directory = tmp_path / "server"
    directory.mkdir()
    with serving(script, authority.server_context(directory)) as url:
        yield script, url
