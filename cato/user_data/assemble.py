"""From named dimensions to samples: coordinates, input channels and targets.

Targets with a time dimension are a problem in time. It is a rollout if the inputs are only earlier
frames of the same fields; otherwise the model is conditioned on the time of each frame.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cato.errors import InputError
from cato.problem import TimeProtocol
from cato.user_data.axes import CHANNEL, SAMPLE, TIME
from cato.user_data.naming import Name, Naming
from cato.user_data.samples import UserSample, UserSamples

if TYPE_CHECKING:
    import xarray

DEFAULT_NAMES = {"inputs": "input", "targets": "target", "scalars": "scalar"}

Channels = tuple[np.ndarray, tuple[str, ...]]
"""Values with channels last, and the names of the channels."""


def assemble(path: Path, datasets: "list[xarray.Dataset]", naming: Naming) -> UserSamples:
    """Put the fields of each sample together.

    Args:
        path: Where the data come from.
        datasets: In the inner form, see `cato.user_data.axes`; one or many samples each.
        naming: As the user gave it.
    """
    first, is_layout = datasets[0], naming.is_layout
    naming = naming.within([str(name) for name in first.data_vars], truth=False)
    time = _time_protocol(first, naming, is_layout)
    _, inputs = _inputs(first, naming, time)
    _, outputs = _targets(first, naming)
    samples = [s for dataset in datasets for s in _samples(dataset, naming, time)]
    if not samples:
        raise InputError(f"{path} holds no samples: the axis that counts them has length 0")
    for sample in samples:
        _require_like(sample, samples[0])
    if len(datasets) > 1:
        samples = _with_shared_mesh(samples)
    targets = samples[0].targets
    num_frames = 1 if time == "steady" or targets is None else len(targets)
    return UserSamples(path, samples, inputs, outputs, time, num_frames)


def _samples(dataset: "xarray.Dataset", naming: Naming, time: TimeProtocol) -> Iterator[UserSample]:
    """The samples of one dataset; on a shared mesh they share the array of its nodes."""
    inputs, _ = _inputs(dataset, naming, time)
    targets, _ = _targets(dataset, naming)
    order = (SAMPLE, *_mesh(dataset), f"{CHANNEL}_coords")
    coords = _float32(dataset["coords"].transpose(*order, missing_dims="ignore").values)
    split = dataset.attrs.get("split", "")
    for i in range(len(inputs)):
        origin = dataset.attrs["origin"]
        if SAMPLE in dataset.dims:
            origin += f", sample {i}" + (f" of {split}" if split else "")
        nodes = coords[i] if SAMPLE in dataset["coords"].dims else coords
        truth = None if targets is None else targets[i]
        word = str(dataset["split"].values[i]) if "split" in dataset else split
        sample = UserSample(origin, nodes, inputs[i], truth, split=word)
        yield sample.masked(dataset["mask"].values[i]) if "mask" in dataset else sample


def _mesh(dataset: "xarray.Dataset") -> list[str]:
    return sorted(str(dim) for dim in dataset["coords"].dims if str(dim).startswith("axis"))


def _field(dataset: "xarray.Dataset", name: Name) -> "xarray.DataArray":
    """The named frames of a field as (sample, time, axes, channel), with names of channels."""
    origin = dataset.attrs["origin"]
    if name.field not in dataset:
        raise InputError(f"{origin} has no field {name.field!r}, which other samples have")
    field = dataset[name.field]
    roles = {
        dim: role for dim in field.dims if (role := str(dim).partition("_")[0]) in (TIME, CHANNEL)
    }
    field = field.rename(roles)
    if name.frames is not None:
        if TIME not in field.dims:
            raise InputError(f"{origin}: field {name} has no frames; its shape is {field.shape}")
        field = field.isel(time=slice(*name.frames))
    if CHANNEL not in field.coords:
        word, count = DEFAULT_NAMES.get(name.field, name.field), field.sizes[CHANNEL]
        words = [word] if count == 1 else [f"{word}_{i + 1}" for i in range(count)]
        field = field.assign_coords(channel=words)
    # What all samples share is repeated, and scalars of samples at every node.
    mesh = _mesh(dataset)
    sizes = {d: dataset.sizes.get(d, 1) for d in (SAMPLE, *mesh) if d not in field.dims}
    order = (SAMPLE, TIME, *mesh, CHANNEL)
    return field.expand_dims(sizes).transpose(*order, missing_dims="ignore")


def _time_protocol(dataset: "xarray.Dataset", naming: Naming, is_layout: bool) -> TimeProtocol:
    past = [_field(dataset, name) for name in naming.inputs]
    future = [_field(dataset, name) for name in naming.targets]
    in_time = [TIME in field.dims for field in future]
    if any(in_time) and not all(in_time):
        raise InputError(f"{dataset.attrs['origin']}: some targets have frames and others do not")
    if not any(in_time):
        return "steady"
    if not past or not all(TIME in field.dims for field in past):
        return "conditioned"
    if is_layout:
        labels = [f"{CHANNEL}_{name}" for name in ("inputs", "targets")]
        words = {tuple(dataset[n].values) for n in labels if n in dataset.coords}
        # Different names are different fields: a rollout would feed outputs back as these inputs.
        is_same = past[0].sizes[CHANNEL] == future[0].sizes[CHANNEL] and len(words) < 2
        return "rollout" if is_same else "conditioned"
    if [n.field for n in naming.inputs] != [n.field for n in naming.targets]:
        return "conditioned"
    for past_name, next_name in zip(naming.inputs, naming.targets, strict=True):
        ends, starts = past_name.frames or (None, None), next_name.frames or (None, None)
        if ends[1] is None or ends[1] != starts[0]:
            raise InputError(
                f"inputs {past_name} and targets {next_name}: the targets of a rollout begin with "
                f"the frame after its inputs, such as u[:10] and u[10:]"
            )
    return "rollout"


def _inputs(dataset: "xarray.Dataset", naming: Naming, time: TimeProtocol) -> Channels:
    """Inputs (sample, axes, channel), frames as channels with the oldest first.

    In a rollout all fields of one frame stand together, because the model drops the oldest frame
    and appends the newest.
    """
    names = naming.inputs
    groups = [names] if time == "rollout" else [(name,) for name in names]
    parts = [_frames_as_channels(dataset, group) for group in groups]
    if not parts:
        shape = [dataset.sizes.get(dim, 1) for dim in (SAMPLE, *_mesh(dataset))]
        return np.zeros((*shape, 0), np.float32), ()
    values = np.concatenate([part for part, _ in parts], axis=-1)
    return _float32(values), tuple(word for _, words in parts for word in words)


def _frames_as_channels(dataset: "xarray.Dataset", names: tuple[Name, ...]) -> Channels:
    values, words = _joined(dataset, names, "inputs")
    if values.ndim == len(_mesh(dataset)) + 2:
        return values, words
    start, num_frames = (names[0].frames or (0, None))[0] or 0, values.shape[1]
    values = np.moveaxis(values, 1, -2).reshape(*values.shape[:1], *values.shape[2:-1], -1)
    return values, tuple(f"{word}[{start + k}]" for k in range(num_frames) for word in words)


def _targets(
    dataset: "xarray.Dataset", naming: Naming
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Targets (sample, time, axes, channel); None where the file has none, or no frame of them."""
    if not naming.targets:
        return None, ()
    values, words = _joined(dataset, naming.targets, "targets")
    return (_float32(values) if values.size or not len(values) else None), words


