"""The layout of a problem's arrays, and the checks that keep bad data out.

Channels are last, mesh axes as in `Problem.shape`, time before them, samples first.
"""

from collections.abc import Sequence

import numpy as np

from cato.errors import InputError
from cato.problem import Problem

SPACING_TOLERANCE = 0.01  # Largest distance, in cells, of a node of a uniform grid from its place.


def sample_shapes(problem: Problem) -> dict[str, tuple[int, ...]]:
    """Shapes of the coordinates, inputs and targets of one sample."""
    time = () if problem.time == "steady" else (problem.num_steps,)
    return {
        "coords": (*problem.shape, problem.dimension),
        "inputs": (*problem.shape, problem.num_inputs),
        "targets": (*time, *problem.shape, problem.num_outputs),
    }


def channel_names(problem: Problem) -> dict[str, tuple[str, ...]]:
    """Names of the channels of each array, for messages."""
    coords = tuple(f"x{d + 1}" for d in range(problem.dimension))
    return {"coords": coords, "inputs": problem.inputs, "targets": problem.outputs}


def array_type(problem: Problem, name: str) -> type[np.floating]:
    """The type of `coords`, `inputs` or `targets`: float32, or float64 if the problem needs it."""
    is_exact = ("outputs" if name == "targets" else name) in problem.float64
    return np.float64 if is_exact else np.float32


def check_arrays(
    problem: Problem, arrays: dict[str, np.ndarray], what: str
) -> dict[str, np.ndarray]:
    """Check `coords`, `inputs` and `targets` of a dataset; contiguous, copied if needed.

    Only coordinates may lack the sample axis. Every message starts with `what`.
    """
    num_samples = len(arrays["targets"]) if np.ndim(arrays["targets"]) else 0
    if num_samples == 0:
        raise InputError(f"{what}: there are no samples; give at least one")
    shapes, channels = sample_shapes(problem), channel_names(problem)
    checked = {}
    for name, array in arrays.items():
        allowed = [(num_samples, *shapes[name]), *([shapes[name]] if name == "coords" else [])]
        _require_shape(np.asarray(array), allowed, f"{what}: {name}", channels[name])
        with np.errstate(over="ignore"):  # too large for float32 is infinite, and reported as such
            checked[name] = np.require(array, array_type(problem, name), ["C", "W"])
        shared = checked[name].shape == shapes[name]
        by_sample = checked[name][None] if shared else checked[name]
        if name == "targets" and problem.has_gaps:  # NaN says that there is no value
            by_sample = np.where(np.isnan(by_sample), 0, by_sample)
        require_finite(by_sample, f"{what}: {name}", channels[name])
        if name == "coords" and problem.geometry == "grid":
            require_uniform(by_sample, what)
    if problem.time != "steady":
        _require_nonzero_frames(variation(problem, checked["targets"]), what)
    return checked


def variation(problem: Problem, targets: np.ndarray) -> np.ndarray:
    """Targets without `Problem.offsets`; the size of this is what errors are relative to."""
    return targets - np.array(problem.offsets) if problem.offsets else targets


def check_mask(problem: Problem, mask: np.ndarray, num_samples: int, what: str) -> np.ndarray:
    """Check the mask of padded clouds."""
    if problem.geometry != "cloud":
        raise InputError(f"{what}: only clouds have a mask; this is a {problem.geometry}")
    expected = (num_samples, problem.num_nodes)
    if mask.dtype != np.bool_ or mask.shape != expected:
        raise InputError(
            f"{what}: the mask should be bool {expected}, but is {mask.dtype} {mask.shape}"
        )
    empty = np.flatnonzero(~mask.any(axis=1))
    if empty.size:
        raise InputError(f"{what}: sample {empty[0]} is all padding; remove it")
    return np.require(mask, requirements=["C", "W"])


