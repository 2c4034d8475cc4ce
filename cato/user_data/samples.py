"""Samples of a user's file, what they are samples of, and datasets of them.

`assemble` makes samples of datasets with named dimensions. Targets with a time dimension are a
problem in time, see `cato.user_data.series`. `recognise` tells the geometry from the nodes:

- grid: one structured shape, coordinate d runs along axis d in equal steps;
- mesh: one structured shape (as many axes as coordinates, three or more nodes along each);
- cloud: anything else; clouds of different sizes are padded.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cato.data.arrays import array_type, is_uniform
from cato.data.dataset import Dataset
from cato.errors import InputError
from cato.problem import MIN_NODES, Geometry, Problem, TimeProtocol
from cato.user_data.axes import CHANNEL, SAMPLE
from cato.user_data.masks import MASK, Kind, hidden, kind_of, with_mask
from cato.user_data.naming import Name, Naming
from cato.user_data.precision import Spread, needs_float64, offsets_of, spreads, units_of
from cato.user_data.series import (
    Channels,
    Series,
    joined,
    mesh_of,
    of_one_length,
    series_of,
)

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, eq=False)
class UserSample:
    """One sample without padding, in the precision of its file (float32 or float64)."""

    origin: str  # Where it comes from, for messages, such as "plate.h5, sample 3".
    coords: np.ndarray  # (*mesh, D)
    inputs: np.ndarray  # (*mesh, C_in); scalars are constant over the mesh.
    targets: np.ndarray | None  # (*mesh, C_out) or (T, *mesh, C_out); None if the file has none.
    keep: np.ndarray | None = None  # Mask of its points in the file's padded cloud.
    split: str = ""  # train, validation or test, if the file says so.
    file: Path = Path()  # The file that holds it.
    is_alone: bool = False  # Whether the file has no axis of samples.
    valid: np.ndarray | None = None  # Nodes that have values, by a mask of the file's.

    @property
    def mesh(self) -> tuple[int, ...]:
        """Nodes along each axis; a cloud has one."""
        return self.coords.shape[:-1]

    def mapped(self, function: Callable[[np.ndarray], np.ndarray]) -> "UserSample":
        """With a function applied to coordinates, inputs and targets."""
        targets = None if self.targets is None else function(self.targets)
        coords, inputs = function(self.coords), function(self.inputs)
        return replace(self, coords=coords, inputs=inputs, targets=targets)


@dataclass(frozen=True, eq=False)
class UserSamples:
    """The samples of a path, and what their channels mean."""

    path: Path
    samples: list[UserSample]  # One or more. Those on one mesh share the array of its nodes.
    inputs: tuple[str, ...]  # Names of the input channels.
    outputs: tuple[str, ...]
    time: TimeProtocol = "steady"
    num_frames: int = 1  # Frames of the targets; 1 if steady.
    periodic: tuple[int, ...] = ()  # Periodic mesh axes, on which every node is there once.
    period: tuple[float | None, ...] = ()  # Of each coordinate; empty if none has a period.
    repeated: tuple[int, ...] = ()  # Periodic axes at whose end the file repeats their first line.
    static: int = 0  # As in `Problem`, like the next two.
    controls: tuple[str, ...] = ()
    times: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()  # What reading them assumed.
    layout: str = ""  # The layout of their files, such as PDEBench, if it is one of others.
    mask: Kind = ""  # As in `Problem`.

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def has_shared_coords(self) -> bool:
        """Whether all samples are on the same nodes."""
        return all(sample.coords is self.samples[0].coords for sample in self.samples)

    def channels(self, sample: UserSample) -> Iterator[tuple[str, np.ndarray]]:
        """Coordinates, inputs and targets of a sample by name."""
        for axis in range(sample.coords.shape[-1]):
            yield f"coordinate {axis + 1}", sample.coords[..., axis]
        for channel, name in enumerate(self.inputs):
            yield f"input {name}", sample.inputs[..., channel]
        if sample.targets is not None:
            for channel, name in enumerate(self.outputs):
                yield f"target {name}", sample.targets[..., channel]

    @cached_property
    def spreads(self) -> dict[str, list[Spread]]:
        """Statistics of the channels of coords, inputs and outputs; empty without targets."""
        targets = [s.targets for s in self.samples if s.targets is not None]
        return {
            "coords": spreads([sample.coords for sample in self.on_distinct_meshes]),
            "inputs": spreads([sample.inputs for sample in self.samples]),
            "outputs": spreads(targets) if targets else [],
        }

    @property
    def on_distinct_meshes(self) -> list[UserSample]:
        """All samples, or the first if they share its mesh."""
        return self.samples[:1] if self.has_shared_coords else self.samples


def recognise(
    samples: UserSamples, spreads_of_all: dict[str, list[Spread]] | None = None
) -> Problem:
    """The problem that the samples are of; its shape is that of the largest cloud.

    `spreads_of_all` are those of more samples than these, if these are only some.
    """
    found = spreads_of_all or samples.spreads
    geometry = geometry_of(samples)
    shape = samples.samples[0].mesh
    if geometry == "cloud":
        shape = (max(prod(sample.mesh) for sample in samples.samples),)
    units, deviations = units_of(samples.outputs, found["outputs"])
    # A coordinate with a period must not be rescaled.
    coords = () if samples.period else ("coords",)
    exact = tuple(name for name, channels in found.items() if needs_float64(channels))
    if samples.time == "rollout" and {"inputs", "outputs"} & set(exact):  # the same fields
        exact = tuple(dict.fromkeys((*exact, "inputs", "outputs")))
    return Problem(
        name=samples.path.stem,
        geometry=geometry,
        shape=shape,
        inputs=samples.inputs,
        outputs=samples.outputs,
        dimension=samples.samples[0].coords.shape[-1],
        periodic=tuple(axis in samples.periodic for axis in range(len(shape))),
        period=samples.period,
        time=samples.time,
        num_steps=samples.num_frames,
        static=samples.static,
        controls=samples.controls,
        times=samples.times,
        normalise=(*coords, "inputs", "outputs"),
        float64=exact,
        offsets=offsets_of(found["outputs"]),
        units=units,
        deviations=deviations,
        has_gaps=not all(spread.is_complete for spread in found["outputs"]),
        mask=samples.mask,
    )


def geometry_of(samples: UserSamples) -> Geometry:
    """Grid, mesh or cloud."""
    mesh, dimension = samples.samples[0].mesh, samples.samples[0].coords.shape[-1]
    is_structured = len(mesh) == dimension and min(mesh) >= MIN_NODES
    if not is_structured or any(sample.mesh != mesh for sample in samples.samples):
        return "cloud"
    nodes = [sample.coords for sample in samples.on_distinct_meshes]
    if all(map(is_uniform, nodes)):
        return "grid"
    if dimension == 1:  # points on a line that are not in order are a cloud
        steps = [np.diff(coords[:, 0]) for coords in nodes]
        if not all((step > 0).all() or (step < 0).all() for step in steps):
            return "cloud"
    return "mesh"


def dataset_of(samples: UserSamples, problem: Problem, indices: Sequence[int]) -> Dataset:
    """The dataset of some samples; clouds of different sizes are padded and get a mask.

    Their values are those that `cato.user_data.inspect` has looked at, and are not checked again.
    """
    chosen, mask = [samples.samples[i] for i in indices], None
    if problem.geometry == "cloud":
        sizes = np.array([prod(sample.mesh) for sample in chosen])
        if (sizes < problem.num_nodes).any():
            mask = np.arange(problem.num_nodes) < sizes[:, None]
        chosen = [s.mapped(partial(_padded, s.mesh, problem.num_nodes)) for s in chosen]
    targets = [sample.targets for sample in chosen if sample.targets is not None]
    if len(targets) < len(chosen):
        raise InputError(f"{chosen[0].origin} has no targets")
    parts = {
        "coords": [sample.coords for sample in chosen[: 1 if samples.has_shared_coords else None]],
        "inputs": [sample.inputs for sample in chosen],
        "targets": targets,
    }
    arrays = {
        name: np.stack(part, dtype=array_type(problem, name), casting="same_kind")
        for name, part in parts.items()
    }
    if samples.has_shared_coords:
        arrays["coords"] = arrays["coords"][0]
    return Dataset.from_checked(problem, arrays, mask)


def _padded(mesh: tuple[int, ...], num_nodes: int, array: np.ndarray) -> np.ndarray:
    """Values on a mesh as those of a cloud, on one axis of length `num_nodes`."""
    frames, size = array.shape[: -1 - len(mesh)], prod(mesh)
    points = array.reshape(*frames, size, array.shape[-1])
    # Not zero, which may be far from all values.
    return np.pad(points, [*[(0, 0)] * len(frames), (0, num_nodes - size), (0, 0)], mode="edge")


# -- from named dimensions to samples -------------------------------------------------------------


def assemble(
    path: Path,
    datasets: "list[xarray.Dataset]",
    naming: Naming,
    known: Problem | None = None,
) -> UserSamples:
    """Put the fields of each sample together.

    The datasets, of one or many samples each, are in the inner form of `cato.user_data.axes`;
    `naming` is as the user gave it. To predict, `known` is the problem of the model.
    """
    first, is_layout = datasets[0], naming.is_layout
    naming = naming.within([str(name) for name in first.data_vars], truth=False)
    datasets = of_one_length(datasets, naming, is_layout)
    first = datasets[0]
    series = series_of(datasets, naming, is_layout, known)
    _, inputs = _inputs(first, series)
    _, outputs = _targets(first, naming)
    samples = [s for dataset in datasets for s in _samples(dataset, naming, series)]
    if not samples:
        raise InputError(f"{path} holds no samples: the axis that counts them has length 0")
    mask = kind_of(samples) if known is None else known.mask
    if mask:
        samples = [with_mask(sample, inputs) for sample in samples]
        inputs = (MASK, *inputs)
    expected, nodes, targets = _sizes(samples[0]), samples[0].coords, samples[0].targets
    for sample in samples:
        if (found := _sizes(sample)) != expected:
            origin = samples[0].origin
            raise InputError(
                f"{sample.origin}: {found}, but {expected} in {origin}; all samples need the same"
            )
    if len(datasets) > 1 and all(np.array_equal(sample.coords, nodes) for sample in samples):
        samples = [replace(sample, coords=nodes) for sample in samples]
    num_frames = 1 if series.time == "steady" or targets is None else len(targets)
    notes = dict.fromkeys(note for dataset in datasets for note in dataset.attrs["notes"])
    layout = first.attrs.get("layout", "")
    return UserSamples(
        path,
        samples,
        inputs,
        outputs,
        series.time,
        num_frames,
        static=series.num_static + (bool(mask) and series.time == "rollout"),
        controls=series.control_names,
        times=series.times,
        notes=(*notes, *series.notes),
        layout=layout,
        mask=mask,
    )


def _samples(dataset: "xarray.Dataset", naming: Naming, series: Series) -> Iterator[UserSample]:
    """The samples of one dataset; on a shared mesh they share the array of its nodes."""
    inputs, _ = _inputs(dataset, series)
    targets, _ = _targets(dataset, naming)
    order = (SAMPLE, *mesh_of(dataset), f"{CHANNEL}_coords")
    coords = _floats(dataset["coords"].transpose(*order, missing_dims="ignore").values)
    split = dataset.attrs.get("split", "")
    for i in range(len(inputs)):
        origin = dataset.attrs["origin"]
        if SAMPLE in dataset.dims:
            origin += f", sample {dataset.attrs.get('first', 0) + i}" + (
                f" of {split}" if split else ""
            )
        elif group := dataset.attrs.get("group", ""):
            origin += f", group {group}"
        nodes = coords[i] if SAMPLE in dataset["coords"].dims else coords
        truth = None if targets is None else targets[i]
        word = str(dataset["split"].values[i]) if "split" in dataset else split
        alone = SAMPLE not in dataset.dims and "group" not in dataset.attrs
        sample = UserSample(
            origin, nodes, inputs[i], truth, None, word, Path(dataset.attrs["origin"]), alone
        )
        if "mask" in dataset and is_padding(dataset):
            keep = dataset["mask"].values[i]
            sample = replace(sample.mapped(partial(np.compress, keep, axis=-2)), keep=keep)
        elif "mask" in dataset:
            own = dataset["mask"].isel(sample=i, missing_dims="ignore")
            sample = hidden(sample, own.transpose(*mesh_of(dataset)).values)
        yield sample


def is_padding(dataset: "xarray.Dataset") -> bool:
    """Whether the mask marks the padding of clouds, which are then cut to their own sizes."""
    return SAMPLE in dataset["mask"].dims and len(mesh_of(dataset)) == 1


def _inputs(dataset: "xarray.Dataset", series: Series) -> Channels:
    """Inputs (sample, axes, channel), frames as channels with the oldest first.

    In a rollout static inputs come first, then controls, then past frames. All fields of one frame
    stand together, because the model drops the oldest frame and appends the newest. A mask, if
    there is one, comes first of all; `assemble` adds it.
    """
    mesh = mesh_of(dataset)
    parts = [
        _as_channels(*joined(dataset, names, "inputs"), _first_frame(names), len(mesh))
        for names in ((name,) for name in series.separate)
    ]
    if series.control_names and series.last is not None:
        values = series.control_values(dataset)
        parts.append(_as_channels(values, series.control_names, 1, len(mesh)))
    if series.past:
        past = joined(dataset, series.past, "inputs")
        parts.append(_as_channels(*past, _first_frame(series.past), len(mesh)))
    if not parts:
        parts = [(np.zeros([*(dataset.sizes.get(dim, 1) for dim in (SAMPLE, *mesh)), 0]), ())]
    values = np.concatenate([values for values, _ in parts], axis=-1)
    return _floats(values), tuple(word for _, words in parts for word in words)


def _first_frame(names: tuple[Name, ...]) -> int:
    return (names[0].frames or (0, None))[0] or 0


def _as_channels(values: np.ndarray, words: tuple[str, ...], first: int, num_axes: int) -> Channels:
    """Frames, numbered from `first`, as channels."""
    if values.ndim == num_axes + 2:
        return values, words
    num_frames = values.shape[1]
    values = np.moveaxis(values, 1, -2).reshape(*values.shape[:1], *values.shape[2:-1], -1)
    return values, tuple(f"{word}[{first + k}]" for k in range(num_frames) for word in words)


def _targets(
    dataset: "xarray.Dataset", naming: Naming
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Targets (sample, time, axes, channel); None where the file has none, or no frame of them."""
    if not naming.targets:
        return None, ()
    values, words = joined(dataset, naming.targets, "targets")
    return (_floats(values) if values.size or not len(values) else None), words


def _sizes(sample: UserSample) -> str:
    targets = "no targets"
    if sample.targets is not None:
        num_frames = len(sample.targets) if sample.targets.ndim > sample.coords.ndim else 0
        targets = f"targets with {sample.targets.shape[-1]} channels and {num_frames} frames"
    return f"{sample.coords.shape[-1]} coordinates, {sample.inputs.shape[-1]} inputs, {targets}"


def _floats(array: np.ndarray) -> np.ndarray:
    """As float32 if that holds every value of the array's type, otherwise as float64."""
    is_short = np.can_cast(array.dtype, np.float32)
    return np.ascontiguousarray(array, np.float32 if is_short else np.float64)
