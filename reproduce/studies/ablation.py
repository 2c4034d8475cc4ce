"""One change at a time: CATO's recipe with a part left out, or an open choice made differently.

Every answer to a question of experiments.toml differs from the recipe in the settings listed there
and in nothing else. Answers are judged by the lowest validation error: defaults follow from them,
and the test split must choose nothing.
"""

from collections.abc import Sequence
from typing import Any

from cato.benchmarks import get_benchmark
from cato.errors import InputError
from cato.models.registry import model_class
from cato.runs.folder import Run
from cato.runs.settings import RunConfig, build_settings
from reproduce.experiment import Experiment, Planned, definitions
from reproduce.results import (
    Row,
    by_benchmark,
    gradient_errors,
    outcome,
    percent,
    size_of,
)

SUMMARY = ("rows", ("benchmark", "question", "answer", "validation", "validation_spread"))
RECIPE = "the recipe"
MODULATED = {"model": {"structure": "modulated"}}
"""The one structure that only problems conditioned on time can have."""


def run(experiment: Experiment) -> Row:
    """Train the recipe and all answers."""
    questions, benchmarks = experiment.questions, experiment.all_benchmarks
    table = {name: answers_for(name, experiment.scale, questions) for name in benchmarks}
    asked = {key for answers in table.values() for key in answers}
    if idle := [name for name in questions if not asked & set(_named(name))]:
        where = ", ".join(benchmarks)
        raise InputError(f"{idle[0]!r} changes nothing in CATO's recipe on {where}; leave it out")
    seeds, number = experiment.seeds, experiment.change_seeds
    if number is not None and not 1 <= number <= len(seeds):
        raise InputError(f"the seeds of the changes must be 1 to {len(seeds)}; got {number}")
    jobs: dict[str, RunConfig] = {}
    names: dict[tuple[str, str, str], list[str]] = {}
    order = [key for answers in table.values() for key in answers]
    for seed in seeds:  # then the answers, so that an unfinished experiment covers all benchmarks
        for question, answer in dict.fromkeys(order):
            for benchmark, answers in table.items():
                changes = answers.get((question, answer))
                if changes is None or (changes and seed not in seeds[:number]):
                    continue
                job, jobs[job] = experiment.one_change(benchmark, changes, seed)
                names.setdefault((benchmark, question, answer), []).append(job)
    finished = experiment.train(jobs)
    rows = [
        {
            "benchmark": benchmark,
            "question": question,
            "answer": answer,
            "changes": table[benchmark][question, answer],
            **_measured([finished[job] for job in group]),
        }
        for (benchmark, question, answer), group in names.items()
    ]
    return {**experiment.record(finished), "rows": rows}


def planned(experiment: Experiment) -> list[Planned]:
    """The trainings."""
    return [
        training
        for benchmark in experiment.all_benchmarks
        for changes in answers_for(benchmark, experiment.scale, experiment.questions).values()
        for seed in (experiment.seeds[: experiment.change_seeds] if changes else experiment.seeds)
        for training in experiment.planned(benchmark, experiment.in_words(benchmark, changes), seed)
    ]


def _measured(runs: list[Run]) -> Row:
    name = runs[0].config.model_name
    return {
        "model": name,
        "parameters": size_of(runs[0]),
        **outcome(runs),
        **gradient_errors(runs),
    }


def answers_for(
    benchmark: str, scale: str, questions: Sequence[str]
) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """The recipe itself, and what every answer changes in it, if its model has the settings.

    An answer with the same changes as an earlier one to the same question is left out.
    """
    problem = get_benchmark(benchmark).problem(scale)
    base = build_settings(benchmark, scale).to_dict()
    if problem.geometry == "cloud":
        del base["loss"]["gradient_scale"], base["loss"]["gdl"]  # points have no mesh gradient
    else:
        base["model"]["structure"] = None  # see reproduce.candidates
    if problem.time == "steady":
        del base["train"]["frames_per_step"]
    chosen: dict[tuple[str, str], dict[str, dict[str, Any]]] = {("", RECIPE): {}}
    for name in questions or definitions()["questions"]:
        for (question, answer), settings in _named(name).items():
            if all(set(new) <= set(base[group]) for group, new in settings.items()):
                others = {
                    group: {
                        name: value for name, value in new.items() if base[group][name] != value
                    }
                    for group, new in settings.items()
                }
                changes = {group: new for group, new in others.items() if new}
                if changes == MODULATED and not problem.has_time:
                    continue
                before = [other for (asked, _), other in chosen.items() if asked == question]
                if changes and changes not in before:
                    chosen[question, answer] = changes
    return chosen


def _named(name: str) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """The settings of the answers that an entry of an experiment names, see experiments.toml."""
    known = definitions()["questions"]
    question, _, only = name.partition("/")
    answers = known.get(question, {})
    if not answers or (only and only not in answers):
        where, what = (answers, f"answer {name!r}") if answers else (known, f"question {name!r}")
        raise InputError(f"no {what}; choose from {', '.join(where)}")
    return {(question, answer): answers[answer] for answer in ([only] if only else answers)}


def page(results: Row) -> dict[str, Any]:
    """For each benchmark the recipe, then the answers of each question, best first."""
    return {
        "benchmarks": [
            {
                "name": name,
                "model": model_class(rows[0]["model"]).title,
                "settings": _recipe(rows),
                "rows": _table(rows),
            }
            for name, rows in by_benchmark(results["rows"]).items()
        ]
    }


def _recipe(rows: list[Row]) -> str:
    """The recipe's value of every setting that an answer changes."""
    base = rows[0]["provenance"]["settings"]
    asked = [(group, name) for row in rows for group, new in row["changes"].items() for name in new]
    values = [f"`{name}` {base[group][name]}" for group, name in dict.fromkeys(asked)]
    return ", ".join(values)


def _table(rows: list[Row]) -> list[list[str]]:
    base, lines = rows[0], []
    questions = list(dict.fromkeys(row["question"] for row in rows))
    for row in sorted(rows, key=lambda r: (questions.index(r["question"]), r["validation"])):
        change = "" if row is base else f"{row['validation'] / base['validation'] - 1:+.1%}"
        slopes = "–"
        if row["gradient_error"] is not None:
            slopes = percent(row["gradient_error"], row["gradient_spread"])
        error = percent(row["validation"], row["validation_spread"])
        cells = [row["question"], row["answer"], error, change, slopes]
        lines.append([*cells, f"{row['minutes']:.1f}", f"{row['parameters']:,}"])
    return lines
