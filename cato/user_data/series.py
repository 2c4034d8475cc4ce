"""Time series of users: which inputs are past frames, parameters and controls, and when frames are.

A problem in time is a rollout if the inputs hold earlier frames of all target fields: the model
predicts each frame from the ones before it. Of the other inputs, those without frames are static,
and those with frames are controls: they have a value for every frame, of the targets and of the
past, and a step sees them up to the new frame. Without past frames the model is conditioned on the
time of each frame, and all inputs are static.

The times of the frames are in an array (frames) or (samples, frames). Where they are not evenly
spaced, or differ between samples, a rollout gets the step size as a control, and a conditioned
problem has its times in [0, 1].

Series of different lengths end in NaN: `of_one_length` appends it to those of shorter files or
groups, and where an array `lengths` says how many frames a sample has. Controls and times are
continued there, and no loss, error or statistic of the outputs counts these frames. Controls or
times that end before the targets stay NaN, and are refused.
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
        """Values (sample, frame, *axes, control) for all frames but the oldest.

        After the end of a series those of its last frame.
        """
        assert self.last is not None
        mesh, has_ended = mesh_of(dataset), self._has_ended(dataset)
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
            values = field.isel({TIME: slice(self.first + 1, self.last)}).values
            parts.append(_continued(values, has_ended))
        if STEP_SIZE in self.control_names:
            steps = np.diff(_times(dataset)[:, self.first : self.last], axis=1)
            steps = _continued(steps, has_ended)
            shape = [dataset.sizes[dim] for dim in mesh]
            num_samples = dataset.sizes.get(SAMPLE, 1)
            steps = steps.reshape(*steps.shape, *len(mesh) * [1], 1)
            parts.append(np.broadcast_to(steps, (num_samples, steps.shape[1], *shape, 1)))
        return np.concatenate(parts, axis=-1)

    def _has_ended(self, dataset: "xarray.Dataset") -> np.ndarray:
        """Whether (sample, frame) is after the last frame with targets; if there are none, no."""
        assert self.last is not None
        frames = np.arange(self.first + 1, self.last)
        # In the documented layout the targets are an array of their own.
        is_layout = self.past[0].field == "inputs" and "targets" in dataset
        offset = dataset.sizes[f"{TIME}_inputs"] if is_layout else 0
        values = field_of(dataset, Name("targets" if is_layout else self.past[0].field)).values
        if offset + values.shape[1] < self.last:
            return np.zeros((len(values), len(frames)), np.bool_)
        has_some = np.isfinite(values.reshape(*values.shape[:2], -1)).any(axis=2)
        end = offset + values.shape[1] - has_some[:, ::-1].argmax(axis=1)
        return frames >= end[:, None]


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
    steps = np.diff(times, axis=1)
    has_ended = np.isnan(times).cumsum(axis=1)[:, 1:] > 0
    falls = ~((steps > 0) | (has_ended & np.isnan(steps))).all(axis=1)
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
    steps = steps[np.isfinite(steps)]
    if not steps.size or np.ptp(steps) <= UNEVEN * steps.mean():
        return series
    override = "--data.times none takes frames as evenly spaced"
    span = f"{steps.min():.4g} to {steps.max():.4g}"
    if series.time == "rollout":
        sentence = f"time steps of {span}: the model sees the step before each frame ({override})"
        names = (*series.control_names, STEP_SIZE)
        return replace(series, control_names=names, notes=(sentence,))
    longest = found[np.isfinite(found).sum(axis=1).argmax()]
    span_of_all = longest[-1] - longest[0]
    differs = np.abs(np.where(np.isnan(found), 0, found - longest))
    if differs.max() > UNEVEN * span_of_all / len(longest):
        raise InputError(
            f"{first.attrs['origin']}: the times of the frames differ between samples, which needs "
            f"a rollout: name earlier frames as inputs, such as --inputs u[:1] --targets u[1:]; "
            f"{override}"
        )
    sentence = f"time steps of {span}: the model sees the times of the frames ({override})"
    unit = (longest - longest[0]) / span_of_all
    return replace(series, times=tuple(unit.tolist()), notes=(sentence,))


# -- lengths --------------------------------------------------------------------------------------


def of_one_length(
    datasets: "list[xarray.Dataset]", naming: Naming, is_layout: bool
) -> "list[xarray.Dataset]":
    """The datasets with as many frames each, NaN after the end of a series."""
    dims = {str(dim) for d in datasets for dim in d.dims if str(dim).startswith(f"{TIME}_")}
    sizes = {dim: max(d.sizes.get(dim, 0) for d in datasets) for dim in dims}
    found = []
    for dataset in datasets:
        short = {
            dim: (0, n - dataset.sizes[dim]) for dim, n in sizes.items() if dim in dataset.dims
        }
        if any(end for _, end in short.values()):
            dataset = dataset.pad(short, constant_values=np.nan)
        if "lengths" in dataset:
            dataset = _ended(dataset, naming, is_layout)
        found.append(dataset)
    return found


def _ended(dataset: "xarray.Dataset", naming: Naming, is_layout: bool) -> "xarray.Dataset":
    """With NaN in the frames after the lengths of the series."""
    import xarray

    origin, lengths = dataset.attrs["origin"], dataset["lengths"].astype(int)
    name = naming.targets[0]
    if f"{TIME}_{name.field}" not in dataset.dims:
        raise InputError(
            f"{origin}: 'lengths' are numbers of frames, and {name.field!r} has none; rename it"
        )
    num_past = dataset.sizes.get(f"{TIME}_inputs", 0) if is_layout else 0
    start = num_past + _range(dataset, name)[0]
    count = num_past + dataset.sizes[f"{TIME}_{name.field}"]
    wrong = np.flatnonzero(((lengths <= start) | (lengths > count)).values)
    if wrong.size:
        raise InputError(
            f"{origin}, sample {wrong[0]}: its length should be {start + 1} to {count} frames, as "
            f"the file has {count} and the targets begin after {start}; it is "
            f"{int(lengths.values.flat[wrong[0]])}"
        )
    found = {}
    for field, values in dataset.data_vars.items():
        dim = f"{TIME}_{field}"
        if dim not in values.dims or (is_layout and field == "inputs"):
            continue
        first = num_past if field == "targets" else 0
        frames = xarray.DataArray(first + np.arange(values.sizes[dim]), dims=dim)
        dims = dict.fromkeys((*lengths.dims, *values.dims))
        found[field] = values.where(lengths > frames).transpose(*dims)
    return dataset.assign(found)


def _continued(values: np.ndarray, has_ended: np.ndarray) -> np.ndarray:
    """Values (sample, frame, …) with those of the last frame that has some, where it has ended."""
    if not np.isnan(values).any():
        return values
    values = values.copy()
    if len(values) < len(has_ended):  # shared by all samples
        has_ended = np.asarray(has_ended.all(axis=0, keepdims=True))
    for sample, is_after in zip(values, has_ended, strict=True):
        has_some = ~np.isnan(sample.reshape(len(sample), -1)).all(axis=1)
        if has_some.any():
            last = int(np.flatnonzero(has_some)[-1])
            sample[last + 1 :][is_after[last + 1 :]] = sample[last]
    return values


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
