"""Samples of a user's file: as it has them, and with their fields put together."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from cato.problem import TimeProtocol


@dataclass(frozen=True, eq=False)
class RawSample:
    """One sample as its file has it.

    Attributes:
        origin: Where it comes from, for messages, such as "plate.h5, sample 3".
        coords: (*mesh, D).
        fields: Arrays by name, without an axis of samples.
        keep: Which points of a padded cloud are there.
        split: train, validation or test, where the file says so.
    """

    origin: str
    coords: np.ndarray
    fields: Mapping[str, np.ndarray]
    keep: np.ndarray | None = None
    split: str = ""


@dataclass(frozen=True, eq=False)
class RawSamples:
    """All samples of a path.

    Attributes:
        samples: In the order of the file, or of the natural order of the files' names.
        labels: Names of the channels of a field, where the file has them.
    """

    samples: list[RawSample]
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def sharing_equal_meshes(samples: list[RawSample]) -> list[RawSample]:
    """Samples that repeat one mesh share its array."""
    nodes = [sample.coords for sample in samples]
    if all(coords.shape == nodes[0].shape and np.array_equal(coords, nodes[0]) for coords in nodes):
        return [replace(sample, coords=nodes[0]) for sample in samples]
    return samples


@dataclass(frozen=True, eq=False)
class UserSample:
    """One sample, float32, without padding.

    Attributes:
        origin: Where it comes from.
        coords: (*mesh, D).
        inputs: (*mesh, C_in); scalars are constant over the mesh.
        targets: (*mesh, C_out) or (T, *mesh, C_out); None where a file has none.
        keep: Which points of the file's padded cloud these are.
        split: train, validation or test, where the file says so.
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


@dataclass(frozen=True, eq=False)
class UserSamples:
    """The samples of a path, and what their channels mean.

    Attributes:
        path: File or folder.
        samples: One or more. Those that share one mesh share the array.
        inputs: Names of the input channels.
        outputs: Names of the output channels.
        time: How frames are to be learnt.
        num_frames: Of the targets; 1 if steady.
        periodic: Mesh axes that close on themselves, each node once.
        period: For each coordinate the length after which it repeats; empty where none does.
        repeated: Periodic axes at whose end the file has their first line once more.
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
