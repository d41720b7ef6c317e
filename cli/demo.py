from __future__ import annotations


def add_parser(commands, common): ...
