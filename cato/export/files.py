"""The formats by name, and reading what a file says of itself."""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from cato.errors import InputError
from cato.export import onnx_file, pt2_file
from cato.export.check import Program

Metadata = dict[str, Any]


@dataclass(frozen=True)
class Format:
    """How one kind of file is written and read."""

    require: Callable[[], None]
    write: Callable[[ExportedProgram, Path, Metadata], None]
    load: Callable[[Path], Program]
    runtime: str


FORMATS = {
    "onnx": Format(onnx_file.require, onnx_file.write, onnx_file.load, "onnxruntime"),
    "pt2": Format(pt2_file.require, pt2_file.write, pt2_file.load, "pt2"),
}


def get_format(name: str) -> Format:
    """The format of that name."""
    if name not in FORMATS:
        raise InputError(f"unknown format {name!r}; choose one of {', '.join(FORMATS)}")
    return FORMATS[name]


def describe(path: str | Path) -> Metadata:
    """What an exported file says of itself: model, problem, layout of its arrays, training run."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist; write it with `cato export RUN`")
    read = pt2_file.read_metadata if zipfile.is_zipfile(path) else onnx_file.read_metadata
    metadata = read(path)
    if "problem" not in metadata:
        raise InputError(f"{path} was not written by cato: it has none of its metadata")
    return metadata
