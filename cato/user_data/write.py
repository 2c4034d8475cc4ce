"""Writing predictions in the format that the samples came in."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cato.errors import InputError
from cato.files import atomic_folder, atomic_write
from cato.sandbox import parse
from cato.user_data import netcdf, vtk
from cato.user_data.arrays import ARRAYS, save_arrays
from cato.user_data.axes import CHANNEL, SAMPLE, TIME, mesh_dims
from cato.user_data.naming import Naming
from cato.user_data.periodic import with_repeated_lines
from cato.user_data.read import files_of
from cato.user_data.readers import SUFFIXES, imports_of
from cato.user_data.samples import UserSample, UserSamples

if TYPE_CHECKING:
    import xarray

Fields = Mapping[str, Sequence[np.ndarray]]
"""For each sample an array (*mesh, C) or (T, *mesh, C), or one number."""


def default_target(source: Path) -> Path:
    """Next to the source: plate-predicted.h5 for plate.h5, plates-predicted for a folder."""
    if source.is_dir():  # its name may have a dot without a suffix
        return source.with_name(f"{source.name}-predicted")
    return source.with_name(f"{source.stem}-predicted{source.suffix}")


def require_writable(source: Path, target: Path, num_frames: int) -> None:
    """Raise, before anything is computed, if the predictions cannot be written."""
    if target.exists():
        raise InputError(f"{target} exists and is not overwritten; choose another name")
    is_vtk = files_of(source)[0].suffix.lower() in vtk.SUFFIXES
    if is_vtk and num_frames > 1:
        raise InputError(
            f"{source}: a VTK file holds one frame, but the model predicts {num_frames}; "
            f"give the samples as .h5, .npz, .mat or .nc"
        )
    if source.is_dir():
        if target.suffix.lower() in SUFFIXES:
            raise InputError(f"{source} is a folder, and so will be its predictions; got {target}")
        return
    given, other = source.suffix.lower(), target.suffix.lower()
    if given != other and not (given in ARRAYS and other in ARRAYS):
        allowed = ", ".join(ARRAYS) if given in ARRAYS else given
        raise InputError(f"{target} should end in {allowed}, the format of {source}")


def write_predictions(target: Path, naming: Naming, samples: UserSamples, fields: Fields) -> None:
    """Write fields of all samples; if it is interrupted, nothing is left at `target`."""
    source = samples.path
    if source.is_dir():
        _write_folder(source, target, naming, samples, fields)
        return
    dataset = _dataset(naming, samples, fields, slice(None))
    is_single = source.suffix.lower() in vtk.SUFFIXES
    _write_file(source, target, naming, dataset.isel(sample=0) if is_single else dataset)


def _write_folder(
    source: Path, target: Path, naming: Naming, samples: UserSamples, fields: Fields
) -> None:
    """Write one file per sample, under a temporary name until all are there."""
    with atomic_folder(target) as temporary:
        try:
            for i, file in enumerate(files_of(source)):
                dataset = _dataset(naming, samples, fields, slice(i, i + 1)).isel(sample=0)
                _write_file(file, temporary / file.relative_to(source), naming, dataset)
        except InputError as error:  # name the final file, not the temporary one
            raise InputError(str(error).replace(str(temporary), str(target))) from None


def _write_file(source: Path, target: Path, naming: Naming, dataset: "xarray.Dataset") -> None:
    """Write a copy of the source with more fields; for array files, only nodes and fields."""
    copiers = dict.fromkeys(vtk.SUFFIXES, vtk.copy_vtk)
    copiers |= dict.fromkeys(netcdf.SUFFIXES, netcdf.copy_netcdf)
    if copy := copiers.get(source.suffix.lower()):
        fields = dataset.drop_vars(["coords", "mask"], errors="ignore")
        # The source is parsed in the child process, the copy written here.
        (content,) = parse(copy, [source], naming, fields, imports=imports_of(source))
        with atomic_write(target) as temporary:
            temporary.write_bytes(content)
    else:
        save_arrays(target, {str(name): array.values for name, array in dataset.items()})


def _dataset(
    naming: Naming, samples: UserSamples, fields: Fields, chosen: slice
) -> "xarray.Dataset":
    """Fields of some samples with named dimensions, at all nodes that the file has."""
    import xarray

    some = samples.samples[chosen]
    mesh = mesh_dims(len(some[0].mesh))
    share_nodes = samples.has_shared_coords and some[0].keep is None
    nodes = [_at_all_nodes(samples, s, s.coords) for s in (some[:1] if share_nodes else some)]
    dims = (SAMPLE, *mesh, f"{CHANNEL}_coords")
    variables = {"coords": (dims[1:], nodes[0]) if share_nodes else (dims, np.stack(nodes))}
    for name, arrays in fields.items():
        pairs = zip(some, arrays[chosen], strict=True)
        values = np.stack([_at_all_nodes(samples, s, np.asarray(a)) for s, a in pairs])
        time = (f"{TIME}_{name}",)[: values.ndim - len(mesh) - 2 > 0]
        dims = (SAMPLE, *time, *mesh, f"{CHANNEL}_{name}")[: values.ndim]
        # A named field of one channel has no channel axis; the arrays of the layout do.
        is_plain = values.ndim > 1 and values.shape[-1] == 1 and not naming.is_layout
        variables[name] = (dims[:-1], values[..., 0]) if is_plain else (dims, values)
    if some[0].keep is not None:
        masks = [sample.keep for sample in some if sample.keep is not None]
        variables["mask"] = ((SAMPLE, *mesh), np.stack(masks))
    return xarray.Dataset(variables)


def _at_all_nodes(samples: UserSamples, sample: UserSample, array: np.ndarray) -> np.ndarray:
    """Values at the nodes of the file: padding of clouds is NaN, repeated lines are repeated."""
    if not array.ndim:
        return array
    if sample.keep is None:
        return with_repeated_lines(samples, array)
    full = np.full((*array.shape[:-2], len(sample.keep), array.shape[-1]), np.nan, array.dtype)
    full[..., sample.keep, :] = array
    return full
