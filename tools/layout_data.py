"""Solutions of real problems at realistic sizes, in the arrays and meshes that layouts need.

Exact or spectral, so that hundreds of samples take seconds. Each function takes a generator and the
number of samples.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.fft
import skfem
from skfem.helpers import dot, grad

from cato.benchmarks.darcy.medium import random_medium
from cato.benchmarks.darcy.solver import solve_darcy

Array = np.ndarray
Flow = tuple[float, Callable[[Array, Array, float], tuple[Array, Array, Array]]]
"""Velocity of an inlet, and a flow: x, y and time to both velocities and pressure."""


def waves(shape: tuple[int, ...]) -> Array:
    """Wave vectors of a periodic unit box, (d, *shape)."""
    axes = [2 * np.pi * np.fft.fftfreq(n, 1 / n) for n in shape]
    return np.stack(np.meshgrid(*axes, indexing="ij"))


def random_fields(rng: np.random.Generator, count: int, shape: tuple[int, ...]) -> Array:
    """Smooth periodic fields of mean 0 and mean square 1."""
    axes = tuple(range(1, 1 + len(shape)))
    decay = (1 + (waves(shape) ** 2).sum(0) / 40) ** -2
    noise = np.fft.fftn(rng.standard_normal((count, *shape)), axes=axes) * decay
    noise[(slice(None), *[0] * len(shape))] = 0
    fields = np.fft.ifftn(noise, axes=axes).real
    return fields / np.sqrt((fields**2).mean(axes, keepdims=True))


def acoustics(
    rng: np.random.Generator, count: int, shape: tuple[int, ...], times: Array
) -> dict[str, Array]:
    """Sound in a periodic box at rest: p_t = −∇·v, v_t = −∇p, exactly; (count, T, *shape)."""
    k, axes = waves(shape), tuple(range(2, 2 + len(shape)))
    omega = np.sqrt((k**2).sum(0))
    start = np.fft.fftn(random_fields(rng, count, shape)[:, None], axes=axes)
    phase = omega * times.reshape(-1, *[1] * len(shape))
    over = np.divide(1, omega, out=np.zeros_like(omega), where=omega > 0)

    def real(coefficients: Array) -> Array:
        return np.fft.ifftn(coefficients, axes=axes).real.astype(np.float32)

    pressure = real(start * np.cos(phase))
    velocity = [real(-1j * along * over * start * np.sin(phase)) for along in k]
    names = [f"V{axis}" for axis in "xyz"]
    fields = {"density": 1 + 0.3 * pressure, "pressure": pressure}
    return fields | dict(zip(names, velocity, strict=False))


def burgers(rng: np.random.Generator, count: int, num_nodes: int, times: Array) -> Array:
    """u_t + u u_x = 0.01 u_xx, periodic on (0, 1), pseudo-spectral; (count, T, num_nodes)."""
    k = 2 * np.pi * np.fft.rfftfreq(num_nodes, 1 / num_nodes)
    kept = k < 2 / 3 * k[-1]
    w = np.fft.rfft(random_fields(rng, count, (num_nodes,)) / 2)
    step = 2e-3
    half = np.exp(-0.01 * k**2 * step / 2)

    def advection(w: Array) -> Array:
        return -0.5j * k * kept * np.fft.rfft(np.fft.irfft(w) ** 2)

    frames, now = [], 0.0
    for time in times:
        while now < time - step / 2:
            a = advection(w)  # fourth-order Runge–Kutta, diffusion exact
            b = advection(half * (w + step / 2 * a))
            c = advection(half * w + step / 2 * b)
            d = advection(half**2 * w + step * half * c)
            w = half**2 * (w + step / 6 * a) + step / 6 * (2 * half * (b + c) + d)
            now += step
        frames.append(np.fft.irfft(w))
    return np.stack(frames, axis=1).astype(np.float32)


def diffusion_reaction(rng: np.random.Generator, count: int, n: int, times: Array) -> Array:
    """FitzHugh–Nagumo on (−1, 1)², insulated, as in PDEBench; (count, T, n, n, 2).

    u_t = 1e-3 Δu + u − u³ − 5e-3 − v,   v_t = 5e-3 Δv + u − v, by Strang splitting.
    """
    step, square = 0.05, (np.pi * np.arange(n) / 2) ** 2
    laplacian = square[:, None] + square
    decay = np.exp(-np.array([1e-3, 5e-3])[:, None, None] * laplacian * step / 2)
    uv = np.stack([random_fields(rng, count, (n, n)) for _ in "uv"], axis=1)

    def diffused(uv: Array) -> Array:
        return scipy.fft.idctn(decay * scipy.fft.dctn(uv, axes=(2, 3)), axes=(2, 3))

    def reaction(uv: Array) -> Array:
        u, v = uv[:, 0], uv[:, 1]
        return np.stack((u - u**3 - 5e-3 - v, u - v), axis=1)

    frames, now = [], 0.0
    for time in times:
        while now < time - step / 2:
            uv = diffused(uv)
            middle = uv + step / 2 * reaction(uv)
            uv = diffused(uv + step * reaction(middle))
            now += step
        frames.append(np.moveaxis(uv, 1, -1))
    return np.stack(frames, axis=1).astype(np.float32)


def darcy(rng: np.random.Generator, count: int, n: int) -> tuple[Array, Array]:
    """Permeability and pressure, (count, n, n)."""
    media = [random_medium(rng, n) for _ in range(count)]
    pressure = [solve_darcy(medium).u for medium in media]
    return np.stack(media).astype(np.float32), np.stack(pressure).astype(np.float32)


def heat(rng: np.random.Generator, count: int, size: tuple[int, int], num_frames: int) -> Array:
    """Temperature of an insulated unit square, a decaying cosine series; (count, T, nodes).

    `size` are the nodes along x, which runs fastest, and along y.
    """
    n = np.arange(6)
    x, y = (np.cos(np.pi * np.outer(n, np.linspace(0, 1, nodes))) for nodes in size)
    rate = np.pi**2 * (n[:, None] ** 2 + n**2)
    start = rng.standard_normal((count, 1, 6, 6)) / (1 + n[:, None] ** 2 + n**2)
    decayed = start * np.exp(-rate * 0.01 * np.arange(num_frames)[:, None, None])
    frames = np.einsum("stnm,nx,my->styx", decayed, x, y)
    return 300 + 10 * frames.reshape(count, num_frames, -1)


def climate(rng: np.random.Generator, count: int) -> tuple[Array, Array, Array, Array]:
    """Latitude, longitude, temperature of the air, and of a sea that spreads its heat.

    sea − 0.02 Δ sea = air on the sphere between ±87°, without flux at both ends: Fourier series
    along the circles, finite volumes between them.
    """
    num_lat, num_lon = 64, 128
    edges = np.deg2rad(np.linspace(-87, 87, num_lat + 1))
    middle = (edges[1:] + edges[:-1]) / 2
    air = 285 + 5 * random_fields(rng, count, (num_lat, num_lon))
    flux = np.cos(edges[1:-1]) / np.diff(middle)
    between = np.diag(np.r_[flux, 0] + np.r_[0, flux]) - np.diag(flux, 1) - np.diag(flux, -1)
    area = np.cos(middle) * np.diff(edges)
    m = np.arange(num_lon // 2 + 1)
    around = np.stack([np.diag(m_**2 / np.cos(middle) ** 2) for m_ in m])
    operators = np.eye(num_lat) + 0.02 * (between / area[:, None] + around)
    modes = np.moveaxis(np.fft.rfft(air), (0, 1, 2), (2, 1, 0))
    sea = np.moveaxis(np.linalg.solve(operators, modes), (2, 1, 0), (0, 1, 2))
    longitude = 360 * np.arange(num_lon) / num_lon
    return np.rad2deg(middle), longitude, air, np.fft.irfft(sea, num_lon)


stiffness = skfem.BilinearForm(lambda u, v, _: dot(grad(u), grad(v)))
loaded = skfem.LinearForm(lambda v, w: w["load"] * v)


def membranes(rng: np.random.Generator, count: int) -> list[Any]:
    """Triangulated plates with a hole, held at all edges: −Δu = load; stress |∇u| in the cells."""
    import pyvista

    meshes = []
    for bumps in rng.standard_normal((count, 3, 3)):
        n = 36
        points = np.stack(np.meshgrid(*2 * (np.linspace(0, 1, n),)), -1).reshape(-1, 2)
        points[:, 0] += 1e-4 * points[:, 1]  # no four points on a circle
        centre, radius = rng.uniform(0.35, 0.65, 2), rng.uniform(0.1, 0.25)
        angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
        rim = centre + radius * np.stack((np.cos(angle), np.sin(angle)), -1)
        outside = np.hypot(*(points - centre).T) > radius + 0.4 / n
        points = np.concatenate((points[outside], rim))
        plane = pyvista.PolyData(np.pad(points, ((0, 0), (0, 1)))).delaunay_2d()
        triangles = np.asarray(plane.faces).reshape(-1, 4)[:, 1:]
        hollow = np.hypot(*(points[triangles].mean(1) - centre).T) > radius * np.cos(np.pi / 40)
        mesh = skfem.MeshTri(points.T.copy(), triangles[hollow].T.copy())
        basis = skfem.Basis(mesh, skfem.ElementTriP1())
        load = 1 + np.einsum(
            "nm,pn,pm->p", bumps / 4, *(np.cos(np.pi * np.outer(x, np.arange(3))) for x in points.T)
        )
        force = loaded.assemble(basis, load=basis.interpolate(load))
        held = mesh.boundary_nodes()
        u = skfem.solve(*skfem.condense(stiffness.assemble(basis), force, D=held))
        slope = basis.interpolate(u).grad[..., 0]
        cells = np.pad(triangles[hollow], ((0, 0), (1, 0)), constant_values=3)
        part = pyvista.UnstructuredGrid(
            cells.ravel(), np.full(len(cells), 5, np.uint8), np.pad(points, ((0, 0), (0, 1)))
        )
        part.point_data["load"], part.cell_data["stress"] = load, np.hypot(*slope)
        meshes.append(part)
    return meshes


def kovasznay(speed: float, viscosity: float = 0.02) -> Flow:
    """Flow behind a row of cylinders, an exact solution of the steady Navier–Stokes equations."""
    reynolds = speed / viscosity
    rate = reynolds / 2 - np.sqrt(reynolds**2 / 4 + 4 * np.pi**2)

    def flow(x: Array, y: Array, time: float) -> tuple[Array, Array, Array]:
        wake = np.exp(rate * x)
        along = 1 - wake * np.cos(2 * np.pi * y)
        across = rate / (2 * np.pi) * wake * np.sin(2 * np.pi * y)
        return speed * along, speed * across, speed**2 * (1 - wake**2) / 2

    return speed, flow


def around_ellipse(zeta: Array, axes: tuple[float, float], angle: float) -> tuple[Array, Array]:
    """Points and pressure of the potential flow of speed 1 around a turned ellipse.

    `zeta` are complex points outside the unit circle, in the plane where the ellipse is a circle.
    """
    radius, square = sum(axes) / 2, (axes[0] ** 2 - axes[1] ** 2) / 4
    zeta = radius * zeta
    velocity = (np.exp(1j * angle) - radius**2 * np.exp(-1j * angle) / zeta**2) / (
        1 - square / zeta**2
    )
    z = (zeta + square / zeta) * np.exp(1j * angle)
    return np.stack((z.real, z.imag), axis=-1), (1 - np.abs(velocity) ** 2) / 2


def wings(rng: np.random.Generator, count: int, size: tuple[int, int]) -> list[tuple[Array, Array]]:
    """Points, along the ellipse first, and pressure around ellipses of random shape and angle."""
    along, across = size
    theta = 2 * np.pi * np.arange(along + 1) / along
    radii = np.linspace(1, 4, across + 1)
    found = []
    for _ in range(count):
        axes = (float(rng.uniform(0.7, 1.2)), float(rng.uniform(0.25, 0.6)))
        zeta = radii[:, None] * np.exp(1j * theta)
        points, pressure = around_ellipse(zeta, axes, float(rng.uniform(-0.4, 0.4)))
        found.append((points.reshape(-1, 2), pressure.ravel()))
    return found


def probes(rng: np.random.Generator, count: int) -> Any:
    """A table of 300 to 500 points around an ellipse for each case, whose speed differs."""
    import pandas

    parts = []
    for case, speed in enumerate(rng.uniform(1, 3, count)):
        size = int(rng.integers(300, 501))
        zeta = rng.uniform(1, 3, size) * np.exp(2j * np.pi * rng.random(size))
        points, pressure = around_ellipse(zeta, (1.0, 0.5), 0.2)
        columns = {"case": case, "x [m]": points[:, 0], "y [m]": points[:, 1]}
        columns |= {"speed [m/s]": speed, "p [Pa]": speed**2 * pressure}
        parts.append(pandas.DataFrame(columns))
    return pandas.concat(parts)
