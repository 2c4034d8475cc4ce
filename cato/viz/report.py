"""The report of a run: one HTML file that needs nothing else, and its figures as PNG files."""

import io
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from cato.benchmarks import get_benchmark, view_of
from cato.files import atomic_write, to_json
from cato.inference.evaluate import (
    ALL_OUTPUTS,
    NOT_LEARNT,
    errors_by_field,
    evaluate_run,
    has_learnt,
    headline_figures,
)
from cato.inference.improve import expected_error, improvements, other_models
from cato.models.registry import model_class
from cato.problem import Problem
from cato.runs.folder import Run
from cato.viz.fields import new_figure
from cato.viz.figures import chart_figure, describe_chart, sample_figure
from cato.viz.pages import render


def write_report(run: Run) -> tuple[Path, dict[str, Any]]:
    """Evaluate the run on its test split; write report.html and figures/ into its folder.

    Returns:
        The path of the report, and the metrics of `evaluate_run` with `what_would_help`.
    """
    evaluated = evaluate_run(run, "test")
    metrics, evaluation = evaluated.figures, evaluated.evaluation
    surrogate, test = evaluated.surrogate, evaluated.data
    errors, frame_errors = evaluation.headline_errors, evaluation.frame_errors
    of_headline = _of_headline(metrics)
    mean_predictor = headline_figures(metrics)["mean_predictor"]
    figures = {
        "training": training_curve(run.log()),
        "errors": error_histogram(errors.numpy(), mean_predictor, of_headline),
    }
    growth = ""
    if frame_errors is not None:
        longer = metrics["forecast"]
        by_frame = np.array(frame_errors if longer is None else longer["frame_errors"], float)
        trained = len(frame_errors)
        figures["frame-errors"] = frame_error_curve(test.problem, by_frame, trained)
        growth = _growth(by_frame, trained)
    order = errors.argsort().tolist()
    chosen = {"best": order[0], "median": order[len(order) // 2], "worst": order[-1]}
    for label, index in chosen.items():
        title = f"{label} sample: number {index}, error{of_headline} {100 * errors[index]:.2f} %"
        title += evaluation.remark
        figures[f"sample-{label}"] = sample_figure(*evaluated.find(index), title)
    chart = chart_figure(surrogate, test)
    if chart is not None:
        figures["chart"] = chart
    subject, description = _subject(run)
    found = improvements(run, metrics, evaluation)
    settings = {k: v for k, v in run.config.to_dict().items() if isinstance(v, dict)}
    page = render(
        "report.html.j2",
        title=f"{model_class(run.config.model_name).title} on {subject}",
        verdict=_verdict(metrics),
        description=description,
        setup=_setup(run),
        settings=to_json(settings, indent=2),
        trials=_trials(run),
        advice=other_models(run),
        improvements=[(one.what, one.shown_gain, one.evidence) for one in found],
        errors=_errors(metrics),
        growth=growth,
        images={name: _save(figure, run.folder, name) for name, figure in figures.items()},
        cross_validation=metrics["split"] if metrics["folds"] else "",
        band=metrics["band"],
        band_widths=_band_widths(metrics["band"]),
        training_range=metrics["training_range"],
        chart_description=describe_chart(surrogate) if chart is not None else "",
        command=run.command,
        environment={
            **run.record["environment"],
            "cato": run.record["cato"],
            "created": run.record["created"],
        },
    )
    path = run.folder / "report.html"
    with atomic_write(path) as temporary:
        temporary.write_text(page)
    return path, metrics | {"what_would_help": [asdict(one) for one in found]}


def _save(figure: Figure, folder: Path, name: str) -> bytes:
    """Write a figure to a PNG file, for slides; returns its content, for the page."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    with atomic_write(folder / "figures" / f"{name}.png") as temporary:
        temporary.write_bytes(buffer.getvalue())
    return buffer.getvalue()


def _subject(run: Run) -> tuple[str, str]:
    """Title and description of the problem."""
    problem = run.problem
    if run.config.data.file is None:
        benchmark = get_benchmark(run.config.benchmark)
        return benchmark.title, benchmark.description
    inputs = ", ".join(problem.inputs) or "the nodes alone"
    return problem.name, (
        f"User data from {run.config.data.file}: {', '.join(problem.outputs)} from {inputs}, "
        f"{problem.time}, on a {problem.geometry} in {problem.dimension} dimensions."
    )


def _verdict(metrics: dict[str, Any]) -> str:
    """The result in a sentence."""
    solver, surrogate = metrics["solver_seconds_per_sample"], metrics["seconds_per_sample"]
    shown = headline_figures(metrics)
    samples = f"samples in {metrics['split']}" if metrics["folds"] else "held-out samples"
    error = (
        f"Test error{_of_headline(metrics)} {_percent(shown['relative_l2'])} "
        f"(relative L2, mean of {metrics['num_samples']} {samples}"
        f"{_compared(shown)}{'' if has_learnt(shown) else f': the model is {NOT_LEARNT}'}); "
        f"{1000 * surrogate:.3g} ms per sample"
    )
    if solver is None:
        return f"{error}. The time of the solver that produced the data is not known."
    ratio = solver / surrogate
    speed = f"{ratio:.3g} times faster than" if ratio >= 1 else f"{1 / ratio:.3g} times slower than"
    return f"{error}, {speed} the numerical solver ({1000 * solver:.3g} ms)."


def _setup(run: Run) -> dict[str, Any]:
    last = run.log()[-1]
    return {
        "model": run.config.model_name,
        "benchmark, scale": f"{run.config.benchmark}, {run.config.scale}",
        "data": run.config.data.file or run.config.data.original or "generated",
        "nodes": " × ".join(map(str, run.problem.shape)),
        "epochs": f"{last['epoch']:.1f}",
        "training time": f"{last['seconds'] / 60:.1f} minutes",
        "seed of data, training": f"{run.config.data.seed}, {run.config.train.seed}",
    }


def _trials(run: Run) -> list[tuple[str, str, int, str, str]]:
    """Rows of the table of trials, the best first: model, error, steps, seconds, expected error."""
    finished = [trial for trial in run.trials if trial["validation"] is not None]
    diverged = [trial for trial in run.trials if trial["validation"] is None]
    return [
        (
            model_class(trial["model"]).title,
            "diverged" if trial["validation"] is None else _percent(trial["validation"]),
            trial["steps"],
            f"{trial['seconds']:.0f}",
            "–" if trial["validation"] is None else _percent(expected_error(trial)),
        )
        for trial in [*sorted(finished, key=expected_error), *diverged]
    ]


def _percent(error: float | None) -> str:
    return "not finite" if error is None else f"{100 * error:.2f} %"


def _of_headline(metrics: Mapping[str, Any]) -> str:
    """Which error it is, if not that of all outputs."""
    return "" if metrics["headline"] is None else f" of the {metrics['headline']}"


def _compared(field: Mapping[str, Any]) -> str:
    """A clause with the error of the training mean, if it is known."""
    mean = field["mean_predictor"]
    return "" if mean is None else f"; the training mean has {_percent(mean)}"


def _errors(metrics: dict[str, Any]) -> dict[str, str]:
    """Error of each field, and how that of the first is distributed over the samples."""
    fields = errors_by_field(metrics)
    headline, first = next(iter(fields.items()))
    shares = {"median": "median", "90 % of samples below": "p90", "worst": "worst"}
    return {
        **{
            f"mean, {name}": _percent(of["relative_l2"]) + _compared(of)
            for name, of in fields.items()
        },
        **{f"{words}, {headline}": _percent(first[key]) for words, key in shares.items()},
    }


def _growth(frame_errors: np.ndarray, trained: int) -> str:
    """How the error grows from the first frame to the last, and beyond those of the training."""
    shown = {1: "first", trained: "last of training", len(frame_errors): "last"}
    places = [
        f"{_percent(frame_errors[frame - 1])} in frame {frame} ({name})"
        for frame, name in sorted(shown.items())
    ]
    sentence = f"The mean error is {', '.join(places)}"
    first, last = frame_errors[0], frame_errors[-1]
    if len(frame_errors) > 1 and 0 < first < np.inf and last < np.inf:
        sentence += f": {last / first:.3g} times from the first to the last"
    return f"{sentence}."


def _band_widths(band: dict[str, Any] | None) -> dict[str, str]:
    if band is None:
        return {}
    shown = {name: f"± {width:.3g} on average" for name, width in band["mean_half_width"].items()}
    if band["covered_samples"] is None:  # no test split
        return shown
    return {
        name: f"{width}; covered samples {band['covered_samples'][name]:.1%}, "
        f"nodes {band['covered_nodes'][name]:.1%}"
        for name, width in shown.items()
    }


def training_curve(log: list[dict[str, Any]]) -> Figure:
    """Training loss terms and validation error against the epoch, and the learning rate."""
    figure, axes = new_figure(1, 2, (8.0, 3.0))
    left, right = axes.flat
    epochs = [line["epoch"] for line in log]
    trained = [line for line in log if "value" in line]  # one may have diverged at its first step
    left.semilogy(
        [line["epoch"] for line in trained],
        [line["value"] for line in trained],
        ".-",
        label="training",
    )
    if "validation" in log[0]:  # not with cross-validation
        left.semilogy(epochs, [line["validation"] for line in log], ".-", label="validation")
    left.set(xlabel="epoch", ylabel="relative L2 error")
    left.legend(frameon=False)
    right.plot(epochs, [line["learning_rate"] for line in log], ".-", color="tab:gray")
    right.set(xlabel="epoch", ylabel="learning rate at the epoch's end")
    right.ticklabel_format(axis="y", scilimits=(-3, 3))
    return figure


def error_histogram(errors: np.ndarray, mean_predictor: float | None, of_field: str = "") -> Figure:
    """Distribution of the relative error over the samples; `of_field` says of what it is."""
    figure, axes = new_figure(1, 1, (5.0, 3.0))
    (panel,) = axes.flat
    panel.hist(100 * errors, bins=min(30, max(5, len(errors) // 5)), color="tab:blue", alpha=0.8)
    mean = 100 * errors.mean()
    panel.axvline(mean, color="black", label=f"mean {mean:.2f} %")
    if mean_predictor is not None:
        panel.plot([], [], " ", label=f"predicting the training mean: {100 * mean_predictor:.1f} %")
    panel.set(xlabel=f"relative L2 error{of_field} in a sample (%)", ylabel="samples")
    panel.legend(frameon=False)
    return figure


def frame_error_curve(
    problem: Problem, frame_errors: np.ndarray, trained: int | None = None
) -> Figure:
    """Mean relative error of each frame of a problem in time, (T,), against its time.

    `trained` is the number of frames of the training, if there are more.
    """
    figure, axes = new_figure(1, 1, (5.0, 3.0))
    (panel,) = axes.flat
    view = view_of(problem)
    times = [view.time(step) for step in range(len(frame_errors))]
    panel.plot(times, 100 * frame_errors, ".-")
    if trained is not None and trained < len(times):
        panel.axvspan(times[trained - 1], times[-1], color="0.93", label="not in training")
        panel.legend(frameon=False)
    of_all = f", {ALL_OUTPUTS}" if problem.num_outputs > 1 else ""
    panel.set(xlabel=view.time_label, ylabel=f"relative L2 error of a frame{of_all} (%)")
    finite = frame_errors[np.isfinite(frame_errors)]  # infinite where the true frame is zero
    panel.set_ylim(0, 108 * finite.max() if finite.any() else None)
    return figure
