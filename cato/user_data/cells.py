"""Folded and collapsed cells of structured meshes."""

from itertools import product

import numpy as np


def num_folded_cells(coords: np.ndarray) -> int:
    """Cells of a (*shape, D) mesh of which some corner turns against most of the mesh, or is flat.

    At every corner of a cell its D edges span a parallelepiped; its signed volumes have one sign
    all over a mesh that is not folded.
    """
    shape, dimension = coords.shape[:-1], coords.shape[-1]
    assert len(shape) == dimension
    nodes = coords.astype(np.float64)
    edges = [np.diff(nodes, axis=axis) for axis in range(dimension)]
    volumes = []
    for corner in product((0, 1), repeat=dimension):
        vectors = []
        for axis, edge in enumerate(edges):
            index = tuple(
                slice(None) if other == axis else slice(corner[other], n - 1 + corner[other])
                for other, n in enumerate(shape)
            )
            vectors.append(edge[index])
        volumes.append(np.linalg.det(np.stack(vectors, axis=-2)))
    turns = np.sign(np.stack(volumes))
    orientation = 1 if turns.sum() >= 0 else -1
    return int((turns != orientation).any(axis=0).sum())
