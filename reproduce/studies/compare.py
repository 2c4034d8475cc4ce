"""Models on benchmarks: every model on every benchmark, in one table.

With the recipes' epochs, or in the same time for all (`minutes`). Several times come from one
trunk: a longer training continues the shorter one from before its decay, see `reproduce.jobs`. The
checkpoint is chosen on the validation split, and so are the rivals that are trained with more
seeds; the test split is read once, after that.
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
from cato.inference.evaluate import ALL_OUTPUTS, evaluate, solver_seconds, train_mean
from cato.models.registry import default_model, model_class
from cato.progress import note
from cato.runs.folder import Run
from cato.runs.load import data_spec, load_splits, load_surrogate
from cato.runs.settings import RunConfig
from cato.viz.figures import sample_figure
from reproduce.curves import curve_table, curves_of
from reproduce.experiment import OURS, Experiment, Planned, load
from reproduce.figures import save_figure
from reproduce.figures.minutes import minutes_figure
from reproduce.jobs import figures_of, has_weights
from reproduce.results import (
    Row,
    by_benchmark,
    by_headline,
    median_sample,
    outcome,
    percent,
    read_results,
    size_of,
    title_of,
    title_with_field,
)
from reproduce.variants import VARIANTS
from reproduce.verdicts import counted

SUMMARY = (
    "rows",
    ("benchmark", "model", "field", "relative_l2", "spread", "mean_predictor", "epochs"),
)
TIMES = "times.json"
"""Seconds per sample of surrogates, by run, and of solvers."""
TIMED_SAMPLES = 32


def run(experiment: Experiment) -> Row:
    """Train the models, evaluate them and draw a sample of each benchmark."""
    seeds, rivals = experiment.seeds, experiment.rivals
    models = (*experiment.models, *best_models(experiment))
    if not models:
        raise InputError("give at least one model")
    if rivals is not None and rivals < 0:
        raise InputError(f"the number of rivals must be at least 0; got {rivals}")
    able = {
        benchmark: models_for(benchmark, experiment.scale, models)
        + variants_for(benchmark, experiment.scale, experiment.variants)
        for benchmark in experiment.all_benchmarks
    }
    finished = train_budgets(able, experiment, seeds[:1])
    if len(seeds) > 1:
        chosen = able if rivals is None else strongest(finished[-1], rivals)
        more = train_budgets(chosen, experiment, seeds[1:])
        finished = [first | others for first, others in zip(finished, more, strict=True)]
    torch.set_num_threads(1)  # for the times
    longest = finished[-1]
    for name in able:
        first = next(run for run in longest.values() if run.config.benchmark == name)
        if has_weights(first.folder):  # otherwise the machine that trained it drew the picture
            draw_median(first, experiment.out / f"{name}.png")
    everything = {name: run for runs in finished for name, run in runs.items()}
    rows = [_row(group, experiment.kept / TIMES) for group in _over_seeds(longest)]
    results = {
        **experiment.record(everything),
        "rows": [row for row in rows if row["model"] not in VARIANTS],
        "variants": [row for row in rows if row["model"] in VARIANTS],
    }
    if len(finished) > 1:
        results["curves"] = [
            {
                "benchmark": group[0].config.benchmark,
                "model": group[0].config.model_name,
                "budget": minutes,
                **outcome(group),
            }
            for minutes, runs in zip(experiment.minutes, finished, strict=True)
            for group in _over_seeds(runs)
        ]
        results["settings"]["extrapolate"] = experiment.extrapolate
    return results


def planned(experiment: Experiment) -> list[Planned]:
    """The trainings.

    The models that an earlier comparison will choose are not known yet; since all take the same
    time, its first ones that can do a benchmark stand for them. So do the rivals with more seeds.
    """
    every, source = experiment.models, experiment.best_of
    while source is not None:
        before = load(source)
        every, source = (*every, *before.models), before.best_of
    every = tuple(dict.fromkeys(every))
    first, *more = experiment.seeds
    found = []
    for benchmark in experiment.all_benchmarks:
        able = models_for(benchmark, experiment.scale, every, quiet=True)
        able = able[: len(experiment.models) + experiment.best]
        able += variants_for(benchmark, experiment.scale, experiment.variants)
        again = able if experiment.rivals is None else able[: 1 + experiment.rivals]
        for seed, names in [(first, able), *((seed, again) for seed in more)]:
            for name in names:
                found += experiment.planned(benchmark, name, seed)
    return found


def train_budgets(
    able: dict[str, list[str]], experiment: Experiment, seeds: Sequence[int]
) -> list[dict[str, Run]]:
    """The finished runs of every time, ascending; each extends the run of the time before.

    Seeds beyond `curve_seeds` are trained for the longest time alone.
    """
    return [
        part.train(plan(able, part, [seed for seed in seeds if part in experiment.parts_of(seed)]))
        for part in experiment.by_budget
    ]


def _over_seeds(runs: dict[str, Run]) -> list[list[Run]]:
    """The runs grouped by benchmark and model."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs.values():
        groups.setdefault((run.config.benchmark, run.config.model_name), []).append(run)
    return list(groups.values())


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
    compared = [run for run in finished.values() if run.config.model_name not in VARIANTS]
    ranked = sorted(compared, key=lambda run: outcome([run])["validation"])
    chosen: dict[str, list[str]] = {}
    for benchmark in dict.fromkeys(run.config.benchmark for run in finished.values()):
        names = [r.config.model_name for r in ranked if r.config.benchmark == benchmark]
        ours = [name for name in names if name in OURS]
        chosen[benchmark] = ours + [name for name in names if name not in OURS][:number]
    return chosen


