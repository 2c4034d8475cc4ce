"""Portable models: `export_run` writes a file that runs without this library, `describe` reads it.

Of a run folder:

    from cato.export import describe, export_run
    from cato.runs.folder import open_run

    export_run(open_run("runs/x"), "onnx")
    describe("runs/x/model.onnx")
"""

from cato.export.files import describe
from cato.export.write import export_run, export_surrogate

__all__ = ["describe", "export_run", "export_surrogate"]
