"""Pictures of several models on the same sample (paper, figure "Visual comparison" and appendix).

The sample is not picked by eye: it is the test sample on which CATO's error is the median.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cato.benchmarks import get_benchmark
from cato.errors import InputError
from cato.inference.evaluate import (
    ALL_OUTPUTS,
    NOT_LEARNT,
    evaluate,
    has_learnt,
    headline_figures,
    train_mean,
)
from cato.models.registry import default_model, model_class
from cato.progress import progress_bar
from cato.runs.folder import Run, open_run
from cato.runs.load import load_splits, load_surrogate
from cato.viz.figures import case_of
from reproduce.experiment import Experiment
from reproduce.figures import save_figure
from reproduce.figures.gallery import Answer, gallery_animation, gallery_figure
from reproduce.jobs import has_weights, is_done
from reproduce.results import Row, median_sample, provenance_of
from reproduce.studies.compare import models_for, plan

SUMMARY = ("rows", ("benchmark", "sample", "errors", "mean_errors"))


def run(experiment: Experiment) -> Row:
    """Draw every benchmark with the runs of a finished comparison."""
    return gallery(compared_runs(experiment), experiment.out)


def gallery(runs: Mapping[str, Mapping[str, Run]], out: Path) -> Row:
    """Draw a picture per benchmark, and a GIF of rollouts; returns the rows.

    Args:
        runs: Trained runs by benchmark and model; CATO, or CATO-PC on clouds, must be among them.
        out: Folder of the pictures.
    """
    rows = []
    with progress_bar("gallery", sum(map(len, runs.values()))) as bar:
        done = 0
        for benchmark, group in runs.items():
            bar(done, benchmark)
            rows.append(_show(benchmark, group, out))
            done += len(group)
        bar(done)
    return {"rows": rows}


def compared_runs(experiment: Experiment) -> dict[str, dict[str, Run]]:
    """The finished runs of a comparison with the first seed, by benchmark and model."""
    able = {
        benchmark: models_for(benchmark, experiment.scale, experiment.models)
        for benchmark in experiment.all_benchmarks
    }
    jobs, runs = plan(able, experiment, experiment.seeds[:1]), experiment.runs
    missing = [name for name in jobs if not (is_done(runs / name) and has_weights(runs / name))]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(jobs)} runs are not finished in {runs} (first: {missing[0]}); "
            "train them with `python -m reproduce time`, with the same models, scale and budget"
        )
    found: dict[str, dict[str, Run]] = {}
    for name, config in jobs.items():
        found.setdefault(config.benchmark, {})[config.model_name] = open_run(runs / name)
    return found


def _show(benchmark: str, runs: Mapping[str, Run], out: Path) -> dict[str, Any]:
    """Draw one benchmark; returns its row."""
    problem = get_benchmark(benchmark).problem(next(iter(runs.values())).config.scale)
    ours = default_model(problem)
    if ours not in runs:
        raise InputError(f"the sample is chosen by {ours}; add a run of it on {benchmark}")
    _require_same_data(benchmark, runs)
    splits = load_splits(runs[ours].config)
    test, mean_target = splits.test, train_mean(splits)
    surrogates = {name: load_surrogate(run) for name, run in runs.items()}
    found = {name: evaluate(model, test, mean_target) for name, model in surrogates.items()}
    errors = {name: evaluation.headline_errors for name, evaluation in found.items()}
    index = median_sample(errors[ours])
    answers = [
        Answer(
            model_class(name).title,
            case_of(test, index, model),
            errors[name][index].item(),
            has_learnt(headline_figures(found[name].to_dict())),
        )
        for name, model in surrogates.items()
    ]
    field = found[ours].headline
    title = f"{get_benchmark(benchmark).title}, test sample {index}"
    title += f", error of the {field}" if field else ""
    save_figure(gallery_figure(answers, title), out / f"gallery-{benchmark}.png")
    is_animated = problem.time == "rollout"
    if is_animated:
        gallery_animation(answers, out / f"gallery-{benchmark}.gif", title)
    return {
        "benchmark": benchmark,
        "scale": runs[ours].config.scale,
        "sample": index,
        "chosen_by": ours,
        "num_samples": len(test),
        "field": field,
        "mean_predictor": headline_figures(found[ours].to_dict())["mean_predictor"],
        "errors": {name: of_model[index].item() for name, of_model in errors.items()},
        "mean_errors": {name: of_model.mean().item() for name, of_model in errors.items()},
        "beaten": {name: _share_beaten(errors[ours], errors[name]) for name in errors},
        "animated": is_animated,
        "provenance": provenance_of(list(runs.values()))
        | {"settings": {name: provenance_of([run])["settings"] for name, run in runs.items()}},
    }


def _require_same_data(benchmark: str, runs: Mapping[str, Run]) -> None:
    if len({repr(run.config.data) + run.config.scale for run in runs.values()}) > 1:
        raise InputError(f"the runs on {benchmark} have different data; train them on the same")


def _share_beaten(ours: Tensor, theirs: Tensor) -> float:
    """Share of the samples on which our error is the smaller one."""
    return (ours < theirs).to(torch.float64).mean().item()


def page(results: Row) -> dict[str, Any]:
    """A table and a caption for each benchmark."""
    benchmarks = []
    for row in results["rows"]:
        ours = row["chosen_by"]
        names = [ours, *(name for name in row["errors"] if name != ours)]
        table = [
            [
                model_class(name).title,
                f"{row['errors'][name]:.2%}",
                f"{row['mean_errors'][name]:.2%}{_remark(row, name)}",
                "" if name == ours else f"{row['beaten'][name]:.0%}",
            ]
            for name in names
        ]
        name, title = row["benchmark"], model_class(ours).title
        benchmarks.append(
            {
                "name": name,
                "ours": title,
                "field": _field(row),
                "rows": table,
                "caption": _caption(row),
                "animated": row["animated"],
            }
        )
    return {"benchmarks": benchmarks}


def _remark(row: Row, name: str) -> str:
    """Whether a model is no better than the training mean."""
    mean = {"relative_l2": row["mean_errors"][name], "mean_predictor": row["mean_predictor"]}
    return "" if has_learnt(mean) else f", {NOT_LEARNT}"


def _field(row: Row) -> str:
    """Which error it is, for the header of a table."""
    if not get_benchmark(row["benchmark"]).headline:
        return ""
    return f", {row.get('field') or ALL_OUTPUTS}"  # not in results of version 0.1


def _caption(row: dict[str, Any]) -> str:
    """Which sample it is, and who is best on it."""
    ours, errors = model_class(row["chosen_by"]).title, row["errors"]
    best = min(errors, key=errors.__getitem__)
    words = (
        f"Test sample {row['sample']} of {row['num_samples']} (scale `{row['scale']}`), on which "
        f"{ours} has its median error. Of these {len(errors)} models {model_class(best).title} has "
        "the lowest error on it"
    )
    others = [error for name, error in errors.items() if name != row["chosen_by"]]
    if best != row["chosen_by"]:
        return (
            words + f"; that of {ours} is {errors[row['chosen_by']] / errors[best] - 1:.0%} higher."
        )
    return words + (f", {1 - errors[best] / min(others):.0%} below the next." if others else ".")
