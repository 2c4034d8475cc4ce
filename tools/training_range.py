"""Verdicts on shifted inputs, and the coverage of the band inside and outside the training range.

    make bench-range                                # writes tools/results/training_range.json
    python -m tools.training_range --benchmarks darcy --samples 4 --trial   # print, write nothing

For every pretrained model, new samples are drawn like those of its training and with several
shifts, solved by the benchmark's solver and predicted. A row has how many samples the verdict calls
outside, and for those inside and outside the median error and the coverage of the band: the share
of samples with at least 90 % of their nodes in it, averaged over the outputs.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from cato.benchmarks import BENCHMARKS
from cato.benchmarks.contract import Rejected, Sample
from cato.benchmarks.darcy.medium import HIGH, LOW, cosine_sum, spectrum
from cato.data.dataset import Dataset
from cato.data.training_range import judge, load_range
from cato.inference.conformal import load_band
from cato.inference.evaluate import evaluate, solve_all
from cato.progress import progress_bar
from cato.runs.folder import PRETRAINED, open_run
from cato.runs.load import data_spec, load_surrogate
from tools.pages import Pages, table, with_block, write_pages
from tools.results import ROOT, Row, read_results, stamped, update_rows

PAGE = ROOT / "docs" / "training-range.md"
NAME = "training_range"
NUM_SAMPLES = 24
SEED = 20_000
"""Samples are drawn from this seed on: not those of any split."""

Draw = Callable[[np.random.Generator, Any], np.ndarray]


def drawn_by(name: str) -> Draw:
    """How a benchmark draws its samples."""
    return BENCHMARKS[name].draw


def changed(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Draw:
    """A draw of a benchmark that is changed afterwards."""
    return lambda rng, parameters: change(BENCHMARKS[name].draw(rng, parameters))


def medium(tau: float) -> Draw:
    """A medium of Darcy flow with other correlation length: τ is 3 in the benchmark."""

    def draw(rng: np.random.Generator, parameters: Any) -> np.ndarray:
        field = spectrum(tau=tau) * rng.standard_normal((421, 421))
        return np.where(cosine_sum(field, parameters.num_solver_nodes) >= 0, HIGH, LOW)

    return draw


def vortices(strength: float, size: float) -> Draw:
    """Vortices as the explorer makes them."""

    def draw(rng: np.random.Generator, parameters: Any) -> np.ndarray:
        benchmark = BENCHMARKS["navier_stokes"]
        assert benchmark.editor is not None
        values = np.array([strength, size, float(rng.integers(10_000))])
        return benchmark.editor(benchmark, parameters).decode(values)

    return draw


UNCHANGED = "as in training"
SHIFTS: dict[str, dict[str, Draw]] = {
    "darcy": {
        "permeability × 1.1": changed("darcy", lambda a: 1.1 * a),
        "permeability 6 and 12": changed("darcy", lambda a: np.maximum(a, 6.0)),
        "permeability 1 and 12": changed("darcy", lambda a: np.where(a == LOW, 1.0, a)),
        "coarser medium (τ = 1)": medium(1.0),
        "finer medium (τ = 12)": medium(12.0),
    },
    "navier_stokes": {
        "vortices × 2": vortices(2.0, 1.0),
        "vortices half as large": vortices(1.0, 0.5),
        "vortices twice as large": vortices(1.0, 2.0),
    },
    "airfoil": {
        "deformation × 1.5": changed("airfoil", lambda d: 1.5 * d),
        "deformation × 2": changed("airfoil", lambda d: 2.0 * d),
    },
    "pipe": {
        "bends × 1.5": changed("pipe", lambda d: 1.5 * d),
        "bends × 2": changed("pipe", lambda d: 2.0 * d),
    },
    "plasticity": {
        "die × 1.5": changed("plasticity", lambda d: 1.5 * d),
        "flat die": changed("plasticity", lambda d: np.full_like(d, d.mean())),
    },
    "elasticity": {
        "void × 2": changed("elasticity", lambda d: 2.0 * d),
    },
}


def case(name: str, shift: str) -> str:
    """What identifies a row."""
    return f"{name}, {shift}"


def measure(name: str, num_samples: int) -> list[Row]:
    """A row for every shift of a benchmark."""
    run = open_run(PRETRAINED / name)
    surrogate, spec = load_surrogate(run), data_spec(run.config)
    known, band = load_range(run.source, run.problem, run.id), load_band(run, surrogate.step)
    assert known is not None
    assert band is not None
    rows = []
    shifts = {UNCHANGED: drawn_by(name)} | SHIFTS[name]
    with progress_bar(name, len(shifts)) as bar:
        for number, (shift, draw) in enumerate(shifts.items()):
            bar(number, shift)
            data, num_rejected = solved(name, spec.parameters, draw, num_samples)
            arrays = data.arrays("inputs", "coords")
            verdicts = judge(known, data.problem, arrays["inputs"], arrays["coords"])
            outside = np.array([verdict.kind == "outside" for verdict in verdicts])
            evaluation = evaluate(surrogate, data, None)
            covered = band.covers(solve_all(surrogate, data) - data.targets).double().mean(1)
            row = {
                "case": case(name, shift),
                "benchmark": name,
                "shift": shift,
                "num_samples": len(data),
                "num_rejected": num_rejected,
                "num_outside": int(outside.sum()),
                "inside": _figures(evaluation.headline_errors, covered, ~outside),
                "outside": _figures(evaluation.headline_errors, covered, outside),
                "reason": next((v.reason for v in verdicts if v.kind == "outside"), ""),
            }
            rows.append(stamped(row, {"seed": SEED, "num_samples": num_samples}, spec.key))
        bar(len(shifts))
    return rows


def solved(name: str, parameters: Any, draw: Draw, num_samples: int) -> tuple[Dataset, int]:
    """Solved samples of a shift, and how many draws the solver rejected."""
    benchmark, samples, num_rejected = BENCHMARKS[name], list[Sample](), 0
    while len(samples) < num_samples:
        rng = np.random.default_rng([SEED, len(samples) + num_rejected])
        try:
            samples.append(benchmark.solve(draw(rng, parameters), parameters))
        except Rejected:
            num_rejected += 1
            if num_rejected > 2 * num_samples:
                raise
    own = [sample.coords for sample in samples if sample.coords is not None]
    coords = np.stack(own) if own else benchmark.coords(parameters)
    assert coords is not None
    inputs, targets = (np.stack([getattr(s, a) for s in samples]) for a in ("inputs", "targets"))
    problem = benchmark.problem_for(parameters)
    return Dataset.from_arrays(problem, coords, inputs, targets, what=name), num_rejected


def _figures(errors: Tensor, covered: Tensor, chosen: np.ndarray) -> dict[str, float] | None:
    """Median error and coverage of some samples; None if there are none."""
    if not chosen.any():
        return None
    return {"median": errors[chosen].median().item(), "covered": covered[chosen].mean().item()}


def pages() -> Pages:
    """The page with its table."""
    return {PAGE: with_block(PAGE, "shifts", shift_table(read_results(NAME)["rows"]) + "\n")}


def shift_table(rows: Sequence[Row]) -> str:
    """All shifts."""
    header = (
        *("benchmark", "inputs", "outside"),
        *("error inside", "covered inside", "error outside", "covered outside"),
    )
    cells = [
        (
            BENCHMARKS[row["benchmark"]].title,
            row["shift"],
            f"{row['num_outside']} of {row['num_samples']}",
            *_cells(row["inside"]),
            *_cells(row["outside"]),
        )
        for row in rows
    ]
    return table(header, cells)


def _cells(figures: dict[str, float] | None) -> tuple[str, str]:
    if figures is None:
        return "", ""
    return f"{figures['median']:.1%}", f"{figures['covered']:.0%}"


def main() -> None:
    """Measure the benchmarks, all by default."""
    parser = argparse.ArgumentParser(description="verdicts and coverage on shifted inputs")
    parser.add_argument("--benchmarks", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--samples", type=int, default=NUM_SAMPLES)
    parser.add_argument("--trial", action="store_true", help="print, write nothing")
    options = parser.parse_args()
    order = [case(name, shift) for name in BENCHMARKS for shift in (UNCHANGED, *SHIFTS[name])]
    for name in options.benchmarks:
        rows = measure(name, options.samples)
        if options.trial:
            print(shift_table(rows))
        else:
            update_rows(NAME, rows, "case", order)
    if not options.trial:
        write_pages(pages())


if __name__ == "__main__":
    main()
