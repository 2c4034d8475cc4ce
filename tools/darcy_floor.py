"""How exactly a model can know the solution of Darcy flow: the part that its input does not show.

    python -m tools.darcy_floor                    # writes tools/results/darcy_floor.json
    python -m tools.darcy_floor --samples 2 --trial   # print, write nothing

The equation is solved on a grid of which a model sees every fifth node. Where the boundary between
the two permeabilities runs between those nodes is not in the input, so no model can be exact. The
best estimate is the mean of all solutions that agree with the input. Those media are drawn here:

1. The Gaussian field at the visible nodes, given its signs there: Gibbs sampling, one node after
   another from its normal distribution given the others, cut at zero. It starts from the true
   field, which is a draw from the same distribution, so there is nothing to forget at the start.
2. The field at all other nodes, given those values: a new field, moved to them by kriging.

The mean of m such solutions is off by √(1 + 1/m) times the floor. Draws that still remember the
true field make the estimate too low, never too high.
"""

import argparse
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from scipy.interpolate import RectBivariateSpline
from scipy.special import ndtr, ndtri

from cato.benchmarks import get_benchmark
from cato.benchmarks.darcy.medium import HIGH, LOW, NUM_MODES, Values, gaussian_field, spectrum
from cato.benchmarks.darcy.solver import solve_darcy
from cato.data.sampling import sample_rng
from cato.data.spec import DataSpec
from cato.progress import progress_bar
from cato.runs.folder import open_run
from cato.runs.load import load_surrogate
from tools.pages import table
from tools.results import Row, machine, read_results, stamped, update_rows

NAME = "darcy_floor"
SCALES = ("small", "paper")
NUM_SAMPLES = 40
NUM_DRAWS = 24
SWEEPS = 40  # Over all visible nodes, between two draws.

Field = Float64[np.ndarray, " N"]  # At the visible nodes, row by row.


class Visible(NamedTuple):
    """Every `stride`-th of `num_nodes` nodes per side, and the normal distribution there."""

    num_nodes: int
    stride: int
    all_cosines: Float64[np.ndarray, "n K"]
    cosines: Float64[np.ndarray, "c K"]
    precision: Float64[np.ndarray, "N N"]

    def of(self, values: Values) -> Values:
        """Values at the visible nodes."""
        return values[:: self.stride, :: self.stride]


def visible_nodes(num_nodes: int, stride: int) -> Visible:
    """The visible nodes of a grid; their covariance is summed over the modes of the medium."""
    everywhere = cosines_at(num_nodes)
    seen = everywhere[::stride]
    products = (seen[:, None] * seen).reshape(-1, NUM_MODES)
    covariance = (products @ spectrum() ** 2 @ products.T).reshape(4 * (len(seen),))
    covariance = covariance.transpose(0, 2, 1, 3).reshape(2 * (len(seen) ** 2,))
    return Visible(num_nodes, stride, everywhere, seen, np.linalg.inv(covariance))


def cosines_at(num_nodes: int) -> Float64[np.ndarray, "n K"]:
    """The cosines of the medium along one axis."""
    k, x = np.arange(NUM_MODES), np.arange(num_nodes) / (num_nodes - 1)
    return np.where(k == 0, 1.0, np.sqrt(2.0)) * np.cos(np.pi * np.outer(x, k))


def sweep(field: Field, signs: Field, precision: np.ndarray, rng: np.random.Generator) -> None:
    """Draw every node anew, given the others and its sign; changes `field`."""
    residual = precision @ field
    uniform = rng.random(len(field))
    for i in rng.permutation(len(field)):
        variance = 1 / precision[i, i]
        mean, deviation = field[i] - residual[i] * variance, np.sqrt(variance)
        # P(sign · value > 0), and the quantile of what is left of the normal distribution
        inside = ndtr(signs[i] * mean / deviation)
        drawn = mean - signs[i] * deviation * ndtri(uniform[i] * inside)
        if np.isfinite(drawn):  # else it lies so far out that it underflows: keep the old value
            residual += precision[:, i] * (drawn - field[i])
            field[i] = drawn


def between(field: Field, seen: Visible, rng: np.random.Generator) -> Values:
    """A draw of the whole field that has these values at the visible nodes."""
    free = spectrum() * rng.standard_normal((NUM_MODES, NUM_MODES))
    at_visible = seen.cosines @ free @ seen.cosines.T
    weights = seen.precision @ (field - at_visible.ravel())
    shift = seen.cosines.T @ weights.reshape(at_visible.shape) @ seen.cosines
    return seen.all_cosines @ (free + spectrum() ** 2 * shift) @ seen.all_cosines.T


