"""Models on benchmarks: every model on every benchmark, in one table.

With the recipes' epochs, or in the same time for all (`minutes`). The checkpoint is chosen on the
validation split, and so are the rivals that are trained with more seeds; the test split is read
once, after that.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

from cato.benchmarks import get_benchmark
from cato.errors import InputError
from cato.files import read_json, write_json
from cato.inference.evaluate import evaluate, solver_seconds
from cato.models.registry import default_model, model_class
from cato.progress import note
from cato.runs.folder import Run
from cato.runs.load import data_spec, load_splits, load_surrogate
from cato.runs.settings import RunConfig
from cato.viz.figures import sample_figure
from reproduce.experiment import OURS, Experiment
from reproduce.figures import save_figure
from reproduce.jobs import figures_of
from reproduce.results import Row, by_benchmark, median_sample, outcome, percent, size_of

SUMMARY = (
    "rows",
    ("benchmark", "model", "relative_l2", "spread", "mean_predictor", "epochs"),
)
TIMES = "times.json"
"""In the folder of the runs: seconds per sample of surrogates, by run, and of solvers."""
TIMED_SAMPLES = 32


def run(experiment: Experiment) -> Row:
    """Train the models, evaluate them and draw a sample of each benchmark."""
    seeds, rivals = experiment.seeds, experiment.rivals
    if not experiment.models:
        raise InputError("give at least one model")
    if rivals is not None and rivals < 0:
        raise InputError(f"the number of rivals must be at least 0; got {rivals}")
    able = {
        benchmark: models_for(benchmark, experiment.scale, experiment.models)
        for benchmark in experiment.all_benchmarks
    }
    finished = experiment.train(plan(able, experiment, seeds[:1]))
    if len(seeds) > 1:
        chosen = able if rivals is None else strongest(finished, rivals)
        finished |= experiment.train(plan(chosen, experiment, seeds[1:]))
    torch.set_num_threads(1)  # for the times
    groups: dict[tuple[str, str], list[Run]] = {}
    for trained in finished.values():
        key = (trained.config.benchmark, trained.config.model_name)
        groups.setdefault(key, []).append(trained)
    for name in able:
        first = next(run for run in finished.values() if run.config.benchmark == name)
        draw_median(first, experiment.out / f"{name}.png")
    return {**experiment.record(finished), "rows": [_row(group) for group in groups.values()]}


def plan(
    able: dict[str, list[str]], experiment: Experiment, seeds: Sequence[int]
) -> dict[str, RunConfig]:
    """Settings of every training, by the name of its run folder."""
    return {
        experiment.job(benchmark, name, seed): experiment.config(
            benchmark, name, {"train": {"seed": seed}}
        )
        for seed in seeds  # outermost, so that an unfinished experiment covers all benchmarks
        for benchmark, names in able.items()
        for name in names
    }


def strongest(finished: dict[str, Run], number: int) -> dict[str, list[str]]:
    """By benchmark, CATO and the given number of rivals with the lowest validation errors."""
    ranked = sorted(finished.values(), key=lambda run: outcome([run])["validation"])
    chosen: dict[str, list[str]] = {}
    for benchmark in dict.fromkeys(run.config.benchmark for run in finished.values()):
        names = [r.config.model_name for r in ranked if r.config.benchmark == benchmark]
        ours = [name for name in names if name in OURS]
        chosen[benchmark] = ours + [name for name in names if name not in OURS][:number]
    return chosen


def models_for(benchmark: str, scale: str, models: Sequence[str]) -> list[str]:
    """The models that support a benchmark; at least one must."""
    problem = get_benchmark(benchmark).problem(scale)
    named = [default_model(problem) if m in OURS else m for m in models]
    able = [m for m in named if problem.geometry in model_class(m).geometries]
    unable = [m for m in named if m not in able]
    if not able:
        why = model_class(unable[0]).why_not_cloud
        raise InputError(f"{', '.join(unable)} cannot do {benchmark}: {why}")
    if unable:
        note(f"{', '.join(unable)} cannot do {benchmark}, a {problem.geometry}: left out")
    return list(dict.fromkeys(able))


def _row(runs: list[Run]) -> Row:
    """One model on one benchmark, over the seeds."""
    found = [figures_of(run) for run in runs]
    frames = [figures["frame_errors"] for figures in found if figures["frame_errors"]]
    return {
        "benchmark": runs[0].config.benchmark,
        "model": runs[0].config.model_name,
        **outcome(runs),
        "frame_errors": np.mean(frames, axis=0).tolist() if frames else None,
        "parameters": size_of(runs[0]),
        **_times(runs[0]),
    }


def _times(run: Run) -> dict[str, float]:
    """Seconds per sample of surrogate and solver, measured while no job runs and then kept."""
    config, path = run.config, run.folder.parent / TIMES
    times: dict[str, float] = read_json(path, "times") if path.exists() else {}
    solver = f"solver of {config.benchmark}-{config.scale}"
    if solver not in times:
        times[solver] = solver_seconds(data_spec(config), "test")
    if run.folder.name not in times:
        some = load_splits(config).test.subset(slice(TIMED_SAMPLES))
        times[run.folder.name] = evaluate(load_surrogate(run), some, None).seconds_per_sample
    write_json(path, times)
    return {
        "seconds_per_sample": times[run.folder.name],
        "solver_seconds_per_sample": times[solver],
    }


def draw_median(run: Run, path: Path) -> None:
    """Draw the test sample on which a run has its median error."""
    surrogate, test = load_surrogate(run), load_splits(run.config).test
    errors = evaluate(surrogate, test, None).errors
    index = median_sample(errors)
    model, benchmark = model_class(run.config.model_name), get_benchmark(run.config.benchmark)
    title = f"{model.title} on {benchmark.title}: test sample {index}, error {errors[index]:.2%}"
    save_figure(sample_figure(surrogate, test, index, title), path)


def page(results: Row) -> dict[str, Any]:
    """Rows of the tables."""
    return {
        "overview": overview(results["rows"]),
        "benchmarks": [
            {"name": name, "rows": [_cells(row) for row in rows], "frames": _frames(rows)}
            for name, found in by_benchmark(results["rows"]).items()
            for rows in [sorted(found, key=lambda row: row["relative_l2"])]
        ],
    }


def _cells(row: Row) -> list[str]:
    diverged = f" ({row['diverged']} diverged)" if row["diverged"] else ""
    return [
        model_class(row["model"]).title,
        percent(row["relative_l2"], row["spread"]) + diverged,
        f"{row['mean_predictor']:.1%}",
        f"{row['epochs']:.1f}",
        f"{1000 * row['seconds_per_sample']:.3g} ms",
        f"{1000 * row['solver_seconds_per_sample']:.3g} ms",
        f"{row['parameters']:,}",
    ]


def _frames(rows: list[Row]) -> list[tuple[str, str]]:
    return [
        (model_class(row["model"]).title, ", ".join(f"{e:.2%}" for e in row["frame_errors"]))
        for row in rows
        if row["frame_errors"]
    ]


def overview(rows: Sequence[Row]) -> dict[str, Any]:
    """A line for each model with its errors and mean rank, best first."""
    benchmarks = list(by_benchmark(rows))
    errors = {(family(row), row["benchmark"]): row["relative_l2"] for row in rows}
    best = {b: min(error for (_, where), error in errors.items() if where == b) for b in benchmarks}
    lines = []
    for name, rank in sorted(mean_ranks(rows).items(), key=lambda item: item[1]):
        cells = [model_class(name).title]
        for b in benchmarks:
            error = errors.get((name, b))
            cell = "/" if error is None else percent(error)
            cells.append(f"**{cell}**" if error == best[b] else cell)
        lines.append([*cells, f"{rank:.1f}"])
    titles = [get_benchmark(b).title for b in benchmarks]
    return {"columns": ["model", *titles, "mean rank"], "rows": lines}


def mean_ranks(rows: Sequence[Row]) -> dict[str, float]:
    """By model, the mean of its ranks on the benchmarks that it can do."""
    ranks: dict[str, list[int]] = {}
    for row in rows:
        better = [
            other
            for other in rows
            if other["benchmark"] == row["benchmark"] and other["relative_l2"] < row["relative_l2"]
        ]
        ranks.setdefault(family(row), []).append(1 + len(better))
    return {name: mean(found) for name, found in ranks.items()}


def family(row: Row) -> str:
    """The row's model; CATO-PC counts as CATO."""
    return "cato" if row["model"] in OURS else str(row["model"])
