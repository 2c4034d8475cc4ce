"""The figures of a run: training curve, error distribution, samples, chart."""

from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cato.data.dataset import Dataset
from cato.physics import gradient, inverse_metric
from cato.surrogate import Surrogate
from cato.viz.fields import DIVERGING, ERROR, draw_field

MAX_CHART_LINES = 22
"""Grid lines drawn along each axis of a chart."""


def training_curve(log: list[dict[str, Any]]) -> Figure:
    """Training loss terms and validation error against the epoch, and the learning rate."""
    figure, (left, right) = _subplots(1, 2, (8.0, 3.0))
    epochs = [line["epoch"] for line in log]
    left.semilogy(epochs, [line["value"] for line in log], ".-", label="training")
    left.semilogy(epochs, [line["validation"] for line in log], ".-", label="validation")
    left.set(xlabel="epoch", ylabel="relative L2 error")
    left.legend(frameon=False)
    right.plot(epochs, [line["learning_rate"] for line in log], ".-", color="tab:gray")
    right.set(xlabel="epoch", ylabel="learning rate at the epoch's end")
    right.ticklabel_format(axis="y", scilimits=(-3, 3))
    return figure


def error_histogram(errors: np.ndarray, mean_predictor: float | None) -> Figure:
    """Distribution of the relative error over the samples."""
    figure, (axes,) = _subplots(1, 1, (5.0, 3.0))
    axes.hist(100 * errors, bins=min(30, max(5, len(errors) // 5)), color="tab:blue", alpha=0.8)
    mean = 100 * errors.mean()
    axes.axvline(mean, color="black", label=f"mean {mean:.2f} %")
    if mean_predictor is not None:
        axes.plot([], [], " ", label=f"training mean as answer: {100 * mean_predictor:.1f} %")
    axes.set(xlabel="relative L2 error of a sample (%)", ylabel="samples")
    axes.legend(frameon=False)
    return figure


def sample_figure(surrogate: Surrogate, data: Dataset, index: int, title: str = "") -> Figure:
    """One sample: inputs, then for every output truth, prediction, error and, on meshes, gradients.

    Of problems in time the last frame is shown.
    """
    problem = data.problem
    batch = data.batch([index])
    coords = batch.coords[0].numpy()
    solution = solve_one(surrogate, data, index)
    truth = batch.targets[0]
    if problem.time != "steady":
        solution, truth = solution[-1], truth[-1]
    panels: list[tuple[str, np.ndarray, dict[str, Any]]] = []
    if problem.num_inputs:
        newest = problem.num_inputs - 1 if problem.time == "rollout" else 0
        panels.append((f"input {problem.inputs[newest]}", batch.inputs[0, :, newest].numpy(), {}))
    for channel, name in enumerate(problem.outputs):
        true, predicted = truth[:, channel].numpy(), solution[:, channel].numpy()
        limits = {"vmin": true.min(), "vmax": true.max()}
        panels += [
            (f"{name}, solver", true, limits),
            (f"{name}, surrogate", predicted, limits),
            ("error", predicted - true, _symmetric(predicted - true)),
        ]
        if channel == 0:
            panels += _flux_panels(surrogate, data, index)
    per_row = min(len(panels), 6)
    rows = -(-len(panels) // per_row)
    figure, axes = _subplots(rows, per_row, (2.55 * per_row, 2.45 * rows + 0.3))
    for panel, (label, values, style) in zip(axes[: len(panels)], panels, strict=True):
        draw_field(panel, problem, coords, values, label, **style)
    for unused in axes[len(panels) :]:
        unused.set_visible(False)
    figure.suptitle(title, fontsize=10)
    return figure


def _flux_panels(
    surrogate: Surrogate, data: Dataset, index: int
) -> list[tuple[str, np.ndarray, dict[str, Any]]]:
    """|∇u| of the first output, from the solver's solution and from the model's flux head."""
    problem = data.problem
    if problem.time != "steady" or problem.geometry == "cloud":
        return []
    batch = data.batch([index])
    metric = inverse_metric(batch.coords[0], problem.shape, problem.periodic, problem.period)
    true = gradient(batch.targets, metric, problem.shape, problem.periodic)[0, :, 0].norm(dim=-1)
    limits = {"vmin": 0.0, "vmax": float(true.max()), "cmap": ERROR}
    name = problem.outputs[0]
    panels = [(f"|∇{name}|, solver", true.numpy(), limits)]
    with torch.no_grad():
        flux = surrogate(*_on_device(surrogate, data, index), shape=problem.shape).flux
    if flux is not None:
        panels.append(("|q|, flux head", flux[0, :, 0].norm(dim=-1).cpu().numpy(), limits))
    return panels


def chart_figure(surrogate: Surrogate, data: Dataset, index: int = 0) -> Figure | None:
    """The physical grid of a sample beside the learned chart; None for models without a chart."""
    chart = getattr(surrogate.model, "chart", None)
    if chart is None or data.problem.dimension != 2:
        return None
    coords = data.batch([index]).coords
    with torch.no_grad():
        zeta = chart(surrogate.normaliser.encode_coords(coords.to(surrogate.device)))[0]
    figure, (left, right) = _subplots(1, 2, (8.0, 3.9))
    _draw_grid(left, coords[0].numpy(), data, "physical grid", ("x", "y"))
    _draw_grid(right, zeta.cpu().numpy(), data, "learned chart", ("ξ", "η"))
    return figure


def _draw_grid(
    axes: Axes, nodes: np.ndarray, data: Dataset, title: str, labels: tuple[str, str]
) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    if data.problem.geometry == "cloud":
        x = data.batch([0]).coords[0, :, 0].numpy()
        axes.scatter(nodes[:, 0], nodes[:, 1], c=x, s=5)
    else:
        on_mesh = nodes.reshape(*data.problem.shape, 2)
        for axis, colour in ((0, "tab:blue"), (1, "tab:orange")):
            lines = np.moveaxis(on_mesh, axis, 0)
            for line in lines[:: max(1, len(lines) // MAX_CHART_LINES)]:
                axes.plot(*line.T, color=colour, linewidth=0.7)


def solve_one(surrogate: Surrogate, data: Dataset, index: int) -> torch.Tensor:
    """The surrogate's solution of one sample."""
    with torch.no_grad():
        solution = surrogate.solve(*_on_device(surrogate, data, index), shape=data.problem.shape)
    return solution[0].cpu()


def _on_device(surrogate: Surrogate, data: Dataset, index: int) -> tuple[torch.Tensor, ...]:
    batch = data.batch([index])
    return batch.coords.to(surrogate.device), batch.inputs.to(surrogate.device)


def _symmetric(error: np.ndarray) -> dict[str, Any]:
    size = float(np.abs(error).max()) or 1.0
    return {"vmin": -size, "vmax": size, "cmap": DIVERGING}


def _subplots(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    # Not through pyplot, which keeps every figure alive.
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)
