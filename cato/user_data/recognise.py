"""What samples are samples of: geometry, shape and time, and data sets of them.

- grid: one structured shape, coordinate d runs along axis d in equal steps;
- mesh: one structured shape (as many axes as coordinates, three nodes or more along each);
- cloud: anything else; clouds of different sizes are padded.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from cato.data.arrays import is_uniform
from cato.data.dataset import Dataset
from cato.errors import InputError
from cato.problem import MIN_NODES, Geometry, Problem
from cato.user_data.samples import UserSample, UserSamples


def recognise(samples: UserSamples) -> Problem:
    """The problem that the samples are of; its shape is that of the largest cloud."""
    geometry = geometry_of(samples)
    shape = samples.samples[0].mesh
    # A coordinate that repeats keeps its length: the problem has its period.
    coords = () if samples.period else ("coords",)
    if geometry == "cloud":
        shape = (max(prod(sample.mesh) for sample in samples.samples),)
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
        normalise=(*coords, "inputs", "outputs"),
    )


def geometry_of(samples: UserSamples) -> Geometry:
    """Grid, mesh or cloud."""
    first = samples.samples[0]
    shapes = {sample.mesh for sample in samples.samples}
    is_structured = len(first.mesh) == first.coords.shape[-1] and min(first.mesh) >= MIN_NODES
    if len(shapes) > 1 or not is_structured:
        return "cloud"
    meshes = [first] if samples.has_shared_coords else samples.samples
    if all(is_uniform(sample.coords) for sample in meshes):
        return "grid"
    if first.coords.shape[-1] == 1 and not all(_is_monotone(s.coords) for s in meshes):
        return "cloud"  # points on a line in no order
    return "mesh"


def _is_monotone(coords: np.ndarray) -> bool:
    steps = np.diff(coords[:, 0])
    return bool((steps > 0).all() or (steps < 0).all())


def dataset_of(
    samples: UserSamples, problem: Problem, indices: Sequence[int], what: str
) -> Dataset:
    """The data set of some samples."""
    chosen = [samples.samples[i] for i in indices]
    targets = [_targets(sample) for sample in chosen]
    if problem.geometry == "cloud":
        return _clouds(chosen, problem, what, samples.has_shared_coords)
    coords = chosen[0].coords if samples.has_shared_coords else np.stack([s.coords for s in chosen])
    inputs = np.stack([s.inputs for s in chosen])
    return Dataset.from_arrays(problem, coords, inputs, np.stack(targets), what=what)


def _targets(sample: UserSample) -> np.ndarray:
    if sample.targets is None:
        raise InputError(f"{sample.origin} has no targets")
    return sample.targets


def _clouds(chosen: list[UserSample], problem: Problem, what: str, is_shared: bool) -> Dataset:
    """Padded to one size, with a mask where they differ."""
    sizes = np.array([prod(sample.mesh) for sample in chosen])
    num_nodes = problem.num_nodes

    def padded(array: np.ndarray, num_axes: int) -> np.ndarray:
        first = array.ndim - num_axes - 1
        size = prod(array.shape[first:-1])
        flat = array.reshape(*array.shape[:first], size, array.shape[-1])
        return np.pad(flat, [(0, 0)] * first + [(0, num_nodes - size), (0, 0)])

    coords, inputs, targets = (
        np.stack([padded(array(s), len(s.mesh)) for s in chosen])
        for array in (lambda s: s.coords, lambda s: s.inputs, _targets)
    )
    mask = None
    if (sizes < num_nodes).any():
        mask = np.arange(num_nodes) < sizes[:, None]
    return Dataset.from_arrays(
        problem, coords[0] if is_shared else coords, inputs, targets, mask=mask, what=what
    )
