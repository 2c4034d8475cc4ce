"""ONNX files: for ONNX Runtime in Python, C++, C#, Java, JavaScript, without PyTorch.

Each part of the metadata is a property `cato.NAME` of the model, in JSON.
"""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from cato.errors import InputError
from cato.export.check import Program
from cato.export.portable import Arrays
from cato.export.trace import NotExportable, reason

_PREFIX = "cato."
_PACKAGES = ("onnx", "onnxruntime", "onnxscript")


def require() -> None:
    """Refuse where the packages are missing, before the work begins."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise InputError(
            f"ONNX files need {' and '.join(missing)}, not installed here; "
            f"run `pip install 'cato-pde[export]'`, or choose --format pt2"
        )


def write(program: ExportedProgram, target: Path, metadata: dict[str, Any]) -> None:
    """Translate the graph and write it with its weights into one file."""
    import onnx

    try:
        with _quiet():
            translated = torch.onnx.export(
                program, dynamo=True, verbose=False, output_names=["outputs"]
            )
        assert translated is not None
        for node in translated.model.graph.all_nodes():
            node.metadata_props.clear()  # where in whose folders it was written
        translated.rename_axes(_axis_names(translated, metadata))
        model = translated.model_proto
    except Exception as error:  # the translator has no common base of its exceptions
        raise NotExportable(reason(error)) from error
    model.producer_name, model.producer_version = "cato", metadata["cato"]
    model.doc_string = f"{metadata['model']}, {metadata['problem']['name']}: {metadata['computes']}"
    onnx.helper.set_model_props(
        model, {f"{_PREFIX}{name}": json.dumps(value) for name, value in metadata.items()}
    )
    target.write_bytes(model.SerializeToString())


def _axis_names(translated: Any, metadata: dict[str, Any]) -> dict[Any, str]:
    """Names for the exporter's symbols, read off the coordinates, which have all dynamic axes."""
    coords = next(value for value in translated.model.graph.inputs if value.name == "coords")
    axes = metadata["layout"]["inputs"]["coords"]["axes"]
    sizes = zip(coords.shape, axes, strict=True)
    return {str(size.value): axis for size, axis in sizes if not isinstance(size, int)}


def load(path: Path) -> Program:
    """The file in ONNX Runtime on the CPU, with as many threads as PyTorch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # failures come as exceptions, in one line
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise NotExportable(f"ONNX Runtime refuses the file ({reason(error)})") from error

    def run(arrays: Arrays) -> Tensor:
        values = {name: array.numpy() for name, array in arrays.items()}
        return torch.from_numpy(session.run(["outputs"], values)[0])

    return run


def read_metadata(path: Path) -> dict[str, Any]:
    """What `write` was given."""
    require()
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(path, load_external_data=False)
    except DecodeError:
        raise InputError(f"{path} is neither an ONNX nor a .pt2 file") from None
    return {
        entry.key.removeprefix(_PREFIX): json.loads(entry.value)
        for entry in model.metadata_props
        if entry.key.startswith(_PREFIX)
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold back the exporter's remarks to its own developers."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
