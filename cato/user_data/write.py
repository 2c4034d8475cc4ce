"""Predictions written back in the format that the samples came in."""

import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cato.errors import InputError
from cato.user_data import netcdf, vtk
from cato.user_data.arrays import save_arrays
from cato.user_data.naming import Naming
from cato.user_data.periodic import with_repeated_lines
from cato.user_data.read import ARRAYS, SUFFIXES, files_of
from cato.user_data.samples import UserSample, UserSamples

Fields = Mapping[str, Sequence[np.ndarray]]
"""For each sample an array (*mesh, C) or (T, *mesh, C), or one number."""


def default_target(source: Path) -> Path:
    """Beside the source: plate-predicted.h5 for plate.h5, plates-predicted for a folder."""
    if source.is_dir():  # whose name may have a dot that begins no ending
        return source.with_name(f"{source.name}-predicted")
    return source.with_name(f"{source.stem}-predicted{source.suffix}")


def require_writable(source: Path, target: Path, num_frames: int) -> None:
    """Refuse, before anything is computed, what cannot be written."""
    if target.exists():
        raise InputError(f"{target} exists and is not overwritten; choose another name")
    sources = files_of(source) if source.is_dir() else [source]
    is_vtk = sources[0].suffix.lower() in vtk.SUFFIXES
    if is_vtk and num_frames > 1:
        raise InputError(
            f"{source}: a VTK file holds one moment, but the model gives {num_frames} frames; "
            f"give the samples as .h5, .npz, .mat or .nc"
        )
    if source.is_dir():
        if target.suffix.lower() in SUFFIXES:
            raise InputError(f"{source} is a folder, and so will be its predictions; got {target}")
        return
    own, other = source.suffix.lower(), target.suffix.lower()
    if own != other and not (own in ARRAYS and other in ARRAYS):
        allowed = ", ".join(ARRAYS) if own in ARRAYS else own
        raise InputError(f"{target} should end in {allowed}, as {source} is written back")


def write_predictions(target: Path, naming: Naming, samples: UserSamples, fields: Fields) -> None:
    """Write fields of all samples; a kill leaves nothing under the name of `target`."""
    source = samples.path
    if source.is_dir():
        _write_folder(source, target, naming, samples, fields)
        return
    is_single = source.suffix.lower() in vtk.SUFFIXES
    values = (
        _of_sample(naming, samples, fields, 0) if is_single else _table(naming, samples, fields)
    )
    _write_file(source, target, naming, _coords(samples), values)


def _write_folder(
    source: Path, target: Path, naming: Naming, samples: UserSamples, fields: Fields
) -> None:
    """A file per sample, under a temporary name until all are there."""
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        for index, (file, sample) in enumerate(zip(files_of(source), samples.samples, strict=True)):
            coords = _whole(samples, sample, sample.coords)
            values = _of_sample(naming, samples, fields, index)
            _write_file(file, temporary / file.relative_to(source), naming, coords, values)
        temporary.replace(target)
    except InputError as error:  # names a file by where it was to be, not where it was tried
        raise InputError(str(error).replace(str(temporary), str(target))) from None
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_file(
    source: Path,
    target: Path,
    naming: Naming,
    coords: np.ndarray,
    values: Mapping[str, np.ndarray],
) -> None:
    """A copy of the source with more fields; of array files the nodes and the fields alone."""
    suffix = source.suffix.lower()
    if suffix in vtk.SUFFIXES:
        vtk.write_vtk(source, target, values)
    elif suffix in netcdf.SUFFIXES:
        netcdf.write_netcdf(source, target, naming, values)
    else:
        save_arrays(target, {"coords": coords, **values})


def _of_sample(
    naming: Naming, samples: UserSamples, fields: Fields, index: int
) -> dict[str, np.ndarray]:
    sample = samples.samples[index]
    return {
        name: _plain(naming, _whole(samples, sample, np.asarray(arrays[index])))
        for name, arrays in fields.items()
    }


def _table(naming: Naming, samples: UserSamples, fields: Fields) -> dict[str, np.ndarray]:
    """Arrays with samples first."""
    stacked = {}
    for name, arrays in fields.items():
        pairs = zip(samples.samples, arrays, strict=True)
        stacked[name] = _plain(naming, np.stack([_whole(samples, s, a) for s, a in pairs]))
    keep = [sample.keep for sample in samples.samples if sample.keep is not None]
    return stacked | ({"mask": np.stack(keep)} if keep else {})


def _coords(samples: UserSamples) -> np.ndarray:
    first = samples.samples[0]
    if samples.has_shared_coords and first.keep is None:
        return _whole(samples, first, first.coords)
    return np.stack([_whole(samples, sample, sample.coords) for sample in samples.samples])


def _plain(naming: Naming, array: np.ndarray) -> np.ndarray:
    """A named field of one channel has no axis for it; the arrays of the layout do."""
    is_single = array.ndim > 1 and array.shape[-1] == 1
    return array[..., 0] if is_single and not naming.is_layout else array


def _whole(samples: UserSamples, sample: UserSample, array: np.ndarray) -> np.ndarray:
    """Values at all nodes that the file has: padding of clouds is NaN, repeated lines repeat."""
    if not np.ndim(array):
        return array
    if sample.keep is None:
        return with_repeated_lines(samples, array)
    axis = array.ndim - 2  # frames stand before the points
    shape = list(array.shape)
    shape[axis] = len(sample.keep)
    full = np.full(shape, np.nan, np.float32)
    full[(slice(None),) * axis + (sample.keep,)] = array
    return full
