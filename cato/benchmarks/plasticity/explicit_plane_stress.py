"""Explicit dynamics of a plane-stress block of perfect J2 plasticity: the compiled loops.

Momentum ρ u_tt = div σ by central differences on one-point quadrilaterals with lumped mass. The
plane is the complex numbers, z = x + iy, where a linear map reads L z = α z + β z̄: α is half the
trace plus i times the rotation, and β = (Lx − Ly)/2 + i·shear. So a symmetric tensor is its Mohr
circle, a real centre and a complex deviator (the radius vector); a rotation e^(iθ) multiplies the
deviator by e^(2iθ), and plane-stress J2 yield is centre² + 3 |deviator|² = σ_Y².

A one-point element with nodes 1, 2, 3, 4 is the affine map of its diagonals P = z₃ − z₁ and
Q = z₄ − z₂. What that map leaves over of the hourglass pattern z₁ − z₂ + z₃ − z₄ is resisted by a
spring and a dashpot. The spring yields early, and late where the element is nearly non-convex: a
strong one everywhere stiffens plastic bending, a weak one everywhere lets corners fold.

All compiled functions are in this file because Numba's cache is invalidated file by file. They
allocate nothing, use one thread, and do without fast-math, so that their bits are reproducible.
Arguments are the named tuples of `cato.benchmarks.plasticity.solver`, in mm, ms, g, N and MPa.
"""

from functools import partial

import numpy as np

from cato.kernels import jit

BULK_VISCOSITY = 0.06  # Linear damping of volume change, as a fraction of critical.
# In units of Young's modulus; the fully integrated square element has 0.12.
HOURGLASS_STIFFNESS = 0.05
HOURGLASS_STRENGTH = 0.005  # Yield of the hourglass spring of a square element, in units of σ_Y √A.
HOURGLASS_VISCOSITY = 0.0125  # In units of ρ c √A, with c the speed of sound.
# The stable step is measured this often; in between an element changes by less than 1 %.
STEPS_PER_CHECK = 16
# Why `advance` returned: at the end time, or past the limit of plastic strain or of step size.
REACHED_END, STRAINED, COLLAPSED = 0, 1, 2

compiled = partial(jit.compiled, forceinline=True)


@compiled
def squared(z):
    """|z|², without the square root of abs()."""
    return z.real * z.real + z.imag * z.imag


@compiled
def return_map(material, centre, deviator):
    """Project a trial stress on the yield surface: backward Euler with associated flow.

    Plastic strain γ dev σ shrinks the centre by 1/(1 + aγ) and the deviator by 1/(1 + bγ). Newton's
    method finds the root of 1/σ_vm(γ) = 1/σ_Y from γ = 0; it approaches from below because
    1/σ_vm is concave in γ, and one step is exact where centre or deviator vanishes. Returned are
    centre and deviator on the surface, and γ, which is zero for an elastic state.
    """
    a = material.young / (3.0 * (1.0 - material.poisson))
    b = material.young / (1.0 + material.poisson)
    trial_centre, trial_deviator = centre * centre, 3.0 * squared(deviator)
    gamma, shrink_centre, shrink_deviator = 0.0, 1.0, 1.0
    if trial_centre + trial_deviator <= material.yield_stress * material.yield_stress:
        return centre, deviator, gamma
    for _ in range(20):
        from_centre = trial_centre * shrink_centre * shrink_centre
        from_deviator = trial_deviator * shrink_deviator * shrink_deviator
        mises2 = from_centre + from_deviator
        excess = np.sqrt(mises2) / material.yield_stress - 1.0
        slope = a * from_centre * shrink_centre + b * from_deviator * shrink_deviator
        gamma += excess * mises2 / slope
        shrink_centre = 1.0 / (1.0 + a * gamma)
        shrink_deviator = 1.0 / (1.0 + b * gamma)
        if excess < 1e-6:  # convergence is quadratic: what is left is round-off
            break
    return centre * shrink_centre, deviator * shrink_deviator, gamma


@compiled
def update_stress(material, centre, deviator, stretch, shear, turn):
    """One increment: turn the stress with the material (Jaumann), strain it, return it.

    `stretch` and `shear` are the centre and deviator of the strain increment; `turn` is e^(iθ).
    Returned are the new centre and deviator, the increments of thickness strain and of equivalent
    plastic strain, and the work per volume.
    """
    deviator = deviator * (turn * turn)
    new_centre, new_deviator, gamma = return_map(
        material,
        centre + material.young / (1.0 - material.poisson) * stretch,
        deviator + material.young / (1.0 + material.poisson) * shear,
    )
    flow = gamma * 2.0 / 3.0
    thinning = 2.0 * material.poisson / material.young * (new_centre - centre) + flow * new_centre
    work = (centre + new_centre) * stretch + ((deviator + new_deviator) * shear.conjugate()).real
    return new_centre, new_deviator, -thinning, flow * material.yield_stress, work


