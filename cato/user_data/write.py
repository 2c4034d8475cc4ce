"""Writing predictions in the format that the samples came in."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cato.errors import InputError
from cato.files import atomic_folder, atomic_write
from cato.sandbox import parse
from cato.user_data import meshes, netcdf, tables
from cato.user_data.arrays import ARRAYS, attributes_of, save_arrays
from cato.user_data.attributes import inherited
from cato.user_data.axes import CHANNEL, SAMPLE, TIME, mesh_dims
from cato.user_data.hdf5_copy import copy_layout
from cato.user_data.mesh_write import copy_mesh
from cato.user_data.naming import Naming
from cato.user_data.parts import CASE, format_of, is_entry, parts_of
from cato.user_data.periodic import with_repeated_lines
from cato.user_data.read import files_of
from cato.user_data.readers import SUFFIXES, imports_of, suffix_of
from cato.user_data.samples import UserSample, UserSamples
from cato.user_data.tensors import SUFFIXES as TENSORS
from cato.user_data.tensors import channels_second

if TYPE_CHECKING:
    import xarray

Fields = Mapping[str, Sequence[np.ndarray]]
"""For each sample an array (*mesh, C) or (T, *mesh, C), or one number."""


def default_target(source: Path) -> Path:
    """Next to the source: plate-predicted.h5 for plate.h5, plates-predicted for a folder."""
    suffix = suffix_of(source) if is_entry(source) else ""
    if suffix == CASE:
        source = source if source.is_dir() else source.parent
    if suffix in ("", CASE):  # the name of a folder may have a dot without a suffix
        return source.with_name(f"{source.name}-predicted")
    return source.with_name(f"{source.stem}-predicted{_written_as(suffix)}")


def require_writable(source: Path, target: Path, num_frames: int) -> None:
    """Raise, before anything is computed, if the predictions cannot be written."""
    if target.exists():
        raise InputError(f"{target} exists and is not overwritten; choose another name")
    given, other = suffix_of(files_of(source)[0]), target.suffix.lower()
    if given in (*meshes.VTK, ".vtm") and num_frames > 1:
        raise InputError(
            f"{source}: a VTK file holds one frame, but the model predicts {num_frames}; "
            f"give the samples as .pvd, .h5, .npz, .mat or .nc"
        )
    if not is_entry(source):
        if other in SUFFIXES:
            raise InputError(f"{source} is a folder, and so will be its predictions; got {target}")
        return
    allowed = ARRAYS if given in ARRAYS else (_written_as(given),)
    if given != CASE and other not in allowed:
        raise InputError(f"{target} should end in {', '.join(allowed)}, the format of {source}")


def write_predictions(target: Path, naming: Naming, samples: UserSamples, fields: Fields) -> None:
    """Write fields of all samples; if it is interrupted, nothing is left at `target`."""
    source = samples.path
    if is_entry(source):
        dataset = as_dataset(naming, samples, fields, range(len(samples)))
        _write_file(source, target, naming, dataset, samples.layout)
        return
    with atomic_folder(target) as temporary:
        try:
            for file in files_of(source):
                chosen = [i for i, sample in enumerate(samples.samples) if sample.file == file]
                relative = file.relative_to(source)
                name = file.name if file.is_dir() else file.stem + _written_as(suffix_of(file))
                dataset = as_dataset(naming, samples, fields, chosen)
                place = temporary / relative.parent / name
                _write_file(file, place, naming, dataset, samples.layout)
        except InputError as error:  # name the final file, not the temporary one
            raise InputError(str(error).replace(str(temporary), str(target))) from None


def _written_as(suffix: str) -> str:
    """The format of predictions for data of a format: its own where there is a writer."""
    return ".pvd" if suffix in (*meshes.EXODUS, ".cgns") else suffix


def _write_file(
    source: Path, target: Path, naming: Naming, dataset: "xarray.Dataset", layout: str
) -> None:
    """Write a copy of the source with more fields; for plain arrays, only nodes and fields."""
    copiers: dict[str, Callable[..., dict[str, np.ndarray]]]
    copiers = dict.fromkeys((".h5", ".hdf5"), copy_layout) if layout else {}
    copiers |= dict.fromkeys(meshes.SUFFIXES, copy_mesh)
    copiers |= dict.fromkeys(tables.SUFFIXES, tables.copy_table)
    copiers |= {**dict.fromkeys(netcdf.SUFFIXES, netcdf.copy_netcdf), netcdf.ZARR: netcdf.copy_zarr}
    if copy := copiers.get(suffix_of(source)):
        fields = dataset.drop_vars(["coords", "mask"], errors="ignore")
        # The source is parsed in the child process, the copy written here.
        imports, parts = imports_of(source), parts_of(source)
        (files,) = parse(copy, [source], naming, fields, target.name, imports=imports, parts=parts)
        _write_all(target, files, source if format_of(source) == CASE else None)
    else:
        save_arrays(target, *_as_in_source(source, dataset))


def _as_in_source(
    source: Path, dataset: "xarray.Dataset"
) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
    """Plain arrays with channels where their fields have them in the source, and attributes."""
    arrays = {str(name): variable.values for name, variable in dataset.items()}
    of_layout = {"outputs": ("targets", "predicted"), "bands": ("targets", "band")}
    fields = {name: of_layout.get(name, name.rpartition("_")[::2]) for name in arrays}
    suffix, attributes = suffix_of(source), dict[str, dict[str, Any]]()
    if suffix in TENSORS:
        (second,) = parse(channels_second, [source], imports=imports_of(source))
        for name, array in arrays.items():
            if fields[name][0] in second:
                has_channels = f"{CHANNEL}_{name}" in dataset[name].dims
                arrays[name] = np.moveaxis(array if has_channels else array[..., None], -1, 1)
    elif suffix in (".h5", ".hdf5"):
        (found,) = parse(attributes_of, [source], imports=imports_of(source))
        attributes = {
            n: inherited(found[f], what) for n, (f, what) in fields.items() if f and f in found
        }
        attributes[""] = found[""]
    return arrays, attributes


def _write_all(target: Path, files: Mapping[str, np.ndarray], case: Path | None) -> None:
    """Write files next to a target, folders before the file that lists their content."""
    folders: dict[str, list[str]] = {}
    for name in files:
        folders.setdefault(Path(name).parts[0] if "/" in name else "", []).append(name)
    for folder, names in sorted(folders.items(), reverse=True):
        if not folder:
            for name in names:
                with atomic_write(target.parent / name) as temporary:
                    temporary.write_bytes(files[name].data)
            continue
        with atomic_folder(target.parent / folder) as temporary:
            if case is not None:
                root = case if case.is_dir() else case.parent
                shutil.copytree(root, temporary, dirs_exist_ok=True)
            for name in names:
                path = temporary / Path(name).relative_to(folder)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(files[name].data)


def as_dataset(
    naming: Naming, samples: UserSamples, fields: Fields, chosen: Sequence[int]
) -> "xarray.Dataset":
    """Fields of the samples of a file with named dimensions, at all nodes that the file has."""
    import xarray

    some = [samples.samples[i] for i in chosen]
    mesh = mesh_dims(len(some[0].mesh))
    share_nodes = samples.has_shared_coords and some[0].keep is None
    nodes = [_at_all_nodes(samples, s, s.coords) for s in (some[:1] if share_nodes else some)]
    dims = (SAMPLE, *mesh, f"{CHANNEL}_coords")
    variables = {"coords": (dims[1:], nodes[0]) if share_nodes else (dims, np.stack(nodes))}
    for name, arrays in fields.items():
        pairs = zip(some, (arrays[i] for i in chosen), strict=True)
        values = np.stack([_at_all_nodes(samples, s, np.asarray(a)) for s, a in pairs])
        time = (f"{TIME}_{name}",)[: values.ndim - len(mesh) - 2 > 0]
        dims = (SAMPLE, *time, *mesh, f"{CHANNEL}_{name}")[: values.ndim]
        # A named field of one channel has no channel axis; the arrays of the layout do.
        is_plain = values.ndim > 1 and values.shape[-1] == 1 and not naming.is_layout
        variables[name] = (dims[:-1], values[..., 0]) if is_plain else (dims, values)
    if some[0].keep is not None:
        masks = [sample.keep for sample in some if sample.keep is not None]
        variables["mask"] = ((SAMPLE, *mesh), np.stack(masks))
    dataset = xarray.Dataset(variables)
    return dataset.isel(sample=0) if some[0].is_alone else dataset


def _at_all_nodes(samples: UserSamples, sample: UserSample, array: np.ndarray) -> np.ndarray:
    """Values at the nodes of the file: padding of clouds is NaN, repeated lines are repeated."""
    if not array.ndim:
        return array
    if sample.keep is None:
        return with_repeated_lines(samples, array)
    full = np.full((*array.shape[:-2], len(sample.keep), array.shape[-1]), np.nan, array.dtype)
    full[..., sample.keep, :] = array
    return full
