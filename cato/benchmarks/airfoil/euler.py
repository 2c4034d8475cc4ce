"""Steady two-dimensional flow of an ideal gas around a body on a C-grid, by finite volumes.

    ∂W/∂t + ∇·F(W) = 0,   W = (ρ, ρu, ρv, E),   p = (γ − 1)(E − ½ρ(u² + v²)),   γ = 1.4

Cell-centred: Roe's flux between states reconstructed from (ρ, u, v, p) along grid lines, with van
Albada's limiter. The wall lets nothing through, and its pressure is extrapolated from the two cells
above it. Beyond the outer boundary lies the free stream. Across the wake cut a cell's neighbour is
its mirror image in the index along the C. The steady state is approached by implicit steps in
local pseudo-time: the first-order flux is linearised, and the system of 4 × 4 blocks is relaxed by
symmetric Gauss–Seidel sweeps. Two choices make the steps converge:

- The limiter has no switch to zero at an extremum; with it, no flow settles.
- In the linearisation, not in the flux, speeds are kept away from zero, see `FLOORS`. Else the
  first-order operator is too weak for the second-order residual at sonic points, and strong shocks
  hop between cells for ever.

Cell arrays have two layers of ghosts around them, so that one index (i, j) serves all: i along the
C, j from the body outwards. `q` is (ρ, u, v, p). `normals[axis, i, j]` is the area vector of the
face between cell (i, j) and the one before it along that axis, and points to (i, j). `wall[i]`:
column i starts at the body, not at the wake cut. All compiled functions are single-threaded, and
live in one file because Numba's cache on disk is invalidated file by file.
"""

from math import sqrt

from cato.kernels.jit import compiled

GAMMA = 1.4
ENTROPY_FIX = 0.1  # Speeds below this fraction of the sound speed are rounded off in Roe's flux.
LIMITER = 1e-2  # Squared differences far below this are not limited (ρ∞ = p∞ = 1).
# Smallest convective and acoustic speed over the sound speed in the linearisation. The higher the
# slower; with (0.3, 0.7) one strong shock in forty does not settle at 221 × 51 nodes.
FLOORS = (0.4, 1.0)
LARGEST_CHANGE = 0.3  # A step changes no density or pressure by more than this fraction.
UNIT = ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0))


@compiled
def fill_ghosts(q, stream, wall):
    """Set the ghosts: free stream outside, mirror image across the wake, extrapolation in walls."""
    num_i = q.shape[0] - 4
    for k in range(4):
        q[:2, :, k] = stream[k]
        q[-2:, :, k] = stream[k]
        q[:, -2:, k] = stream[k]
        for i in range(2, num_i + 2):
            if wall[i]:
                q[i, 1, k] = 2 * q[i, 2, k] - q[i, 3, k]
            else:
                q[i, 1, k] = q[num_i + 3 - i, 2, k]
                q[i, 0, k] = q[num_i + 3 - i, 3, k]


@compiled
def limited(a, b):
    """Van Albada's average of two neighbouring differences."""
    return (a * (b * b + LIMITER) + b * (a * a + LIMITER)) / (a * a + b * b + 2 * LIMITER)


@compiled
def limit_slopes(q, slopes):
    """Half the limited difference across each cell; zero in the ghosts of the free stream."""
    for i in range(2, q.shape[0] - 2):
        for j in range(1, q.shape[1] - 2):
            for k in range(4):
                x = q[i, j, k]
                slopes[0, i, j, k] = 0.5 * limited(x - q[i - 1, j, k], q[i + 1, j, k] - x)
                slopes[1, i, j, k] = 0.5 * limited(x - q[i, j - 1, k], q[i, j + 1, k] - x)


@compiled
def shifted(q, slope, sign):
    """The state of a cell at one of its faces."""
    a, b, s = q, slope, sign
    return a[0] + s * b[0], a[1] + s * b[1], a[2] + s * b[2], a[3] + s * b[3]


@compiled
def roe_average(left, right):
    """Velocity, total enthalpy and sound speed between two states."""
    weight = 1 / (1 + sqrt(right[0] / left[0]))
    u = weight * left[1] + (1 - weight) * right[1]
    v = weight * left[2] + (1 - weight) * right[2]
    h_left = GAMMA / (GAMMA - 1) * left[3] / left[0] + 0.5 * (left[1] ** 2 + left[2] ** 2)
    h_right = GAMMA / (GAMMA - 1) * right[3] / right[0] + 0.5 * (right[1] ** 2 + right[2] ** 2)
    h = weight * h_left + (1 - weight) * h_right
    return u, v, h, sqrt((GAMMA - 1) * (h - 0.5 * (u * u + v * v)))


