"""Write user data of an unsteady problem in which every sample has its own mesh.

    python examples/heat_equation.py            # plates.h5
    cato inspect plates.h5
    cato train plates.h5 --model auto

A plate of random shape has a random temperature u. Its left side is held at 1, its right side at 0,
the other two are insulated:

    ∂u/∂t = Δu

Bilinear finite elements on the mesh of the plate, Crank–Nicolson in time. The first frame is the
input, the next ten are the targets: a rollout. The file has the layout of docs/user-data.md.
"""

import argparse
from pathlib import Path

import h5py
import numpy as np
import skfem
from scipy.sparse.linalg import splu
from skfem.helpers import dot, grad

SHAPE, NUM_FRAMES = (24, 24), 10
FRAME_TIME, STEPS_PER_FRAME = 4e-3, 8

stiffness = skfem.BilinearForm(lambda u, v, _: dot(grad(u), grad(v)))
mass = skfem.BilinearForm(lambda u, v, _: u * v)


def solve(
    coords: np.ndarray, initial: np.ndarray, is_held: np.ndarray, steps: int = STEPS_PER_FRAME
) -> np.ndarray:
    """Ten frames, (10, H, W), of the temperature at the nodes of a mesh, (H, W, 2).

    `initial` and `is_held` are (H, W); nodes that are held keep their initial temperature.
    """
    node = np.arange(initial.size).reshape(initial.shape)
    corners = (node[:-1, :-1], node[1:, :-1], node[1:, 1:], node[:-1, 1:])
    mesh = skfem.MeshQuad(coords.reshape(-1, 2).T, np.stack(corners).reshape(4, -1))
    basis = skfem.Basis(mesh, skfem.ElementQuad1())
    k, m, free = stiffness.assemble(basis), mass.assemble(basis), np.flatnonzero(~is_held)
    dt = FRAME_TIME / steps
    factors = splu((m + dt / 2 * k)[free][:, free].tocsc())
    u, frames = initial.flatten(), []
    for _ in range(NUM_FRAMES):
        for _ in range(steps):
            u[free] -= factors.solve(dt * (k @ u)[free])
        frames.append(u.reshape(initial.shape).copy())
    return np.stack(frames)


def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Mesh (24, 24, 2) and initial temperature (24, 24) of a random plate."""
    s, t = np.meshgrid(*(np.linspace(0, 1, n) for n in SHAPE), indexing="ij")
    n = np.arange(4)
    size = 1 / np.maximum(n[:, None] ** 2 + n**2, 1)
    s_cos, s_sin = np.cos(np.pi * n * s[..., None]), np.sin(np.pi * (n + 1) * s[..., None])
    t_cos = np.cos(np.pi * n * t[..., None])
    # The gradient of the displacement is less than 1, so that no cell folds.
    bends = 0.05 * rng.uniform(-1, 1, (2, 3, 3)) * size[:3, :3]
    displacement = np.einsum("dnm,xyn,xym->xyd", bends, s_cos[..., :3], t_cos[..., :3])
    spots = rng.standard_normal((4, 4)) * np.sqrt(size) / 2
    initial = 1 - s + np.einsum("nm,xyn,xym->xy", spots, s_sin, t_cos)
    return np.stack((s, t), axis=-1) + displacement, initial


def main() -> None:
    """Draw and solve the samples, write the file."""
    parser = argparse.ArgumentParser(description="heat equation on plates of random shape")
    parser.add_argument("--samples", type=int, default=320)
    parser.add_argument("--out", type=Path, default=Path("plates.h5"))
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    is_held = np.zeros(SHAPE, dtype=bool)
    is_held[[0, -1]] = True
    plates = [draw(rng) for _ in range(options.samples)]
    frames = np.stack([solve(coords, initial, is_held) for coords, initial in plates])
    with h5py.File(options.out, "w") as file:
        file["coords"] = np.stack([coords for coords, _ in plates])  # (samples, 24, 24, 2)
        file["inputs"] = np.stack([initial for _, initial in plates])[:, None, ..., None]
        file["targets"] = frames[..., None]  # (samples, 10, 24, 24, 1)
        file["input_names"] = file["target_names"] = ["temperature"]
    print(f"{options.samples} samples are in {options.out}")


if __name__ == "__main__":
    main()
