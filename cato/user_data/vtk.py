"""VTK files, one sample each: points are the coordinates, point data the fields.

Structured files (.vts, .vtr, .vti, or .vtk of these kinds) are meshes with the axes of the file, x
first; all others are clouds of their points. Field data of one value are scalars of the sample.
"""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from cato.errors import InputError
from cato.files import atomic_write
from cato.user_data.axes import ReadRequest
from cato.user_data.parse_errors import parse_errors
from cato.user_data.samples import RawSample

SUFFIXES = (".vts", ".vtu", ".vtk", ".vtr", ".vti", ".vtp")


def read_vtk(path: Path, request: ReadRequest) -> RawSample:
    """The sample of one file; coordinates have three components."""
    file = _open(path)
    dimensions = _dimensions(file)
    fields = {str(name): np.asarray(array) for name, array in file.field_data.items()}
    fields |= {str(name): np.asarray(array) for name, array in file.point_data.items()}
    naming = request.naming.within(fields, request.truth)
    nodal = set(map(str, file.point_data.keys()))
    needed = {}
    for name in (n.field for n in (*naming.inputs, *naming.targets)):
        if name not in fields:
            raise InputError(_missing(path, name, nodal, file))
        array = fields[name]
        needed[name] = _on_mesh(array, dimensions) if name in nodal else array.reshape(-1)
    return RawSample(str(path), _on_mesh(np.asarray(file.points), dimensions), needed)


def write_vtk(source: Path, target: Path, fields: Mapping[str, np.ndarray]) -> None:
    """A copy of a file with more point data, each (*mesh) or (*mesh, C)."""
    file = _open(source)
    mesh = tuple(n for n in _dimensions(file) or () if n > 1) or (file.n_points,)
    for name, array in fields.items():
        channels = array.shape[len(mesh) :]
        # Points of a structured file are numbered with x fastest.
        axes = (*reversed(range(len(mesh))), *range(len(mesh), array.ndim))
        values = array.transpose(axes).reshape(file.n_points, *channels)
        file.point_data[name] = np.ascontiguousarray(values)
    with atomic_write(target) as temporary:
        temporary.write_bytes(_written(file, is_legacy=target.suffix.lower() == ".vtk"))


def _written(file: Any, is_legacy: bool) -> bytes:
    """A file in memory: where a disk is full, VTK crashes or leaves half a file without a word."""
    from vtkmodules import vtkIOLegacy, vtkIOXML

    if is_legacy:
        writer = vtkIOLegacy.vtkDataSetWriter()
        writer.SetFileTypeToBinary()
    else:
        writer = getattr(vtkIOXML, f"vtkXML{type(file).__name__}Writer")()
        writer.SetDataModeToBinary()
    writer.SetInputData(file)
    writer.WriteToOutputStringOn()
    writer.Write()
    text = writer.GetOutputStdString() if is_legacy else writer.GetOutputString()
    return text if isinstance(text, bytes) else text.encode()  # VTK gives what is UTF-8 as str


def _on_mesh(array: np.ndarray, dimensions: tuple[int, int, int] | None) -> np.ndarray:
    """Point values with one axis for each direction in which the file has more than one node."""
    if dimensions is None:
        return array
    nx, ny, nz = dimensions
    on_axes = np.moveaxis(array.reshape(nz, ny, nx, *array.shape[1:]), [2, 1, 0], [0, 1, 2])
    return on_axes.reshape(*(n for n in dimensions if n > 1), *array.shape[1:])


def _dimensions(file: Any) -> tuple[int, int, int] | None:
    """Nodes along x, y and z of a structured file."""
    pyvista = _pyvista()
    structured = (pyvista.StructuredGrid, pyvista.RectilinearGrid, pyvista.ImageData)
    return tuple(file.dimensions) if isinstance(file, structured) else None


def _missing(path: Path, name: str, nodal: set[str], file: Any) -> str:
    there = ", ".join(sorted(nodal)) or "none"
    if name in file.cell_data:
        return (
            f"{path}: {name!r} is cell data; turn it into point data first (in ParaView the filter "
            f"Cell Data to Point Data). Its point data: {there}"
        )
    return (
        f"{path} has no point data {name!r}, only {there}; name the fields by --inputs and "
        f"--targets, the points are the coordinates"
    )


def _open(path: Path) -> Any:
    pyvista = _pyvista()
    with parse_errors(path, "VTK"), _quiet():
        file = pyvista.read(path)
    if not getattr(file, "n_points", 0) or not hasattr(file, "point_data"):
        raise InputError(f"{path} cannot be read as VTK: it holds no points")
    return file


@contextmanager
def _quiet() -> Iterator[None]:
    """Without VTK's own pages of errors: ours is one line."""
    from vtkmodules.vtkCommonCore import vtkLogger, vtkObject

    verbosity, before = vtkLogger.GetCurrentVerbosityCutoff(), logging.root.manager.disable
    vtkLogger.SetStderrVerbosity(vtkLogger.VERBOSITY_OFF)
    vtkObject.GlobalWarningDisplayOff()
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
        vtkObject.GlobalWarningDisplayOn()
        vtkLogger.SetStderrVerbosity(verbosity)


def _pyvista() -> ModuleType:
    try:
        import pyvista
    except ImportError:
        raise InputError("VTK files need PyVista: pip install 'cato-pde[vtk]'") from None
    return pyvista
