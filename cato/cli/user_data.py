"""`cato inspect`: check a dataset, or show what an exported file says about itself."""

import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from tyro.conf import Positional

from cato.cli.output import Command, show, show_errors, show_rows
from cato.errors import InputError

if TYPE_CHECKING:
    from cato.data.dataset import Splits
    from cato.training.advice import Advice, Plan
    from cato.user_data.inspect import Finding, Inspection
    from cato.user_data.naming import Naming

EXPORTED = (".onnx", ".pt2")  # Suffixes of the files that `cato export` writes.
MAX_MINUTES = 10**4  # Of advice: about a week.
MAX_LISTED = 10  # Samples listed in one line.
TIME = {
    "steady": "none",
    "rollout": "{} frames, each predicted from the ones before it",
    "conditioned": "{} frames, each predicted from the inputs and its time",
}


@dataclass
class DataCommand(Command):
    """Arguments of the commands on user data."""

    file: Annotated[Positional[Path], tyro.conf.arg(metavar="FILE")]
    """HDF5, .npz, .mat, .pt, NetCDF, Zarr, CSV or Parquet, or a folder of VTK files, OpenFOAM cases
    or other files, one per sample."""
    coords: str = ""  # Coordinate fields, such as x,y; the array coords by default.
    inputs: str = ""  # Input fields, such as k; frames of a time series u[:10], a single one u[0].
    targets: str = ""  # Target fields, such as p.
    periodic: tuple[int, ...] = ()  # Periodic mesh axes, counted from 0.
    mask: str = ""
    """Field that is not 0 at nodes with values, or such as land=0; the array mask by default."""
    seed: int = 0  # Seed of the split, if the file names none.
    folds: int | None = None
    """Folds of cross-validation, 0 for none; by default 5 for 10 to 50 samples."""

    @property
    def naming(self) -> "Naming":
        """The names of the fields."""
        from cato.user_data.naming import Naming

        if self.seed < 0:
            raise InputError(f"the seed must be 0 or more; got {self.seed}")
        names = Naming.parse(self.coords, self.inputs, self.targets, self.periodic)
        return replace(names, mask=self.mask)

    def command(self, verb: str, naming: "Naming", option: str = "") -> str:
        """A command on these data; `option` is the prefix of those of `cato train`."""
        words = ["cato", verb, str(self.file)]
        for name, value in naming.words().items():
            words += [f"--{name}", value] if value else []
        words += [f"--{option}mask", naming.mask] if naming.mask else []
        words += [f"--{option}folds", str(self.folds)] if self.folds is not None else []
        words += [f"--{option}seed", str(self.seed)] if self.seed else []
        periodic = map(str, naming.periodic)
        words += [f"--{option}periodic", *periodic] if naming.periodic else []
        return shlex.join(words)


@dataclass
class Inspect(DataCommand):
    """Check a dataset: detected layout, problems, cost of a training. Or describe an exported model
    (.onnx or .pt2, written by `cato export`).
    """

    def run(self) -> None:
        """Read and check the file, and suggest the next command."""
        if self.file.suffix in EXPORTED:
            show_exported(self.file, self.json)
            return
        from cato import sandbox

        sandbox.prepare("cato.user_data.readers", "xarray")  # starts while PyTorch is imported
        from cato.user_data.inspect import inspect_samples
        from cato.user_data.naming import ReadRequest
        from cato.user_data.read import (
            complete_naming,
            few_samples_note,
            read_samples,
            split_of,
            splits_of,
        )

        naming, notes = complete_naming(self.file, self.naming)
        samples = read_samples(self.file, ReadRequest(naming))
        words = [sample.split for sample in samples.samples]
        indices, num_folds = split_of(self.file, words, self.seed, self.folds)
        if num_folds:
            notes = [*notes, few_samples_note(len(samples), num_folds)]
        inspection = inspect_samples(samples, indices, notes, num_folds)
        planned, then = None, [f"fix {self.file}, then rerun `cato inspect`"]
        if not any(finding.stops for finding in inspection.findings):
            planned = _planned(self.file, splits_of(samples, indices, num_folds, self.seed))
            then = [self.command("train", naming, "data."), self.command("advise", naming)]
        if self.json:
            training = None if planned is None else asdict(planned)
            found = {**inspection.to_dict(), "training": training, "next": then[0]}
            show("inspected", found, True)
        else:
            _show(inspection, planned, then)


