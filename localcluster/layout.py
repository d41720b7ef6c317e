"""Where everything of one cluster lies: files, ports, address ranges. Pure but for the search for free ports."""

import ipaddress
import random
import socket
from dataclasses import dataclass, fields
from pathlib import Path

LOOPBACK = "127.0.0.1"
# Below the range that the kernel gives to outgoing connections (32768 and up), so that none of them takes a port
# between our look at it and the program's bind, nor while a part is down between `kill` and `start`.
PORT_RANGE = range(20_000, 32_000)


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
    data: Path  # etcd's, on tmpfs where there is room
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
    """Ports that nobody listens on just now, held all at once so that they differ."""
    held: list[socket.socket] = []
    try:
        while len(held) < len(fields(Ports)):
            if (candidate := _bind(random.choice(PORT_RANGE))) is not None:  # noqa: S311 - no secret
                held.append(candidate)
        return Ports(*(one.getsockname()[1] for one in held))
    finally:
        for one in held:
            one.close()


def free_port() -> int:
    """One such port."""
    while (candidate := _bind(random.choice(PORT_RANGE))) is None:  # noqa: S311 - no secret
        pass
    with candidate:
        return int(candidate.getsockname()[1])


def _bind(port: int) -> socket.socket | None:
    candidate = socket.socket()
    try:
        candidate.bind((LOOPBACK, port))
    except OSError:
        candidate.close()
        return None
    return candidate
