"""Meshes that PyVista reads: VTK files, `.pvd` series, multi-block files, OpenFOAM, Exodus, CGNS.

Each is one sample: frames in time of blocks, which are meshes with point data, cell data and field
data. The targets decide where values are: points are the coordinates of point data, cell centres
those of cell data; inputs at the other place are averaged. Field data are scalars of the sample.
Structured meshes keep their axes, x first; all others are clouds. `BLOCK/FIELD` is a field on one
block, such as a patch of an OpenFOAM case; on another block than the targets it must be uniform,
and is a scalar of the sample.
"""

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from cato.errors import InputError
from cato.user_data.axes import ArrayFile, Dims, parse_errors
from cato.user_data.named import read_named
from cato.user_data.naming import Naming, ReadRequest
from cato.user_data.parts import CASE, format_of

if TYPE_CHECKING:
    import xarray

VTK = (".vts", ".vtu", ".vtk", ".vtr", ".vti", ".vtp")
EXODUS = (".e", ".ex2", ".exo", ".exii")
IN_TIME = (".pvd", CASE, *EXODUS, ".cgns")  # Formats that may have several frames.
SUFFIXES = (*VTK, ".vtm", *IN_TIME)
POINTS, CELLS = "point", "cell"
COORDINATES = "XYZ"
PATCH = "boundary/"  # Blocks of an OpenFOAM case that are patches.
_STEADY = re.compile(r"ddtSchemes\s*\{[^}]*default\s+steadyState\s*;")
_BOOKKEEPING = (
    *("TimeValue", "TIME", "CYCLE", "ispatch", "issurface", "ObjectId", "ElementBlockIds"),
    *("GlobalElementId", "GlobalNodeId", "PedigreeElementId", "PedigreeNodeId"),
)
"""Data that readers and writers add."""


def open_mesh(path: Path) -> ArrayFile:
    """What a file holds, with the values of its main blocks."""
    return MeshFile.read(path).arrays(None)


def read_mesh(path: Path, request: ReadRequest) -> "xarray.Dataset":
    """Read the one sample of a file; its coordinates have three components."""
    mesh = MeshFile.read(path)
    fields = mesh.names
    naming = replace(request.naming, coords=()).within(fields, request.truth)
    file = mesh.arrays(naming, request.naming)
    wrong = [name for name in naming.fields if name not in file.shapes]
    if wrong:
        raise InputError(
            f"{path} has no field {wrong[0]!r}, only {', '.join(fields) or 'none'}; name the "
            f"fields with --inputs and --targets, the points are the coordinates"
        )
    given = replace(request, naming=replace(request.naming, coords=()))
    return read_named(file, given, has_samples=False)


