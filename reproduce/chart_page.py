"""chart.md, from chart.json alone: every verdict is chosen by the figures."""

from pathlib import Path
from typing import Any

from cato.benchmarks import get_benchmark
from reproduce.outcomes import budget_of, by_benchmark, percent
from reproduce.pages import save_page
from reproduce.verdicts import decide, of_parts, seen

PAPER_ERRORS = {"learned": 0.0041, "normalised": 0.0045}
PAPER_SHARES, PAPER_DIMENSION = (0.94, 0.06), 1.126
"""What the paper reports, of one benchmark that it does not name."""
ANISOTROPIC = 0.9
"""Share of the first component from which we call a chart nearly one-dimensional."""

Row = dict[str, Any]


def write_page(results: dict[str, Any], out: Path) -> None:
    """chart.md, from the results alone."""
    settings = results["settings"]
    first, second = PAPER_SHARES
    lines = [
        f"Scale `{settings['scale']}`, {budget_of(settings)}, "
        f"{len(settings['seeds'])} seed(s). The paper reports, for one chart of a benchmark it "
        f"does not name, {first:.1%} and {second:.1%} of the variance in the two principal "
        f"components, a participation ratio of {PAPER_DIMENSION}, and a test error of "
        f"{PAPER_ERRORS['learned']} with the learned chart against {PAPER_ERRORS['normalised']} "
        "with normalised coordinates. *Dimension* is the participation ratio (Σλ)² / Σλ² of the "
        "variances λ, 2 for a square and 1 for a line. *Normalised* is each sample's bounding box "
        "scaled to [−1, 1]²; *standardised*, where it is listed, is what the model sees instead of "
        "physical coordinates. *Untrained* is the chart that the training of that seed began with. "
        "*Folded* cells are oriented against most others. *Along own axis* is the share of the "
        "variance of each chart component along the mesh axis whose attention it serves: at 0 that "
        "attention does not know where along the axis a node is.",
        "",
        "The pictures show the first test sample. Blue lines are fixed in the first mesh index and "
        "orange ones in the second; points of a cloud have the colour of their physical x. ξ "
        "serves the attention along the first mesh axis, η along the second. Black lines are the "
        "principal axes of all test samples together, √3 deviations to each side.",
        "",
        *_summary(results),
    ]
    if results["errors"]:
        lines += ["", "## Error with each chart", "", *_errors(results["errors"])]
    spaces = by_benchmark(results["spaces"])
    for untrained in results["random"]:
        name = untrained["benchmark"]
        rows = spaces[name]
        title = get_benchmark(name).title
        lines += ["", f"## {title}", "", *_spaces(rows), "", _anisotropy(rows, untrained)]
        lines += ["", f"![{title}: nodes in physical and chart space](chart-{name}.png)"]
    save_page(out, "chart", "The learned chart", lines)


def _summary(results: dict[str, Any]) -> list[str]:
    """A line for each benchmark."""
    lines = [
        f"| benchmark | training brings the first component to {ANISOTROPIC:.0%} | physical grid "
        "| before training | learned | dimension | random charts that have it |",
        "|---|---|---|---|---|---|---|",
    ]
    spaces = by_benchmark(results["spaces"])
    for untrained in results["random"]:
        rows = spaces[untrained["benchmark"]]
        before, after = _of(rows, "untrained"), _of(rows, "learned")
        dimensions = ", ".join(f"{row['dimension']:.3f}" for row in after)
        lines.append(
            f"| {get_benchmark(untrained['benchmark']).title} | {one_dimensional(rows)} "
            f"| {_of(rows, 'physical')[0]['first']:.1%} | {_firsts(before)} | {_firsts(after)} "
            f"| {dimensions} | {untrained['anisotropic']:.0%} |"
        )
    return [*lines, "", "Several numbers in a cell are the seeds, in order."]


