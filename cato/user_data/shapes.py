"""What the axes of a field mean, told from its shape and the mesh.

A field of one sample is `mesh`, `mesh + (C,)`, with frames `(T,) + mesh` or `(T,) + mesh + (C,)`,
or a scalar `()` or several `(P,)` that hold for the whole sample.
"""

from typing import NamedTuple

import numpy as np

from cato.errors import InputError

Shape = tuple[int, ...]


class Reading(NamedTuple):
    """The meaning of a field's axes."""

    is_nodal: bool
    """Values at nodes, not scalars of the sample."""
    has_frames: bool = False
    has_channels: bool = False


def nodal_readings(shape: Shape, mesh: Shape) -> list[Reading]:
    """All that the axes of a field of one sample may mean if it has values at nodes."""
    size = len(mesh)
    return [
        reading
        for reading, nodes in (
            (Reading(True), shape),
            (Reading(True, has_channels=True), shape[:-1]),
            (Reading(True, has_frames=True), shape[1:]),
            (Reading(True, True, True), shape[1:-1]),
        )
        if nodes == mesh and len(shape) == size + reading.has_frames + reading.has_channels
    ]


def read_shape(shape: Shape, mesh: Shape) -> Reading | None:
    """The meaning of the axes of a field of one sample; None where it is none.

    Raises:
        InputError: The axis beside the mesh may be channels or frames.
    """
    readings = nodal_readings(shape, mesh)
    if len(readings) > 1:
        raise InputError(
            f"shape {shape} on a mesh of {mesh} nodes may be channels last or frames first; "
            f"give it both axes, (frames, *mesh, channels)"
        )
    if readings:
        return readings[0]
    return Reading(False) if len(shape) <= 1 else None


def nodal(array: np.ndarray, mesh: Shape) -> np.ndarray:
    """A field of one sample as (*mesh, C) or (T, *mesh, C); scalars are spread over the mesh."""
    reading = read_shape(array.shape, mesh)
    assert reading is not None
    if not reading.is_nodal:
        return np.broadcast_to(array.reshape(-1), (*mesh, array.size))
    return array if reading.has_channels else array[..., None]
