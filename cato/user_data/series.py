"""Time series of users: which inputs are past frames, parameters and controls, and when frames are.

A problem in time is a rollout if the inputs hold earlier frames of all target fields: the model
predicts each frame from the ones before it. Of the other inputs, those without frames are static,
and those with frames are controls: they have a value for every frame, of the targets and of the
past, and a step sees them up to the new frame. Without past frames the model is conditioned on the
time of each frame, and all inputs are static.

The times of the frames are in an array (frames) or (samples, frames). Where they are not evenly
spaced, or differ between samples, a rollout gets the step size as a control, and a conditioned
problem has its times in [0, 1].
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cato.data.rollout import STEP_SIZE
from cato.errors import InputError
from cato.problem import Problem, TimeProtocol
from cato.user_data.axes import CHANNEL, SAMPLE, TIME
from cato.user_data.naming import Name, Naming

if TYPE_CHECKING:
    import xarray

DEFAULT_NAMES = {
    "inputs": "input",
    "targets": "target",
    "scalars": "scalar",
    "parameters": "parameter",
    "controls": "control",
}
UNEVEN = 1e-3  # Least variation of the step size, in units of its mean: files are rounded.
Channels = tuple[np.ndarray, tuple[str, ...]]
"""Values with channels last, and the names of the channels."""


@dataclass(frozen=True)
class Series:
    """How the inputs take part in the time protocol."""

    time: TimeProtocol
    separate: tuple[Name, ...]  # Inputs that every frame sees.
    controls: tuple[Name, ...] = ()
    past: tuple[Name, ...] = ()
    first: int = 0  # Number of the oldest past frame in its file,
    last: int | None = None  # and of the frame after the last; None without targets or controls.
    num_static: int = 0  # Channels of `separate`, in a rollout.
    control_names: tuple[str, ...] = ()  # Of the channels, with the step size.
    times: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()

    def control_values(self, dataset: "xarray.Dataset") -> np.ndarray:
        """Values (sample, frame, *axes, control) for all frames but the oldest."""
        assert self.last is not None
        mesh = mesh_of(dataset)
        parts = []
        for name in self.controls:
            field = field_of(dataset, Name(name.field))
            start = (name.frames or (0, None))[0] or 0
            if field.sizes[TIME] < self.last or start > self.first + 1:
                raise InputError(
                    f"{dataset.attrs['origin']}: {name} has frames {start} to "
                    f"{field.sizes[TIME] - 1}, and a control needs one for every frame of the "
                    f"inputs and targets, {self.first} to {self.last - 1} (the value at the first "
                    f"is not used)"
                )
            parts.append(field.isel({TIME: slice(self.first + 1, self.last)}).values)
        if STEP_SIZE in self.control_names:
            steps = np.diff(_times(dataset)[:, self.first : self.last], axis=1)
            shape = [dataset.sizes[dim] for dim in mesh]
            num_samples = dataset.sizes.get(SAMPLE, 1)
            steps = steps.reshape(*steps.shape, *len(mesh) * [1], 1)
            parts.append(np.broadcast_to(steps, (num_samples, steps.shape[1], *shape, 1)))
        return np.concatenate(parts, axis=-1)


def series_of(
    datasets: "list[xarray.Dataset]", naming: Naming, is_layout: bool, known: Problem | None
) -> Series:
    """The roles of the inputs of some datasets, which are alike."""
    first = datasets[0]
    time = _protocol(first, naming, is_layout) if known is None else known.time
    if time == "steady":
        return Series(time, naming.inputs)
    if time == "conditioned":
        series = Series(time, naming.inputs)
        return series if known else _with_times(datasets, naming, series, is_layout)
    past = _past(first, naming, is_layout)
    if not past:
        raise InputError(f"{first.attrs['origin']} has no past frames to start a rollout from")
    others = tuple(name for name in naming.inputs if name not in past)
    in_time = [TIME in field_of(first, name).dims for name in others]
    static = tuple(n for n, is_control in zip(others, in_time, strict=True) if not is_control)
    controls = tuple(n for n, is_control in zip(others, in_time, strict=True) if is_control)
    words = [str(w) for n in controls for w in field_of(first, n)[CHANNEL].values]
    num_past = field_of(first, past[0]).sizes[TIME]
    begin = 0 if is_layout else _range(first, past[0])[0]
    end = None
    if naming.targets and known is None:
        target = field_of(first, naming.targets[0])
        end = begin + num_past + target.sizes[TIME]
    else:  # to predict: all frames that have controls
        lengths = [field_of(first, Name(name.field)).sizes[TIME] for name in controls]
        if known is not None and STEP_SIZE in known.controls:
            lengths.append(_required_times(first).shape[1])
        end = min(lengths, default=None)
    found = Series(
        time,
        static,
        controls,
        past,
        begin,
        end,
        sum(field_of(first, name).sizes[CHANNEL] for name in static),
        tuple(words),
    )
    if known is not None:
        names = (*words, *((STEP_SIZE,) if STEP_SIZE in known.controls else ()))
        return replace(found, control_names=names)
    return _with_times(datasets, naming, found, is_layout)


def _protocol(dataset: "xarray.Dataset", naming: Naming, is_layout: bool) -> TimeProtocol:
    future = [field_of(dataset, name) for name in naming.targets]
    in_time = [TIME in field.dims for field in future]
    origin = dataset.attrs["origin"]
    if any(in_time) and not all(in_time):
        raise InputError(f"{origin}: some targets have frames and others do not")
    if not any(in_time):
        return "steady"
    if naming.time == "conditioned":
        return "conditioned"
    past = _past(dataset, naming, is_layout)
    if not past and naming.time == "rollout":
        raise InputError(
            f"{origin}: a rollout starts from earlier frames of all its targets; name them among "
            f"the inputs in the same order, such as --inputs u[:1],k --targets u[1:]"
        )
    return "rollout" if past else "conditioned"


def _past(dataset: "xarray.Dataset", naming: Naming, is_layout: bool) -> tuple[Name, ...]:
    """Inputs that are earlier frames of the targets, in their order; empty if some have none."""
    in_time = [name for name in naming.inputs if TIME in field_of(dataset, name).dims]
    if is_layout:
        past = [name for name in in_time if name.field == "inputs"]
        if not past or not naming.targets:
            return tuple(past)
        labels = [f"{CHANNEL}_{name}" for name in ("inputs", "targets")]
        words = {tuple(dataset[n].values) for n in labels if n in dataset.coords}
        # Different names are different fields: a rollout would feed outputs back as these inputs.
        sizes = {field_of(dataset, name).sizes[CHANNEL] for name in (past[0], *naming.targets)}
        return tuple(past) if len(sizes) == 1 and len(words) < 2 else ()
    targets = naming.targets
    past = [name for name in in_time if name.field in {target.field for target in targets}]
    if targets and [name.field for name in past] != [name.field for name in targets]:
        return ()
    for past_name, next_name in zip(past, targets, strict=True) if targets else ():
        ends, starts = past_name.frames or (None, None), next_name.frames or (None, None)
        if ends[1] is None or ends[1] != starts[0]:
            raise InputError(
                f"inputs {past_name} and targets {next_name}: the targets of a rollout begin with "
                f"the frame after its inputs, such as u[:10] and u[10:]"
            )
    return tuple(past)


# -- times ----------------------------------------------------------------------------------------


def _times(dataset: "xarray.Dataset") -> np.ndarray:
    """Times (sample, frame), with one sample if they are those of all."""
    values: np.ndarray = dataset["times"].values
    return values if values.ndim == 2 else values[None]


def _required_times(dataset: "xarray.Dataset") -> np.ndarray:
    if "times" not in dataset:
        raise InputError(
            f"{dataset.attrs['origin']}: the model was trained on irregular time steps, and the "
            f"file has no times; add an array 'times', (frames,) or (samples, frames), that covers "
            f"the given frames and those to predict"
        )
    times = _times(dataset)
    _require_increasing(dataset, times)
    return times


def _require_increasing(dataset: "xarray.Dataset", times: np.ndarray) -> None:
    falls = ~(np.diff(times, axis=1) > 0).all(axis=1)
    if falls.any():
        raise InputError(
            f"{dataset.attrs['origin']}, sample {int(falls.argmax())}: times should increase from "
            f"frame to frame; fix them, or give --data.times none for evenly spaced frames"
        )


def _with_times(
    datasets: "list[xarray.Dataset]", naming: Naming, series: Series, is_layout: bool
) -> Series:
    """With the step size as a control, or the times of the frames, if they are not even."""
    if not all("times" in dataset for dataset in datasets):
        return series
    first = datasets[0]
    target = field_of(first, naming.targets[0])
    if series.time == "rollout":
        begin, end = series.first, series.last
        assert end is not None
        needed = end
    else:
        begin = 0 if is_layout else _range(first, naming.targets[0])[0]
        end = needed = begin + target.sizes[TIME]
    for dataset in datasets:
        times = _times(dataset)
        if times.shape[1] < needed:
            if naming.times:
                raise InputError(
                    f"{dataset.attrs['origin']}: {times.shape[1]} times for {needed} frames; give "
                    f"one for each, or --data.times none"
                )
            return series  # something else that is called so
        _require_increasing(dataset, times[:, begin:end])
    found = np.concatenate([_times(dataset)[:, begin:end] for dataset in datasets])
    steps = np.diff(found, axis=1)
    if not steps.size or np.ptp(steps) <= UNEVEN * steps.mean():
        return series
    override = "--data.times none takes frames as evenly spaced"
    span = f"{steps.min():.4g} to {steps.max():.4g}"
    if series.time == "rollout":
        sentence = f"time steps of {span}: the model sees the step before each frame ({override})"
        names = (*series.control_names, STEP_SIZE)
        return replace(series, control_names=names, notes=(sentence,))
    unit = (found - found[:, :1]) / (found[:, -1:] - found[:, :1])
    if np.ptp(unit, axis=0).max() > UNEVEN / found.shape[1] or np.ptp(found[:, -1]) > UNEVEN * (
        found[0, -1] - found[0, 0]
    ):
        raise InputError(
            f"{first.attrs['origin']}: the times of the frames differ between samples, which needs "
            f"a rollout: name earlier frames as inputs, such as --inputs u[:1] --targets u[1:]; "
            f"{override}"
        )
    sentence = f"time steps of {span}: the model sees the times of the frames ({override})"
    return replace(series, times=tuple(unit[0].tolist()), notes=(sentence,))


# -- fields ---------------------------------------------------------------------------------------


def _range(dataset: "xarray.Dataset", name: Name) -> tuple[int, int]:
    """Numbers of the first frame of a name and of the one after its last."""
    start, stop, _ = slice(*(name.frames or (None, None))).indices(
        field_of(dataset, Name(name.field)).sizes[TIME]
    )
    return start, stop


def mesh_of(dataset: "xarray.Dataset") -> list[str]:
    """Dimensions of the mesh."""
    return sorted(str(dim) for dim in dataset["coords"].dims if str(dim).startswith("axis"))


def field_of(dataset: "xarray.Dataset", name: Name) -> "xarray.DataArray":
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
    if name.frame is not None:
        num_frames = field.sizes.get(TIME, 0)
        if not -num_frames <= name.frame < num_frames:
            raise InputError(f"{origin}: there is no {name}; the field has {num_frames} frames")
        field = field.isel(time=name.frame)
    if CHANNEL not in field.coords:
        word, count = DEFAULT_NAMES.get(name.field, name.field), field.sizes[CHANNEL]
        words = [word] if count == 1 else [f"{word}_{i + 1}" for i in range(count)]
        field = field.assign_coords(channel=words)
    # What all samples share is repeated, and scalars of samples at every node.
    mesh = mesh_of(dataset)
    sizes = {d: dataset.sizes.get(d, 1) for d in (SAMPLE, *mesh) if d not in field.dims}
    order = (SAMPLE, TIME, *mesh, CHANNEL)
    return field.expand_dims(sizes).transpose(*order, missing_dims="ignore")


def joined(dataset: "xarray.Dataset", names: tuple[Name, ...], what: str) -> Channels:
    """Some fields as channels of one array."""
    fields = [field_of(dataset, name) for name in names]
    if len({field.sizes.get(TIME) for field in fields}) > 1:
        origin = dataset.attrs["origin"]
        raise InputError(f"{origin}: the {what} differ in their numbers of frames")
    words = tuple(str(word) for field in fields for word in field[CHANNEL].values)
    return np.concatenate([field.values for field in fields], axis=-1), words
