"""The fields of every sample put together: channels, scalars, time.

Targets with an axis of frames are a problem in time. It is a rollout if the inputs are nothing but
earlier frames of the same fields; otherwise the model is asked for each frame by its time.
"""

from pathlib import Path

import numpy as np

from cato.errors import InputError
from cato.problem import TimeProtocol
from cato.user_data.naming import Name, Naming
from cato.user_data.samples import RawSample, RawSamples, UserSample, UserSamples
from cato.user_data.shapes import nodal, read_shape

DEFAULT_NAMES = {"inputs": "input", "targets": "target", "scalars": "scalar"}


def assemble(path: Path, raw: RawSamples, naming: Naming) -> UserSamples:
    """The samples with their fields in channels.

    Args:
        path: Where they are from.
        raw: As they are in the file.
        naming: As the user gave it.
    """
    if not raw.samples:
        raise InputError(f"{path} holds no samples: the axis that counts them has length 0")
    first, is_layout = raw.samples[0], naming.is_layout
    naming = naming.within(first.fields, truth=False)
    dimension = first.coords.shape[-1]
    for sample in raw.samples:
        if sample.coords.shape[-1] != dimension:
            raise InputError(
                f"{sample.origin}: {sample.coords.shape[-1]} coordinates, but {dimension} in "
                f"{first.origin}; all samples need the same"
            )
    time = _time(raw, naming, is_layout)
    inputs, outputs = _input_names(raw, naming, time), _channel_names(raw, naming.targets)
    shared: dict[int, np.ndarray] = {}
    samples = [_sample(sample, naming, time, shared) for sample in raw.samples]
    for own in samples:
        _require_like(own, samples[0], inputs, outputs)
    targets = samples[0].targets
    num_frames = 1 if time == "steady" or targets is None else len(targets)
    return UserSamples(path, samples, inputs, outputs, time, num_frames)


def _sample(
    raw: RawSample, naming: Naming, time: TimeProtocol, shared: dict[int, np.ndarray]
) -> UserSample:
    mesh, keep = raw.coords.shape[:-1], raw.keep
    coords = shared.get(id(raw.coords))
    if coords is None or keep is not None:
        coords = _float32(_kept(raw.coords, keep, 0))
        shared[id(raw.coords)] = coords
    windows = [_field(raw, name) for name in naming.inputs]
    inputs = np.concatenate(
        [_as_channels(window, mesh) for window in _by_frame(windows, time)]
        or [np.zeros((*mesh, 0), np.float32)],
        axis=-1,
    )
    targets = None
    fields = [_field(raw, name) for name in naming.targets]
    if fields and all(field.shape[0] for field in fields):
        lengths = {field.shape[: field.ndim - len(mesh) - 1] for field in fields}
        if len(lengths) > 1:
            raise InputError(f"{raw.origin}: the targets differ in their numbers of frames")
        joined = np.concatenate(fields, axis=-1)
        targets = _float32(_kept(joined, keep, joined.ndim - 2))
    inputs = _float32(_kept(inputs, keep, 0))
    return UserSample(raw.origin, coords, inputs, targets, keep, raw.split)


def _field(raw: RawSample, name: Name) -> np.ndarray:
    """A field as (*mesh, C) or (T, *mesh, C), of the named frames."""
    if name.field not in raw.fields:
        raise InputError(f"{raw.origin} has no field {name.field!r}, which other samples have")
    array, mesh = raw.fields[name.field], raw.coords.shape[:-1]
    reading = read_shape(array.shape, mesh)
    if reading is None:
        raise InputError(
            f"{raw.origin}: field {name.field!r} of shape {array.shape} does not fit the mesh "
            f"{mesh}; expected {mesh}, {(*mesh, 'channels')} or {('frames', *mesh, 'channels')}"
        )
    values = nodal(array, mesh)
    if name.frames is None:
        return values
    if not reading.has_frames:
        raise InputError(f"{raw.origin}: field {name} has no frames; its shape is {array.shape}")
    return values[slice(*name.frames)]


