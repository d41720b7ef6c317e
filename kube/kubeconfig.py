"""Where the API is and how to prove who we are: the official client's loaders, without their files on disk.

The official loader writes inline certificates and keys to temporary files, which outlive a `kill -9`. So inline data is
moved into anonymous memory first, and the loader is given `/proc/self/fd/N` for a path.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from kubernetes.client import Configuration
from kubernetes.config import ConfigException
from kubernetes.config.incluster_config import InClusterConfigLoader
from kubernetes.config.kube_config import KubeConfigLoader

from kube.errors import KubeconfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_NAMESPACE = "default"
TOKEN_FILE_SECONDS = 60.0  # how long a token that was read from a file is used before it is read again

# The official loaders are not annotated.
_InCluster: Any = InClusterConfigLoader
_FromDict: Any = KubeConfigLoader

_PATHS_OF_CLUSTER: tuple[str, ...] = ("certificate-authority",)
_PATHS_OF_USER: tuple[str, ...] = ("client-certificate", "client-key", "tokenFile")


class _Cluster(msgspec.Struct):
    name: str
    cluster: dict[str, Any] = {}


class _User(msgspec.Struct):
    name: str
    user: dict[str, Any] | None = None


class _Context(msgspec.Struct):
    name: str
    context: dict[str, Any] = {}


class _KubeConfig(msgspec.Struct, rename="kebab"):
    """The parts of a kubeconfig that are looked at here; what is inside an entry is left to the official loader."""

    clusters: list[_Cluster] | None = None
    users: list[_User] | None = None
    contexts: list[_Context] | None = None
    current_context: str | None = None


class MemoryFiles:
    """Files that live in memory and vanish with the process, however it ends."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []

    def hold(self, name: str, content: bytes) -> str:
        """A path under which this process can open `content`, until `close`."""
        descriptor = os.memfd_create(name)
        self._descriptors.append(descriptor)
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        return f"/proc/self/fd/{descriptor}"

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


def load_configuration(
    kubeconfig: Path | None,
    context: str | None,
    memory: MemoryFiles,
    environment: Mapping[str, str] = os.environ,
) -> Configuration:
    """The official client's configuration from a kubeconfig, or from the pod that we run in if there is none."""
    files = [kubeconfig] if kubeconfig is not None else _usual_files(environment)
    if files:
        return _from_files(files, context, memory)
    return load_in_cluster(SERVICE_ACCOUNT, environment)


