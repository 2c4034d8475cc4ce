"""Stopping on request: Ctrl-C or a termination signal ends a training after the current step."""

import signal
from types import FrameType
from typing import Any, Self

from cato.progress import note

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Collects signals while its block runs; a second Ctrl-C interrupts at once."""

    requested = False

    def __enter__(self) -> Self:
        self._previous = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        note("stopping after this step …")