def _joined(dataset: "xarray.Dataset", names: tuple[Name, ...], what: str) -> Channels:
    fields = [_field(dataset, name) for name in names]
    if len({field.sizes.get(TIME) for field in fields}) > 1:
        origin = dataset.attrs["origin"]
        raise InputError(f"{origin}: the {what} differ in their numbers of frames")
    words = tuple(str(word) for field in fields for word in field[CHANNEL].values)
    return np.concatenate([field.values for field in fields], axis=-1), words


def _require_like(sample: UserSample, first: UserSample) -> None:
    """Refuse a sample whose coordinates, channels or frames differ from the first one's."""
    found, expected = map(_sizes, (sample, first))
    if found != expected:
        raise InputError(
            f"{sample.origin}: {found}, but {expected} in {first.origin}; all samples need the same"
        )


def _sizes(sample: UserSample) -> str:
    targets = "no targets"
    if sample.targets is not None:
        num_frames = len(sample.targets) if sample.targets.ndim > sample.coords.ndim else 0
        targets = f"targets with {sample.targets.shape[-1]} channels and {num_frames} frames"
    return f"{sample.coords.shape[-1]} coordinates, {sample.inputs.shape[-1]} inputs, {targets}"


def _with_shared_mesh(samples: list[UserSample]) -> list[UserSample]:
    """If all samples repeat one mesh, let them share its array."""
    nodes = samples[0].coords
    if all(np.array_equal(sample.coords, nodes) for sample in samples):
        return [replace(sample, coords=nodes) for sample in samples]
    return samples


def _float32(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # too large for float32 is infinite, and reported as such
        return np.ascontiguousarray(array, np.float32)
