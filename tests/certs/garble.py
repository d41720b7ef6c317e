"""PEMs that look sound and are not: bytes of the DER inside are others."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable

Draw = Callable[[int], int]  # a number below this one
_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----\n([^-]*)-----END [A-Z ]+-----\n?")


def garbled(text: bytes, draw: Draw) -> bytes:
    """One to three bytes of one of the PEM's blocks are drawn anew; what holds no block stays."""
    blocks = [(match[1], bytearray(b64decode(match[2]))) for match in _BLOCK.finditer(text)]
    if blocks:
        der = blocks[draw(len(blocks))][1]
        for _ in range(draw(3) + 1):
            der[draw(len(der))] = draw(256)
    return b"".join(_pem(*block) for block in blocks) or text


def _pem(kind: bytes, der: bytearray) -> bytes:
    body = b64encode(bytes(der))
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    return b"\n".join([b"-----BEGIN " + kind + b"-----", *lines, b"-----END " + kind + b"-----", b""])
