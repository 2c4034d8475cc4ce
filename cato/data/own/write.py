"""Predictions written back in the format that the samples came in."""

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from cato.data.own import netcdf, vtk
from cato.data.own.arrays import save_arrays
from cato.data.own.naming import Naming
from cato.data.own.periodic import with_repeated_lines
from cato.data.own.read import ARRAYS, SUFFIXES, files_of
from cato.data.own.samples import OwnSample, OwnSamples
from cato.errors import InputError

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


def write_predictions(target: Path, naming: Naming, samples: OwnSamples, fields: Fields) -> None:
    """Write fields of all samples; a kill leaves nothing under the name of `target`."""
    source = samples.path
    if source.is_dir():
        _write_folder(source, target, naming, samples, fields)
    elif source.suffix.lower() in vtk.SUFFIXES:
        _in_place_of(
            target, lambda path: vtk.write_vtk(source, path, _of_sample(naming, samples, fields, 0))
        )
    elif source.suffix.lower() in netcdf.SUFFIXES:
        netcdf.write_netcdf(source, target, naming, _table(naming, samples, fields))
    else:
        coords = {"coords": _coords(samples)}
        save_arrays(target, coords | _table(naming, samples, fields))


def _write_folder(
    source: Path, target: Path, naming: Naming, samples: OwnSamples, fields: Fields
) -> None:
    def write(folder: Path) -> None:
        for index, file in enumerate(files_of(source)):
            path = folder / file.relative_to(source)
            path.parent.mkdir(parents=True, exist_ok=True)
            values = _of_sample(naming, samples, fields, index)
            if file.suffix.lower() in vtk.SUFFIXES:
                vtk.write_vtk(file, path, values)
            elif file.suffix.lower() in netcdf.SUFFIXES:
                netcdf.write_netcdf(file, path, naming, values)
            else:
                coords = _whole(samples, samples.samples[index], samples.samples[index].coords)
                save_arrays(path, {"coords": coords, **values})

    _in_place_of(target, write)


def _in_place_of(target: Path, write: Callable[[Path], None]) -> None:
    """Write under a temporary name of the same ending, then rename."""
    temporary = target.with_name(f".{target.stem}.{uuid.uuid4().hex[:8]}{target.suffix}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        os.replace(temporary, target)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from None
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        temporary.unlink(missing_ok=True)


def _of_sample(
    naming: Naming, samples: OwnSamples, fields: Fields, index: int
) -> dict[str, np.ndarray]:
    sample = samples.samples[index]
    return {
        name: _plain(naming, _whole(samples, sample, np.asarray(arrays[index])))
        for name, arrays in fields.items()
    }


def _table(naming: Naming, samples: OwnSamples, fields: Fields) -> dict[str, np.ndarray]:
    """Arrays with samples first."""
    stacked = {
        name: _plain(naming, np.stack([_whole(samples, s, a) for s, a in _pairs(samples, arrays)]))
        for name, arrays in fields.items()
    }
    keep = [sample.keep for sample in samples.samples if sample.keep is not None]
    return stacked | ({"mask": np.stack(keep)} if keep else {})


def _pairs(
    samples: OwnSamples, arrays: Sequence[np.ndarray]
) -> Iterator[tuple[OwnSample, np.ndarray]]:
    return zip(samples.samples, arrays, strict=True)


def _coords(samples: OwnSamples) -> np.ndarray:
    first = samples.samples[0]
    if samples.has_shared_coords and first.keep is None:
        return _whole(samples, first, first.coords)
    return np.stack([_whole(samples, sample, sample.coords) for sample in samples.samples])


def _plain(naming: Naming, array: np.ndarray) -> np.ndarray:
    """A named field of one channel has no axis for it; the arrays of the layout do."""
    is_single = array.ndim > 1 and array.shape[-1] == 1
    return array[..., 0] if is_single and not naming.is_layout else array


def _whole(samples: OwnSamples, sample: OwnSample, array: np.ndarray) -> np.ndarray:
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
