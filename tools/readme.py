"""The results table of README.md, from the results files of the two comparisons."""

from collections.abc import Mapping
from typing import Any

from cato.benchmarks import BENCHMARKS
from cato.files import read_json
from cato.inference.evaluate import ALL_OUTPUTS
from cato.models.registry import model_class
from reproduce.experiment import OURS
from reproduce.recipes import recipe_changes
from reproduce.results import by_benchmark, by_headline, title_with_field
from reproduce.studies.compare import family, mean_ranks
from reproduce.verdicts import check_lowest_rank, counted
from tools.pages import Pages, table, with_block
from tools.results import ROOT

PAGE = ROOT / "README.md"
STUDIES = ROOT / "docs" / "studies"


def pages() -> Pages:
    """README.md with its table."""
    epochs, time = (
        read_json(STUDIES / study / "compare.json", "results of a comparison")
        for study in ("epochs", "time")
    )
    return {PAGE: with_block(PAGE, "results", block(epochs, time))}


def block(epochs: Mapping[str, Any], time: Mapping[str, Any]) -> str:
    """Errors with equal epochs, the lowest in bold, and mean ranks in both comparisons.

    Args:
        epochs: Results of the comparison with equal epochs.
        time: Results of the comparison in equal time.
    """
    rows = by_headline(epochs["rows"])
    errors = {(family(row), row["benchmark"]): row["relative_l2"] for row in rows}
    groups = by_benchmark(rows)
    benchmarks = [name for name in BENCHMARKS if name in groups]
    lowest = {name: min(row["relative_l2"] for row in groups[name]) for name in benchmarks}
    able = counted(rows, OURS)
    ranks = mean_ranks(able or rows)
    ranks_in_time = mean_ranks(counted(by_headline(time["rows"]), OURS))
    cells = []
    for model in sorted(ranks, key=lambda model: ranks[model]):
        row = [model_class(model).title]
        for name in benchmarks:
            error = errors.get((model, name))
            text = "/" if error is None else f"{error:.2%}"
            row.append(f"**{text}**" if error == lowest[name] else text)
        in_time = f"{ranks_in_time[model]:.1f}" if model in ranks_in_time else "–"
        cells.append([*row, f"{ranks[model]:.1f}" if able else "–", in_time])
    means = {row["benchmark"]: row["mean_predictor"] for row in rows}
    cells.append(["*training mean*", *(f"{means[name]:.2%}" for name in benchmarks), "", ""])
    titles = {row["benchmark"]: title_with_field(row) for row in rows}
    header = ["model", *(titles[name] for name in benchmarks), "mean rank", "mean rank, equal time"]
    verdict, _ = check_lowest_rank([row | {"family": family(row)} for row in able], "cato")
    left_out = [titles[name] for name in benchmarks if name not in by_benchmark(able)]
    outdated = (
        "The trainings had [earlier recipes](docs/studies/epochs/compare.md). "
        if recipe_changes(dict(epochs))
        else ""
    )
    num_seeds, num_models = len(epochs["settings"]["seeds"]), len(ranks_in_time)
    return (
        f"\n{table(header, cells)}\n\n"
        f"Relative L2 test error at `{epochs['settings']['scale']}` scale with "
        f"{epochs['settings']['share']:.0%} of the recipe's steps, mean of up to {num_seeds} "
        f"seeds; CATO-PC on point clouds. *Equal time*: rank among all {num_models} models after "
        f"{time['settings']['minutes']:g} minutes of training on one thread. *Training mean*: "
        f"error of always predicting it; a model near it has learnt nothing. "
        f"{about_ranks(left_out)}"
        f"{about_fields({row['field'] for row in rows})}{outdated}That CATO has the lowest mean "
        f"rank is [{verdict}](docs/results.md).\n\n"
    )


def about_ranks(left_out: list[str]) -> str:
    """Which benchmarks do not count."""
    if not left_out:
        return ""
    return (
        f"{', '.join(left_out)} {'does' if len(left_out) == 1 else 'do'} not enter the mean ranks "
        "with equal epochs: CATO, the best rival or most rivals have not left the training mean. "
    )


def about_fields(fields: set[str]) -> str:
    """What the fields in the header are: one that matters most, or all if it was not measured."""
    words = ""
    if fields - {"", ALL_OUTPUTS}:
        words += (
            "Errors of all outputs jointly, the published metric, are on the "
            "[page of the study](docs/studies/epochs/compare.md). "
        )
    if ALL_OUTPUTS in fields:
        words += (
            "*All outputs*: the published metric, the error of all outputs jointly; that of the "
            "field that matters most was not measured in these trainings. "
        )
    return words