@compiled
def update_history(material, elements, j, i, area, stretch, shear, turn):
    """Stress, thickness, plastic strain and work of an element; returns its volume."""
    centre, deviator, thickening, plastic, work = update_stress(
        material, elements.centre[j, i], elements.deviator[j, i], stretch, shear, turn
    )
    volume = area * elements.thickness[j, i]
    elements.centre[j, i], elements.deviator[j, i] = centre, deviator
    elements.thickness[j, i] *= 1.0 + thickening
    elements.plastic_strain[j, i] += plastic
    elements.work[j, i] += work * volume
    return volume


@compiled
def hourglass_force(material, elements, j, i, rate, turn, size, convexity, damping):
    """Force per thickness against the increment `rate` of an element's hourglass pattern.

    The convexity is 1 for a parallelogram and 0 where a node meets the diagonal of its neighbours.
    """
    room = max(convexity, 0.05)
    limit = HOURGLASS_STRENGTH * material.yield_stress * size / (room * room)
    spring = elements.hourglass[j, i] * turn + HOURGLASS_STIFFNESS * material.young * rate
    over = squared(spring) / (limit * limit)
    if over > 1.0:
        spring = spring * (1.0 / np.sqrt(over))
    elements.hourglass[j, i] = spring
    return spring + HOURGLASS_VISCOSITY * damping * rate


@compiled
def update_element(material, nodes, elements, j, i, dt):
    """Stress of one element after a step of its nodes, and its forces added to theirs."""
    z, v, force = nodes.position, nodes.velocity, nodes.force
    p, q = z[j + 1, i + 1] - z[j, i], z[j + 1, i] - z[j, i + 1]
    h = z[j, i] - z[j, i + 1] + z[j + 1, i + 1] - z[j + 1, i]
    dp, dq = dt * (v[j + 1, i + 1] - v[j, i]), dt * (v[j + 1, i] - v[j, i + 1])
    dh = dt * (v[j, i] - v[j, i + 1] + v[j + 1, i + 1] - v[j + 1, i])

    # α, β from dp = α p + β p̄ and dq = α q + β q̄ at mid-step, where a rotation causes no strain
    mid_p, mid_q, mid_h = p - 0.5 * dp, q - 0.5 * dq, h - 0.5 * dh
    area = 0.5 * (mid_p.conjugate() * mid_q).imag
    half = 0.5 / area
    alpha = 0.5j * half * (dp * mid_q.conjugate() - dq * mid_p.conjugate())
    beta = 0.5j * half * (mid_p * dq - mid_q * dp)
    stretch, half_spin = alpha.real, 0.5 * alpha.imag
    square = half_spin * half_spin
    turn = complex(1.0 - square, 2.0 * half_spin) * (1.0 / (1.0 + square))
    volume = update_history(material, elements, j, i, area, stretch, beta, turn)
    thickness = elements.thickness[j, i]

    # The pattern is h = g3 p + g4 q, and the element is convex while |g3|, |g4| < 1
    g3 = half * (mid_h.conjugate() * mid_q).imag
    g4 = half * (mid_p.conjugate() * mid_h).imag
    convexity = 1.0 - max(g3 * g3, g4 * g4)
    size = np.sqrt(area)
    impedance = np.sqrt(material.density * material.young / (1.0 - material.poisson**2))
    damping = impedance * size / dt
    rate = dh - alpha * mid_h - beta * mid_h.conjugate()
    hourglass = thickness * hourglass_force(
        material, elements, j, i, rate, turn, size, convexity, damping
    )
    viscous = BULK_VISCOSITY * damping * 2.0 * stretch
    elements.artificial[j, i] += 2.0 * viscous * stretch * volume
    elements.artificial[j, i] += (hourglass * rate.conjugate()).real

    # Tractions across the diagonals pull nodes 3 and 1, and 4 and 2, in opposite directions
    centre = thickness * (elements.centre[j, i] + viscous)
    deviator = thickness * elements.deviator[j, i]
    f3 = -0.5j * (centre * q - deviator * q.conjugate())
    f4 = 0.5j * (centre * p - deviator * p.conjugate())
    force[j, i] += f3 - (1.0 + g3) * hourglass
    force[j, i + 1] += f4 + (1.0 - g4) * hourglass
    force[j + 1, i + 1] -= f3 + (1.0 - g3) * hourglass
    force[j + 1, i] -= f4 - (1.0 + g4) * hourglass


