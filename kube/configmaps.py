"""Our own ConfigMaps: the configuration that a platform team writes, and the state that the programs share."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import yaml

from kube.client import ANSWER_SECONDS, Client
from kube.crashpoints import NO_FAULTS, Call, Faults
from kube.errors import Conflict, NotFound
from kube.resources import STATE, ConfigMap
from kube.store import Store
from placement import autostate, names, observation, pause
from placement.autostate import MOST_BYTES, AutoState, Chosen, autostate_text, parse_chosen
from placement.configuration import Configuration, ConfigurationError, parse_configuration
from placement.observation import NOTHING_OBSERVED, Observed, observed_text, parse_observed
from placement.outage import KEY, Outages, outages_text, parse_outages
from placement.pause import Pause, parse_pause

log = logging.getLogger(__name__)

_TRIES = 5
PATH = STATE.path


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
    """The noted outages, and the raw ConfigMap that holds them (None if there is no ConfigMap yet)."""
    raw = _read_state(client)
    return _outages(_data(raw).get(KEY, "")), raw


def change_outages(
    client: Client,
    change: Callable[[Outages], Outages],
    faults: Faults = NO_FAULTS,
    call_seconds: float = ANSWER_SECONDS,
) -> Outages:
    """Applies `change` to the noted outages and writes the result. Writers may race; no note is lost."""
    return _outages(_change_state(client, KEY, lambda text: outages_text(change(_outages(text))), faults, call_seconds))


def read_pause(client: Client) -> Pause | None:
    """The noted pause, even if it has expired."""
    return parse_pause(_data(_read_state(client)).get(pause.KEY, ""))


def change_pause(client: Client, change: Callable[[Pause | None], Pause | None]) -> Pause | None:
    """Applies `change` to the noted pause and writes the result; None removes the note."""

    def changed(text: str) -> str:
        after = change(parse_pause(text))
        return "" if after is None else pause.pause_text(after)

    return parse_pause(_change_state(client, pause.KEY, changed))


def read_observed(client: Client) -> Observed:
    """The noted interruptions, and what `auto` has chosen."""
    data = _data(_read_state(client))
    observed, text = _observed(data.get(observation.KEY, "")), data.get(autostate.KEY, "")
    return _with_chosen(observed, _chosen(text) if text else {})


def write_autostate(client: Client, state: AutoState, call_seconds: float = ANSWER_SECONDS) -> bool:
    """Only the leader chooses, so it writes what it knows, whatever was noted before. False if that is too much.

    The ConfigMap also holds outages and the pause, which must find room.
    """
    text = autostate_text(state)
    if len(text) > MOST_BYTES:
        return False
    _change_state(client, autostate.KEY, lambda _: text, call_seconds=call_seconds)
    return True


def _chosen(text: str) -> Mapping[str, Chosen]:
    try:
        return parse_chosen(text)
    except ValueError as error:
        log.warning("%s: %s; it does not count", names.STATE_MAP, error)
        return {}


def _with_chosen(observed: Observed, chosen: Mapping[str, Chosen]) -> Observed:
    return replace(observed, rates=replace(observed.rates, chosen=chosen)) if chosen else observed


def change_observed(
    client: Client, change: Callable[[Observed], Observed], call_seconds: float = ANSWER_SECONDS
) -> Observed:
    """Applies `change` to the noted interruptions and writes the result."""

    def changed(text: str) -> str:
        return observed_text(change(_observed(text)))

    return _observed(_change_state(client, observation.KEY, changed, call_seconds=call_seconds))


def _observed(text: str) -> Observed:
    """An unreadable note is replaced by an empty one: continuing matters more than the history."""
    try:
        return parse_observed(text) if text else NOTHING_OBSERVED
    except ValueError as error:
        log.warning("%s: %s; starting from empty", names.STATE_MAP, error)
        return NOTHING_OBSERVED


def _outages(text: str) -> Outages:
    """An unreadable note is replaced by an empty one with an unused version: a loss must not wait for a person."""
    try:
        return parse_outages(text) if text else Outages()
    except ValueError as error:
        log.warning("%s: %s; starting from empty", names.STATE_MAP, error)
        return Outages(int(time.time()))


def _read_state(client: Client, call_seconds: float = ANSWER_SECONDS) -> dict[str, Any] | None:
    try:
        raw: dict[str, Any] = client.get_json(f"{PATH}/{names.STATE_MAP}", timeout_seconds=call_seconds)
    except NotFound:
        return None
    return raw


def _data(raw: dict[str, Any] | None) -> dict[str, str]:
    return (raw or {}).get("data") or {}


def _change_state(
    client: Client,
    key: str,
    change: Callable[[str], str],
    faults: Faults = NO_FAULTS,
    call_seconds: float = ANSWER_SECONDS,
) -> str:
    """Applies `change` to the text of one key, writes the result and returns it. "" means that the key is absent."""
    for _ in range(_TRIES):
        raw = _read_state(client, call_seconds)
        before = _data(raw).get(key, "")
        after = change(before)
        try:
            if after != before:
                with faults.around(Call.OUTAGE):
                    _write_state(client, raw, key, after, call_seconds)
        except Conflict:
            continue
        return after
    told = f"other writers changed it {_TRIES} times in a row"
    raise Conflict(f"PUT {PATH}/{names.STATE_MAP}", 409, "Conflict", told)


def _write_state(client: Client, raw: dict[str, Any] | None, key: str, text: str, call_seconds: float) -> None:
    """Leaves other keys as they are. The API server refuses the write if the ConfigMap changed since it was read."""
    others = {name: value for name, value in _data(raw).items() if name != key}
    data = {**others, key: text} if text else others
    if raw is not None:
        client.put(f"{PATH}/{names.STATE_MAP}", {**raw, "data": data}, timeout_seconds=call_seconds)
        return
    metadata = {"name": names.STATE_MAP, "namespace": names.SYSTEM_NAMESPACE}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    client.post(PATH, body, timeout_seconds=call_seconds)


class OutageMemory:
    """The outages noted in the state ConfigMap. An unreadable note is reported once; the last known outages stay."""

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


class PauseMemory:
    """The pause noted in the state ConfigMap."""

    def __init__(self, store: Store[ConfigMap], on_change: Callable[[], None]) -> None:
        self.current: Pause | None = None
        self._on_change = on_change
        store.subscribe(self._read)

    def _read(self, _old: ConfigMap | None, new: ConfigMap | None) -> None:
        self.current = parse_pause("" if new is None else new.data.get(pause.KEY, ""))
        self._on_change()


class ObservedMemory:
    """Observations of pools and what `auto` has chosen, as noted in the state ConfigMap.

    With an unreadable note, the last known one stays. What was chosen stays, too, if the ConfigMap is deleted. In both
    cases the leader writes it again within seconds, because a program that starts meanwhile knows nothing.
    """

    def __init__(self, store: Store[ConfigMap], on_change: Callable[[Observed], None]) -> None:
        self.current = NOTHING_OBSERVED
        self.auto_text = ""  # the last readable one; before there was any, what is there
        self.is_auto_noted = False  # and can be read: else the leader writes it again
        self._understood = ""  # the last readable one
        self._chosen: Mapping[str, Chosen] = {}
        self._on_change = on_change
        store.subscribe(self._read)

    def _read(self, _old: ConfigMap | None, new: ConfigMap | None) -> None:
        data = {} if new is None else new.data
        text, auto = data.get(observation.KEY, ""), data.get(autostate.KEY, "")
        observed = self.current
        try:
            observed = parse_observed(text) if text else NOTHING_OBSERVED
        except ValueError as error:
            log.warning("%s: %s; keeping what was read before", names.STATE_MAP, error)
        self._read_auto(auto)
        self.current = _with_chosen(observed, self._chosen)
        self._on_change(self.current)

    def _read_auto(self, text: str) -> None:
        self.is_auto_noted = False
        try:
            if text and text != self._understood:
                self._chosen = parse_chosen(text)
                self._understood = self.auto_text = text
            self.is_auto_noted = bool(text)
        except ValueError as error:
            self.auto_text = self._understood or text
            log.warning("%s: %s; keeping what was read before", names.STATE_MAP, error)