def models_for(
    benchmark: str, scale: str, models: Sequence[str], *, quiet: bool = False
) -> list[str]:
    """The models that support a benchmark; at least one must."""
    problem = get_benchmark(benchmark).problem(scale)
    named = [default_model(problem) if m in OURS else m for m in models]
    able = [m for m in named if problem.geometry in model_class(m).geometries]
    unable = [m for m in named if m not in able]
    if not able:
        why = model_class(unable[0]).why_not_cloud
        raise InputError(f"{', '.join(unable)} cannot do {benchmark}: {why}")
    if unable and not quiet:
        note(f"{', '.join(unable)} cannot do {benchmark}, a {problem.geometry}: left out")
    return list(dict.fromkeys(able))


def variants_for(benchmark: str, scale: str, variants: Sequence[str]) -> list[str]:
    """The variants that support a benchmark."""
    geometry = get_benchmark(benchmark).problem(scale).geometry
    return [name for name in variants if geometry in model_class(name).geometries]


def best_models(experiment: Experiment) -> list[str]:
    """The best models of the comparison that an experiment follows, by their mean rank.

    Ranks are those on validation, because the test split chooses nothing. Only the experiment's own
    benchmarks count, if it names some, and of these the ones on which models can be compared.
    """
    if experiment.best_of is None or not experiment.best:
        return []
    found = read_results(experiment.source)["rows"]
    rows = [row for row in found if row["benchmark"] in experiment.all_benchmarks]
    able = {row["benchmark"] for row in counted(by_headline(rows), OURS) or rows}
    ranks = mean_ranks(
        [row | {"relative_l2": row["validation"]} for row in rows if row["benchmark"] in able]
    )
    others = [name for name in ranks if name not in (*experiment.models, "cato")]
    return sorted(others, key=lambda name: ranks[name])[: experiment.best]


def _row(runs: list[Run], times: Path) -> Row:
    """One model on one benchmark, over the seeds."""
    found = [figures_of(run) for run in runs]
    frames = [figures["frame_errors"] for figures in found if figures["frame_errors"]]
    return {
        "benchmark": runs[0].config.benchmark,
        "model": runs[0].config.model_name,
        **outcome(runs),
        "frame_errors": np.mean(frames, axis=0).tolist() if frames else None,
        "parameters": size_of(runs[0]),
        **_times(runs[0], times),
    }


def _times(run: Run, path: Path) -> dict[str, float]:
    """Seconds per sample of surrogate and solver, measured while no job runs and then kept.

    If the weights are on another machine, what its job measured while others ran.
    """
    config = run.config
    times: dict[str, float] = read_json(path, "times") if path.exists() else {}
    solver = f"solver of {config.benchmark}-{config.scale}"
    if solver not in times:
        times[solver] = solver_seconds(data_spec(config), "test")
    if run.folder.name not in times and not has_weights(run.folder):
        times[run.folder.name] = figures_of(run)["seconds_per_sample"]
    elif run.folder.name not in times:
        some = load_splits(config).test.subset(slice(TIMED_SAMPLES))
        times[run.folder.name] = evaluate(load_surrogate(run), some, None).seconds_per_sample
    write_json(path, times)
    return {
        "seconds_per_sample": times[run.folder.name],
        "solver_seconds_per_sample": times[solver],
    }


def draw_median(run: Run, path: Path) -> None:
    """Draw the test sample on which a run has its median error."""
    surrogate, splits = load_surrogate(run), load_splits(run.config)
    test = splits.test
    evaluation = evaluate(surrogate, test, train_mean(splits))
    errors, field = evaluation.headline_errors, evaluation.headline
    index = median_sample(errors)
    model, benchmark = model_class(run.config.model_name), get_benchmark(run.config.benchmark)
    title = (
        f"{model.title} on {benchmark.title}: test sample {index}, "
        f"error{f' of the {field}' if field else ''} {errors[index]:.2%}"
        f"{evaluation.remark}"
    )
    save_figure(sample_figure(surrogate, test, index, title), path)


