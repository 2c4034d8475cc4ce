"""The training log: a JSON line per validation and, if it is installed, TensorBoard."""

import time
from collections import deque
from typing import Any

from cato.errors import InputError
from cato.files import to_json
from cato.runs.folder import Run


class Journal:
    """The log of one training; only one of its processes is `active`.

    `step` is that of the last line to keep. Later lines will be written again, and so will a line
    of step 0, which exists if the first step diverged.
    """

    def __init__(self, run: Run, step: int, active: bool) -> None:
        self.run, self.active = run, active
        self._recent: deque[tuple[float, int]] = deque(maxlen=50)
        self._board = None
        if active:
            lines = [line for line in run.read_log() if 0 < line["step"] <= step]
            if run.id and step != (lines[-1]["step"] if lines else 0):
                raise InputError(
                    f"the log of {run.folder} has lost the line of step {step}; restore log.jsonl "
                    f"from a copy or train again"
                )
            self._lines = [to_json(line) for line in lines]
            run.write_log_text(self._lines)
            self._board = _tensorboard(run)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()

    def write(self, line: dict[str, Any]) -> None:
        """Append a line."""
        if not self.active:
            return
        self.run.require_in_place()
        self._lines.append(to_json(line))
        self.run.write_log_text(self._lines)
        if self._board is not None:
            for name, value in line.items():
                self._board.add_scalar(name, value, line["step"])

    def count(self, num_samples: int) -> None:
        """Count finished samples."""
        self._recent.append((time.monotonic(), num_samples))

    @property
    def rate(self) -> float:
        """Samples per second over the last steps."""
        if len(self._recent) < 2:
            return 0.0
        (start, first), (end, _) = self._recent[0], self._recent[-1]
        return (sum(n for _, n in self._recent) - first) / max(end - start, 1e-9)


def _tensorboard(run: Run) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run.folder / "tensorboard"))
