"""The report of a run: one HTML file that needs nothing else, and its figures as PNG files."""

import base64
import io
import json
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from matplotlib.figure import Figure

from cato.benchmarks import get_benchmark
from cato.data.dataset import Dataset
from cato.files import atomic_write
from cato.inference.evaluate import Evaluation, evaluate_run
from cato.models.registry import model_entry
from cato.problem import Problem
from cato.runs.folder import Run
from cato.surrogate import Surrogate
from cato.viz.chart import chart_figure, chart_words
from cato.viz.curves import error_histogram, frame_error_curve, training_curve
from cato.viz.figures import sample_figure

PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem;
         color: #1b1b1f; background: #fff; }
  h1 { margin-bottom: 0; } h2 { margin-top: 2.2rem; border-bottom: 1px solid #ddd; }
  table { border-collapse: collapse; }
  td { padding: .2rem 1rem .2rem 0; text-align: left; vertical-align: top; }
  td:first-child { color: #555; }
  img { max-width: 100%; }
  pre { padding: .8rem; overflow-x: auto; background: #f3f3f6; border-radius: 4px; }
  .big { font-size: 1.35rem; }
</style>
<h1>$title</h1>
<p class="big">$verdict</p>
$body
</html>
""")


class Album:
    """The figures of a report: embedded in the page, and files of their own for slides."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, figure: Figure) -> str:
        """Save a figure; returns it as HTML."""
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=130)
        with atomic_write(self.folder / f"{name}.png") as temporary:
            temporary.write_bytes(buffer.getvalue())
        data = base64.b64encode(buffer.getvalue()).decode()
        return f'<p><img alt="{escape(name)}" src="data:image/png;base64,{data}"></p>'


def write_report(run: Run) -> tuple[Path, dict[str, Any]]:
    """Evaluate the run on its test split; write report.html and figures/ into its folder.

    Returns:
        The path of the report and the figures of `evaluate_run`.
    """
    figures, _, evaluation, surrogate, test = evaluate_run(run, "test")
    title, description = _subject(run)
    model = model_entry(run.config.model_name)
    album = Album(run.folder / "figures")
    sections = [
        _section("What was trained", f"<p>{escape(description)}</p>" + _setup(run)),
        _section("Training", album.add("training", training_curve(run.log()))),
        _section("Errors on the test split", _errors(figures, test.problem, evaluation, album)),
        _section("Samples", _samples(surrogate, test, evaluation, album)),
    ]
    if figures["band"] is not None:
        sections.append(_section("Band", _band(figures["band"])))
    chart = chart_figure(surrogate, test)
    if chart is not None:
        text = f"<p>{escape(chart_words(surrogate))}</p>"
        sections.append(_section("Chart", text + album.add("chart", chart)))
    sections.append(_section("Reproduce", _reproduce(run)))
    path = run.folder / "report.html"
    with atomic_write(path) as temporary:
        temporary.write_text(
            PAGE.substitute(
                title=escape(f"{model.title} on {title}"),
                verdict=_verdict(figures),
                body="\n".join(sections),
            )
        )
    return path, figures


def _subject(run: Run) -> tuple[str, str]:
    """Title and description of what was learnt."""
    problem = run.problem
    if run.config.data.file is None:
        benchmark = get_benchmark(run.config.benchmark)
        return benchmark.title, benchmark.description
    inputs = ", ".join(problem.inputs) or "the nodes alone"
    return problem.name, (
        f"Own data of {run.config.data.file}: {', '.join(problem.outputs)} from {inputs}, "
        f"{problem.time}, on a {problem.geometry} in {problem.dimension} dimensions."
    )


def _verdict(figures: dict[str, Any]) -> str:
    """The result in a sentence."""
    solver, surrogate = figures["solver_seconds_per_sample"], figures["seconds_per_sample"]
    error = (
        f"Test error {100 * figures['relative_l2']:.2f} % (relative L2, mean of "
        f"{figures['num_samples']} held-out samples); {1000 * surrogate:.3g} ms per sample"
    )
    if solver is None:
        return f"{error}. The time of the solver that made the data is not known."
    ratio = solver / surrogate
    speed = f"{ratio:.3g} times faster than" if ratio >= 1 else f"{1 / ratio:.3g} times slower than"
    return f"{error}, {speed} the numerical solver ({1000 * solver:.3g} ms)."


def _setup(run: Run) -> str:
    log = run.log()
    rows = {
        "model": run.config.model_name,
        "benchmark, scale": f"{run.config.benchmark}, {run.config.scale}",
        "data": run.config.data.file or run.config.data.original or "generated",
        "nodes": " × ".join(map(str, run.problem.shape)),
        "epochs": f"{log[-1]['epoch']:.1f}",
        "training time": f"{log[-1]['seconds'] / 60:.1f} minutes",
        "seed of data, training": f"{run.config.data.seed}, {run.config.train.seed}",
    }
    settings = {k: v for k, v in run.config.to_dict().items() if isinstance(v, dict)}
    return _table(rows) + _details("all settings", json.dumps(settings, indent=2))


def _errors(figures: dict[str, Any], problem: Problem, evaluation: Evaluation, album: Album) -> str:
    """A table, the distribution and, for problems in time, the error of each frame."""
    percent = {
        "mean": figures["relative_l2"],
        "median": figures["median"],
        "90 % of samples below": figures["p90"],
        "worst": figures["worst"],
        "answering the training mean": figures["mean_predictor"],
    }
    table = _table({k: f"{100 * v:.2f} %" for k, v in percent.items() if v is not None})
    histogram = error_histogram(evaluation.errors.numpy(), figures["mean_predictor"])
    body = table + album.add("errors", histogram)
    if evaluation.frame_errors is not None:
        curve = frame_error_curve(problem, evaluation.frame_errors.numpy())
        body += album.add("frame-errors", curve)
    return body


def _samples(surrogate: Surrogate, test: Dataset, evaluation: Evaluation, album: Album) -> str:
    """The best, the median and the worst sample."""
    order = evaluation.errors.argsort().tolist()
    chosen = {"best": order[0], "median": order[len(order) // 2], "worst": order[-1]}
    images = []
    for label, index in chosen.items():
        title = f"{label} sample: number {index}, error {100 * evaluation.errors[index]:.2f} %"
        figure = sample_figure(surrogate, test, index, title)
        images.append(album.add(f"sample-{label}", figure))
    return "".join(images)


def _band(band: dict[str, Any]) -> str:
    """What the band promises, and what was measured."""
    text = (
        f"<p>Calibrated on {band['num_validation_samples']} validation samples (split conformal): "
        f"of a new sample like these, {band['promised_nodes']:.0%} of the nodes lie inside the "
        f"band with probability {band['promised_samples']:.0%}. On the test split:</p>"
    )
    rows = {
        name: f"± {width:.3g} on average; covered samples {band['covered_samples'][name]:.1%}, "
        f"nodes {band['covered_nodes'][name]:.1%}"
        for name, width in band["mean_half_width"].items()
    }
    return text + _table(rows)


def _reproduce(run: Run) -> str:
    record = run.record
    environment = {**record["environment"], "cato": record["cato"], "created": record["created"]}
    return f"<pre>{escape(record['command'])}</pre>" + _table(environment)


def _section(title: str, body: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{body}"


def _table(rows: dict[str, Any]) -> str:
    cells = (f"<tr><td>{escape(k)}</td><td>{escape(str(v))}</td></tr>" for k, v in rows.items())
    return f"<table>{''.join(cells)}</table>"


def _details(summary: str, text: str) -> str:
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"
