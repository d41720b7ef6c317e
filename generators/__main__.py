"""`make generated`: writes every file of the source tree that is made from tables or from other files of ours."""

from __future__ import annotations

from generators import chart
from generators.build import built
from generators.files import ROOT, generated
from generators.lintpolicy import policy_text


def main() -> None:
    folder = ROOT / chart.CHART / "templates"
    (ROOT / "manifests/base/lint.yaml").write_text(policy_text())  # first: the chart is made from it, too
    texts = {**generated(), **chart.templates(built), chart.SCHEMA: chart.schema((ROOT / chart.SCHEMA).read_text())}
    for stale in folder.glob("*.yaml"):
        if stale.read_text().startswith(chart.HEADER):
            stale.unlink()
    for path, text in texts.items():
        (ROOT / path).write_text(text)
        print(path)


if __name__ == "__main__":
    main()
