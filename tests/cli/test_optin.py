"""`spotweave opt-in`: what is written to namespaces, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.main import main
from placement import names
from tests.builders.api import page, status
from tests.kube.scripted import Answer, Script, serving

NOT_FOUND = Answer(status(404, "NotFound"), 404)


@pytest.fixture
def access(tmp_path: Path) -> Iterator[tuple[Script, str]]:
    """A scripted API server, and the kubeconfig for it."""
    script, file = Script(), tmp_path / "kubeconfig"
    with serving(script) as url:
        content = {
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file.write_text(json.dumps(content))
        yield script, str(file)


def test_namespaces_get_the_label_and_their_mode(
    access: tuple[Script, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """plan-only unless another mode is named; nothing else of the namespace is written."""
    script, file = access
    script.answer(b"{}", b"{}")
    assert main(["opt-in", "shop", "bank=auto", "--kubeconfig", file]) == 0
    for name, mode in (("shop", "plan-only"), ("bank", "auto")):
        request = script.next_request()
        assert (request.method, request.path) == ("PATCH", f"/api/v1/namespaces/{name}")
        written = {"labels": {names.PLACEMENT: names.ENABLED}, "annotations": {names.REBALANCE: mode}}
        assert json.loads(request.body) == {"metadata": written}
    assert capsys.readouterr().out.splitlines() == [
        "Opted shop in: new pods are placed, none is moved.",
        "Opted bank in: new pods are placed, running ones moved.",
    ]


def test_a_namespace_that_does_not_exist_keeps_none_of_the_others_out(
    access: tuple[Script, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, with what may be meant; exit code 2."""
    script, file = access
    script.answer(NOT_FOUND, b"{}", page({"metadata": {"name": "shop"}}))
    assert main(["opt-in", "shpo", "bank", "--kubeconfig", file]) == 2
    told = capsys.readouterr()
    assert "Opted bank in" in told.out
    assert "namespace 'shpo' does not exist\ndid you mean shop?" in told.err


@pytest.mark.parametrize("wish", ["shop=yes", "shop=", "kube-system", "spotweave-system=auto"])
def test_a_wish_that_cannot_be_is_refused_at_once(wish: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the cluster is asked."""
    with pytest.raises(SystemExit) as caught:
        main(["opt-in", wish])
    assert caught.value.code == 2
    assert wish.partition("=")[0] in capsys.readouterr().err
