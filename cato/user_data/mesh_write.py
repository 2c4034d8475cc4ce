"""Copies of meshes with predictions: as cell data or point data, as their fields are.

VTK files are copied as they are. A `.pvd` series becomes one with the predicted frames, a
multi-block file one with the same blocks. An OpenFOAM case is copied, and its time directories get
fields such as `U_predicted` with the dimensions of `U`. VTK has no writer for CGNS, and that for
Exodus writes to the disk itself, so that their predictions are a `.pvd` series.
"""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

import numpy as np

from cato.errors import InputError
from cato.user_data.axes import TIME
from cato.user_data.meshes import CELLS, VTK, MeshFile, structure
from cato.user_data.naming import Naming
from cato.user_data.parts import CASE, format_of

if TYPE_CHECKING:
    import xarray

Files = dict[str, np.ndarray]  # Bytes by path, relative to the folder of the new file.
CONSTRAINTS = ("empty", "wedge", "symmetry", "symmetryPlane", "cyclic", "cyclicAMI", "processor")
"""Kinds of OpenFOAM patches that prescribe the condition of every field."""
FOAM_KINDS = {1: "Scalar", 3: "Vector", 6: "SymmTensor", 9: "Tensor"}
_PATCH = re.compile(r"([\w.\"*|()-]+)\s*\{[^{}]*?\btype\s+(\w+)\s*;")
_DIMENSIONS = re.compile(r"dimensions\s*(\[[^\]]*\])\s*;")


def copy_mesh(source: Path, naming: Naming, fields: "xarray.Dataset", name: str) -> Files:
    """The files of a copy with more data; `name` is that of the copy."""
    file = MeshFile.read(source)
    kind = format_of(source)
    frames = list(_predicted(file, naming, fields))
    if kind == CASE and not file.place(naming)[1]:
        return _foam(source, naming, frames, name)
    if kind in VTK:
        ((_, blocks, _),) = frames
        return {name: _bytes(next(iter(blocks.values())), is_legacy=kind == ".vtk")}
    stem = name.rsplit(".", 1)[0] if kind != CASE else f"{name}/predicted"
    files, rows = Files(), []
    for index, (time, blocks, _) in enumerate(frames):
        for part, (block, mesh) in enumerate(blocks.items()):
            inner = f"{Path(stem).name}/{index}_{part}{_suffix(mesh)}"
            files[str(Path(stem).parent / inner)] = _bytes(mesh, is_legacy=False)
            rows.append((time, part, block, inner))
    if kind == ".vtm":
        lines = [
            f'<DataSet index="{part}" name={quoteattr(block)} file={quoteattr(inner)}/>'
            for _, part, block, inner in rows
        ]
        files[name] = _text("vtkMultiBlockDataSet", lines)
        return files
    lines = [
        f'<DataSet timestep="{time!r}" part="{part}" name={quoteattr(block)} '
        f"file={quoteattr(inner)}/>"
        for time, part, block, inner in rows
    ]
    files[f"{stem}.pvd"] = _text("Collection", lines)
    return files


def _predicted(
    file: MeshFile, naming: Naming, fields: "xarray.Dataset"
) -> Iterator[tuple[float, dict[str, Any], dict[str, np.ndarray]]]:
    """Time, meshes with the new data, and the new data themselves, of each frame."""
    blocks, _, place = file.place(naming)
    mesh = structure(file.frames[0], blocks, place)
    axes = [f"axis_{axis}" for axis in range(len(mesh))]
    num_frames = max([1, *(v.sizes.get(f"{TIME}_{n}", 1) for n, v in fields.data_vars.items())])
    for index, (time, known) in enumerate(_times(file, naming, num_frames)):
        frame = {
            n: block.copy(deep=False) for n, block in file.frames[known].items() if n in blocks
        }
        values: dict[str, np.ndarray] = {}
        for name, variable in fields.data_vars.items():
            if f"{TIME}_{name}" in variable.dims:
                variable = variable.isel({f"{TIME}_{name}": index})
            if not variable.dims:
                for block in frame.values():
                    block.field_data[name] = [variable.item()]
                continue
            # Points and cells of a structured mesh are numbered with x fastest.
            channels = [dim for dim in variable.dims if dim not in axes]
            array = variable.transpose(*reversed(axes), *channels).values
            array = array.reshape(-1, *(variable.sizes[dim] for dim in channels))
            # A field on one block keeps its own name there.
            short = str(name).rpartition("/")[2]
            values[short], start = array, 0
            for block in frame.values():
                size = block.n_cells if place == CELLS else block.n_points
                data = block.cell_data if place == CELLS else block.point_data
                data[short] = np.ascontiguousarray(array[start : start + size])
                start += size
                field = short.rpartition("_")[0]
                if field in data:
                    # The unit, and names of components.
                    data.GetArray(short).CopyInformation(data.GetArray(field).GetInformation())
                    data.GetArray(short).CopyComponentNames(data.GetArray(field))
        yield time, frame, values


