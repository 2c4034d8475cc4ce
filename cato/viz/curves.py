"""The curves of a run: training, distribution of the errors, errors over time."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from cato.benchmarks import view_of
from cato.problem import Problem
from cato.viz.fields import new_figure


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
    left.semilogy(epochs, [line["validation"] for line in log], ".-", label="validation")
    left.set(xlabel="epoch", ylabel="relative L2 error")
    left.legend(frameon=False)
    right.plot(epochs, [line["learning_rate"] for line in log], ".-", color="tab:gray")
    right.set(xlabel="epoch", ylabel="learning rate at the epoch's end")
    right.ticklabel_format(axis="y", scilimits=(-3, 3))
    return figure


def error_histogram(errors: np.ndarray, mean_predictor: float | None) -> Figure:
    """Distribution of the relative error over the samples."""
    figure, axes = new_figure(1, 1, (5.0, 3.0))
    (panel,) = axes.flat
    panel.hist(100 * errors, bins=min(30, max(5, len(errors) // 5)), color="tab:blue", alpha=0.8)
    mean = 100 * errors.mean()
    panel.axvline(mean, color="black", label=f"mean {mean:.2f} %")
    if mean_predictor is not None:
        panel.plot([], [], " ", label=f"training mean as answer: {100 * mean_predictor:.1f} %")
    panel.set(xlabel="relative L2 error of a sample (%)", ylabel="samples")
    panel.legend(frameon=False)
    return figure


def frame_error_curve(problem: Problem, frame_errors: np.ndarray) -> Figure:
    """Mean relative error of each frame of a problem in time, (T,), against its time."""
    figure, axes = new_figure(1, 1, (5.0, 3.0))
    (panel,) = axes.flat
    view = view_of(problem)
    times = [view.time(step) for step in range(len(frame_errors))]
    panel.plot(times, 100 * frame_errors, ".-")
    panel.set(xlabel=view.time_label, ylabel="relative L2 error of a frame (%)")
    finite = frame_errors[np.isfinite(frame_errors)]  # infinite where the true frame is zero
    panel.set_ylim(0, 108 * finite.max() if finite.any() else None)
    return figure
