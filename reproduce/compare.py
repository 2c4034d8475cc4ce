"""Models side by side: every model on every benchmark, in one table.

By the recipes' epochs, or in the same time for all (`minutes`). The checkpoint is chosen on the
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
from cato.models.registry import default_model, model_entry
from cato.progress import note
from cato.runs.folder import Run
from cato.runs.load import data_spec, load_splits, load_surrogate
from cato.runs.settings import RunConfig
from cato.viz.document import TableBlock, markdown_table
from cato.viz.figures import sample_figure
from reproduce.experiment import Setup
from reproduce.jobs import figures_of
from reproduce.outcomes import budget_of, median_sample, outcome, percent, size_of
from reproduce.pages import save_figure, save_page

OURS = ("cato", "cato_pc")
TIMES = "times.json"
"""In the folder of the runs: seconds per sample of surrogates, by run, and of solvers."""
TIMED_SAMPLES = 32


def compare(
    models: Sequence[str], benchmarks: Sequence[str], setup: Setup, rivals: int | None = None
) -> dict[str, Any]:
    """Train what is missing and write compare.json, compare.md and a picture for each benchmark.

    Args:
        models: Their names; "cato" means CATO-PC where the benchmark is a cloud.
        benchmarks: Their names.
        setup: Of the trainings.
        rivals: How many models beside CATO are trained with all the seeds, those of the lowest
            validation error with the first seed on each benchmark; all unless given.

    Returns:
        The contents of compare.json.
    """
    seeds = setup.seeds
    if not (models and benchmarks):
        raise InputError("name at least one model and one benchmark")
    if rivals is not None and rivals < 0:
        raise InputError(f"the number of rivals must be at least 0; got {rivals}")
    able = {benchmark: models_for(benchmark, setup.scale, models) for benchmark in benchmarks}
    finished = setup.train(plan(able, setup, seeds[:1]), "compare")
    if len(seeds) > 1:
        chosen = able if rivals is None else strongest(finished, rivals)
        finished |= setup.train(plan(chosen, setup, seeds[1:]), "compare")
    torch.set_num_threads(1)  # for the times
    results = {
        **setup.record(finished),
        "rows": [_row(group) for group in _by_model_and_benchmark(finished).values()],
    }
    write_json(setup.out / "compare.json", results)
    for name in benchmarks:
        draw_median(
            next(run for run in finished.values() if run.config.benchmark == name),
            setup.out / f"{name}.png",
        )
    write_page(results, setup.out)
    return results


def plan(able: dict[str, list[str]], setup: Setup, seeds: Sequence[int]) -> dict[str, RunConfig]:
    """The settings of every training, by the name of its run folder."""
    return {
        setup.job(benchmark, name, seed): setup.config(benchmark, name, {"train": {"seed": seed}})
        for seed in seeds  # outermost, so that a study under way covers all benchmarks evenly
        for benchmark, names in able.items()
        for name in names
    }


def strongest(finished: dict[str, Run], number: int) -> dict[str, list[str]]:
    """By benchmark, CATO and so many others of the lowest validation error."""
    ranked = sorted(finished.values(), key=lambda run: outcome([run])["validation"])
    chosen: dict[str, list[str]] = {}
    for benchmark in dict.fromkeys(run.config.benchmark for run in finished.values()):
        names = [r.config.model_name for r in ranked if r.config.benchmark == benchmark]
        ours = [name for name in names if name in OURS]
        chosen[benchmark] = ours + [name for name in names if name not in OURS][:number]
    return chosen


def models_for(benchmark: str, scale: str, models: Sequence[str]) -> list[str]:
    """Those of the models that can do a benchmark; at least one must."""
    problem = get_benchmark(benchmark).problem(scale)
    named = [default_model(problem) if m in OURS else m for m in models]
    able = [m for m in named if problem.geometry in model_entry(m).operator.geometries]
    unable = [m for m in named if m not in able]
    if not able:
        why = model_entry(unable[0]).operator.why_not_cloud
        raise InputError(f"{', '.join(unable)} cannot do {benchmark}: {why}")
    if unable:
        note(f"{', '.join(unable)} cannot do {benchmark}, a {problem.geometry}: left out")
    return list(dict.fromkeys(able))


def _by_model_and_benchmark(runs: dict[str, Run]) -> dict[tuple[str, str], list[Run]]:
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs.values():
        groups.setdefault((run.config.benchmark, run.config.model_name), []).append(run)
    return groups


def _row(runs: list[Run]) -> dict[str, Any]:
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
    """Of surrogate and solver per sample, taken when no job runs; kept beside the runs."""
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
    """A picture of the test sample of median error, as this run solves it."""
    surrogate, test = load_surrogate(run), load_splits(run.config).test
    errors = evaluate(surrogate, test, None).errors
    index = median_sample(errors)
    model, benchmark = model_entry(run.config.model_name), get_benchmark(run.config.benchmark)
    title = f"{model.title} on {benchmark.title}: test sample {index}, error {errors[index]:.2%}"
    save_figure(sample_figure(surrogate, test, index, title), path)


def write_page(results: dict[str, Any], out: Path) -> None:
    """compare.md, from the results alone."""
    settings, rows = results["settings"], results["rows"]
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in rows))
    num_seeds = len(settings["seeds"])
    varied_seeds = (
        f"; ± is the standard deviation over {num_seeds} seeds, where there are so many"
        if num_seeds > 1
        else ", with one seed"
    )
    how_timed = (
        "; minutes are processor minutes, for which the steps of a model are timed before"
        if settings["minutes"] is not None
        else ""
    )
    lines = [
        f"Scale `{settings['scale']}`, {budget_of(settings)}, one thread{how_timed}. The error is "
        "the mean over the test samples of the relative L2 error on physical values, at the "
        f"checkpoint with the lowest validation error{varied_seeds}. *Training mean* is the error "
        "of always answering the mean of the training targets. Times are per sample on one thread; "
        "the solver's are those of the same mesh.",
    ]
    lines += ["", "## All", "", markdown_table(overview(rows))]
    for name in benchmarks:
        lines += ["", f"## {get_benchmark(name).title}", "", *_table(rows, name)]
        lines += ["", f"![{get_benchmark(name).title}: CATO's median test sample]({name}.png)"]
    save_page(out, "compare", "Models on benchmarks", lines)


def overview(rows: Sequence[dict[str, Any]]) -> TableBlock:
    """A line for each model with its errors and the mean of its ranks, best first."""
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in rows))
    errors = {(_family(row), row["benchmark"]): row["relative_l2"] for row in rows}
    best = {b: min(error for (_, where), error in errors.items() if where == b) for b in benchmarks}
    lines = []
    for name, rank in sorted(mean_ranks(rows).items(), key=lambda item: item[1]):
        cells = [model_entry(name).title]
        for b in benchmarks:
            error = errors.get((name, b))
            cell = "/" if error is None else percent(error)
            cells.append(f"**{cell}**" if error == best[b] else cell)
        lines.append([*cells, f"{rank:.1f}"])
    return TableBlock(["model", *(get_benchmark(b).title for b in benchmarks), "mean rank"], lines)


def mean_ranks(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """By model, the mean of its ranks on the benchmarks that it can do."""
    ranks: dict[str, list[int]] = {}
    for row in rows:
        better = [
            other
            for other in rows
            if other["benchmark"] == row["benchmark"] and other["relative_l2"] < row["relative_l2"]
        ]
        ranks.setdefault(_family(row), []).append(1 + len(better))
    return {name: mean(found) for name, found in ranks.items()}


def _family(row: dict[str, Any]) -> str:
    """The row's model; CATO-PC is CATO where the problem is a cloud."""
    return "cato" if row["model"] in OURS else str(row["model"])


def _table(rows: list[dict[str, Any]], benchmark: str) -> list[str]:
    """The rows of a benchmark, best first."""
    chosen = sorted(
        (row for row in rows if row["benchmark"] == benchmark), key=lambda row: row["relative_l2"]
    )
    columns = (
        "model",
        "test error",
        "training mean",
        "epochs",
        "surrogate",
        "solver",
        "parameters",
    )
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for row in chosen:
        diverged = f" ({row['diverged']} diverged)" if row["diverged"] else ""
        lines.append(
            f"| {model_entry(row['model']).title} "
            f"| {percent(row['relative_l2'], row['spread'])}{diverged} "
            f"| {row['mean_predictor']:.1%} | {row['epochs']:.1f} "
            f"| {1000 * row['seconds_per_sample']:.3g} ms "
            f"| {1000 * row['solver_seconds_per_sample']:.3g} ms | {row['parameters']:,} |"
        )
    frames = [row for row in chosen if row["frame_errors"]]
    if frames:
        lines += ["", "Error of each frame:", ""]
        lines += [
            f"- {model_entry(row['model']).title}: "
            + ", ".join(f"{error:.2%}" for error in row["frame_errors"])
            for row in frames
        ]
    return lines
