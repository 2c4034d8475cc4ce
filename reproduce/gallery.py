"""Pictures of several models on the same sample (paper, figure "Visual comparison" and appendix).

The sample is not picked by eye: it is the test sample on which CATO's error is the median.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cato.benchmarks import get_benchmark
from cato.errors import InputError
from cato.files import write_json
from cato.inference.evaluate import solve_all
from cato.models.registry import default_model, model_entry
from cato.physics import relative_l2
from cato.progress import progress_bar
from cato.runs.folder import Run, open_run
from cato.runs.load import load_splits, load_surrogate
from cato.runs.provenance import environment
from cato.viz.figures import case_of
from reproduce.compare import models_for, plan
from reproduce.experiment import Setup
from reproduce.figures.gallery import Answer, gallery_animation, gallery_figure
from reproduce.jobs import figures_of, is_done
from reproduce.outcomes import median_sample
from reproduce.pages import save_figure, save_page

MODELS = ("cato", "saot", "transolver")
"""Those of the paper's pictures."""


def gallery(
    runs: Mapping[str, Mapping[str, Run]], out: Path = Path("results/gallery")
) -> dict[str, Any]:
    """Write gallery.json, gallery.md, a picture per benchmark and a GIF where there is a rollout.

    Args:
        runs: Trained runs by benchmark and model; CATO, or CATO-PC on clouds, must be among them.
        out: Folder of the results.

    Returns:
        The contents of gallery.json.
    """
    rows = []
    with progress_bar("gallery", sum(map(len, runs.values()))) as bar:
        done = 0
        for benchmark, group in runs.items():
            bar(done, benchmark)
            rows.append(_show(benchmark, group, out))
            done += len(group)
        bar(done)
    results = {"environment": environment(), "rows": rows}
    write_json(out / "gallery.json", results)
    write_page(results, out)
    return results


def compared_runs(
    benchmarks: Sequence[str], setup: Setup, models: Sequence[str] = MODELS
) -> dict[str, dict[str, Run]]:
    """The finished runs of a comparison by benchmark and model, those of the first seed.

    Args:
        benchmarks: Their names.
        setup: Of the trainings.
        models: Their names; "cato" means CATO-PC where the benchmark is a cloud.
    """
    able = {benchmark: models_for(benchmark, setup.scale, models) for benchmark in benchmarks}
    jobs, runs = plan(able, setup, setup.seeds[:1]), setup.runs
    missing = [name for name in jobs if not is_done(runs / name)]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(jobs)} runs are not finished in {runs} (first: {missing[0]}); "
            f"train them with `python -m reproduce compare`, with the same models, scale and budget"
        )
    found: dict[str, dict[str, Run]] = {}
    for name, config in jobs.items():
        found.setdefault(config.benchmark, {})[config.model_name] = open_run(runs / name)
    return found


def _show(benchmark: str, runs: Mapping[str, Run], out: Path) -> dict[str, Any]:
    """Draw one benchmark and return what is in the picture."""
    problem = get_benchmark(benchmark).problem(next(iter(runs.values())).config.scale)
    ours = default_model(problem)
    if ours not in runs:
        raise InputError(f"the sample is chosen by {ours}; add a run of it on {benchmark}")
    _require_same_data(benchmark, runs)
    test = load_splits(runs[ours].config).test
    surrogates = {name: load_surrogate(run) for name, run in runs.items()}
    errors = {
        name: relative_l2(solve_all(surrogate, test), test.targets, test.mask)
        for name, surrogate in surrogates.items()
    }
    index = median_sample(errors[ours])
    answers = [
        Answer(model_entry(name).title, case_of(test, index, model), errors[name][index].item())
        for name, model in surrogates.items()
    ]
    title = f"{get_benchmark(benchmark).title}, test sample {index}"
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
        "mean_predictor": figures_of(runs[ours])["mean_predictor"],
        "errors": {name: found[index].item() for name, found in errors.items()},
        "mean_errors": {name: found.mean().item() for name, found in errors.items()},
        "beaten": {name: _share_beaten(errors[ours], errors[name]) for name in errors},
        "animated": is_animated,
    }


def _require_same_data(benchmark: str, runs: Mapping[str, Run]) -> None:
    if len({repr(run.config.data) + run.config.scale for run in runs.values()}) > 1:
        raise InputError(f"the runs on {benchmark} have different data; train them on the same")


def _share_beaten(ours: Tensor, theirs: Tensor) -> float:
    """Share of the samples on which our error is the smaller one."""
    return (ours < theirs).to(torch.float64).mean().item()


def write_page(results: dict[str, Any], out: Path) -> None:
    """gallery.md, from the results alone."""
    lines = [
        "Each picture shows one test sample: that on which the first model of the table has its "
        "median error, not a chosen one. Truth and predictions share one colour scale, that of the "
        "truth; the error maps (prediction minus truth) of all models share another. Errors are "
        "relative L2 errors of the sample, over all frames where there are several.",
    ]
    for row in results["rows"]:
        name, title = row["benchmark"], get_benchmark(row["benchmark"]).title
        lines += ["", f"## {title}", "", *_table(row), "", _caption(row)]
        lines += ["", f"![{title}: truth, predictions and errors](gallery-{name}.png)"]
        if row["animated"]:
            lines += ["", f"![{title}: the rollout in time](gallery-{name}.gif)"]
    save_page(out, "gallery", "Models side by side, in pictures", lines)


def _table(row: dict[str, Any]) -> list[str]:
    ours = row["chosen_by"]
    names = [ours, *(name for name in row["errors"] if name != ours)]
    lines = [
        f"| model | error of the sample | mean error | samples on which {model_entry(ours).title} "
        "is better |",
        "|---|---|---|---|",
    ]
    for name in names:
        beaten = "" if name == ours else f"{row['beaten'][name]:.0%}"
        lines.append(
            f"| {model_entry(name).title} | {row['errors'][name]:.2%} "
            f"| {row['mean_errors'][name]:.2%} | {beaten} |"
        )
    return lines


def _caption(row: dict[str, Any]) -> str:
    """Which sample it is, and who is best on it."""
    ours, errors = model_entry(row["chosen_by"]).title, row["errors"]
    best = min(errors, key=errors.__getitem__)
    words = (
        f"Test sample {row['sample']} of {row['num_samples']} (scale `{row['scale']}`), on which "
        f"{ours} has its median error. Of these {len(errors)} models {model_entry(best).title} has "
        "the lowest error on it"
    )
    others = [error for name, error in errors.items() if name != row["chosen_by"]]
    if best != row["chosen_by"]:
        return (
            words + f"; that of {ours} is {errors[row['chosen_by']] / errors[best] - 1:.0%} higher."
        )
    return words + (f", {1 - errors[best] / min(others):.0%} below the next." if others else ".")
