"""VTK files, one sample each: points are the coordinates, point data the fields.

Structured files (.vts, .vtr, .vti, or .vtk of these kinds) are meshes with the axes of the file, x
first; all others are point clouds. Field data are scalars of the sample.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from cato.errors import InputError
from cato.user_data.axes import CHANNEL, ArrayFile, Dims, make_dataset, mesh_dims, parse_errors
from cato.user_data.naming import Naming, ReadRequest

if TYPE_CHECKING:
    import xarray

SUFFIXES = (".vts", ".vtu", ".vtk", ".vtr", ".vti", ".vtp")


def read_vtk(path: Path, request: ReadRequest, has_samples: bool) -> "list[xarray.Dataset]":
    """Read the one sample of a file; its coordinates have three components."""
    file = _open(path)
    arrays = {str(name): np.asarray(array) for name, array in file.field_data.items()}
    arrays |= {str(name): np.asarray(array) for name, array in file.point_data.items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    naming = request.naming.within(arrays, request.truth)
    variables = {"coords": _on_mesh(file, np.asarray(file.points))}
    for name in naming.fields:
        found = ", ".join(sorted(map(str, file.point_data.keys()))) or "none"
        if name in file.cell_data and name not in arrays:
            raise InputError(
                f"{path}: {name!r} is cell data; convert it to point data first (in ParaView the "
                f"filter Cell Data to Point Data). Its point data: {found}"
            )
        if name not in arrays:
            raise InputError(
                f"{path} has no point data {name!r}, only {found}; name the fields with --inputs "
                f"and --targets, the points are the coordinates"
            )
        values = ArrayFile(path, shapes, arrays.__getitem__).numbers(name)
        is_nodal = name in file.point_data
        variables[name] = _on_mesh(file, values) if is_nodal else ((CHANNEL,), values.reshape(-1))
    return [make_dataset(path, naming, variables)]


def without_flat_components(datasets: "list[xarray.Dataset]") -> "list[xarray.Dataset]":
    """Drop coordinates that never vary: VTK points have three components, a plane problem two."""
    varies = np.zeros(3, bool)
    for dataset in datasets:
        varies |= np.ptp(dataset["coords"].values.reshape(-1, 3), axis=0) > 0
    if not varies.any():
        raise InputError(f"{datasets[0].attrs['origin']}: all points coincide")
    return [dataset.isel(channel_coords=varies) for dataset in datasets]


def copy_vtk(source: Path, naming: Naming, fields: "xarray.Dataset") -> np.ndarray:
    """The bytes of a copy of a file with more point data."""
    file = _open(source)
    mesh = mesh_dims(len(_mesh(file)))
    for name, variable in fields.data_vars.items():
        if not variable.dims:
            file.field_data[name] = [variable.item()]
            continue
        # Points of a structured file are numbered with x fastest.
        channels = [dim for dim in variable.dims if dim not in mesh]
        values = variable.transpose(*reversed(mesh), *channels).values
        values = values.reshape(file.n_points, *(variable.sizes[dim] for dim in channels))
        file.point_data[name] = np.ascontiguousarray(values)
    return np.frombuffer(_written(file, is_legacy=source.suffix.lower() == ".vtk"), np.uint8)


def _written(file: Any, is_legacy: bool) -> bytes:
    """The file's bytes. VTK does not write to the disk itself: on a full one it crashes, or leaves
    half a file without an error. A file is one sample, of which we hold the arrays anyway.
    """
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
    return text if isinstance(text, bytes) else text.encode()  # VTK returns UTF-8 as str


def _mesh(file: Any) -> tuple[int, ...]:
    """Nodes along each axis on which a structured file has more than one; else all points."""
    pyvista = _pyvista()
    structured = (pyvista.StructuredGrid, pyvista.RectilinearGrid, pyvista.ImageData)
    dimensions = file.dimensions if isinstance(file, structured) else ()
    return tuple(n for n in dimensions if n > 1) or (file.n_points,)


def _on_mesh(file: Any, array: np.ndarray) -> tuple[Dims, np.ndarray]:
    """Point values with the mesh axes of the file; VTK numbers points with x fastest."""
    mesh = _mesh(file)
    dims = (*reversed(mesh_dims(len(mesh))), *(CHANNEL,)[: array.ndim - 1])
    return dims, array.reshape(*reversed(mesh), *array.shape[1:])


def _open(path: Path) -> Any:
    pyvista = _pyvista()
    with parse_errors(path, "VTK"), _quiet():
        file = pyvista.read(path)
    if not getattr(file, "n_points", 0) or not hasattr(file, "point_data"):
        raise InputError(f"{path} cannot be read as VTK: it holds no points")
    return file


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress VTK's own messages: ours is one line."""
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
