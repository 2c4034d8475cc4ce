"""Commands on a run folder: evaluate, predict, report."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional

from cato.cli.output import RunCommand, show


@dataclass
class Evaluate(RunCommand):
    """Measure the error of a model on held-out samples."""

    split: str = "test"
    """test or validation."""
    resolution: int | None = None
    """Nodes per side, to evaluate at another resolution than the training's."""

    def run(self) -> None:
        from cato.inference.evaluate import evaluate_run
        from cato.runs.folder import open_run

        evaluated = evaluate_run(open_run(self.folder), self.split, self.resolution)
        figures = {**evaluated.figures, "path": str(evaluated.path)}
        show("evaluated", figures, self.json, f"cato report {self.folder}")


@dataclass
class Predict(RunCommand):
    """Predict for the inputs of a file; the result has its format.

    IN has the documented layout, or the fields that the run was trained on: .npz, HDF5, .mat,
    NetCDF, or a folder of VTK or other files. In the documented layout OUT gets `outputs`, `bands`
    if the run has been evaluated, and `errors` if IN has `targets`. A named field p becomes
    p_predicted, p_band and p_error.
    """

    input: Annotated[Positional[Path], tyro.conf.arg(metavar="IN")]
    """File or folder with the inputs."""
    output: Annotated[Positional[Path | None], tyro.conf.arg(metavar="OUT")] = None
    """New file or folder; IN-predicted by default."""

    def run(self) -> None:
        from cato.inference.predict import predict_file
        from cato.runs.folder import open_run

        figures = predict_file(open_run(self.folder), self.input, self.output)
        show("predicted", figures, self.json)


@dataclass
class Report(RunCommand):
    """Write a self-contained HTML report with curves and pictures."""

    def run(self) -> None:
        from cato.runs.folder import open_run
        from cato.viz.report import write_report

        path, figures = write_report(open_run(self.folder))
        show("report", {"path": str(path), "relative_l2": figures["relative_l2"]}, self.json)