def _time(raw: RawSamples, naming: Naming, is_layout: bool) -> TimeProtocol:
    first = raw.samples[0]
    mesh = first.coords.shape[:-1]

    def frames(name: Name) -> bool:
        return _field(first, name).ndim > len(mesh) + 1

    in_time = [frames(name) for name in naming.targets]
    if any(in_time) and not all(in_time):
        raise InputError(f"{first.origin}: some targets have frames and others not")
    if not any(in_time):
        return "steady"
    if not naming.inputs or not all(map(frames, naming.inputs)):
        return "conditioned"
    if is_layout:
        past, future = (_field(first, names[0]) for names in (naming.inputs, naming.targets))
        words = {raw.labels[name] for name in ("inputs", "targets") if name in raw.labels}
        # Other names are other fields: a rollout would feed its outputs back as these inputs.
        is_same = past.shape[-1] == future.shape[-1] and len(words) < 2
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


def _by_frame(windows: list[np.ndarray], time: TimeProtocol) -> list[np.ndarray]:
    """For a rollout all fields of one frame stand together, the oldest frame first."""
    return [np.concatenate(windows, axis=-1)] if time == "rollout" else windows


def _as_channels(field: np.ndarray, mesh: tuple[int, ...]) -> np.ndarray:
    """Frames become channels, the oldest first."""
    if field.ndim == len(mesh) + 1:
        return field
    return np.moveaxis(field, 0, -2).reshape(*mesh, -1)


def _input_names(raw: RawSamples, naming: Naming, time: TimeProtocol) -> tuple[str, ...]:
    """Names of the input channels, frames numbered as in the file."""
    first = raw.samples[0]
    num_axes = first.coords.ndim - 1

    def numbered(names: tuple[Name, ...]) -> list[str]:
        field = _field(first, names[0])
        channels = _channel_names(raw, names)
        if field.ndim == num_axes + 1:
            return list(channels)
        start = (names[0].frames or (0, None))[0] or 0
        return [f"{c}[{start + k}]" for k in range(len(field)) for c in channels]

    if time == "rollout":
        return tuple(numbered(naming.inputs))
    return tuple(word for name in naming.inputs for word in numbered((name,)))


def _channel_names(raw: RawSamples, names: tuple[Name, ...]) -> tuple[str, ...]:
    found: list[str] = []
    for name in names:
        count = _field(raw.samples[0], name).shape[-1]
        labels = raw.labels.get(name.field, ())
        if labels and len(labels) != count:
            raise InputError(
                f"{raw.samples[0].origin}: {len(labels)} names for the {count} channels of "
                f"{name.field!r}"
            )
        word = DEFAULT_NAMES.get(name.field, name.field)
        found += labels or ([word] if count == 1 else [f"{word}_{i + 1}" for i in range(count)])
    return tuple(found)


def _require_like(
    sample: UserSample, first: UserSample, inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> None:
    """All samples have the same channels and frames."""
    if sample.inputs.shape[-1] != len(inputs):
        raise InputError(
            f"{sample.origin}: {sample.inputs.shape[-1]} input channels, but {len(inputs)} "
            f"({', '.join(inputs)}) in {first.origin}"
        )
    if first.targets is None or sample.targets is None:
        if (first.targets is None) != (sample.targets is None):
            raise InputError(f"{sample.origin} and {first.origin}: only one of them has targets")
        return
    ours, theirs = (_frames(s) for s in (sample, first))
    if sample.targets.shape[-1] != len(outputs) or ours != theirs:
        raise InputError(
            f"{sample.origin}: targets with {sample.targets.shape[-1]} channels and {ours} frames, "
            f"but {len(outputs)} and {theirs} in {first.origin}"
        )


def _frames(sample: UserSample) -> int:
    assert sample.targets is not None
    in_time = sample.targets.ndim > sample.coords.ndim
    return len(sample.targets) if in_time else 0


def _kept(array: np.ndarray, keep: np.ndarray | None, axis: int) -> np.ndarray:
    return array if keep is None else np.compress(keep, array, axis=axis)


def _float32(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # too large for float32 is infinite, and named as such
        return np.ascontiguousarray(array, np.float32)