def _times(file: MeshFile, naming: Naming, count: int) -> list[tuple[float, int]]:
    """Time of each predicted frame, and the frame of the file whose other data it gets."""
    num_known, name = len(file.times), naming.targets[0] if naming.targets else None
    indices = list(range(num_known))
    if name is not None and name.frame is not None:
        indices = [name.frame % num_known]
    elif name is not None and name.frames is not None:
        start = name.frames[0] or 0
        indices = list(range(start if start >= 0 else num_known - count, num_known))[:count]
        indices += range(indices[-1] + 1 if indices else start, start + count)[
            : count - len(indices)
        ]
    indices = indices[-count:]
    step = file.times[-1] - file.times[-2] if num_known > 1 else 1.0
    last = num_known - 1
    return [
        (file.times[i] if i <= last else file.times[-1] + step * (i - last), min(i, last))
        for i in indices
    ]


def _foam(
    source: Path,
    naming: Naming,
    frames: list[tuple[float, dict[str, Any], dict[str, np.ndarray]]],
    name: str,
) -> Files:
    """Fields of an OpenFOAM case in its time directories."""
    folder = source if source.is_dir() else source.parent
    directories = {}
    for path in folder.iterdir():
        try:
            directories[float(path.name)] = path
        except ValueError:
            continue
    text = _foam_text(folder / "constant" / "polyMesh" / "boundary")
    patches = "\n".join(
        f"    {patch} {{ type {kind if kind in CONSTRAINTS else 'zeroGradient'}; }}"
        for patch, kind in _PATCH.findall(text)
        if patch != "FoamFile"
    )
    files = Files()
    for time, blocks, values in frames:
        nearest = min(directories, key=lambda known: abs(known - time), default=time)
        is_known = abs(nearest - time) <= 1e-9 * max(1.0, abs(time))
        directory = directories[nearest].name if is_known else f"{time:g}"
        (block,) = blocks.values()
        note = " ".join(f"{k} {v[0]:g};" for k, v in block.field_data.items() if len(v) == 1)
        for field, array in values.items():
            width = 1 if array.ndim == 1 else array.shape[1]
            if width not in FOAM_KINDS:
                raise InputError(f"{source}: {field} has {width} components; OpenFOAM has no such")
            original = directories.get(nearest, folder) / field.rpartition("_")[0]
            found = _DIMENSIONS.search(_foam_text(original))
            kind = FOAM_KINDS[width]
            rows = array.reshape(len(array), width).tolist()
            words = "\n".join(
                repr(row[0]) if width == 1 else f"({' '.join(map(repr, row))})" for row in rows
            )
            files[f"{name}/{directory}/{field}"] = _encoded(
                f"FoamFile\n{{\n    version 2.0;\n    format ascii;\n    class vol{kind}Field;\n"
                f'    location "{directory}";\n    object {field};\n    note "{note}";\n}}\n'
                f"dimensions {found.group(1) if found else '[0 0 0 0 0 0 0]'};\n"
                f"internalField nonuniform List<{kind[0].lower()}{kind[1:]}>\n{len(array)}\n"
                f"(\n{words}\n);\nboundaryField\n{{\n{patches}\n}}\n"
            )
    return files


def _foam_text(path: Path) -> str:
    """The text of an OpenFOAM file, which may be compressed; empty if there is none."""
    packed = path.with_name(f"{path.name}.gz")
    if packed.is_file():
        return gzip.decompress(packed.read_bytes()).decode(errors="replace")
    return path.read_text(errors="replace") if path.is_file() else ""


def _suffix(mesh: Any) -> str:
    """The ending of VTK's XML files of a kind of mesh."""
    kinds = {"StructuredGrid": ".vts", "RectilinearGrid": ".vtr", "ImageData": ".vti"}
    return {**kinds, "PolyData": ".vtp"}.get(type(mesh).__name__, ".vtu")


def _bytes(mesh: Any, is_legacy: bool) -> np.ndarray:
    """The file's bytes. VTK does not write to the disk itself: on a full one it crashes, or leaves
    half a file without an error. A file is one sample, of which we hold the arrays anyway.
    """
    from vtkmodules import vtkIOLegacy, vtkIOXML

    if is_legacy:
        writer = vtkIOLegacy.vtkDataSetWriter()
        writer.SetFileTypeToBinary()
    else:
        writer = getattr(vtkIOXML, f"vtkXML{type(mesh).__name__}Writer")()
        writer.SetDataModeToBinary()
    writer.SetInputData(mesh)
    writer.WriteToOutputStringOn()
    writer.Write()
    text = writer.GetOutputStdString() if is_legacy else writer.GetOutputString()
    # VTK returns UTF-8 as str.
    return np.frombuffer(text if isinstance(text, bytes) else text.encode(), np.uint8)


def _text(kind: str, lines: list[str]) -> np.ndarray:
    """An XML file of VTK that lists others."""
    inner = "\n".join(f"    {line}" for line in lines)
    return _encoded(
        f'<?xml version="1.0"?>\n<VTKFile type="{kind}" version="1.0">\n  <{kind}>\n{inner}\n'
        f"  </{kind}>\n</VTKFile>\n"
    )


def _encoded(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)
