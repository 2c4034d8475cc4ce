"""Why CATO is not first: further remedies at full length, and where the curves lead.

The benchmarks are those of a comparison on which CATO is not clearly first. Each remedy changes its
recipe there and is trained as long as the comparison's longest trainings; its error is that of the
test split, because it chooses nothing: recipes follow from other studies.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cato.benchmarks import get_benchmark
from cato.models.registry import model_class
from cato.runs.settings import Changes, RunConfig
from reproduce.curves import Curve, curve_table, curves_of, extrapolated
from reproduce.experiment import OURS, Experiment, Planned
from reproduce.figures import save_figure
from reproduce.figures.minutes import minutes_figure
from reproduce.results import Row, by_benchmark, by_headline, outcome, percent, read_results
from reproduce.studies.ablation import answers_for
from reproduce.verdicts import compare_errors, compare_to_rivals, is_positive, p_value

SUMMARY = ("rows", ("benchmark", "answer", "field", "relative_l2", "spread"))
PLANNED = ("navier_stokes", "plasticity")
"""Benchmarks that the plan counts; which they are is known after the comparison."""


def run(experiment: Experiment) -> Row:
    """Train the remedies where CATO is not clearly first."""
    compared = read_results(experiment.source)
    lost = {
        name: pair
        for name, pair in not_first(compared["rows"]).items()
        if name in experiment.all_benchmarks
    }
    jobs: dict[str, RunConfig] = {}
    names: dict[tuple[str, str], tuple[Changes, list[str]]] = {}
    for seed in experiment.seeds:
        for benchmark in lost:
            for answer, changes in remedies(benchmark, experiment).items():
                job, jobs[job] = experiment.one_change(benchmark, changes, seed)
                names.setdefault((benchmark, answer), (changes, []))[1].append(job)
    finished = experiment.train(jobs)
    rows = [
        {
            "benchmark": benchmark,
            "model": finished[group[0]].config.model_name,
            "answer": answer,
            "changes": changes,
            **outcome([finished[job] for job in group]),
        }
        for (benchmark, answer), (changes, group) in names.items()
    ]
    sides = {(row["benchmark"], row["model"]) for pair in lost.values() for row in pair}
    curves = [
        row for row in compared.get("curves", []) if (row["benchmark"], row["model"]) in sides
    ]
    record = experiment.record(finished)
    record["settings"]["extrapolate"] = experiment.extrapolate
    record["settings"]["compared_minutes"] = compared["settings"]["minutes"]
    return {
        **record,
        "rows": rows,
        "first": [
            row
            for row in compared["rows"]
            if row["model"] in OURS and row["benchmark"] not in not_first(compared["rows"])
        ],
        "recipes": [ours for ours, _ in lost.values()],
        "winners": [best for _, best in lost.values()],
        "curves": curves,
    }


def planned(experiment: Experiment) -> list[Planned]:
    """The trainings on `PLANNED`."""
    return [
        training
        for benchmark in PLANNED
        for changes in remedies(benchmark, experiment).values()
        for seed in experiment.seeds
        for training in experiment.planned(benchmark, experiment.in_words(benchmark, changes), seed)
    ]


def not_first(rows: Sequence[Row]) -> dict[str, tuple[Row, Row]]:
    """By benchmark on which CATO is not clearly first, its row and that of its best rival."""
    given = {(row["benchmark"], row["model"]): row for row in rows}
    found = {}
    for benchmark, here in by_benchmark(by_headline(rows)).items():
        ranked = sorted(here, key=lambda row: row["relative_l2"])
        ours = next((row for row in ranked if row["model"] in OURS), None)
        rivals = [row for row in ranked if row["model"] not in OURS]
        if ours and rivals and not is_positive(compare_to_rivals(ours, rivals)):
            sides = [given[benchmark, row["model"]] for row in (ours, rivals[0])]
            found[benchmark] = (sides[0], sides[1])
    return found


def remedies(benchmark: str, experiment: Experiment) -> dict[str, dict[str, dict[str, Any]]]:
    """What each remedy changes in the recipe."""
    answers = answers_for(benchmark, experiment.scale, experiment.questions)
    return {answer: changes for (_, answer), changes in answers.items() if changes}


def draw(results: Row, out: Path) -> None:
    """Error against minutes of CATO and the winner, if the comparison had several times."""
    for benchmark, found in curves_of(results["curves"]).items():
        seeds = max(len(row["errors"]) for curve in found for row in curve.rows)
        settings = results["settings"] | {"seeds": range(seeds)}  # those of the comparison
        save_figure(minutes_figure(found, benchmark, settings), out / f"{benchmark}.png")


def page(results: Row) -> dict[str, Any]:
    """A table of remedies and one of curves for each benchmark."""
    curves, until = curves_of(results["curves"]), results["settings"]["extrapolate"]
    tried = by_benchmark(by_headline([*results["recipes"], *results["winners"], *results["rows"]]))
    return {
        "benchmarks": [
            {
                "name": name,
                "field": rows[0]["field"],
                "rows": _table(rows),
                "best": _best(rows),
                "curve": curve_table(curves[name], until) if name in curves else None,
                "outlook": _outlook(curves.get(name, []), until),
            }
            for name, rows in tried.items()
        ],
        "until": until,
        "first": [get_benchmark(row["benchmark"]).title for row in results["first"]],
    }


def _table(rows: Sequence[Row]) -> list[list[str]]:
    """The recipe, the best rival, then the remedies with their change, the lowest error first."""
    recipe, winner, *others = rows
    lines = [["CATO, the recipe", percent(recipe["relative_l2"], recipe["spread"]), "", ""]]
    title = f"{model_class(winner['model']).title}, the best rival"
    for row in [winner, *sorted(others, key=lambda row: row["relative_l2"])]:
        p = p_value(row, recipe, "relative_l2", "spread")
        lines.append(
            [
                title if row is winner else row["answer"],
                percent(row["relative_l2"], row["spread"]),
                f"{row['relative_l2'] / recipe['relative_l2'] - 1:+.1%}",
                "unknown" if p is None else f"{p:.2g}",
            ]
        )
    return lines


def _best(rows: Sequence[Row]) -> dict[str, str] | None:
    """The best remedy, against the recipe and against the best rival."""
    recipe, winner, *others = rows
    if not others:
        return None
    best = min(others, key=lambda row: row["relative_l2"])
    return {
        "answer": best["answer"],
        "against_recipe": compare_errors(best, recipe),
        "against_winner": compare_errors(best, winner),
    }


def _outlook(curves: Sequence[Curve], until: float) -> str:
    """What the laws say of CATO and the winner after a longer time."""
    laws = [(curve.title, curve.law) for curve in curves]
    if len(laws) < 2 or any(law is None for _, law in laws):
        return ""
    intervals = [law.interval(until) for _, law in laws if law]
    apart = max(low for low, _ in intervals) > min(high for _, high in intervals)
    words = " and ".join(f"{title} {extrapolated(law, until)}" for title, law in laws if law)
    verdict = "are apart" if apart else "overlap, so the order then is open"
    return f"After {until:g} minutes the laws give {words}; the 95 % intervals {verdict}."
