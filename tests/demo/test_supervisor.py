"""`spotweave run` writes nothing to a cluster that is not on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from queue import Empty

import pytest

from demo import supervisor
from localcluster.errors import ClusterError
from placement import names
from tests.kube.scripted import scripted_api

SERVICE = f"""
apiVersion: v1
kind: Service
metadata: {{name: {names.WEBHOOK_SERVICE}, namespace: {names.SYSTEM_NAMESPACE}}}
spec: {{ports: [{{port: 8443}}]}}
"""


def test_a_real_cluster_is_refused_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its webhook's Service has another port, and was deleted once to make room for a local one."""
    monkeypatch.setattr("localcluster.kubectl.call", lambda *_arguments, **_more: SERVICE)
    with scripted_api() as (script, client):
        script.answer(json.dumps({"spec": {"clusterIP": "10.96.0.1"}}).encode())
        with pytest.raises(ClusterError, match=r"10\.96\.0\.1, where no process on this machine can listen"):
            supervisor.install(Path("kubeconfig"), client, None)
        assert script.next_request().method == "GET"
        with pytest.raises(Empty):
            script.asked.get_nowait()
