"""Where the API is: kubeconfigs of all kinds, the pod's own account, and no file left behind."""

import base64
import json
import os
import ssl
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import Configuration

from kube.client import Client, connect
from kube.errors import KubeconfigError, Unreachable
from kube.kubeconfig import MemoryFiles, _token_reader, load_configuration, load_in_cluster
from tests.kube.authority import LoopbackAuthority
from tests.kube.scripted import Script, WatchLines

AGENT = "test/1"


def inline(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def kubeconfig(
    server: str, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "clusters": [{"name": "c", "cluster": {"server": server} | (cluster or {})}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def inlined(url: str, authority: LoopbackAuthority) -> dict[str, Any]:
    user = {"client-certificate-data": inline(authority.client), "client-key-data": inline(authority.client_key)}
    return kubeconfig(url, {"certificate-authority-data": inline(authority.ca)}, user)


def written(directory: Path, content: object, name: str = "config") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / name
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return file


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files would appear, were there any."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


@pytest.fixture
def memory() -> Iterator[MemoryFiles]:
    with closing(MemoryFiles()) as files:
        yield files


def assert_answers(client: Client, script: Script) -> None:
    script.answer(b'{"major": "1"}')
    assert client.get_json("/version") == {"major": "1"}


def test_inline_certificates_work_and_are_never_written_to_a_file(
    tls_api: tuple[Script, str],
    authority: LoopbackAuthority,
    tmp_path: Path,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server demands our certificate and we verify its own; not even for a moment is either on disk."""
    script, url = tls_api
    monkeypatch.setattr(tempfile, "mkstemp", lambda **_: pytest.fail("a temporary file was made"))
    with closing(connect(written(tmp_path, inlined(url, authority)), user_agent=AGENT)) as client:
        assert list(temporary.iterdir()) == []
        assert_answers(client, script)
        assert list(temporary.iterdir()) == []


def test_closing_the_client_gives_the_memory_back(authority: LoopbackAuthority, tmp_path: Path) -> None:
    """Programs that connect again and again do not run out of descriptors."""
    file = written(tmp_path, inlined("https://127.0.0.1:1", authority))
    before = len(os.listdir("/proc/self/fd"))
    connect(file, user_agent=AGENT).close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_kubeconfig_may_be_an_inherited_memory_file(
    tls_api: tuple[Script, str], authority: LoopbackAuthority, memory: MemoryFiles
) -> None:
    """`/dev/fd/N` works, so that a parent can hand over credentials without a file."""
    script, url = tls_api
    path = memory.hold("kubeconfig", yaml.safe_dump(inlined(url, authority)).encode())
    with closing(connect(Path(path.replace("/proc/self", "/dev")), user_agent=AGENT)) as client:
        assert_answers(client, script)


def test_paths_are_relative_to_the_kubeconfig(
    tls_api: tuple[Script, str], authority: LoopbackAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to the working directory, which is another one."""
    script, url = tls_api
    home = tmp_path / "home"
    user = {"client-certificate": "pki/client", "client-key": "pki/key"}
    file = written(home, kubeconfig(url, {"certificate-authority": "pki/ca"}, user))
    (home / "pki").mkdir()
    for name, pem in (("ca", authority.ca), ("client", authority.client), ("key", authority.client_key)):
        (home / "pki" / name).write_bytes(pem)
    monkeypatch.chdir(tmp_path)
    with closing(connect(file.relative_to(tmp_path), user_agent=AGENT)) as client:
        assert_answers(client, script)


def test_a_server_of_another_authority_is_not_trusted(tls_api: tuple[Script, str], tmp_path: Path) -> None:
    """Without its CA the server could be anyone: no answer, and the text says that TLS is why."""
    _, url = tls_api
    client = connect(written(tmp_path, kubeconfig(url)), user_agent=AGENT)
    with closing(client), pytest.raises(Unreachable, match="certificate verify failed"):
        client.get("/version")


def test_a_watch_over_tls_is_closed_from_another_thread(
    tls_api: tuple[Script, str], authority: LoopbackAuthority, tmp_path: Path
) -> None:
    """The reader ends at once and without an error, though the server would stay silent for a minute."""
    script, url = tls_api
    script.watch(WatchLines([b"one"]))
    with closing(connect(written(tmp_path, inlined(url, authority)), user_agent=AGENT)) as client:
        stream = client.stream("/watch", {"watch": "true"}, read_timeout_seconds=60)
        lines = iter(stream)
        assert next(lines) == b"one"
        rest: list[bytes] = []
        reader = threading.Thread(target=lambda: rest.extend(lines))
        reader.start()
        stream.close()
        reader.join(5)
        assert (reader.is_alive(), rest) == (False, [])


def plugin(directory: Path, status: dict[str, str] | None) -> dict[str, Any]:
    """An exec plugin that gives this status, or fails."""
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    script = "exit 3" if status is None else f"cat <<'END'\n{json.dumps(credential)}\nEND"
    file = written(directory, f"#!/bin/sh\n{script}\n", "plugin")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"command": str(file), "apiVersion": "client.authentication.k8s.io/v1"}}


def test_an_exec_plugin_gives_the_token(tmp_path: Path, memory: MemoryFiles) -> None:
    """As cloud providers do it."""
    file = written(tmp_path, kubeconfig("http://127.0.0.1:1", user=plugin(tmp_path, {"token": "secret"})))
    assert load_configuration(file, None, memory).api_key == {"BearerToken": "Bearer secret"}


def test_an_exec_plugin_gives_a_certificate_and_leaves_no_file(
    tls_api: tuple[Script, str], authority: LoopbackAuthority, tmp_path: Path, temporary: Path
) -> None:
    """The official loader writes it to a file; ours takes it into memory and removes that at once."""
    script, url = tls_api
    status = {"clientCertificateData": authority.client.decode(), "clientKeyData": authority.client_key.decode()}
    content = kubeconfig(url, {"certificate-authority-data": inline(authority.ca)}, plugin(tmp_path, status))
    with closing(connect(written(tmp_path, content), user_agent=AGENT)) as client:
        assert list(temporary.iterdir()) == []
        assert_answers(client, script)


def test_a_token_file_is_read_again_when_it_may_have_changed(tmp_path: Path) -> None:
    """Rotated tokens are followed within a minute, and the file is not read with every request."""
    clock = iter([0.0, 0.0, 59.0, 60.0, 60.0])  # asked twice when the file is read
    file = tmp_path / "token"
    refresh, configuration = _token_reader(file, lambda: next(clock)), Configuration()
    seen = []
    for content in ("one\n", "two\n", "two\n"):
        file.write_text(content)
        refresh(configuration)
        seen.append(configuration.api_key["BearerToken"])
    assert seen == ["Bearer one", "Bearer one", "Bearer two"]


def test_a_kubeconfig_with_a_token_file_sends_its_token(script: Script, client: Client, tmp_path: Path) -> None:
    """The path is relative to the kubeconfig, and the newline at its end is not sent."""
    written(tmp_path, "secret\n", "token")
    file = written(tmp_path, kubeconfig(client.server, user={"tokenFile": "token"}))
    with closing(connect(file, user_agent=AGENT)) as ours:
        assert_answers(ours, script)
    assert script.next_request().headers["authorization"] == "Bearer secret"


def test_the_context_can_be_chosen(tmp_path: Path, memory: MemoryFiles) -> None:
    """By name; without one the current context counts."""
    content = kubeconfig("http://one:1")
    content["clusters"].append({"name": "c2", "cluster": {"server": "http://two:2"}})
    content["contexts"].append({"name": "other", "context": {"cluster": "c2", "user": "u"}})
    file = written(tmp_path, content)
    assert load_configuration(file, None, memory).host == "http://one:1"
    assert load_configuration(file, "other", memory).host == "http://two:2"


def test_the_environment_names_the_kubeconfigs(tmp_path: Path, memory: MemoryFiles) -> None:
    """Several are merged, the first wins; a missing one among them is passed over."""
    first = written(tmp_path, kubeconfig("http://first:1") | {"users": None}, "first")
    second = written(tmp_path, kubeconfig("http://second:2", user={"token": "secret"}), "second")
    environment = {"KUBECONFIG": f"{tmp_path / 'missing'}:{first}:{second}", "HOME": str(tmp_path)}
    configuration = load_configuration(None, None, memory, environment)
    assert (configuration.host, configuration.api_key) == ("http://first:1", {"BearerToken": "Bearer secret"})


def test_the_home_directory_is_looked_into(tmp_path: Path, memory: MemoryFiles) -> None:
    """~/.kube/config, if KUBECONFIG is not set."""
    written(tmp_path / ".kube", kubeconfig("http://home:1"))
    assert load_configuration(None, None, memory, {"HOME": str(tmp_path)}).host == "http://home:1"


MISTAKES: dict[str, tuple[object, str]] = {
    "not YAML": ("a: [", "is not YAML: .*line 1"),
    "empty": ("", "is malformed: Expected `object`, got `null`"),
    "a list": ("- a", "is malformed: Expected `object`, got `array`"),
    "clusters of the wrong kind": ({"clusters": "x"}, r"is malformed: Expected `array \| null`.*clusters"),
    "no context": ({}, "has no context None; it has: none"),
    "an unknown context": (kubeconfig("http://a") | {"current-context": "y"}, "has no context 'y'; it has: x"),
    "an unknown cluster": (kubeconfig("http://a") | {"clusters": []}, "Expected object with name c in .*clusters"),
    "no server": (
        kubeconfig("http://a") | {"clusters": [{"name": "c", "cluster": {"proxy-url": "http://p"}}]},
        "the cluster of the context has no server",
    ),
    "data that is not base64": (
        kubeconfig("https://a", {"certificate-authority-data": "§§"}),
        "certificate-authority-data is not base64",
    ),
    "a certificate that is not there": (
        kubeconfig("https://a", {"certificate-authority": "nowhere.pem"}),
        "File does not exist: .*/nowhere.pem",
    ),
    "a token file that is not there": (
        kubeconfig("http://a", user={"tokenFile": "no-token"}),
        "No such file.*no-token",
    ),
}


@pytest.mark.parametrize(("content", "expected"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_in_a_kubeconfig_is_named(tmp_path: Path, content: object, expected: str) -> None:
    """The error names the file and what is wrong with it."""
    file = written(tmp_path, content)
    with pytest.raises(KubeconfigError, match=rf"(?s)kubeconfig {file}.*{expected}"):
        connect(file, user_agent=AGENT)


def test_an_exec_plugin_that_fails_is_named(tmp_path: Path) -> None:
    """Rather than going on as an anonymous user."""
    file = written(tmp_path, kubeconfig("http://a", user=plugin(tmp_path, None)))
    with pytest.raises(KubeconfigError, match=r"exec plugin '.*/plugin' gave no credentials"):
        connect(file, user_agent=AGENT)


def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    """An explicit path is never replaced by another cluster's."""
    with pytest.raises(KubeconfigError, match=rf"kubeconfig {tmp_path}/no cannot be read: No such file"):
        connect(tmp_path / "no", user_agent=AGENT)


def test_an_environment_that_names_nothing_is_an_error(tmp_path: Path, memory: MemoryFiles) -> None:
    """A misspelt KUBECONFIG must not silently mean the cluster of ~/.kube/config."""
    written(tmp_path / ".kube", kubeconfig("http://home:1"))
    with pytest.raises(KubeconfigError, match="KUBECONFIG names /nowhere"):
        load_configuration(None, None, memory, {"KUBECONFIG": "/nowhere", "HOME": str(tmp_path)})


def test_nothing_at_all_is_an_error(tmp_path: Path, memory: MemoryFiles) -> None:
    """Neither a kubeconfig nor a pod."""
    with pytest.raises(KubeconfigError, match="no kubeconfig found, and this process does not run in a pod"):
        load_configuration(None, None, memory, {"HOME": str(tmp_path)})


def test_a_pod_uses_its_service_account(tmp_path: Path, authority: LoopbackAuthority) -> None:
    """Address from the environment, token and CA from the mounted files."""
    written(tmp_path, "secret", "token")
    (tmp_path / "ca.crt").write_bytes(authority.ca)
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    configuration = load_in_cluster(tmp_path, environment)
    assert configuration.host == "https://10.0.0.1:443"
    assert configuration.ssl_ca_cert == str(tmp_path / "ca.crt")
    assert configuration.auth_settings()["BearerToken"]["value"] == "bearer secret"


def test_memory_files_can_be_opened_by_path(authority: LoopbackAuthority, memory: MemoryFiles) -> None:
    """More than once, since each connection loads the certificates anew."""
    path = memory.hold("ca", authority.ca)
    for _ in range(2):
        assert Path(path).read_bytes() == authority.ca
    ssl.create_default_context(cafile=path)
