"""`cato export` and `cato serve`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import Positional

from cato.cli.output import Command, RunCommand, show

EXPORTED = (".onnx", ".pt2")
"""Suffixes of the files that `cato export` writes."""


@dataclass
class Export(RunCommand):
    """Export a model to a file that runs without cato."""

    format: str = "onnx"
    """onnx or pt2."""
    out: Path | None = None
    """New file; model.onnx or model.pt2 in the run folder by default (runs/pretrained/NAME for a
    pretrained model)."""

    def run(self) -> None:
        from cato.export import export_run
        from cato.runs.folder import open_run

        run = open_run(self.folder)
        if self.out is None:  # the folder for results of a pretrained model may be new
            run.folder.mkdir(parents=True, exist_ok=True)
        show("exported", export_run(run, self.format, self.out), self.json)


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
        **{f"run: {name}": value for name, value in run.items()},
        "written": f"{about['written']} by cato {about['cato']}",
    }
    show("exported model", rows, False)


def _array(array: dict[str, Any]) -> str:
    """Axes and channels of an array of an exported model."""
    channels = f": {', '.join(array['channels'])}" if "channels" in array else ""
    return f"({', '.join(array['axes'])}){channels}"


@dataclass
class Serve(Command):
    """Serve models and the explorer over HTTP."""

    runs: Annotated[Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN")] = ()
    """Run folders or pretrained models, or NAME=RUN; all pretrained models by default."""
    host: str = "127.0.0.1"
    """Address to listen on; this machine only by default."""
    port: int = 8000
    """Port; 0 picks a free one."""
    open: bool = False
    """Open the explorer in a browser."""

    def run(self) -> None:
        from cato.serve.server import serve

        serve(self.runs, self.host, self.port, open_page=self.open, as_json=self.json)