def draw(results: Row, out: Path) -> None:
    """Error against minutes on each benchmark, if there are several times."""
    curves = curves_of(results.get("curves", []))
    for benchmark, found in curves.items():
        figure = minutes_figure(found, benchmark, results["settings"])
        save_figure(figure, out / f"minutes-{benchmark}.png")


def page(results: Row) -> dict[str, Any]:
    """Rows of the tables."""
    shown = by_headline([*results["rows"], *results.get("variants", [])])
    curves = curves_of(results.get("curves", []))
    until = results["settings"].get("extrapolate")
    return {
        "overview": overview([row for row in shown if row["model"] not in VARIANTS]),
        "curves": {name: curve_table(found, until) for name, found in curves.items()},
        "benchmarks": [
            {
                "name": name,
                "error": f"test error, {rows[0]['field']}" if rows[0]["field"] else "test error",
                "is_measured": rows[0]["field"] != ALL_OUTPUTS,
                "rows": [_cells(row) for row in rows],
                "fields": _fields(rows),
                "frames": _frames(rows),
            }
            for name, found in by_benchmark(shown).items()
            for rows in [sorted(found, key=lambda row: row["relative_l2"])]
        ],
    }


def _cells(row: Row) -> list[str]:
    diverged = f" ({row['diverged']} diverged)" if row["diverged"] else ""
    return [
        title_of(row),
        percent(row["relative_l2"], row["spread"]) + diverged,
        f"{row['mean_predictor']:.1%}",
        f"{row['epochs']:.1f}",
        f"{1000 * row['seconds_per_sample']:.3g} ms",
        f"{1000 * row['solver_seconds_per_sample']:.3g} ms",
        f"{row['parameters']:,}",
    ]


def _fields(rows: list[Row]) -> dict[str, Any] | None:
    """Table with the error of every field, if all models have several."""
    names = list(rows[0]["fields"])
    if len(names) == 1 or any(list(row["fields"]) != names for row in rows):
        return None
    found = [(title_of(row), row["fields"]) for row in rows]
    lines = [
        [title, *(percent(of[name]["relative_l2"], of[name]["spread"]) for name in names)]
        for title, of in found
    ]
    means = [percent(rows[0]["fields"][name]["mean_predictor"]) for name in names]
    return {"columns": ["model", *names], "rows": [*lines, ["*training mean*", *means]]}


def _frames(rows: list[Row]) -> list[tuple[str, str]]:
    return [
        (title_of(row), ", ".join(f"{e:.2%}" for e in row["frame_errors"]))
        for row in rows
        if row["frame_errors"]
    ]


def overview(rows: Sequence[Row]) -> dict[str, Any]:
    """A line for each model with its errors and mean rank, best first; rows of `by_headline`."""
    benchmarks = list(by_benchmark(rows))
    errors = {(family(row), row["benchmark"]): row["relative_l2"] for row in rows}
    best = {b: min(error for (_, where), error in errors.items() if where == b) for b in benchmarks}
    lines = []
    ranks = mean_ranks(counted(rows, OURS) or rows)
    for name, rank in sorted(ranks.items(), key=lambda item: item[1]):
        cells = [titles_by_family(rows)[name]]
        for b in benchmarks:
            error = errors.get((name, b))
            cell = "/" if error is None else percent(error)
            cells.append(f"**{cell}**" if error == best[b] else cell)
        lines.append([*cells, f"{rank:.1f}"])
    titles = {row["benchmark"]: title_with_field(row) for row in rows}
    return {"columns": ["model", *titles.values(), "mean rank"], "rows": lines}


def mean_ranks(rows: Sequence[Row]) -> dict[str, float]:
    """By model, the mean of its ranks on the benchmarks that it can do; rows of `by_headline`."""
    ranks: dict[str, list[int]] = {}
    for row in rows:
        better = [
            other
            for other in rows
            if other["benchmark"] == row["benchmark"] and other["relative_l2"] < row["relative_l2"]
        ]
        ranks.setdefault(family(row), []).append(1 + len(better))
    return {name: mean(found) for name, found in ranks.items()}


def titles_by_family(rows: Sequence[Row]) -> dict[str, str]:
    """Titles of the models in tables over benchmarks, in which CATO-PC counts as CATO."""
    names = {family(row): model_class(family(row)).title for row in rows}
    return names | {row["model"]: title_of(row) for row in rows if row["model"] in names}


def family(row: Row) -> str:
    """The row's model; CATO-PC counts as CATO."""
    return "cato" if row["model"] in OURS else str(row["model"])
