"""`cato inspect`: check a dataset, or show what an exported file says about itself."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from tyro.conf import Positional

from cato.cli.output import show, show_errors, show_rows
from cato.errors import InputError

if TYPE_CHECKING:
    from cato.user_data.inspect import Finding, Inspection
    from cato.user_data.naming import Naming

EXPORTED = (".onnx", ".pt2")  # Suffixes of the files that `cato export` writes.
MAX_LISTED = 10  # Samples listed in one line.
TIME = {
    "steady": "none",
    "rollout": "{} frames, each predicted from the ones before it",
    "conditioned": "{} frames, each predicted from the inputs and its time",
}


@dataclass
class Inspect:
    """Check a dataset: detected layout and problems. Or describe an exported model."""

    file: Annotated[Positional[Path], tyro.conf.arg(metavar="FILE")]
    """HDF5, .npz, .mat, .pt, NetCDF, Zarr, CSV or Parquet, or a folder of VTK files, OpenFOAM cases
    or other files, one per sample; or an .onnx or .pt2 file written by `cato export`."""
    coords: str = ""  # Coordinate fields, such as x,y; the array coords by default.
    inputs: str = ""  # Input fields, such as k; frames of a time series u[:10], a single one u[0].
    targets: str = ""  # Target fields, such as p.
    periodic: tuple[int, ...] = ()  # Periodic mesh axes, counted from 0.
    seed: int = 0  # Seed of the split, if the file names none.
    json: bool = False  # Print one JSON object.

    def run(self) -> None:
        """Read and check the file, and suggest the next command."""
        if self.file.suffix in EXPORTED:
            show_exported(self.file, self.json)
            return
        from cato import sandbox

        sandbox.prepare("cato.user_data.readers", "xarray")  # starts while PyTorch is imported
        from cato.user_data.inspect import inspect_samples
        from cato.user_data.naming import Naming, ReadRequest
        from cato.user_data.read import complete_naming, read_samples, split_indices

        if self.seed < 0:
            raise InputError(f"the seed must be 0 or more; got {self.seed}")
        naming = Naming.parse(self.coords, self.inputs, self.targets, self.periodic)
        naming, notes = complete_naming(self.file, naming)
        samples = read_samples(self.file, ReadRequest(naming))
        inspection = inspect_samples(samples, split_indices(samples, self.seed), notes)
        next_step = self._next(naming, inspection.findings)
        if self.json:
            show("inspected", {**inspection.to_dict(), "next": next_step}, True)
        else:
            _show(inspection, next_step)

    def _next(self, naming: "Naming", findings: "list[Finding]") -> str:
        """The command that trains on these data, unless a finding stops it."""
        if any(finding.stops for finding in findings):
            return f"fix {self.file}, then rerun `cato inspect`"
        words = ["cato", "train", str(self.file)]
        for name, value in naming.words().items():
            words += [f"--{name}", value] if value else []
        words += ["--data.seed", str(self.seed)] if self.seed else []
        words += ["--data.periodic", *map(str, naming.periodic)] if naming.periodic else []
        return shlex.join(words)


def _show(inspection: "Inspection", next_step: str) -> None:
    problem, is_shared = inspection.problem, inspection.shared_mesh
    num_nodes = " × ".join(map(str, problem.shape))
    at_most = "up to " if problem.geometry == "cloud" and not is_shared else ""
    splits = ", ".join(f"{count} {name}" for name, count in inspection.splits.items())
    rows = {
        "geometry": f"{problem.geometry}, {problem.dimension} coordinates, {at_most}{num_nodes} "
        f"nodes",
        "mesh": "shared by all samples" if is_shared else "different for each sample",
        "inputs": ", ".join(problem.inputs) or "only the mesh",
        "targets": ", ".join(problem.outputs),
        "time": TIME[problem.time].format(problem.num_steps),
        "samples": f"{inspection.num_samples}: {splits}",
    }
    show(f"detected: {escape(problem.name)}", {n: escape(v) for n, v in rows.items()}, False)
    ranges = [
        {"field": escape(name), "min": low, "max": high}
        for name, (low, high) in inspection.ranges.items()
    ]
    show_rows("ranges", ranges, False)
    for reason in inspection.why.values():
        Console().print(f"conditioning: {reason}", soft_wrap=True, markup=False)
    lines = [_sentence(finding) for finding in inspection.findings]
    clean = "no problems found: no NaN, folded cells, duplicates or constant fields"
    for line in (*(lines or [clean]), f"next: {next_step}"):
        Console().print(line, soft_wrap=True, markup=False)


def _sentence(finding: "Finding") -> str:
    listed = ", ".join(map(str, finding.samples[:MAX_LISTED]))
    more = len(finding.samples) - MAX_LISTED
    where = f" (samples {listed}{f' and {more} more' if more > 0 else ''})" if listed else ""
    return f"{'error' if finding.stops else 'note'}: {finding.what}{where}"


def show_exported(file: Path, as_json: bool) -> None:
    """Metadata of an exported model; all of it as JSON, the essentials as a table."""
    from cato.export import describe

    about = describe(file)
    if as_json:
        show("exported model", about, True)
        return
    run, layout = about.get("run", {}), about["layout"]
    rows = {
        "model": about["model"],
        "problem": about["problem"]["name"],
        "computes": about["computes"],
        **{f"in: {name}": _array(array) for name, array in layout["inputs"].items()},
        **{f"out: {name}": _array(array) for name, array in layout["outputs"].items()},
        "any size of": about["dynamic"],
        "training mesh": " × ".join(map(str, about["problem"]["shape"])),
        "why the mesh is fixed": about["why_fixed"],
        "values": about["precision"],
        **{f"run: {name}": value for name, value in run.items() if name != "test_error"},
        "written": f"{about['written']} by cato {about['cato']}",
    }
    show_errors("exported model", rows | run.get("test_error", {}), False)


def _array(array: dict[str, Any]) -> str:
    """Axes and channels of an array of an exported model."""
    channels = f": {', '.join(array['channels'])}" if "channels" in array else ""
    return f"({', '.join(array['axes'])}){channels}"