@compiled
def rounded(speed, floor):
    """|speed|, with its kink replaced by a parabola below `floor`."""
    size = abs(speed)
    return size if size > floor else 0.5 * (size * size / floor + floor)


@compiled
def pressure_change(u, v, delta):
    """Derivative of the pressure along a change δ of (ρ, ρu, ρv, E)."""
    kinetic = 0.5 * (u * u + v * v)
    return (GAMMA - 1) * (kinetic * delta[0] - u * delta[1] - v * delta[2] + delta[3])


@compiled
def along_waves(speeds, average, nx, ny, delta):
    """f(A) δ for the flux Jacobian A along n, where `speeds` are f of its eigenvalues.

    The eigenvalues are u·n (double), u·n + c and u·n − c. With f the identity the two rank-one
    terms below are the derivatives of convection and of pressure.
    """
    convective, forward, backward = speeds
    u, v, h, c = average
    normal = u * nx + v * ny
    pressure = pressure_change(u, v, delta)
    momentum = nx * delta[1] + ny * delta[2] - normal * delta[0]
    even = 0.5 * (forward + backward) - convective
    odd = 0.5 * (forward - backward) / c
    carried = even * pressure / (c * c) + odd * momentum
    pushed = even * momentum + odd * pressure
    return (
        convective * delta[0] + carried,
        convective * delta[1] + carried * u + pushed * nx,
        convective * delta[2] + carried * v + pushed * ny,
        convective * delta[3] + carried * h + pushed * normal,
    )


@compiled
def conservative(state):
    """(ρ, ρu, ρv, E) of (ρ, u, v, p)."""
    density, u, v, pressure = state[0], state[1], state[2], state[3]
    energy = pressure / (GAMMA - 1) + 0.5 * density * (u * u + v * v)
    return density, density * u, density * v, energy


@compiled
def roe_flux(left, right, normal_x, normal_y):
    """Flux from a left to a right state through a face of the given area vector."""
    area = sqrt(normal_x**2 + normal_y**2)
    nx, ny = normal_x / area, normal_y / area
    average = roe_average(left, right)
    normal, c = average[0] * nx + average[1] * ny, average[3]
    floor = ENTROPY_FIX * c
    speeds = (rounded(normal, floor), rounded(normal + c, floor), rounded(normal - c, floor))
    a, b = conservative(left), conservative(right)
    delta = (b[0] - a[0], b[1] - a[1], b[2] - a[2], b[3] - a[3])
    loss = along_waves(speeds, average, nx, ny, delta)
    from_left, from_right = left[1] * nx + left[2] * ny, right[1] * nx + right[2] * ny
    push = left[3] + right[3]
    work = left[3] * from_left + right[3] * from_right
    half = 0.5 * area
    return (
        half * (a[0] * from_left + b[0] * from_right - loss[0]),
        half * (a[1] * from_left + b[1] * from_right + push * nx - loss[1]),
        half * (a[2] * from_left + b[2] * from_right + push * ny - loss[2]),
        half * (a[3] * from_left + b[3] * from_right + work - loss[3]),
    )


@compiled
def net_flux(q, normals, wall, slopes, out):
    """Flux out of every cell; the ghosts of `out` receive what enters through the boundary."""
    limit_slopes(q, slopes)
    out[:] = 0.0
    for axis in range(2):
        di, dj = 1 - axis, axis
        for i in range(2, q.shape[0] - 2 + di):
            for j in range(2, q.shape[1] - 2 + dj):
                nx, ny = normals[axis, i, j, 0], normals[axis, i, j, 1]
                if axis == 1 and j == 2 and wall[i]:
                    pressure = 1.5 * q[i, 2, 3] - 0.5 * q[i, 3, 3]
                    out[i, j, 1] -= pressure * nx
                    out[i, j, 2] -= pressure * ny
                    continue
                left = shifted(q[i - di, j - dj], slopes[axis, i - di, j - dj], 1)
                right = shifted(q[i, j], slopes[axis, i, j], -1)
                flux = roe_flux(left, right, nx, ny)
                for k in range(4):
                    out[i - di, j - dj, k] += flux[k]
                    out[i, j, k] -= flux[k]


