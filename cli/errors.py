"""Errors of callers, in words that say what would be right."""

from __future__ import annotations

BAD_INPUT = 2  # the exit code


class UsageError(Exception):
    """Ends the command: `message` says what is wrong, `hint` what would be right."""

    exit_code = BAD_INPUT

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}\n{hint}" if hint else message)
        self.message = message
        self.hint = hint
