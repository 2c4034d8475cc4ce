"""`cato inspect`: what is understood of a user's file."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tyro.conf import Positional

from cato.cli.deploy import EXPORTED, show_exported
from cato.cli.output import show

if TYPE_CHECKING:
    from cato.user_data.inspect import Finding, Inspection

MOST_LISTED = 10
"""Samples named in one line."""


@dataclass
class Inspect:
    """What is understood of your own data, and what is wrong with them; or of an exported model."""

    file: Annotated[Positional[Path], tyro.conf.arg(metavar="FILE")]
    """HDF5, .npz, .mat, NetCDF, or a folder of VTK or other files, one per sample; or the .onnx or
    .pt2 file of `cato export`."""
    coords: str = ""
    """Fields that are coordinates, such as x,y; the array coords by default."""
    inputs: str = ""
    """Fields that are inputs, such as k or, frames of a time series, u[:10]."""
    targets: str = ""
    """Fields that are targets, such as p."""
    periodic: tuple[int, ...] = ()
    """Mesh axes whose end is followed by their beginning, such as 0."""
    seed: int = 0
    """Seed of the split, where the file names none."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """Read, look through and tell what to do next."""
        if self.file.suffix in EXPORTED:
            show_exported(self.file, self.json)
            return
        from cato.user_data.inspect import inspect_samples
        from cato.user_data.naming import Naming, ReadRequest
        from cato.user_data.open import split_indices
        from cato.user_data.read import read_samples

        naming = Naming.parse(self.coords, self.inputs, self.targets, self.periodic)
        samples = read_samples(self.file, ReadRequest(naming))
        inspection = inspect_samples(samples, split_indices(samples, self.seed))
        next_command = self._next(inspection.findings)
        figures = {**inspection.to_dict(), "next": next_command}
        if self.json:
            show("inspected", figures, True)
        else:
            show_inspection(inspection, next_command)

    def _next(self, findings: list[Any]) -> str:
        """The command that trains on these data, unless a finding forbids it."""
        if any(finding.stops for finding in findings):
            return f"mend {self.file}, then inspect it again"
        words = ["cato", "train", str(self.file)]
        for name in ("coords", "inputs", "targets"):
            value = getattr(self, name)
            words += [f"--{name}", value] if value else []
        words += ["--data.seed", str(self.seed)] if self.seed else []
        words += ["--data.periodic", *map(str, self.periodic)] if self.periodic else []
        return shlex.join(words)


def show_inspection(inspection: "Inspection", next_command: str) -> None:
    """What was understood, the ranges, what was found, and what to do next."""
    problem = inspection.problem
    nodes = " × ".join(map(str, problem.shape))
    mesh = "one for all samples" if inspection.has_shared_coords else "each sample has its own"
    most = "up to " if problem.geometry == "cloud" and not inspection.has_shared_coords else ""
    rows = {
        "geometry": f"{problem.geometry}, {problem.dimension} coordinates, {most}{nodes} nodes",
        "nodes": mesh,
        "inputs": ", ".join(problem.inputs) or "the nodes alone",
        "targets": ", ".join(problem.outputs),
        "time": _time(inspection),
        "samples": f"{inspection.num_samples}: "
        + ", ".join(f"{count} {name}" for name, count in inspection.splits.items()),
    }
    out = Console()
    table = Table(title=f"understood: {escape(problem.name)}", show_header=False)
    table.title_justify = "left"
    for name, value in rows.items():
        table.add_row(name, escape(value))
    out.print(table)
    ranges = Table("field", "smallest", "largest")
    for name, (low, high) in inspection.ranges.items():
        ranges.add_row(escape(name), f"{low:.4g}", f"{high:.4g}")
    out.print(ranges)
    for finding in inspection.findings:
        out.print(escape(_sentence(finding)), soft_wrap=True)
    if not inspection.findings:
        out.print("nothing suspicious: no NaN, folded cells, duplicates or constant fields")
    out.print(f"next: {escape(next_command)}", soft_wrap=True)


def _time(inspection: "Inspection") -> str:
    problem = inspection.problem
    how = {
        "steady": "none",
        "rollout": "each frame is predicted from the ones before it",
        "conditioned": "each frame is asked for by its time",
    }[problem.time]
    return how if problem.time == "steady" else f"{problem.num_steps} frames; {how}"


def _sentence(finding: "Finding") -> str:
    listed = ", ".join(map(str, finding.samples[:MOST_LISTED]))
    more = len(finding.samples) - MOST_LISTED
    where = f" (samples {listed}{f' and {more} more' if more > 0 else ''})" if listed else ""
    return f"{'stop' if finding.stops else 'note'}: {finding.what}{where}"