def one_dimensional(rows: list[Row]) -> str:
    """Whether training made the charts of a benchmark nearly one-dimensional, seed by seed."""
    grid = _of(rows, "physical")[0]["first"]
    pairs = list(zip(_of(rows, "untrained"), _of(rows, "learned"), strict=True))
    met = [
        after["first"] >= ANISOTROPIC and after["first"] > max(before["first"], grid)
        for before, after in pairs
    ]
    return of_parts([seen(is_so, len(pairs)) for is_so in met])


def _anisotropy(rows: list[Row], untrained: Row) -> str:
    """What training did to the share of the first component."""
    pairs = zip(_of(rows, "untrained"), _of(rows, "learned"), strict=True)
    gains = [100 * (after["first"] - before["first"]) for before, after in pairs]
    many = len(gains) > 1
    if min(gains) > 0:
        words = "Training made the chart more anisotropic" + (" with every seed" if many else "")
    elif max(gains) < 0:
        words = "Training made the chart less anisotropic" + (" with every seed" if many else "")
    else:
        words = "Training made the chart more anisotropic with some seeds and less with others"
    changes = ", ".join(f"{gain:+.1f}" for gain in gains)
    return (
        f"{words}: the first component's share changed by {changes} points. Of "
        f"{untrained['num_charts']} untrained charts {untrained['anisotropic']:.0%} have "
        f"{ANISOTROPIC:.0%} or more in the first component, on average {untrained['first']:.1%} "
        f"(dimension {untrained['dimension']:.3f})."
    )


def _spaces(rows: list[Row]) -> list[str]:
    """All figures of a benchmark."""
    lines = [
        "| coordinates | variance explained | dimension | the same, mean over samples "
        "| folded cells | along own axis |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        name = row["space"] + ("" if row["seed"] is None else f", seed {row['seed']}")
        folded = "–" if row["folded"] is None else f"{row['folded']:.1%}"
        lines.append(
            f"| {name} | {_shares(row['shares'])} | {row['dimension']:.3f} "
            f"| {_shares(row['mean_shares'])}; {row['mean_dimension']:.3f} | {folded} "
            f"| {'–' if row['along'] is None else _shares(row['along'])} |"
        )
    return lines


def _errors(rows: list[Row]) -> list[str]:
    """The kinds of chart beside each other, and whether the learned one is better."""
    lines = []
    for name, some in by_benchmark(rows).items():
        found = {row["chart"]: row for row in some}
        lines += [
            f"**{get_benchmark(name).title}**",
            "",
            "| chart | test error | against learned | validation error | paper |",
            "|---|---|---|---|---|",
        ]
        for kind, row in found.items():
            change = row["relative_l2"] / found["learned"]["relative_l2"] - 1
            lines.append(
                f"| {kind} | {percent(row['relative_l2'], row['spread'])} "
                f"| {'' if kind == 'learned' else f'{change:+.1%}'} "
                f"| {percent(row['validation'], row['validation_spread'])} "
                f"| {PAPER_ERRORS.get(kind, '')} |"
            )
        lines += ["", _better(found["learned"], found["normalised"]), ""]
    return lines[:-1]


def _better(learned: Row, normalised: Row) -> str:
    """Does the paper's second claim show?"""
    gain = normalised["relative_l2"] - learned["relative_l2"]
    sizes = (
        f"the learned chart's error is {abs(gain) / normalised['relative_l2']:.1%} "
        f"{'lower' if gain > 0 else 'higher'} than with normalised coordinates "
        f"(paper: {1 - PAPER_ERRORS['learned'] / PAPER_ERRORS['normalised']:.1%} lower)"
    )
    return f"Better than normalised coordinates: **{decide(learned, [normalised])}**; {sizes}."


def _of(rows: list[Row], space: str) -> list[Row]:
    return [row for row in rows if row["space"] == space]


def _firsts(rows: list[Row]) -> str:
    return ", ".join(f"{row['first']:.1%}" for row in rows)


def _shares(values: list[float]) -> str:
    return " / ".join(f"{value:.1%}" for value in values)
