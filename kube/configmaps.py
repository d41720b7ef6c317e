"""Our own ConfigMaps: the configuration that a platform team writes, and the state that the programs share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from kube.client import Client
from kube.decode import Identity, Shape
from kube.errors import Conflict, NotFound
from kube.faults import NO_FAULTS, Call, Faults
from kube.resources import Resource
from kube.store import Store
from placement import names
from placement.configuration import Configuration, ConfigurationError, parse_configuration
from placement.model import Key
from placement.outage import KEY, Outages, outages_text, parse_outages

log = logging.getLogger(__name__)

_TRIES = 5
PATH = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps"


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """A ConfigMap's text."""

    namespace: str
    name: str
    data: dict[str, str]

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class _ConfigMapObject(Identity):
    data: dict[str, str] | None = None


def _config_map(wire: _ConfigMapObject) -> ConfigMap:
    return ConfigMap(wire.metadata.namespace or "", wire.metadata.name or "", wire.data or {})


STATE: Resource[ConfigMap] = Resource(
    names.STATE_MAP,
    PATH,
    Shape(_ConfigMapObject, _config_map),
    {"fieldSelector": f"metadata.name={names.STATE_MAP}"},
)


def read_configuration(client: Client) -> Configuration:
    """The configuration in force in a cluster; the built-in one where there is none."""
    try:
        raw = client.get_json(f"{PATH}/{names.CONFIG_MAP}")
    except NotFound:
        return Configuration()
    return parse_configuration_text((raw.get("data") or {}).get(names.CONFIG_KEY, ""))


def parse_configuration_text(text: str) -> Configuration:
    """Raises ConfigurationError that lists every mistake."""
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError([f"the configuration is not YAML: {error}"]) from error
    return parse_configuration(raw)


def read_outages(client: Client) -> tuple[Outages, dict[str, Any] | None]:
    """What is noted, and the raw ConfigMap that it stands in (None: there is none yet)."""
    try:
        raw = client.get_json(f"{PATH}/{names.STATE_MAP}")
    except NotFound:
        return Outages(), None
    text = (raw.get("data") or {}).get(KEY, "")
    return parse_outages(text) if text else Outages(), raw


def change_outages(client: Client, change: Callable[[Outages], Outages], faults: Faults = NO_FAULTS) -> Outages:
    """Writes what `change` makes of what is noted; several writers may race, nobody's note is lost."""
    for _ in range(_TRIES):
        before, raw = read_outages(client)
        after = change(before)
        try:
            with faults.around(Call.OUTAGE):
                _write_outages(client, raw, after)
        except Conflict:
            continue
        return after
    raise TimeoutError(f"{names.STATE_MAP} was changed by others {_TRIES} times in a row")


def _write_outages(client: Client, raw: dict[str, Any] | None, outages: Outages) -> None:
    data = {KEY: outages_text(outages)}
    if raw is not None:
        client.put(f"{PATH}/{names.STATE_MAP}", {**raw, "data": {**(raw.get("data") or {}), **data}})
        return
    metadata = {"name": names.STATE_MAP, "namespace": names.SYSTEM_NAMESPACE}
    client.post(PATH, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


class OutageMemory:
    """The outages noted in the state ConfigMap. A garbled note is told once, and what was known before stands."""

    def __init__(self, store: Store[ConfigMap], on_change: Callable[[], None]) -> None:
        self.current = Outages()
        self._on_change = on_change
        store.subscribe(self._read)

    def _read(self, _old: ConfigMap | None, new: ConfigMap | None) -> None:
        text = "" if new is None else new.data.get(KEY, "")
        try:
            self.current = parse_outages(text) if text else Outages()
        except ValueError as error:
            log.warning("%s: %s; keeping version %d", names.STATE_MAP, error, self.current.version)
        self._on_change()
