"""Write user data of a three-dimensional problem: a field of conductivity and one of sources.

    python examples/poisson_3d.py               # poisson.h5
    cato inspect poisson.h5
    cato train poisson.h5 --model auto

    −∇·(k ∇u) = f in the unit cube,   u = 0 on its boundary

Finite volumes of second order (seven points) on a grid of 16³ nodes, solved by conjugate gradients.
The file has the layout of docs/user-data.md.
"""

import argparse
from pathlib import Path

import h5py
import numpy as np
from scipy import sparse
from scipy.sparse.linalg import cg

NUM_NODES = 16  # Along each side.
NUM_WAVES = 4  # Of a random field, along each side.


def solve(k: np.ndarray, f: np.ndarray) -> np.ndarray:
    """u at the nodes of a grid with n nodes along each side; k and f are (n, n, n)."""
    n = len(f)
    one, difference = sparse.eye(n), np.diff(np.eye(n), axis=0) * (n - 1)
    matrix = sparse.csr_matrix((n**3, n**3))
    for axis in range(3):
        parts = [difference if axis == other else one for other in range(3)]
        gradient = sparse.kron(sparse.kron(parts[0], parts[1]), parts[2])
        faces = np.moveaxis(k, axis, 0)
        faces = np.moveaxis((faces[1:] + faces[:-1]) / 2, 0, axis)
        matrix += gradient.T @ sparse.diags(faces.ravel()) @ gradient
    is_inside = np.pad(np.ones((n - 2,) * 3, dtype=bool), 1)
    inside = np.flatnonzero(is_inside)
    u = np.zeros((n, n, n))
    u[is_inside], failed = cg(matrix[inside][:, inside], f[is_inside], rtol=1e-8)
    assert not failed
    return u


def random_field(rng: np.random.Generator) -> np.ndarray:
    """A smooth field of mean 0, (16, 16, 16)."""
    n = np.arange(NUM_WAVES)
    waves = np.cos(np.pi * np.outer(n, np.linspace(0, 1, NUM_NODES)))
    size = 1 / (1 + n[:, None, None] ** 2 + n[:, None] ** 2 + n**2)
    series = size * rng.standard_normal(3 * (NUM_WAVES,))
    return np.einsum("abc,ax,by,cz->xyz", series, waves, waves, waves)


def main() -> None:
    """Draw and solve the samples, write the file."""
    parser = argparse.ArgumentParser(description="Poisson's equation with a variable coefficient")
    parser.add_argument("--samples", type=int, default=320)
    parser.add_argument("--out", type=Path, default=Path("poisson.h5"))
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    fields = [
        (np.exp(random_field(rng) / 2), 1 + random_field(rng)) for _ in range(options.samples)
    ]
    axes = 3 * (np.linspace(0, 1, NUM_NODES),)
    with h5py.File(options.out, "w") as file:
        file["coords"] = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)  # (16, 16, 16, 3)
        file["inputs"] = np.stack([np.stack(pair, axis=-1) for pair in fields])
        file["targets"] = np.stack([solve(k, f) for k, f in fields])[..., None]
        file["input_names"], file["target_names"] = ["conductivity", "source"], ["u"]
    print(f"{options.samples} samples are in {options.out}")


if __name__ == "__main__":
    main()