def solution_of(field: Values, seen: Visible) -> Values:
    """Pressure at the visible nodes."""
    return seen.of(solve_darcy(np.where(field >= 0, HIGH, LOW)).u)


def errors_of(true: Values, seen: Visible, rng: np.random.Generator) -> dict[str, float]:
    """Relative errors of estimates that see the medium at the visible nodes only."""
    solution = solution_of(true, seen)
    field = seen.of(true).ravel().copy()
    signs = np.where(field >= 0, 1.0, -1.0)
    draws = []
    for _ in range(NUM_DRAWS):
        for _ in range(SWEEPS):
            sweep(field, signs, seen.precision, rng)
        draws.append(solution_of(between(field, seen, rng), seen))
    ticks, places = (np.linspace(0, 1, n) for n in (seen.num_nodes, len(seen.cosines)))
    square = signs.reshape(2 * (len(places),))
    straight = RectBivariateSpline(places, places, square, kx=1, ky=1)(ticks, ticks)

    def error(estimate: Values) -> float:
        return float(np.linalg.norm(estimate - solution) / np.linalg.norm(solution))

    return {
        "floor": error(np.mean(draws, axis=0)) / np.sqrt(1 + 1 / NUM_DRAWS),
        "one draw": error(draws[-1]),
        "straight boundaries": error(solution_of(straight, seen)),
    }


def measure(scale: str, num_samples: int) -> Row:
    """Mean errors on the first test samples of a scale, and of the pretrained model there."""
    spec = DataSpec("darcy", scale)
    parameters = spec.parameters
    seen = visible_nodes(parameters.num_solver_nodes, parameters.stride)
    run = open_run("darcy")
    surrogate = load_surrogate(run) if run.config.scale == scale else None
    rows = []
    with progress_bar(f"darcy-{scale}", num_samples) as bar:
        for index in range(num_samples):
            true = gaussian_field(sample_rng(spec.seed, "darcy", "test", index, 0), seen.num_nodes)
            found = errors_of(true, seen, np.random.default_rng(index))
            if surrogate is not None:
                medium = seen.of(np.where(true >= 0, HIGH, LOW))[None, ..., None]
                coords = get_benchmark("darcy").coords(parameters)
                answer = surrogate.predict(inputs=medium.astype(np.float32), coords=coords)
                solution = solution_of(true, seen)
                gap = np.linalg.norm(answer[0, ..., 0] - solution)
                found["pretrained model"] = float(gap / np.linalg.norm(solution))
            rows.append(found)
            bar(index + 1)
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    resampled = np.random.default_rng(0).integers(num_samples, size=(2000, num_samples))
    floors = np.array([row["floor"] for row in rows])[resampled].mean(1)
    return {
        "scale": scale,
        "num_samples": num_samples,
        "errors": means,
        "floor_interval": np.quantile(floors, (0.025, 0.975)).tolist(),
        "samples": rows,
    }


def block() -> str:
    """A section for the card of Darcy flow."""
    rows = read_results(NAME)["rows"]
    names = list(dict.fromkeys(name for row in rows for name in row["errors"]))
    cells = [
        (
            f"`{row['scale']}`",
            *(f"{row['errors'][n]:.2%}" if n in row["errors"] else "–" for n in names),
            " to ".join(f"{end:.2%}" for end in row["floor_interval"]),
            str(row["num_samples"]),
        )
        for row in rows
    ]
    header = ("scale", *names, "95 % interval of the floor", "test samples")
    return f"\n{table(header, cells)}\n\n{machine(rows[0])}.\n\n"


def main() -> None:
    """Measure and write the results file."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--scales", nargs="+", choices=SCALES, default=["small"])
    parser.add_argument("--samples", type=int, default=NUM_SAMPLES)
    parser.add_argument("--trial", action="store_true", help="print, write nothing")
    options = parser.parse_args()
    for scale in options.scales:
        row = measure(scale, options.samples)
        print(scale, {name: f"{error:.3%}" for name, error in row["errors"].items()})
        if not options.trial:
            settings = {"scale": scale, "draws": NUM_DRAWS, "sweeps": SWEEPS, "seed": 0}
            data = DataSpec("darcy", scale).file_name
            update_rows(NAME, [stamped(row, settings, data)], "scale", SCALES)


if __name__ == "__main__":
    main()
