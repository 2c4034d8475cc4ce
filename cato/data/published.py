"""Readers of the published benchmark files, by their own names, layouts and splits.

The published test set is the test set here too. The published codes have no validation set: ours
is the last samples of their training set, as many as the generated benchmark has. Normalisation is
the published one, which for plasticity is not that of the generated benchmark.

Peer programs disagree on the pipe's test set; this is samples 1000 to 1199, not the last of the
file. The files hold more arrays, channels and samples than are used; only those used are read,
but for variables of MATLAB files before v7.3, which cannot be read in part.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cato.benchmarks import get_benchmark
from cato.benchmarks.navier_stokes.benchmark import NUM_PAST
from cato.data.dataset import Dataset, Splits
from cato.data.matlab import Index, Reversed, open_variable
from cato.errors import InputError


@dataclass(frozen=True)
class Layout:
    """One array of a published file, and what is used of it.

    Attributes:
        file: Its name.
        shape: With None for the axis of samples.
        samples: Which of them are the published training set and test set, or one of these.
        name: Of the variable in a MATLAB file; a .npy file has but one.
        at_least: How many samples the file must have for that.
        pick: Which part of the axes is used; all of them unless given.
    """

    file: str
    shape: tuple[int | None, ...]
    samples: Mapping[str, slice]
    name: str = ""
    at_least: int = 1200
    pick: Index = ()

    @property
    def expected(self) -> str:
        """What the file should hold, for messages."""
        sizes = ", ".join(f"≥ {self.at_least}" if n is None else str(n) for n in self.shape)
        variable = f"the variable {self.name!r}, " if self.name else ""
        return f"{variable}real numbers of shape ({sizes})"

    def fits(self, array: np.ndarray | Reversed) -> bool:
        """Whether an array is of this shape, and real."""
        is_real, num_axes = array.dtype.kind in "fiu", len(self.shape)
        return (
            is_real
            and len(array.shape) == num_axes
            and all(
                found >= self.at_least if size is None else found == size
                for found, size in zip(array.shape, self.shape, strict=True)
            )
        )

    def read(self, array: np.ndarray | Reversed, split: str) -> np.ndarray:
        """The samples of a split as float32, samples first."""
        axis = self.shape.index(None)
        index = list(self.pick) + [slice(None)] * (len(self.shape) - len(self.pick))
        index[axis] = self.samples[split]
        with np.errstate(over="ignore"):  # too large for float32 is infinite, and named as such
            # A copy, since a view would keep the whole variable in memory.
            part = np.array(array[tuple(index)], np.float32)
        return np.moveaxis(part, axis, 0)


Fields = tuple[np.ndarray | None, np.ndarray | None, np.ndarray]
"""Coordinates unless shared, inputs unless the mesh is all, and targets, as in `Dataset`."""


@dataclass(frozen=True)
class Original:
    """The published files of one benchmark.

    Attributes:
        benchmark: Its name.
        layouts: The arrays.
        assemble: Takes those of one split in the order of `layouts`, samples first.
        normalise: As in `Problem`.
        validation: How many of the published training samples are held out, the last ones.
    """

    benchmark: str
    layouts: tuple[Layout, ...]
    assemble: Callable[..., Fields]
    normalise: tuple[str, ...]
    validation: int = 100

    def read(self, folder: Path) -> Splits:
        """The data sets of the files in a folder or in the folders right in it."""
        definition = get_benchmark(self.benchmark)
        problem = replace(definition.problem("paper"), normalise=self.normalise)
        shared = definition.coords(definition.parameters("paper"))
        published = {}
        for split, arrays in _read_arrays(self.layouts, _locate(self, Path(folder))).items():
            coords, inputs, targets = self.assemble(*arrays)
            coords = shared if coords is None else coords
            assert coords is not None
            what = f"published {self.benchmark} {split} samples"
            published[split] = Dataset.from_arrays(problem, coords, inputs, targets, what=what)
        train = published["train"]
        datasets = {
            "train": train.subset(slice(0, len(train) - self.validation)),
            "validation": train.subset(slice(len(train) - self.validation, None)),
            "test": published["test"],
        }
        return Splits(problem, datasets)


def read_original(benchmark: str, folder: Path) -> Splits:
    """The published data of a benchmark.

    Args:
        benchmark: Its name.
        folder: Where the published files are, under their own names, or in a folder in it.
    """
    return ORIGINALS[get_benchmark(benchmark).name].read(folder)


def _locate(original: Original, folder: Path) -> dict[str, Path]:
    """The path of each file."""
    names = list(dict.fromkeys(layout.file for layout in original.layouts))
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; give the one that holds {', '.join(names)}")
    hits = {
        name: [p for p in (folder / name, *sorted(folder.glob(f"*/{name}"))) if p.is_file()]
        for name in names
    }
    for layout in original.layouts:
        paths = hits[layout.file]
        if not paths:
            there = ", ".join(name for name in names if hits[name]) or "none"
            raise InputError(
                f"{layout.file} with {layout.expected} is neither in {folder} nor in a folder in "
                f"it; of the {len(names)} {original.benchmark} files needed, found: {there}"
            )
        if len(paths) > 1:
            listed = " and ".join(str(path) for path in paths)
            raise InputError(f"which {layout.file} is meant? There are {listed}; leave one")
    return {name: paths[0] for name, paths in hits.items()}


def _read_arrays(
    layouts: Sequence[Layout], paths: Mapping[str, Path]
) -> dict[str, list[np.ndarray]]:
    """The arrays of the published training and test sets, in the order of the layouts."""
    arrays: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    counts: dict[str, tuple[int, Path]] = {}
    for layout in layouts:
        path = paths[layout.file]
        count, parts = _read_array(path, layout)
        for split, part in parts.items():
            expected, other = counts.setdefault(split, (count, path))
            if count != expected:  # the last samples of the two would not belong together
                raise InputError(
                    f"{path} holds {count} samples, but {other} {expected}; "
                    f"fetch both again from one place"
                )
            arrays[split].append(part)
    return arrays


def _read_array(path: Path, layout: Layout) -> tuple[int, dict[str, np.ndarray]]:
    """How many samples the file holds, and those of each split."""
    with _opened(path, layout) as array:
        if not layout.fits(array):
            raise InputError(f"holds {array.dtype} of shape {array.shape}")
        parts = {split: layout.read(array, split) for split in layout.samples}
        return array.shape[layout.shape.index(None)], parts


@contextmanager
def _opened(path: Path, layout: Layout) -> Iterator[np.ndarray | Reversed]:
    """Open for reading; whatever goes wrong becomes one line with what was expected."""
    try:
        if layout.name:
            with open_variable(path, layout.name) as array:
                yield array
        else:
            yield np.lib.format.open_memmap(path, mode="r")  # refuses pickled objects
    except MemoryError:
        raise
    except InputError as error:
        raise InputError(f"{path} should hold {layout.expected}, but {error}") from None
    except Exception as error:  # parsers of foreign bytes raise nearly anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{path} should hold {layout.expected}, but cannot be read ({reason}): "
            f"truncated, damaged or of another format; fetch it again"
        ) from None


def _darcy_layouts(file: str, split: str, num_samples: int) -> tuple[Layout, Layout]:
    every_fifth, samples = np.s_[:, ::5, ::5], {split: slice(0, num_samples)}
    coeff = Layout(file, (None, 421, 421), samples, "coeff", num_samples, every_fifth)
    return coeff, replace(coeff, name="sol")


def _darcy(coeff: np.ndarray, sol: np.ndarray) -> Fields:
    return None, coeff[..., None], sol[..., None]


def _navier_stokes(u: np.ndarray) -> Fields:
    """Frames are the last axis of the file: the first are input channels, the others targets."""
    return None, u[..., :NUM_PAST], np.moveaxis(u[..., NUM_PAST:], -1, 1)[..., None]


def _flow_layouts(
    prefix: str, mesh: tuple[int, int], num_channels: int, channel: int
) -> tuple[Layout, Layout, Layout]:
    samples = {"train": slice(0, 1000), "test": slice(1000, 1200)}
    x = Layout(f"{prefix}_X.npy", (None, *mesh), samples)
    q = Layout(f"{prefix}_Q.npy", (None, num_channels, *mesh), samples, pick=np.s_[:, channel])
    return x, replace(x, file=f"{prefix}_Y.npy"), q


def _flow(x: np.ndarray, y: np.ndarray, q: np.ndarray) -> Fields:
    return np.stack([x, y], axis=-1), None, q[..., None]


def _plasticity(die: np.ndarray, output: np.ndarray) -> Fields:
    """The height of the die for every node of a column; time before the mesh.

    The four channels keep their order: position (x, y), then displacement (dx, dy), in the
    file's own frame. The coordinates are the reference grid of the generated benchmark, which
    numbers columns and rows and is not tied to that frame.
    """
    heights = np.broadcast_to(die[:, :, None, None], (*output.shape[:3], 1))
    return None, heights, np.moveaxis(output, 3, 1)


def _elasticity(sigma: np.ndarray, xy: np.ndarray) -> Fields:
    return xy, None, sigma[..., None]


_LAST_200 = {"train": slice(0, 1000), "test": slice(-200, None)}
_LAST_80 = {"train": slice(0, 900), "test": slice(-80, None)}
_DARCY = (
    *_darcy_layouts("piececonst_r421_N1024_smooth1.mat", "train", 1000),
    *_darcy_layouts("piececonst_r421_N1024_smooth2.mat", "test", 200),
)
_VORTICITY = Layout("NavierStokes_V1e-5_N1200_T20.mat", (None, 64, 64, 20), _LAST_200, "u")
# The channels are density, two velocities, pressure, Mach number, and two velocities, pressure.
_AIRFOIL = _flow_layouts("NACA_Cylinder", (221, 51), num_channels=5, channel=4)
_PIPE = _flow_layouts("Pipe", (129, 129), num_channels=3, channel=0)
_BLOCK = (
    Layout("plas_N987_T20.mat", (None, 101), _LAST_80, "input", 987),
    Layout("plas_N987_T20.mat", (None, 101, 31, 20, 4), _LAST_80, "output", 987),
)
_CELL = (
    Layout("Random_UnitCell_sigma_10.npy", (972, None), _LAST_200),
    Layout("Random_UnitCell_XY_10.npy", (972, 2, None), _LAST_200),
)

ORIGINALS: dict[str, Original] = {
    original.benchmark: original
    for original in (
        Original("darcy", _DARCY, _darcy, normalise=("inputs", "outputs")),
        Original("navier_stokes", (_VORTICITY,), _navier_stokes, normalise=()),
        Original("airfoil", _AIRFOIL, _flow, normalise=()),
        Original("pipe", _PIPE, _flow, normalise=("coords", "outputs")),
        Original("plasticity", _BLOCK, _plasticity, normalise=("inputs",), validation=80),
        Original("elasticity", _CELL, _elasticity, normalise=("outputs",)),
    )
}