@dataclass(frozen=True)
class MeshFile:
    """Frames of named blocks."""

    path: Path
    frames: list[dict[str, Any]]  # Meshes of PyVista by name of the block.
    times: list[float]
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> "MeshFile":
        """Read all frames; a steady OpenFOAM case has one, the last."""
        pyvista, kind = load_pyvista(), format_of(path)
        times, frames, notes = [0.0], [], list[str]()
        with parse_errors(path, "a mesh"), quiet():
            if kind in IN_TIME:
                reader, notes = _reader(path, kind)
                times = list(getattr(reader, "time_values", None) or times)
                if kind == CASE and _is_steady(path):
                    times = times[-1:]
                for time in times:
                    if hasattr(reader, "set_active_time_value") and reader.time_values:
                        reader.set_active_time_value(time)
                    frames.append(_blocks(pyvista, reader.read()))
            else:
                frames.append(_blocks(pyvista, pyvista.read(path)))
        frames = [{n: block.copy(deep=False) for n, block in frame.items()} for frame in frames]
        if not frames or not frames[0]:
            raise InputError(f"{path} cannot be read as a mesh: it holds no points")
        for frame, time in zip(frames, times, strict=True):
            _require_same(path, frames[0], frame, time)
        return cls(path, frames, times, tuple(notes))

    @cached_property
    def main(self) -> list[str]:
        """Blocks that are not patches or sets of sides."""
        names = list(self.frames[0])
        inner = [n for n in names if not n.startswith((PATCH, "Side Sets", "Node Sets"))]
        return inner or names

    @property
    def names(self) -> list[str]:
        """Fields of the main blocks and of each other one, and numbers of the sample."""
        numbers = self.frames[0][self.main[0]].field_data.keys()
        groups = {"": self.main}
        groups |= {f"{n.removeprefix(PATCH)}/": [n] for n in self.frames[0] if n not in self.main}
        fields = [
            f"{prefix}{name}"
            for prefix, blocks in groups.items()
            for place in (POINTS, CELLS)
            for name in self._names(blocks, place)
        ]
        return list(dict.fromkeys((*fields, *map(str, numbers))))

    def place(self, naming: Naming) -> tuple[list[str], str, str]:
        """Blocks, prefix of their fields, and point or cell: where the targets are.

        If the file does not have the targets, they are where other fields of these blocks are.
        """
        target = naming.targets[0].field if naming.targets else "targets"
        block = self._block_of(target)
        blocks, prefix = ([block], target[: target.rindex("/") + 1]) if block else (self.main, "")
        fields = {place: self._names(blocks, place) for place in (POINTS, CELLS)}
        for name in (target, *(name.field for name in naming.inputs)):
            for place in (POINTS, CELLS):
                if name.startswith(prefix) and name.removeprefix(prefix) in fields[place]:
                    return blocks, prefix, place
        has_cells = format_of(self.path) == CASE or (fields[CELLS] and not fields[POINTS])
        return blocks, prefix, CELLS if has_cells else POINTS

    def arrays(self, naming: Naming | None, given: Naming | None = None) -> ArrayFile:
        """The named fields at the place of the targets; without names all, at their own places.

        `given` are the names with the targets that the file does not have.
        """
        blocks, prefix = self.main, ""
        places: tuple[str, ...] = (POINTS, CELLS)
        if naming is not None:
            blocks, prefix, chosen = self.place(given or naming)
            places = (chosen,)
        arrays: dict[str, Any] = {}
        dims: dict[str, Dims] = {}
        coords: list[str] = []
        notes = list(self.notes)
        first = self.frames[0]
        fields = {p: self._names(blocks, p) for p in (POINTS, CELLS)}
        time = ("time",)[: len(self.frames) > 1]
        for place in places:
            if naming is None and not fields[place]:
                continue
            axes = tuple(f"{place}_{axis}" for axis in range(len(structure(first, blocks, place))))
            for axis, letter in enumerate(COORDINATES):
                coords.append(name := f"{letter} of {place}s")
                dims[name] = axes
                arrays[name] = lambda p=place, a=axis: self._nodes(blocks, p)[..., a]
            other = CELLS if place == POINTS else POINTS
            for field in dict.fromkeys((*fields[place], *fields[other])):
                name, source = f"{prefix}{field}", place if field in fields[place] else other
                if source != place and (naming is None or name not in naming.fields):
                    continue
                if source != place:
                    notes.append(
                        f"{name} is {source} data: averaged to the {place}s of the targets"
                    )
                width = np.ndim(getattr(first[blocks[0]], f"{source}_data")[field])
                dims[name] = (*time, *axes, *("channel",)[: width - 1])
                arrays[name] = lambda f=field, s=source, p=place: self._values(blocks, f, s, p)
        for name, array in first[blocks[0]].field_data.items():
            if name not in _BOOKKEEPING and np.asarray(array).dtype.kind in "fiub":
                dims[str(name)] = ("channel",)
                arrays[str(name)] = lambda a=array: np.asarray(a).reshape(-1)
        for name in naming.fields if naming else ():
            block = self._block_of(name)
            if name not in arrays and block:
                dims[name] = ("channel",)
                arrays[name] = lambda n=name, b=block: self._uniform(n, b)
        values = {
            name: load()
            for name, load in arrays.items()
            if naming is None or name in {*naming.fields, *coords}
        }
        others = [n.removeprefix(PATCH) for n in self.frames[0] if n not in self.main]
        hint = f"patches {', '.join(others)}: {others[0]}/FIELD is a field there" if others else ""
        shapes = {name: array.shape for name, array in values.items()}
        return ArrayFile(
            self.path,
            shapes,
            values.__getitem__,
            "a mesh",
            {name: dims[name] for name in values},
            tuple(coords),
            notes=tuple(notes),
            has_only_results=format_of(self.path) == CASE,
            hint=hint,
        )

    def _block_of(self, name: str) -> str | None:
        """The block that the name of a field begins with."""
        block = name.rpartition("/")[0]
        found = (n for n in self.frames[0] if block and n in (block, f"{PATCH}{block}"))
        return next(found, None)

    def _names(self, blocks: list[str], place: str) -> list[str]:
        """Fields that all blocks have in all frames."""
        tables = [
            getattr(frame[block], f"{place}_data") for frame in self.frames for block in blocks
        ]
        numbers = [n for n, a in tables[0].items() if np.asarray(a).dtype.kind in "fiub"]
        numbers = [n for n in numbers if n not in _BOOKKEEPING and not n.startswith("vtk")]
        return [str(name) for name in numbers if all(name in table for table in tables)]

    def _nodes(self, blocks: list[str], place: str) -> np.ndarray:
        """Coordinates (*mesh, 3)."""
        meshes = [self.frames[0][block] for block in blocks]
        centres = [m.points if place == POINTS else m.cell_centers().points for m in meshes]
        return on_mesh(np.concatenate(centres), structure(self.frames[0], blocks, place))

    def _values(self, blocks: list[str], field: str, source: str, place: str) -> np.ndarray:
        """A field (*mesh, channels), with frames first if there are several."""
        mesh, found = structure(self.frames[0], blocks, place), []
        for frame in self.frames:
            parts = []
            for block in (frame[name] for name in blocks):
                if source != place:
                    block = getattr(block, f"{source}_data_to_{place}_data")()
                parts.append(np.asarray(getattr(block, f"{place}_data")[field]))
            found.append(on_mesh(np.concatenate(parts), mesh))
        return np.stack(found) if len(found) > 1 else found[0]

    def _uniform(self, name: str, block: str) -> np.ndarray:
        """The one value of a field on another block."""
        field = name.rpartition("/")[2]
        tables = [t for f in self.frames for t in (f[block].cell_data, f[block].point_data)]
        rows = [np.atleast_2d(np.asarray(t[field]).T).T for t in tables if field in t]
        if not rows:
            raise InputError(f"{self.path} has no field {field!r} on {block}")
        values = np.concatenate(rows)
        if np.ptp(values, axis=0).any():
            raise InputError(
                f"{self.path}: {name} is not uniform; as an input it should have one value, "
                f"because the targets are on other nodes"
            )
        return values[0]