def namespace_of(kubeconfig: Path | None, context: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The namespace that kubectl would use: the context's, in a pod the pod's own, else `default`."""
    files = [kubeconfig] if kubeconfig is not None else _usual_files(environment)
    if not files:
        own = SERVICE_ACCOUNT / "namespace"
        return (own.read_text().strip() if own.exists() else "") or DEFAULT_NAMESPACE
    merged = _merged([_parsed(file) for file in files])
    chosen = context or merged.current_context
    entry = next((each.context for each in merged.contexts or () if each.name == chosen), {})
    return str(entry.get("namespace") or DEFAULT_NAMESPACE)


def load_in_cluster(directory: Path, environment: Mapping[str, str]) -> Configuration:
    """The configuration of a pod. Its token is rotated by the kubelet; the loader reads it again every minute."""
    configuration = Configuration()
    loader = _InCluster(str(directory / "token"), str(directory / "ca.crt"), environ=environment)
    try:
        loader.load_and_set(configuration)
    except ConfigException as error:
        raise KubeconfigError(f"no kubeconfig found, and this process does not run in a pod: {error}") from error
    return configuration


def _usual_files(environment: Mapping[str, str]) -> list[Path]:
    """$KUBECONFIG if it is set, else ~/.kube/config if it is there.

    A $KUBECONFIG that names nothing is an error: to fall back silently would be to act on some other cluster.
    """
    named = environment.get("KUBECONFIG", "")
    if not named:
        usual = Path(environment.get("HOME", "/")) / ".kube" / "config"
        return [usual] if usual.exists() else []
    files = [Path(part).expanduser() for part in named.split(os.pathsep) if part]
    present = [file for file in files if file.exists()]
    if not present:
        raise KubeconfigError(f"KUBECONFIG names {named}, which does not exist")
    return present


def _from_files(files: list[Path], context: str | None, memory: MemoryFiles) -> Configuration:
    where = ", ".join(map(str, files))
    merged = _merged([_parsed(file) for file in files])
    configuration = Configuration()
    scratch = Path(tempfile.gettempdir(), f"spotweave-{secrets.token_hex(8)}")  # the loader makes it if it needs it
    try:
        _load(where, _loader(where, merged, context, scratch, files[0], memory), configuration)
        _keep_in_memory(configuration, scratch, memory)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return configuration


def _parsed(file: Path) -> _KubeConfig:
    try:
        document = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise KubeconfigError(f"kubeconfig {file} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise KubeconfigError(f"kubeconfig {file} is not YAML: {' '.join(str(error).split())}") from error
    try:
        parsed = msgspec.convert(document, _KubeConfig)
    except msgspec.ValidationError as error:
        raise KubeconfigError(f"kubeconfig {file} is malformed: {error}") from error
    _make_absolute(parsed, file.absolute().parent)
    return parsed


def _make_absolute(parsed: _KubeConfig, directory: Path) -> None:
    """Paths in a kubeconfig are meant relative to it, whatever the working directory."""
    sections = [(cluster.cluster, _PATHS_OF_CLUSTER) for cluster in parsed.clusters or ()]
    sections += [(user.user or {}, _PATHS_OF_USER) for user in parsed.users or ()]
    for section, keys in sections:
        for key in keys:
            if section.get(key):
                section[key] = str(directory / str(section[key]))


def _merged(parsed: list[_KubeConfig]) -> _KubeConfig:
    """As kubectl merges: the first file that defines a name or the current context wins."""
    return _KubeConfig(
        clusters=list({c.name: c for config in reversed(parsed) for c in config.clusters or ()}.values()),
        users=list({u.name: u for config in reversed(parsed) for u in config.users or ()}.values()),
        contexts=list({c.name: c for config in reversed(parsed) for c in config.contexts or ()}.values()),
        current_context=next((config.current_context for config in parsed if config.current_context), None),
    )


def _loader(
    where: str, merged: _KubeConfig, context: str | None, scratch: Path, file: Path, memory: MemoryFiles
) -> Any:
    chosen = context or merged.current_context
    names = {entry.name: entry.context for entry in merged.contexts or ()}
    if chosen not in names:
        raise KubeconfigError(f"kubeconfig {where} has no context {chosen!r}; it has: {', '.join(names) or 'none'}")
    for cluster in merged.clusters or ():
        if cluster.name == names[chosen].get("cluster"):
            _move_inline(where, cluster.cluster, _PATHS_OF_CLUSTER, memory)
    for user in merged.users or ():
        if user.name == names[chosen].get("user"):
            _move_inline(where, user.user or {}, _PATHS_OF_USER[:2], memory)
    try:
        return _FromDict(
            msgspec.to_builtins(merged),
            active_context=chosen,
            config_base_path=str(file.absolute().parent),
            temp_file_path=str(scratch),
        )
    except ConfigException as error:
        raise KubeconfigError(f"kubeconfig {where}: {error}") from error


def _move_inline(where: str, section: dict[str, Any], keys: tuple[str, ...], memory: MemoryFiles) -> None:
    for key in keys:
        data = section.pop(f"{key}-data", None)
        if not data:
            continue
        try:
            section[key] = memory.hold(key, base64.b64decode(data, validate=True))
        except (binascii.Error, TypeError, ValueError) as error:
            raise KubeconfigError(f"kubeconfig {where}: {key}-data is not base64: {error}") from error


def _load(where: str, loader: Any, configuration: Configuration) -> None:
    try:
        loader.load_and_set(configuration)
    except (ConfigException, OSError) as error:
        raise KubeconfigError(f"kubeconfig {where}: {error}") from error
    user = loader._user.value if loader._user is not None else {}
    if "server" not in loader._cluster:
        raise KubeconfigError(f"kubeconfig {where}: the cluster of the context has no server")
    if "exec" in user and not configuration.api_key and not configuration.cert_file:
        command = (user["exec"] or {}).get("command")
        raise KubeconfigError(f"kubeconfig {where}: the exec plugin {command!r} gave no credentials (see the log)")
    if user.get("tokenFile") and not user.get("token"):
        vars(configuration)["refresh_api_key_hook"] = _token_reader(Path(user["tokenFile"]))


def _token_reader(file: Path, clock: Callable[[], float] = time.monotonic) -> Callable[[Configuration], None]:
    """Follows a token file, because tokens are rotated. The official loader reads it once."""
    read_at = float("-inf")

    def refresh(configuration: Configuration) -> None:
        nonlocal read_at
        if clock() - read_at < TOKEN_FILE_SECONDS:
            return
        configuration.api_key["BearerToken"] = f"Bearer {file.read_text().strip()}"
        read_at = clock()

    return refresh


def _keep_in_memory(configuration: Configuration, scratch: Path, memory: MemoryFiles) -> None:
    """Exec plugins may answer with a certificate, which the loader has just written to `scratch` for want of better."""
    for field in ("cert_file", "key_file"):
        path = getattr(configuration, field)
        if path and Path(path).parent == scratch:
            setattr(configuration, field, memory.hold(field, Path(path).read_bytes()))
