"""What is done with a run folder: evaluate, predict, report."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional

from cato.cli.output import show


@dataclass
class Evaluate:
    """The error of a trained model on held-out samples."""

    folder: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run folder, or a pretrained model, see `cato pretrained`."""
    split: str = "test"
    """test or validation."""
    resolution: int | None = None
    """Nodes per side, where it differs from the training's."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """Evaluate and write the figures into the run folder."""
        from cato.inference.evaluate import evaluate_run
        from cato.runs.folder import open_run

        evaluated = evaluate_run(open_run(self.folder), self.split, self.resolution)
        figures = {**evaluated.figures, "path": str(evaluated.path)}
        show("evaluated", figures, self.json, f"cato report {self.folder}")


@dataclass
class Predict:
    """Solve for the inputs of a file with a trained model, and write the same format back.

    IN is of the layout or has the fields that the run was trained on: .npz, HDF5, .mat, NetCDF, or
    a folder of VTK or other files. By the layout OUT gets `outputs`, `bands` where the run has been
    evaluated, and `errors` where IN has `targets`; a named field p becomes p_predicted, p_band and
    p_error.
    """

    folder: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run folder, or a pretrained model, see `cato pretrained`."""
    input: Annotated[Positional[Path], tyro.conf.arg(metavar="IN")]
    """What to solve for."""
    output: Annotated[Positional[Path | None], tyro.conf.arg(metavar="OUT")] = None
    """New file or folder; IN-predicted by default."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """Predict and write."""
        from cato.inference.predict import predict_file
        from cato.runs.folder import open_run

        figures = predict_file(open_run(self.folder), self.input, self.output)
        show("predicted", figures, self.json)


@dataclass
class Report:
    """Write the run's report: one self-contained HTML file with curves, errors and pictures."""

    folder: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run folder, or a pretrained model, see `cato pretrained`."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """Evaluate and render."""
        from cato.runs.folder import open_run
        from cato.viz.report import write_report

        path, figures = write_report(open_run(self.folder))
        show("report", {"path": str(path), "relative_l2": figures["relative_l2"]}, self.json)
