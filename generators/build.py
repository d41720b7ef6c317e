"""What kustomize builds of folders of manifests, for the generated chart and the tests that compare it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from generators.files import ROOT
from localcluster import kubectl

MANIFESTS = ROOT / "manifests"


def built(resources: Sequence[str], components: Sequence[str] = ()) -> list[dict[str, Any]]:
    """`built(["base"], ["gangs"])`: the base with the component of gangs, as an overlay of a user's would be."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder).resolve()
        kustomization = {
            "resources": [_from(here, MANIFESTS / each) for each in resources],
            "components": [_from(here, MANIFESTS / "components" / each) for each in components],
        }
        (here / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return [each for each in yaml.safe_load_all(kubectl.call("kustomize", str(here))) if each]


def _from(here: Path, there: Path) -> str:
    """kustomize takes relative paths alone."""
    return os.path.relpath(there.resolve(), here)
