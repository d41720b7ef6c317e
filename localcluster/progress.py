"""Shows the progress of long steps: one rewritten line on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

PLAIN_INTERVAL_SECONDS = 10.0
TERMINAL_INTERVAL_SECONDS = 0.2


@dataclass
class Progress:
    """`step` names what begins, `tick` shows how far it is. A log is never silent for more than 10 s."""

    out: TextIO = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    _name: str = ""
    _begun: float = 0.0
    _told: float = 0.0
    _width: int = 0

    def step(self, name: str) -> None:
        """Begin a new step; its name is shown at once."""
        self.done()
        self._name, self._begun, self._told = name, self.clock(), self.clock()
        self._show("", end=not self._terminal)

    def tick(self, detail: str) -> None:
        """Show how far the step is. It is called often, and shown less often in a log."""
        interval = TERMINAL_INTERVAL_SECONDS if self._terminal else PLAIN_INTERVAL_SECONDS
        if self.clock() - self._told >= interval:
            self._told = self.clock()
            self._show(f": {detail}, {self.clock() - self._begun:.0f} s", end=not self._terminal)

    def done(self) -> None:
        """End the step, if one is open, with the time that it took."""
        if self._name:
            self._show(f": done in {self.clock() - self._begun:.1f} s", end=True)
            self._name = ""

    def failed(self) -> None:
        """End the step without reporting success; the error follows."""
        if self._name and self._terminal:
            self.out.write("\n")
        self._name = ""

    @property
    def _terminal(self) -> bool:
        return self.out.isatty()

    def _show(self, text: str, end: bool) -> None:
        line = self._name + text
        if self._terminal:
            self.out.write("\r" + line.ljust(self._width))
            self._width = 0 if end else len(line)
        else:
            self.out.write(line)
        self.out.write("\n" if end else "")
        self.out.flush()


@dataclass
class Silent(Progress):
    """For callers that want no output, such as tests."""

    def _show(self, text: str, end: bool) -> None:
        pass
