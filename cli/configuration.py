"""Where the configuration comes from: a file that was named, else the cluster's ConfigMap."""

from __future__ import annotations

from pathlib import Path

from kube.client import Client
from kube.configmaps import parse_configuration_text, read_configuration
from placement.configuration import Configuration, ConfigurationError


def load_configuration(path: Path | None, client: Client) -> Configuration:
    return read_configuration(client) if path is None else parse_configuration_text(read_text(path))


def read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"{path} cannot be read: {error}"]) from error
