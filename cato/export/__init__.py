"""Export: `export_run` writes a file that runs without this library, `describe` reads its metadata.

from cato.export import describe, export_run
from cato.runs.folder import open_run

export_run(open_run("runs/x"), "onnx")
describe("runs/x/model.onnx")
"""

from cato.export.export import export_run, export_surrogate
from cato.export.formats import describe

__all__ = ["describe", "export_run", "export_surrogate"]
