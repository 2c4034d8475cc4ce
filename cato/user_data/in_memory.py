"""Arrays in memory as a data file in a run folder: from there on they are like any user data."""

import io
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cato.data.dataset import Dataset, Splits
from cato.errors import InputError
from cato.files import atomic_write
from cato.problem import Problem
from cato.user_data.arrays import save_arrays

if TYPE_CHECKING:
    import xarray


def write_data(folder: Path, data: Any) -> tuple[Path, dict[str, Any]]:
    """Write data into a folder; returns the file, and settings that it needs.

    Args:
        folder: Where to write.
        data: A `Dataset`, `Splits`, arrays by name in the documented layout or with names of their
            own, or an `xarray.Dataset`.
    """
    if isinstance(data, Dataset | Splits):
        problem, name = data.problem, data.problem.name
        periodic = tuple(axis for axis, wraps in enumerate(problem.periodic) if wraps)
        arrays = _of_dataset(data) if isinstance(data, Dataset) else _of_splits(data)
        return _saved(folder / f"{name}.h5", arrays), {"periodic": periodic} if periodic else {}
    if isinstance(data, Mapping) and not hasattr(data, "to_netcdf"):
        return _saved(folder / "arrays.h5", {str(n): _array(n, v) for n, v in data.items()}), {}
    if hasattr(data, "to_netcdf") and hasattr(data, "data_vars"):
        return _saved_netcdf(folder / "arrays.nc", data), {}
    raise InputError(
        f"cannot train on {type(data).__name__}; give a benchmark, a file, a dictionary of arrays "
        f"with 'inputs' and 'targets', an xarray.Dataset or a cato.Dataset"
    )


def _of_splits(splits: Splits) -> dict[str, np.ndarray]:
    """One group for each split."""
    return {
        f"{name}/{key}": array
        for name, dataset in splits.datasets.items()
        for key, array in _of_dataset(dataset).items()
    }


def _of_dataset(dataset: Dataset) -> dict[str, np.ndarray]:
    """The arrays of a dataset in the documented layout."""
    problem = dataset.problem
    arrays: dict[str, np.ndarray] = dataset.arrays()
    names = {"input_names": problem.inputs, "target_names": problem.outputs}
    if problem.time == "rollout":
        arrays["inputs"] = _as_frames(problem, arrays["inputs"])
        names["input_names"] = problem.outputs
    if not problem.inputs:
        del arrays["inputs"], names["input_names"]
    if dataset.mask is not None:
        arrays["mask"] = dataset.mask.numpy()
    return arrays | {name: np.array(words) for name, words in names.items()}


def _as_frames(problem: Problem, inputs: np.ndarray) -> np.ndarray:
    """Past frames (samples, frames, *mesh, fields), which a rollout has as channels."""
    frames = inputs.reshape(*inputs.shape[:-1], -1, problem.num_outputs)
    return np.moveaxis(frames, -2, 1)


def _array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name!r} should be an array ({error})") from None
    if array.dtype.kind not in "fiubU":
        raise InputError(f"{name!r} should be an array of numbers, but is {array.dtype}")
    return array


def _saved(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    _require_free(path)
    save_arrays(path, arrays)
    return path


def _saved_netcdf(path: Path, data: "xarray.Dataset") -> Path:
    _require_free(path)
    stream = io.BytesIO()
    try:
        module = import_module("h5netcdf")
    except ImportError:
        raise InputError(
            "an xarray.Dataset is kept as NetCDF, which needs h5netcdf: pip install "
            "'cato-pde[netcdf]'"
        ) from None
    from xarray.backends import H5NetCDFStore

    with module.File(stream, "w") as written:
        data.dump_to_store(H5NetCDFStore(written))
    with atomic_write(path) as temporary:
        temporary.write_bytes(stream.getbuffer())
    return path


def _require_free(path: Path) -> None:
    if path.exists():
        raise InputError(f"{path} exists and is not overwritten; choose another folder for the run")