def require_nonzero(targets: np.ndarray, mask: np.ndarray | None, what: str) -> None:
    """Raise if targets of a sample are zero everywhere: its relative error is undefined."""
    zero = [
        index
        for index, sample in enumerate(targets)
        if not (sample if mask is None else sample[..., mask[index], :]).any()
    ]
    if zero:
        raise InputError(
            f"{what}: the targets of sample {zero[0]} are all zero, so its relative error is "
            f"undefined; remove such samples ({len(zero)} in all)"
        )


def _require_nonzero_frames(targets: np.ndarray, what: str) -> None:
    """Raise if a frame is zero everywhere: in time each frame has a relative error."""
    zero = np.array([[not frame.any() for frame in sample] for sample in targets])
    zero &= ~zero.all(axis=1, keepdims=True)  # whole samples are left to `require_nonzero`
    if zero.any():
        sample, frame = np.argwhere(zero)[0].tolist()
        raise InputError(
            f"{what}: frame {frame} of sample {sample} is all zero, so its relative error is "
            f"undefined; leave such frames out ({zero.sum()} in all), the first with targets[:, 1:]"
        )


def require_finite(samples: np.ndarray, what: str, channels: Sequence[str]) -> None:
    """Raise if values (samples first, channels last) are NaN or infinite, naming the first."""
    for index, sample in enumerate(samples):
        finite = np.isfinite(sample)
        if not finite.all():
            bad = np.argwhere(~finite)
            *node, channel = bad[0].tolist()
            raise InputError(
                f"{what}: {len(bad)} values of sample {index} are NaN or infinite as "
                f"{sample.dtype}, the first in channel {channels[channel]!r} at {node}"
            )


def filled(inputs: np.ndarray, valid: np.ndarray, names: Sequence[str], origin: str) -> np.ndarray:
    """The mask `valid` (*mesh) as the first input, and means instead of NaN in the others.

    What `Problem.mask` stands for; `inputs` are those of one sample, (*mesh, C).
    """
    inputs = inputs.copy()
    for channel, name in enumerate(names):
        values = inputs[..., channel]
        unknown = np.isnan(values)
        if unknown.all():
            raise InputError(
                f"{origin}: input {name} is NaN at all nodes; leave out the sample or the input"
            )
        if unknown.any():
            values[unknown] = values[~unknown].mean()
    return np.concatenate((valid[..., None].astype(inputs.dtype), inputs), axis=-1)


def _require_shape(
    array: np.ndarray, allowed: list[tuple[int, ...]], what: str, channels: Sequence[str]
) -> None:
    if array.dtype.kind not in "fiu":
        raise InputError(f"{what} should be real numbers, but are {array.dtype}")
    if array.shape not in allowed:
        expected = " or ".join(map(str, allowed))
        lacks_channels = len(channels) == 1 and (*array.shape, 1) in allowed
        hint = "; add the channel axis with array[..., None]" if lacks_channels else ""
        raise InputError(
            f"{what} should have shape {expected}, channels ({', '.join(channels)}) last, "
            f"but have {array.shape}{hint}"
        )


def is_uniform(coords: np.ndarray) -> bool:
    """Whether coordinate d of (*shape, D) nodes runs along axis d in equal steps."""
    return all(is_uniform_along(coords, axis) for axis in range(coords.ndim - 1))


def is_uniform_along(coords: np.ndarray, axis: int) -> bool:
    """Whether the coordinate of one axis runs along it in equal steps, and along no other."""
    nodes = np.moveaxis(coords[..., axis].astype(np.float64), axis, -1)
    line = nodes[(0,) * (nodes.ndim - 1)]
    step = (line[-1] - line[0]) / (len(line) - 1)
    far = np.abs(nodes - (line[0] + step * np.arange(len(line))))
    return bool(step and far.max() <= SPACING_TOLERANCE * abs(step))


def require_uniform(coords: np.ndarray, what: str) -> None:
    """Check that the nodes of every sample are a uniform grid."""
    if not all(is_uniform(sample) for sample in coords):
        raise InputError(
            f"{what}: on a grid, coordinate d must run along axis d in equal steps, and does not; "
            f"check the order of the axes, or call the geometry a mesh"
        )
