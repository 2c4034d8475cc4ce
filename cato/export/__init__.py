"""Portable models: `export_run` writes a file that runs without this library, `describe` reads it.

from cato.export import describe, export_run

export_run(open_run(Path("runs/x")), "onnx")
describe("runs/x/model.onnx")
"""

from cato.export.files import describe
from cato.export.write import export_run, export_surrogate

__all__ = ["describe", "export_run", "export_surrogate"]