def structure(frame: dict[str, Any], blocks: list[str], place: str) -> tuple[int, ...]:
    """Nodes along each axis on which a structured mesh has more than one point; else all."""
    pyvista, meshes = load_pyvista(), [frame[block] for block in blocks]
    structured = (pyvista.StructuredGrid, pyvista.RectilinearGrid, pyvista.ImageData)
    if len(meshes) == 1 and isinstance(meshes[0], structured):
        lengths = tuple(n for n in meshes[0].dimensions if n > 1)
        if lengths:
            return lengths if place == POINTS else tuple(n - 1 for n in lengths)
    return (sum(mesh.n_points if place == POINTS else mesh.n_cells for mesh in meshes),)


def on_mesh(array: np.ndarray, mesh: tuple[int, ...]) -> np.ndarray:
    """Values (*mesh, channels); VTK numbers points and cells with x fastest."""
    values = array.reshape(*reversed(mesh), *array.shape[1:])
    return values.transpose(*reversed(range(len(mesh))), *range(len(mesh), values.ndim))


def _reader(path: Path, kind: str) -> tuple[Any, list[str]]:
    """PyVista's reader of a format that may have frames, with all fields switched on."""
    pyvista, notes = load_pyvista(), list[str]()
    if kind == CASE:
        folder = path if path.is_dir() else path.parent
        reader = pyvista.OpenFOAMReader(folder / "system" / "controlDict")
        reader.cell_to_point_creation = False
        reader.skip_zero_time = False
        reader.enable_all_patch_arrays()
        if _is_steady(path):
            notes.append("a steady OpenFOAM case: its last time directory")
        return reader, notes
    reader = {".pvd": pyvista.PVDReader, ".cgns": pyvista.CGNSReader}.get(
        kind, pyvista.ExodusIIReader
    )(path)
    for name in ("enable_all_cell_arrays", "enable_all_point_arrays"):
        if hasattr(reader, name):
            getattr(reader, name)()
    return reader, notes


def _is_steady(path: Path) -> bool:
    """Whether the schemes of an OpenFOAM case have no time derivative."""
    schemes = (path if path.is_dir() else path.parent) / "system" / "fvSchemes"
    return schemes.is_file() and bool(_STEADY.search(schemes.read_text(errors="replace")))


def _blocks(pyvista: ModuleType, data: Any, name: str = "") -> dict[str, Any]:
    """The blocks of a file that have points, by name."""
    if not isinstance(data, pyvista.MultiBlock):
        return {name: data} if getattr(data, "n_points", 0) and hasattr(data, "point_data") else {}
    found: dict[str, Any] = {}
    for index, block in enumerate(data):
        word = data.get_block_name(index) or f"block_{index}"
        found |= _blocks(pyvista, block, f"{name}/{word}" if name else word)
    return found


def _require_same(path: Path, first: dict[str, Any], frame: dict[str, Any], time: float) -> None:
    for name, block in first.items():
        if name not in frame or not np.array_equal(frame[name].points, block.points):
            raise InputError(
                f"{path}: the mesh at time {time:g} differs from the first; all frames of a sample "
                f"should be on one mesh"
            )


@contextmanager
def quiet() -> Iterator[None]:
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


def load_pyvista() -> ModuleType:
    """PyVista, which is optional."""
    try:
        import pyvista
    except ImportError:
        raise InputError("VTK files need PyVista: pip install 'cato-pde[vtk]'") from None
    return pyvista
