"""Where the configuration comes from: a file that was named, else the cluster's ConfigMap."""

from __future__ import annotations

import logging
from pathlib import Path

from kube.client import Client
from kube.configmaps import parse_configuration_text, read_configuration
from kube.errors import Forbidden
from placement import names
from placement.configuration import Configuration, ConfigurationError

log = logging.getLogger(__name__)


def load_configuration(path: Path | None, client: Client) -> Configuration:
    return read_configuration(client) if path is None else parse_configuration_text(read_text(path))


def configuration_for_reading(path: Path | None, client: Client) -> Configuration:
    """For read-only commands: users who may not read the ConfigMap get the built-in configuration."""
    try:
        return load_configuration(path, client)
    except Forbidden:
        log.warning("not allowed to read the ConfigMap %s: assuming the built-in configuration", names.CONFIG_MAP)
        return Configuration()


def read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"{path} cannot be read: {error}"]) from error
