"""Progress bars with remaining time, on standard error: standard output is for results."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

console = Console(stderr=True, highlight=False)
# Call it with the number of finished units and, optionally, a `note` to show after the bar.
Bar = Callable[..., None]


def is_first_process() -> bool:
    """Whether this is the first of the processes that train together, which prints for all."""
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"


def note(message: str) -> None:
    """Print a message on standard error, from the first process only."""
    if is_first_process():
        console.print(message, soft_wrap=True, markup=False)


@contextmanager
def progress_bar(label: str, total: float) -> Iterator[Bar]:
    """Show a bar while the block runs; the block updates it through the yielded function.

    On a terminal the bar is drawn in place. Elsewhere (a log file, CI) a line is printed at the
    first note and after every 10 %.
    """
    if not is_first_process():
        yield lambda completed, note="": None
        return
    if not sys.stderr.isatty():
        yield _PlainBar(label, total)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(label, total=total, note="")

        def advance(completed: float, note: str = "") -> None:
            progress.update(task, completed=completed, note=note)

        yield advance


class _PlainBar:
    def __init__(self, label: str, total: float) -> None:
        self.label, self.total, self.tenth, self.has_noted = label, total, 0, False

    def __call__(self, completed: float, note: str = "") -> None:
        tenth = int(10 * completed / self.total) if self.total else 10
        if tenth > self.tenth or (note and not self.has_noted):
            self.tenth = tenth
            self.has_noted |= bool(note)
            print(
                f"{self.label}: {completed:g} of {self.total:g} {note}", file=sys.stderr, flush=True
            )
