"""PyTorch's own exported programs: `torch.export.load`, AOTInductor, ExecuTorch.

A .pt2 file is a zip: the graph in JSON, the weights as raw bytes, the metadata in `extra/`. The one
thing that PyTorch would pickle into it, the example inputs of the trace, is taken out before.
"""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from cato.errors import InputError
from cato.export.check import Program
from cato.export.portable import Arrays
from cato.export.trace import NotExportable, reason

_METADATA = "cato.json"


def require() -> None:
    """Nothing but PyTorch is needed."""


def write(program: ExportedProgram, target: Path, metadata: dict[str, Any]) -> None:
    """Write the graph with its weights into one file."""
    archive = io.BytesIO()
    program.example_inputs = None
    try:
        torch.export.save(program, archive, extra_files={_METADATA: json.dumps(metadata)})
    except Exception as error:  # the serialiser has no common base of its exceptions
        raise NotExportable(reason(error)) from error
    target.write_bytes(archive.getvalue())


def load(path: Path) -> Program:
    """The file in PyTorch."""
    try:
        module = torch.export.load(io.BytesIO(path.read_bytes())).module()
    except Exception as error:
        raise NotExportable(f"PyTorch refuses the file ({reason(error)})") from error

    def run(arrays: Arrays) -> Tensor:
        return module(**arrays)

    return run


def read_metadata(path: Path) -> dict[str, Any]:
    """What `write` was given."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(f"/extra/{_METADATA}")]
        if not names:
            raise InputError(f"{path} was not written by cato: it has no {_METADATA}")
        return json.loads(archive.read(names[0]))
