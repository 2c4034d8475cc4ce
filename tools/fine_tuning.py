"""Fine-tuning against training from scratch, on small data sets and in the same time.

    make bench-fine-tuning               # writes tools/results/fine_tuning.json, docs/training.md
    python -m tools.fine_tuning "smooth permeability" --seeds 0   # some of it
    python -m tools.fine_tuning --trial  # seconds of training on a few samples; writes nothing

The data are Darcy flows through media that the pretrained model has not seen, on a finer grid,
written as files of a user. `cato train FILE` and `cato train FILE --from darcy` get the number of
steps that fit into the same minutes on one thread. Resumable: trainings are kept in RUNS.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean

import numpy as np
import torch

from cato.benchmarks.contract import plane_grid
from cato.benchmarks.darcy.medium import gaussian_field
from cato.benchmarks.darcy.solver import solve_darcy
from cato.inference.evaluate import evaluate, train_mean
from cato.runs.folder import open_run
from cato.runs.load import load_splits, load_surrogate
from cato.runs.settings import RunConfig, build_settings
from reproduce.jobs import figures_of, run_jobs
from reproduce.step_timing import in_equal_time
from tools.pages import Pages, table, with_block, write_pages
from tools.results import ROOT, Row, has_results, machine, read_results, stamped, update_rows

PAGE = ROOT / "docs" / "training.md"
RUNS = Path("runs") / "fine-tuning"
START = "darcy"
MEDIA: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "permeability 1 and 6": lambda field: np.where(field >= 0, 6.0, 1.0),
    "permeability 1 and 20": lambda field: np.where(field >= 0, 20.0, 1.0),
    "smooth permeability": lambda field: np.exp(field / field.std()),
}
"""Permeability from a Gaussian field. That of the benchmark is 12 where it is positive, else 3."""
SEED = 1  # Of the media; the pretrained model has seen those of seed 0.
COUNTS = {"train": 64, "validation": 16, "test": 100}
RESOLUTION, STRIDE = 43, 3  # Nodes per side, every STRIDE-th of those the equation is solved on.
MINUTES, SEEDS = 2.0, (0, 1, 2)
WAYS = {"scratch": {}, "fine_tuned": {"start_from": START}}


def write_data(
    path: Path, medium: str, counts: Mapping[str, int] = COUNTS, resolution: int = RESOLUTION
) -> None:
    """A file in the documented layout."""
    num_nodes, kept = STRIDE * (resolution - 1) + 1, np.s_[::STRIDE, ::STRIDE, None]
    inputs, targets = [], []
    for number in range(sum(counts.values())):
        field = gaussian_field(np.random.default_rng((SEED, number)), num_nodes)
        permeability = MEDIA[medium](field)
        inputs.append(permeability[kept])
        targets.append(solve_darcy(permeability).u[kept])
    line = np.linspace(0, 1, resolution)
    split = np.repeat(list(counts), list(counts.values()))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, coords=plane_grid(line, line), inputs=inputs, targets=targets, split=split)


def measure(medium: str, path: Path, seeds: Sequence[int], minutes: float) -> Row:
    """Test errors of both ways on the data in `path`, one for each seed."""
    configs: dict[str, list[RunConfig]] = {
        way: [
            build_settings(path, "small", None, {"train": {"steps": 1, "seed": seed, **start}})
            for seed in seeds
        ]
        for way, start in WAYS.items()
    }
    names = {way: [f"{path.stem}-{way}-seed{seed}" for seed in seeds] for way in WAYS}
    # Seed after seed, so that a killed measurement leaves pairs that can be compared.
    jobs = {
        names[way][number]: configs[way][number] for number in range(len(seeds)) for way in WAYS
    }
    jobs = in_equal_time(jobs, minutes, path.parent, workers=1)
    runs = run_jobs(jobs, path.parent, 1, medium)
    errors = {way: [figures_of(runs[name])["relative_l2"] for name in names[way]] for way in WAYS}
    splits = load_splits(configs["scratch"][0])
    unchanged = evaluate(load_surrogate(open_run(START)), splits.test, train_mean(splits)).to_dict()
    row = {
        "medium": medium,
        **errors,
        "unchanged": unchanged["relative_l2"],
        "mean_predictor": unchanged["mean_predictor"],
        "steps": {way: jobs[names[way][0]].train.steps for way in WAYS},
    }
    trains = {way: jobs[names[way][0]].to_dict() for way in WAYS}
    settings = {
        "minutes": minutes,
        "seeds": list(seeds),
        "samples": {name: len(data) for name, data in splits.datasets.items()},
        "shape": list(splits.problem.shape),
        # Not the paths of the data.
        **{
            way: {g: values[g] for g in ("model", "loss", "train")}
            for way, values in trains.items()
        },
    }
    return stamped(row, settings, configs["scratch"][0].data.fingerprint)


def pages() -> Pages:
    """The page with its table."""
    if not has_results("fine_tuning"):
        return {}
    return {PAGE: with_block(PAGE, "fine-tuning", block(read_results("fine_tuning")["rows"]))}


def block(rows: Sequence[Row]) -> str:
    """The table and what was measured."""
    cells = [
        (
            row["medium"],
            f"{row['mean_predictor']:.0%}",
            f"{row['unchanged']:.1%}",
            *(_spread(row[way]) for way in WAYS),
            f"{mean(row['fine_tuned']) / mean(row['scratch']):.2f}",
            str(len(row["settings"]["seeds"])),
        )
        for row in rows
    ]
    header = (
        *("data", "training mean", "`darcy` unchanged"),
        *("from scratch", "`--from darcy`", "ratio", "seeds"),
    )
    settings = rows[0]["settings"]
    missing = [medium for medium in MEDIA if medium not in {row["medium"] for row in rows}]
    left = f" Not measured yet: {', '.join(missing)}." if missing else ""
    return (
        f"\n{table(header, cells)}\n\n"
        f"Relative L2 test error after {settings['minutes']:g} minutes of training, mean and range "
        f"over the seeds: Darcy flows on "
        f"{' × '.join(map(str, settings['shape']))} nodes with {settings['samples']['train']} "
        f"training samples. The pretrained model was trained on permeabilities 3 and 12 on "
        f"29 × 29 nodes. Measured by `make bench-fine-tuning` ({machine(rows[0])}).{left}\n\n"
    )


def _spread(errors: Sequence[float]) -> str:
    if len(errors) == 1:
        return f"{errors[0]:.2%}"
    return f"{mean(errors):.2%} ({min(errors):.2%} to {max(errors):.2%})"


def main() -> None:
    """Measure all media; results and page are written after each."""
    parser = argparse.ArgumentParser(description="fine-tuning against training from scratch")
    parser.add_argument("media", nargs="*", metavar="MEDIUM", help=f"of {', '.join(MEDIA)}")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--trial", action="store_true", help="a few samples; writes nothing")
    options = parser.parse_args()
    if unknown := set(options.media) - set(MEDIA):
        parser.error(f"unknown data: {', '.join(unknown)}; choose from {', '.join(MEDIA)}")
    torch.set_num_threads(1)
    if options.trial:
        with tempfile.TemporaryDirectory() as folder:
            path, medium = Path(folder) / "trial.npz", next(iter(MEDIA))
            write_data(path, medium, {"train": 8, "validation": 2, "test": 2}, 9)
            print(json.dumps(measure(medium, path, (0,), 0.01), indent=1))
        return
    for medium in options.media or MEDIA:
        path = RUNS / f"{medium.replace(' ', '-')}.npz"
        if not path.exists():
            write_data(path, medium)
        row = measure(medium, path, options.seeds, MINUTES)
        update_rows("fine_tuning", [row], "medium", MEDIA)
        write_pages(pages())


if __name__ == "__main__":
    main()
