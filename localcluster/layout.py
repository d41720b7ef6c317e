"""Where everything of one cluster is: files, ports, address ranges. Pure except for the search for free ports."""

import ipaddress
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path

LOOPBACK = "127.0.0.1"
# Below the range that the kernel gives to outgoing connections (32768 and up), so that none of them takes a port
# between our check and the program's bind, nor while a part is down between `kill` and `start`.
PORT_RANGE = range(20_000, 32_000)
APART = 997  # ports between the first ones of two processes that were started one after the other


@dataclass(frozen=True)
class Ports:
    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int
    kwok: int


@dataclass(frozen=True)
class Layout:
    """One cluster's files and addresses, all derived from a directory, a data directory and ports."""

    directory: Path  # kubeconfig, certificates, logs
    data: Path  # etcd's data, on tmpfs if there is room
    ports: Ports
    service_range: str = "127.96.0.0/16"

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    @property
    def stages(self) -> Path:
        return self.directory / "stages.yaml"

    @property
    def server(self) -> str:
        return f"https://{LOOPBACK}:{self.ports.apiserver}"

    @property
    def first_service_address(self) -> str:
        """The clusterIP of the Service `kubernetes`; the server's certificate names it."""
        return str(ipaddress.ip_network(self.service_range)[1])

    def certificate(self, name: str) -> Path:
        return self.pki / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.pki / f"{name}.key"

    def client_kubeconfig(self, name: str) -> Path:
        return self.pki / f"{name}.kubeconfig"

    def log(self, part: str) -> Path:
        return self.directory / "logs" / f"{part}.log"


def free_ports() -> Ports:
    """Free ports for the parts of one cluster."""
    return Ports(*(free_port() for _ in fields(Ports)))


def free_port() -> int:
    """A port that is free now and was not given before.

    A program binds its port seconds after it was given, so "free now" is not enough: drawn by lot, two programs of one
    cluster got the same port now and then.
    """
    return next(port for port in _TURN if _is_free(port))


def _in_turn() -> Iterator[int]:
    """Round and round, each process from a place of its own, so that neighbours do not meet."""
    for number in count(os.getpid() * APART):
        yield PORT_RANGE[number % len(PORT_RANGE)]


_TURN = _in_turn()


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        try:
            candidate.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
