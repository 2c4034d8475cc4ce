"""The results table of README.md, from the results files of the two comparisons."""

from collections.abc import Iterable, Mapping
from typing import Any

from cato.benchmarks import BENCHMARKS
from cato.files import read_json
from cato.inference.evaluate import ALL_OUTPUTS
from reproduce.claims.accuracy import accuracy
from reproduce.experiment import OURS
from reproduce.recipes import recipe_changes
from reproduce.results import by_benchmark, by_headline, title_with_field
from reproduce.studies.compare import family, mean_ranks, titles_by_family
from reproduce.verdicts import check_lowest_rank, counted
from tools.pages import Pages, table, with_block
from tools.results import ROOT

PAGE = ROOT / "README.md"
STUDIES = ROOT / "docs" / "studies"


def pages() -> Pages:
    """README.md with its table."""
    time, epochs = (
        read_json(STUDIES / study / "compare.json", "results of a comparison")
        for study in ("time", "epochs")
    )
    return {PAGE: with_block(PAGE, "results", block(time, epochs))}


def block(time: Mapping[str, Any], epochs: Mapping[str, Any]) -> str:
    """Errors in equal time, the lowest in bold, and mean ranks in both comparisons.

    Args:
        time: Results of the comparison in equal time.
        epochs: Results of the comparison with equal epochs.
    """
    rows = by_headline(time["rows"])
    variants = by_headline(time.get("variants", []))
    groups = by_benchmark(rows)
    benchmarks = [name for name in BENCHMARKS if name in groups]
    lowest = {name: min(row["relative_l2"] for row in groups[name]) for name in benchmarks}
    able = counted(rows, OURS)
    ranks = mean_ranks(able or rows)
    other_ranks = mean_ranks(counted(by_headline(epochs["rows"]), OURS))
    errors = {(family(row), row["benchmark"]): row["relative_l2"] for row in (*rows, *variants)}
    titles = titles_by_family([*rows, *variants])
    cells = []
    for model in (*sorted(ranks, key=lambda model: ranks[model]), *by_model(variants)):
        line = [titles[model]]
        for name in benchmarks:
            error = errors.get((model, name))
            text = "/" if error is None else f"{error:.2%}"
            line.append(f"**{text}**" if error == lowest[name] else text)
        rank = f"{ranks[model]:.1f}" if able and model in ranks else "–"
        other = f"{other_ranks[model]:.1f}" if model in other_ranks else "–"
        cells.append([*line, rank, other])
    means = {row["benchmark"]: row["mean_predictor"] for row in rows}
    cells.append(["*training mean*", *(f"{means[name]:.2%}" for name in benchmarks), "", ""])
    columns = {row["benchmark"]: title_with_field(row) for row in rows}
    header = ["model", *(columns[name] for name in benchmarks)]
    header += ["mean rank", "mean rank, equal epochs"]
    verdict, _ = check_lowest_rank([row | {"family": family(row)} for row in able], "cato")
    left_out = [columns[name] for name in benchmarks if name not in by_benchmark(able)]
    reduction = next(c for c in accuracy(dict(time)) if c.text.startswith("mean error reduction"))
    outdated = (
        "The trainings had [earlier recipes](docs/studies/time/compare.md). "
        if recipe_changes(dict(time))
        else ""
    )
    settings = time["settings"]
    return (
        f"\n{table(header, cells)}\n\n"
        f"Relative L2 test error at `{settings['scale']}` scale after {settings['minutes']:g} "
        f"minutes of training on one CPU thread, mean of up to {len(settings['seeds'])} seeds; "
        f"CATO-PC on point clouds. *Equal epochs*: rank among {len(other_ranks)} models with "
        f"{epochs['settings']['share']:.0%} of the recipe's steps. *Training mean*: error of "
        f"always predicting it; a model near it has learnt nothing. "
        f"{about_ranks(left_out)}{about_fields({row['field'] for row in rows})}{outdated}"
        f"That CATO has the lowest mean rank is [{verdict}](docs/results.md). Mean reduction of "
        f"the error over the best rival: {reduction.ours} ({reduction.verdict}); the paper has "
        f"{reduction.paper}.\n\n"
    )


def by_model(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The models of rows, each once."""
    return list(dict.fromkeys(str(row["model"]) for row in rows))


def about_ranks(left_out: list[str]) -> str:
    """Which benchmarks do not count."""
    if not left_out:
        return ""
    return (
        f"{', '.join(left_out)} {'does' if len(left_out) == 1 else 'do'} not enter the mean ranks: "
        "CATO, the best rival or most rivals have not left the training mean. "
    )


def about_fields(fields: set[str]) -> str:
    """What the fields in the header are: one that matters most, or all if it was not measured."""
    words = ""
    if fields - {"", ALL_OUTPUTS}:
        words += (
            "Errors of all outputs jointly, the published metric, are on the "
            "[page of the study](docs/studies/time/compare.md). "
        )
    if ALL_OUTPUTS in fields:
        words += (
            "*All outputs*: the published metric, the error of all outputs jointly; that of the "
            "field that matters most was not measured in these trainings. "
        )
    return words
