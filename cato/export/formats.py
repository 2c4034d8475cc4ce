"""The two file formats: how an exported graph is written, loaded and described.

ONNX, for ONNX Runtime in Python, C++, C#, Java and JavaScript, without PyTorch: each entry of the
metadata is a property `cato.NAME` of the model, in JSON.

PyTorch's .pt2, for `torch.export.load`, AOTInductor and ExecuTorch: a zip with the graph in JSON,
the weights as raw bytes and the metadata in `extra/cato.json`. PyTorch would pickle the example
inputs of the trace into it; they are removed before.

Both classes have the same methods: `require` raises if packages are missing, `write` writes a graph
with its weights and metadata into one file, `load` returns a file as a function on the CPU, and
`read_metadata` returns the metadata of a file, empty if cato has not written it.
"""

import io
import json
import logging
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from cato.errors import InputError
from cato.export.graph import Arrays, NotExportable, reason
from cato.files import to_json

Metadata = dict[str, Any]
Program = Callable[[Arrays], Tensor]  # A loaded file.


class Onnx:
    """ONNX files."""

    runtime = "onnxruntime"  # what runs the file, in results

    def require(self) -> None:
        missing = [name for name in ("onnx", "onnxruntime", "onnxscript") if not find_spec(name)]
        if missing:
            raise InputError(
                f"ONNX files need {' and '.join(missing)}; "
                f"run `pip install 'cato-pde[export]'`, or choose --format pt2"
            )

    def write(self, program: ExportedProgram, target: Path, metadata: Metadata) -> None:
        import onnx

        try:
            with _quiet_exporter():
                translated = torch.onnx.export(
                    program, dynamo=True, verbose=False, output_names=["outputs"]
                )
            assert translated is not None
            for node in translated.model.graph.all_nodes():
                node.metadata_props.clear()  # paths of source files
            translated.rename_axes(_axis_names(translated, metadata))
            model = translated.model_proto
        except Exception as error:  # the exporter's exceptions have no common base class
            raise NotExportable(reason(error)) from error
        model.producer_name, model.producer_version = "cato", metadata["cato"]
        title = f"{metadata['model']}, {metadata['problem']['name']}"
        model.doc_string = f"{title}: {metadata['computes']}"
        properties = {f"cato.{name}": to_json(value) for name, value in metadata.items()}
        onnx.helper.set_model_props(model, properties)
        target.write_bytes(model.SerializeToString())

    def load(self, path: Path) -> Program:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4  # errors are raised as exceptions
        try:
            session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise NotExportable(f"ONNX Runtime rejects the file ({reason(error)})") from error

        def run(arrays: Arrays) -> Tensor:
            values = {name: array.numpy() for name, array in arrays.items()}
            return torch.from_numpy(session.run(["outputs"], values)[0])

        return run

    def read_metadata(self, path: Path) -> Metadata:
        self.require()
        import onnx
        from google.protobuf.message import DecodeError

        try:
            model = onnx.load(path, load_external_data=False)
        except DecodeError:
            raise InputError(f"{path} is neither an ONNX nor a .pt2 file") from None
        return {
            entry.key.removeprefix("cato."): json.loads(entry.value)
            for entry in model.metadata_props
            if entry.key.startswith("cato.")
        }


def _axis_names(translated: Any, metadata: Metadata) -> dict[Any, str]:
    """Names for the exporter's symbols, from the coordinates, which have all dynamic axes."""
    coords = next(value for value in translated.model.graph.inputs if value.name == "coords")
    axes = metadata["layout"]["inputs"]["coords"]["axes"]
    sizes = zip(coords.shape, axes, strict=True)
    return {str(size.value): axis for size, axis in sizes if not isinstance(size, int)}


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silence the exporter's warnings, which are for its developers."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


class Pt2:
    """PyTorch's exported programs."""

    runtime = "pt2"

    def require(self) -> None:
        return

    def write(self, program: ExportedProgram, target: Path, metadata: Metadata) -> None:
        archive = io.BytesIO()
        program.example_inputs = None
        try:
            torch.export.save(program, archive, extra_files={"cato.json": to_json(metadata)})
        except Exception as error:  # the serialiser's exceptions have no common base class
            raise NotExportable(reason(error)) from error
        target.write_bytes(archive.getvalue())

    def load(self, path: Path) -> Program:
        try:
            module = torch.export.load(io.BytesIO(path.read_bytes())).module()
        except Exception as error:
            raise NotExportable(f"PyTorch rejects the file ({reason(error)})") from error
        return lambda arrays: module(**arrays)

    def read_metadata(self, path: Path) -> Metadata:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith("/extra/cato.json")]
            return json.loads(archive.read(names[0])) if names else {}


Format = Onnx | Pt2
FORMATS: dict[str, Format] = {"onnx": Onnx(), "pt2": Pt2()}


def describe(path: str | Path) -> Metadata:
    """Metadata of an exported file: model, problem, layout of its arrays, training run."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist; write it with `cato export RUN`")
    metadata = FORMATS["pt2" if zipfile.is_zipfile(path) else "onnx"].read_metadata(path)
    if "problem" not in metadata:
        raise InputError(f"{path} was not written by cato: its metadata are missing")
    return metadata
