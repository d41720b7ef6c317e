"""Fixtures of the tests of `kube`."""

from collections.abc import Iterator

import pytest

from kube.client import Client
from tests.kube.scripted import Script, scripted_api


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