@dataclass
class Advise(DataCommand):
    """Predict the error of a training, and what would lower it most: samples, minutes or width.

    FILE may also be a run folder: its report then has the result.
    """

    minutes: float = 3.0  # Time for the short trainings that the prediction is made from.

    def run(self) -> None:
        """Train briefly at several sizes and show the predictions."""
        from cato.training.advice import advise, advise_run

        if not 0 < self.minutes <= MAX_MINUTES:
            raise InputError(f"--minutes must be between 0 and {MAX_MINUTES}; got {self.minutes:g}")
        if (self.file / "run.json").exists():
            advice = advise_run(self.file, self.minutes)
            then = f"cato report {self.file}"
        else:
            from cato.runs.load import load_splits
            from cato.runs.settings import build_settings

            naming = self.naming
            data: dict[str, Any] = {**naming.words(), "periodic": naming.periodic}
            data |= {"mask": naming.mask, "seed": self.seed}
            data |= {} if self.folds is None else {"folds": self.folds}
            config = build_settings(self.file, "small", None, {"data": data}, where="cato advise")
            advice = advise(config, load_splits(config), self.minutes)
            then = self.command("train", naming, "data.")
        if self.json:
            show("advice", {**advice.to_dict(), "next": then}, True)
        else:
            _show_advice(advice, then)


def _planned(file: Path, splits: "Splits") -> "Plan":
    """What the default training takes here."""
    from cato.runs.settings import default_settings
    from cato.training.advice import plan

    return plan(default_settings(file, splits), splits)


def _cost(planned: "Plan") -> dict[str, str]:
    from cato.memory import readable_size
    from cato.models.registry import model_class

    return {
        "model": f"{model_class(planned.model).title}, {'; '.join(planned.why)}",
        "training here": f"{planned.minutes:.1f} minutes, {planned.steps} steps of "
        f"{1000 * planned.seconds_per_step:.0f} ms, {readable_size(planned.memory)} of memory",
    }


def _show_advice(advice: "Advice", next_step: str) -> None:
    rows = _cost(advice.plan) | {
        f"{row.samples} samples, {row.steps} steps": f"validation {row.validation:.2%}"
        + ("" if row.training is None else f", training {row.training:.2%}")
        for row in advice.trainings
    }
    show("advice", {name: escape(text) for name, text in rows.items()}, False)
    changes = [f"{change.what}: {change.evidence}" for change in advice.changes]
    for line in (advice.verdict, *changes, f"next: {next_step}"):
        Console().print(line, soft_wrap=True, markup=False)


def _show(inspection: "Inspection", planned: "Plan | None", then: list[str]) -> None:
    problem, is_shared = inspection.problem, inspection.shared_mesh
    num_nodes = " × ".join(map(str, problem.shape))
    at_most = "up to " if problem.geometry == "cloud" and not is_shared else ""
    splits = ", ".join(f"{count} {name}" for name, count in inspection.splits.items())
    if inspection.folds:
        splits = f"{inspection.folds}-fold cross-validation"
    rows = {
        "geometry": f"{problem.geometry}, {problem.dimension} coordinates, {at_most}{num_nodes} "
        f"nodes",
        "mesh": "shared by all samples" if is_shared else "different for each sample",
        "inputs": ", ".join(problem.inputs) or "only the mesh",
        "targets": ", ".join(problem.outputs),
        "time": TIME[problem.time].format(problem.num_steps),
        "samples": f"{inspection.num_samples}: {splits}",
        **({} if planned is None else _cost(planned)),
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
    for line in (*(lines or [clean]), f"next: {then[0]}", *(f"or: {one}" for one in then[1:])):
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