@compiled
def update_forces(material, nodes, elements, dt):
    """Forces of all elements on the nodes after a step."""
    nodes.force[:] = 0.0
    rows, columns = elements.work.shape
    for j in range(rows):
        for i in range(columns):
            update_element(material, nodes, elements, j, i, dt)


@compiled
def stable_step(material, nodes, elements):
    """A lower bound of 2/ω_max, or 0 where an element has turned inside out.

    An element of area A, thickness h and nodal mass m has m ω² ≤ A h κ λ, with the largest elastic
    modulus κ = E/(1 − ν) and λ the larger eigenvalue of the Gram matrix of its shape gradients,
    whose trace is (|P|² + |Q|²)/2A² and whose determinant is 1/A².
    """
    z = nodes.position
    rows, columns = elements.work.shape
    largest = 0.0
    for j in range(rows):
        for i in range(columns):
            p, q = z[j + 1, i + 1] - z[j, i], z[j + 1, i] - z[j, i + 1]
            area = 0.5 * (p.conjugate() * q).imag
            if not area > 0.0:
                return 0.0
            mean = 0.25 * (squared(p) + squared(q))
            eigenvalue = mean + np.sqrt(max(mean * mean - area * area, 0.0))
            largest = max(largest, elements.thickness[j, i] * eigenvalue / area)
    mass = nodes.mass[0, 0]  # the corner node belongs to one element only
    omega = np.sqrt(largest * material.young / ((1.0 - material.poisson) * mass))
    return 2.0 / omega * (np.sqrt(1.0 + BULK_VISCOSITY**2) - BULK_VISCOSITY)


@compiled
def die_profile(die, x):
    """Height and slope of the die at x, before it moves; flat outside its knots."""
    num_pieces = len(die.coefficients)
    inside = min(max(x, 0.0), num_pieces * die.spacing)
    k = max(0, min(int(inside / die.spacing), num_pieces - 1))  # in range even if x is NaN
    c3, c2, c1, c0 = die.coefficients[k]
    s = inside - k * die.spacing
    return ((c3 * s + c2) * s + c1) * s + c0, (3.0 * c3 * s + 2.0 * c2) * s + c1


@compiled
def push_out(nodes, die, j, i, time, dt, kick):
    """Put a node that has passed the die back on it along the normal; return the die's work.

    The impulse works on the mean of the velocities before and after the step, which makes the
    discrete balance of kinetic energy exact.
    """
    z = nodes.position[j, i]
    height, slope = die_profile(die, z.real)
    overlap = z.imag - (height - die.speed * time)
    if overlap <= 0.0:
        return 0.0
    shift = overlap / (1.0 + slope * slope) * complex(slope, -1.0)
    jump = shift * (1.0 / dt)
    nodes.position[j, i] += shift
    nodes.velocity[j, i] += jump
    mass = nodes.mass[j, i]
    mean_velocity = nodes.velocity[j, i] - 0.5 * (jump + kick / mass * nodes.force[j, i])
    return mass * (jump * mean_velocity.conjugate()).real


@compiled
def move_nodes(nodes, die, time, dt, kick):
    """Kick velocities, drift positions to `time`, and obey the die; return the die's work.

    The top row shields all others from the die; whether it did is checked on the result.
    """
    rows, columns = nodes.mass.shape
    for j in range(1, rows):  # row 0 is clamped
        for i in range(columns):
            nodes.velocity[j, i] += kick / nodes.mass[j, i] * nodes.force[j, i]
            nodes.position[j, i] += dt * nodes.velocity[j, i]
    work = 0.0
    for i in range(columns):
        work += push_out(nodes, die, rows - 1, i, time, dt, kick)
    return work


@compiled
def advance(material, nodes, elements, die, start, end, last_dt, stepping):
    """Step from `start` to `end`; return why it stopped, step count, last step, work of the die."""
    time, work, num_steps, dt = start, 0.0, 0, last_dt
    while time < end:
        stable = stepping.safety * stable_step(material, nodes, elements)
        if stable < stepping.min_dt:
            return COLLAPSED, num_steps, dt, work
        if elements.plastic_strain.max() > stepping.max_strain:
            return STRAINED, num_steps, dt, work
        num_left = int(np.ceil((end - time) / stable))
        num_now = min(num_left, STEPS_PER_CHECK)
        new_dt = (end - time) / num_left
        for step in range(1, num_now + 1):
            kick = 0.5 * (dt + new_dt)  # velocities live between the times of positions
            dt = new_dt
            work += move_nodes(nodes, die, time + step * dt, dt, kick)
            update_forces(material, nodes, elements, dt)
        num_steps += num_now
        time = end if num_now == num_left else time + num_now * dt
    return REACHED_END, num_steps, dt, work
