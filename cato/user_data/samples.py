"""Samples of a user's file, what they are samples of, and datasets of them.

- grid: one structured shape, coordinate d runs along axis d in equal steps;
- mesh: one structured shape (as many axes as coordinates, three or more nodes along each);
- cloud: anything else; clouds of different sizes are padded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np

from cato.data.arrays import is_uniform
from cato.data.dataset import Dataset
from cato.errors import InputError
from cato.problem import MIN_NODES, Geometry, Problem, TimeProtocol


@dataclass(frozen=True, eq=False)
class UserSample:
    """One sample, float32, without padding.

    Attributes:
        origin: Where it comes from, for messages, such as "plate.h5, sample 3".
        coords: (*mesh, D).
        inputs: (*mesh, C_in); scalars are constant over the mesh.
        targets: (*mesh, C_out) or (T, *mesh, C_out); None if the file has none.
        keep: Mask of the points of the file's padded cloud that are in this sample.
        split: train, validation or test, if the file says so.
    """

    origin: str
    coords: np.ndarray
    inputs: np.ndarray
    targets: np.ndarray | None
    keep: np.ndarray | None = None
    split: str = ""

    @property
    def mesh(self) -> tuple[int, ...]:
        """Nodes along each axis; a cloud has one."""
        return self.coords.shape[:-1]

    def require_targets(self) -> np.ndarray:
        """The targets, or an error if there are none."""
        if self.targets is None:
            raise InputError(f"{self.origin} has no targets")
        return self.targets

    def masked(self, keep: np.ndarray) -> "UserSample":
        """Without the padding of a cloud."""
        targets = None if self.targets is None else self.targets[..., keep, :]
        coords, inputs = self.coords[keep], self.inputs[keep]
        return replace(self, coords=coords, inputs=inputs, targets=targets, keep=keep)


@dataclass(frozen=True, eq=False)
class UserSamples:
    """The samples of a path, and what their channels mean.

    Attributes:
        path: File or folder.
        samples: One or more. Those on one mesh share the array of its nodes.
        inputs: Names of the input channels.
        outputs: Names of the output channels.
        time: How frames are learned.
        num_frames: Frames of the targets; 1 if steady.
        periodic: Periodic mesh axes, on which every node is there once.
        period: Period of each coordinate, None where it has none; empty if none has one.
        repeated: Periodic axes at whose end the file repeats their first line.
    """

    path: Path
    samples: list[UserSample]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    time: TimeProtocol = "steady"
    num_frames: int = 1
    periodic: tuple[int, ...] = ()
    period: tuple[float | None, ...] = ()
    repeated: tuple[int, ...] = ()

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

    @property
    def on_distinct_meshes(self) -> list[UserSample]:
        """All samples, or the first if they share its mesh."""
        return self.samples[:1] if self.has_shared_coords else self.samples


def recognise(samples: UserSamples) -> Problem:
    """The problem that the samples are of; its shape is that of the largest cloud."""
    geometry = geometry_of(samples)
    shape = samples.samples[0].mesh
    if geometry == "cloud":
        shape = (max(prod(sample.mesh) for sample in samples.samples),)
    # A coordinate with a period must not be rescaled.
    coords = () if samples.period else ("coords",)
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
    mesh, dimension = samples.samples[0].mesh, samples.samples[0].coords.shape[-1]
    is_structured = len(mesh) == dimension and min(mesh) >= MIN_NODES
    if not is_structured or any(sample.mesh != mesh for sample in samples.samples):
        return "cloud"
    nodes = [sample.coords for sample in samples.on_distinct_meshes]
    if all(map(is_uniform, nodes)):
        return "grid"
    if dimension == 1:  # points on a line in no order are no mesh
        steps = [np.diff(coords[:, 0]) for coords in nodes]
        if not all((step > 0).all() or (step < 0).all() for step in steps):
            return "cloud"
    return "mesh"


def dataset_of(
    samples: UserSamples, problem: Problem, indices: Sequence[int], what: str
) -> Dataset:
    """The dataset of some samples; clouds of different sizes are padded and get a mask."""
    chosen = [samples.samples[i] for i in indices]
    mask = None
    if problem.geometry == "cloud":
        sizes = np.array([prod(sample.mesh) for sample in chosen])
        if (sizes < problem.num_nodes).any():
            mask = np.arange(problem.num_nodes) < sizes[:, None]
        chosen = [_padded(sample, problem.num_nodes) for sample in chosen]
    coords = chosen[0].coords if samples.has_shared_coords else np.stack([s.coords for s in chosen])
    inputs = np.stack([sample.inputs for sample in chosen])
    targets = np.stack([sample.require_targets() for sample in chosen])
    return Dataset.from_arrays(problem, coords, inputs, targets, mask=mask, what=what)


def _padded(sample: UserSample, num_nodes: int) -> UserSample:
    """A cloud with all points on one axis of length `num_nodes`."""

    def padded(array: np.ndarray) -> np.ndarray:
        frames = array.shape[: array.ndim - len(sample.mesh) - 1]
        points = array.reshape(*frames, size, array.shape[-1])
        return np.pad(points, [*[(0, 0)] * len(frames), (0, num_nodes - size), (0, 0)])

    size = prod(sample.mesh)
    targets = padded(sample.require_targets())
    return replace(
        sample, coords=padded(sample.coords), inputs=padded(sample.inputs), targets=targets
    )