@compiled
def split_speeds(normal, c):
    """Speeds of the waves that leave along the normal, and of those that come against it."""
    entropy = rounded(normal, FLOORS[0] * c)
    forward, backward = rounded(normal + c, FLOORS[1] * c), rounded(normal - c, FLOORS[1] * c)
    out = (normal + entropy, normal + c + forward, normal - c + backward)
    into = (normal - entropy, normal + c - forward, normal - c - backward)
    return out, into


@compiled
def linearise(q, normals, wall, cfl, diagonal, coupling):
    """Derivative of the first-order net flux, plus cell volume over local time step.

    Blocks are stored transposed, [column, row]. `coupling[i, j]` are those of the neighbours
    before and after along the first axis, then along the second.
    """
    diagonal[:] = 0.0
    coupling[:] = 0.0
    for axis in range(2):
        di, dj = 1 - axis, axis
        for i in range(2, q.shape[0] - 2 + di):
            for j in range(2, q.shape[1] - 2 + dj):
                nx, ny = normals[axis, i, j, 0], normals[axis, i, j, 1]
                if axis == 1 and j == 2 and wall[i]:
                    for k in range(4):
                        pressure = pressure_change(q[i, j, 1], q[i, j, 2], UNIT[k])
                        diagonal[i, j, k, 1] -= pressure * nx
                        diagonal[i, j, k, 2] -= pressure * ny
                    continue
                a, b = i - di, j - dj
                area = sqrt(nx * nx + ny * ny)
                nx, ny, half = nx / area, ny / area, 0.5 * area
                average = roe_average(q[a, b], q[i, j])
                normal, c = average[0] * nx + average[1] * ny, average[3]
                out, into = split_speeds(normal, c)
                for k in range(4):
                    plus = along_waves(out, average, nx, ny, UNIT[k])
                    minus = along_waves(into, average, nx, ny, UNIT[k])
                    for r in range(4):
                        diagonal[a, b, k, r] += half * plus[r]
                        diagonal[i, j, k, r] -= half * minus[r]
                        coupling[a, b, 2 * axis + 1, k, r] = half * minus[r]
                        coupling[i, j, 2 * axis, k, r] = -half * plus[r]
                    diagonal[a, b, k, k] += half * (abs(normal) + c) / cfl
                    diagonal[i, j, k, k] += half * (abs(normal) + c) / cfl


@compiled
def relax(inverse, coupling, flux, num_sweeps, step):
    """Symmetric Gauss–Seidel sweeps for the conservative `step` that should cancel `flux`."""
    num_i, num_j = step.shape[0] - 4, step.shape[1] - 4
    step[:] = 0.0
    for sweep in range(2 * num_sweeps):
        for m in range(num_i):
            i = m + 2 if sweep % 2 == 0 else num_i + 1 - m
            for n in range(num_j):
                j = n + 2 if sweep % 2 == 0 else num_j + 1 - n
                # A wall cell has no neighbour there: its block is zero.
                below = step[num_i + 3 - i, 2] if j == 2 else step[i, j - 1]
                neighbours = (step[i - 1, j], step[i + 1, j], below, step[i, j + 1])
                a, b, c, d = -flux[i, j, 0], -flux[i, j, 1], -flux[i, j, 2], -flux[i, j, 3]
                for side in range(4):
                    block = coupling[i, j, side]
                    for k in range(4):
                        x = neighbours[side][k]
                        a -= block[k, 0] * x
                        b -= block[k, 1] * x
                        c -= block[k, 2] * x
                        d -= block[k, 3] * x
                block = inverse[i - 2, j - 2]
                for r in range(4):
                    x = a * block[0, r] + b * block[1, r] + c * block[2, r] + d * block[3, r]
                    step[i, j, r] = x


@compiled
def advance(q, step):
    """Add a conservative step to the primitive state."""
    for i in range(2, q.shape[0] - 2):
        for j in range(2, q.shape[1] - 2):
            d = step[i, j]
            pressure = pressure_change(q[i, j, 1], q[i, j, 2], d) / q[i, j, 3]
            scale = LARGEST_CHANGE / max(abs(d[0]) / q[i, j, 0], abs(pressure), LARGEST_CHANGE)
            density, x, y, energy = conservative(q[i, j])
            density, energy = density + scale * d[0], energy + scale * d[3]
            u, v = (x + scale * d[1]) / density, (y + scale * d[2]) / density
            q[i, j, 0], q[i, j, 1], q[i, j, 2] = density, u, v
            q[i, j, 3] = (GAMMA - 1) * (energy - 0.5 * density * (u * u + v * v))
