"""What a table looks like on a terminal of some width, without colours."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, RenderableType


def printed(shown: RenderableType, width: int) -> str:
    out = StringIO()
    Console(file=out, width=width).print(shown)
    return out.getvalue()
