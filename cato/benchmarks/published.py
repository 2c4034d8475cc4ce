"""Layout of the files that the authors of a benchmark published; `cato.data.published` reads them.

The published test set is the test set here too. The published codes have no validation set: ours
is the last samples of their training set, as many as the generated benchmark has.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

# Coordinates (None if shared), inputs (None if the mesh is the input) and targets.
Fields = tuple[np.ndarray | None, np.ndarray | None, np.ndarray]


@dataclass(frozen=True)
class Layout:
    """One array of a published file, and the part of it that is used."""

    file: str  # File name.
    shape: tuple[int | None, ...]  # Shape of the array, with None for the axis of samples.
    # Which samples are the published training and test sets, or one of these.
    samples: Mapping[str, slice]
    name: str = ""  # Name of the variable in a MATLAB file; empty for a .npy file.
    at_least: int = 1200  # Smallest number of samples the file must have.
    # Index of the part that is used, axis by axis; everything by default.
    pick: tuple[slice | int, ...] = ()

    @property
    def expected(self) -> str:
        sizes = ", ".join(f"≥ {self.at_least}" if n is None else str(n) for n in self.shape)
        variable = f"the variable {self.name!r}, " if self.name else ""
        return f"{variable}real numbers of shape ({sizes})"


@dataclass(frozen=True)
class Published:
    """The published files of one benchmark."""

    layouts: tuple[Layout, ...]  # The arrays.
    # Makes fields of the arrays of one split, given in the order of `layouts`, samples first.
    assemble: Callable[..., Fields]
    # As in `Problem`, where it differs from the generated benchmark.
    normalise: tuple[str, ...] | None = None


def flow_on_mesh(prefix: str, mesh: tuple[int, int], num_channels: int, channel: int) -> Published:
    """Files PREFIX_X, PREFIX_Y with the nodes and PREFIX_Q with a flow, one channel of it used."""
    # Other readers disagree on the test set of the pipe: ours is not the end of the file.
    samples = {"train": slice(0, 1000), "test": slice(1000, 1200)}
    x = Layout(f"{prefix}_X.npy", (None, *mesh), samples)
    q = Layout(f"{prefix}_Q.npy", (None, num_channels, *mesh), samples, pick=np.s_[:, channel])
    return Published(
        (x, replace(x, file=f"{prefix}_Y.npy"), q),
        lambda x, y, q: (np.stack([x, y], axis=-1), None, q[..., None]),
    )
