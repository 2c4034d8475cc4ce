"""One change at a time: CATO's recipe with a part left out, or an open choice made differently.

Every answer to a question differs from the recipe in the settings listed here and in nothing else.
They are judged by the lowest validation error: defaults follow from them, and the test split must
choose nothing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cato.benchmarks import get_benchmark
from cato.errors import InputError
from cato.files import write_json
from cato.models.registry import model_entry
from cato.runs.folder import Run
from cato.runs.load import data_spec
from cato.runs.settings import RunConfig, recipe
from reproduce.experiment import Changes, Setup
from reproduce.outcomes import (
    budget_of,
    by_benchmark,
    gradient_errors,
    outcome,
    percent,
    size_of,
)
from reproduce.pages import save_page

RECIPE = "the recipe"
FEW = 64
"""Training samples where data are scarce; the steps stay as many."""
_PHYSICAL = {"gradient": 0.2, "flux": 0.2, "consistency": 0.05}
NO_TERM: dict[str, dict[str, dict[str, Any]]] = {
    "no gradient term": {"loss": {"gradient": 0.0}},
    # Without its supervision the flux is anything, and nothing to be consistent with.
    "no flux and consistency terms": {"loss": {"flux": 0.0, "consistency": 0.0}},
    "no consistency term": {"loss": {"consistency": 0.0}},
}
"""Answers that leave out a term of the physical loss."""

QUESTIONS: dict[str, dict[str, dict[str, dict[str, Any]]]] = {
    "chart": {
        "normalised coordinates": {"model": {"chart": "normalised"}},
        "raw coordinates": {"model": {"chart": "raw"}},
        "no positions": {"model": {"chart": "none"}},
    },
    "attention": {
        "without rows": {"model": {"axes": [0]}},
        "without columns": {"model": {"axes": [1]}},
    },
    "projections": {"separate for each axis": {"model": {"share_qkv": False}}},
    "local operator": {"without": {"model": {"kernel": 0}}},
    "stencil": {
        "5 × 5": {"model": {"kernel": 5}},
        "7 × 7": {"model": {"kernel": 7}},
    },
    "rotary scale": {
        "1, as in the paper": {"model": {"rotary_scale": 1.0}},
        "10": {"model": {"rotary_scale": 10.0}},
        "30": {"model": {"rotary_scale": 30.0}},
        "learned from 10": {"model": {"rotary_scale": 10.0, "learn_rotary_scale": True}},
    },
    "width of the MLP": {
        "ratio 1": {"model": {"mlp_ratio": 1.0}},
        "ratio 4": {"model": {"mlp_ratio": 4.0}},
    },
    "width of the chart": {
        "16": {"model": {"chart_hidden": 16}},
        "256": {"model": {"chart_hidden": 256}},
    },
    "heads": {
        "1": {"model": {"heads": 1}},
        "2": {"model": {"heads": 2}},
        "4": {"model": {"heads": 4}},
        "8": {"model": {"heads": 8}},
    },
    "heads and rotary scale": {
        "2, 10": {"model": {"heads": 2, "rotary_scale": 10.0}},
        "4, 10": {"model": {"heads": 4, "rotary_scale": 10.0}},
        "2, 30": {"model": {"heads": 2, "rotary_scale": 30.0}},
        "4, 30": {"model": {"heads": 4, "rotary_scale": 30.0}},
    },
    "capacity": {
        "2 layers": {"model": {"depth": 2}},
        "8 layers": {"model": {"depth": 8}},
        "width 32": {"model": {"width": 32}},
        "width 128": {"model": {"width": 128}},
    },
    "batch size": {
        "1": {"train": {"batch_size": 1}},
        "2": {"train": {"batch_size": 2}},
        "4": {"train": {"batch_size": 4}},
    },
    "frames in a step": {
        "1": {"train": {"frames_per_step": 1}},
        "2": {"train": {"frames_per_step": 2}},
        "all": {"train": {"frames_per_step": None}},
    },
    "loss": {
        "no physical terms": {"loss": {"gradient": 0.0, "flux": 0.0, "consistency": 0.0}},
        "values alone": {"loss": {"gradient": 0.0, "flux": 0.0, "consistency": 0.0, "gdl": 0.0}},
        "values and gdl": {"loss": {"gradient": 0.0, "flux": 0.0, "consistency": 0.0, "gdl": 0.1}},
        "physical terms, no gdl": {"loss": _PHYSICAL | {"gdl": 0.0}},
        "physical terms and gdl": {"loss": _PHYSICAL | {"gdl": 0.1}},
        **NO_TERM,
        "gradients in raw units": {"loss": {"gradient_scale": "raw"}},
    },
    "few samples": {
        "physical loss": {"data": {"count": FEW}},
        "no physical terms": {
            "data": {"count": FEW},
            "loss": {"gradient": 0.0, "flux": 0.0, "consistency": 0.0},
        },
    },
    "optimizer": {
        "AdamW 1e-3": {"train": {"optimizer": "adamw", "learning_rate": 1e-3}},
        "AdamW 3e-3": {"train": {"optimizer": "adamw", "learning_rate": 3e-3}},
        "Muon": {"train": {"optimizer": "muon"}},
    },
    "scale of the residual updates": {
        "0.1": {"model": {"layer_scale": 0.1}},
        "0.01": {"model": {"layer_scale": 0.01}},
    },
    "neighbours": {
        "8": {"model": {"neighbours": 8}},
        "32": {"model": {"neighbours": 32}},
    },
    "slices": {
        "32": {"model": {"slices": 32}},
        "128": {"model": {"slices": 128}},
    },
}
"""Answers by question; each is the settings it has where the recipe may have others."""


def ablation(
    questions: Sequence[str],
    benchmarks: Sequence[str],
    setup: Setup,
    answer_seeds: int | None = None,
) -> dict[str, Any]:
    """Train what is missing and write ablation.json and ablation.md.

    Args:
        questions: Their names; all that make sense for a benchmark if empty.
        benchmarks: Their names.
        setup: Of the trainings.
        answer_seeds: How many of the seeds the answers are trained with, the first ones; the
            recipe is trained with all, which tells what a seed is worth. All unless given.

    Returns:
        The contents of ablation.json.
    """
    table = {name: answers_for(name, setup.scale, questions) for name in benchmarks}
    asked = {question for answers in table.values() for question, _ in answers}
    if idle := [question for question in questions if question not in asked]:
        where = ", ".join(benchmarks)
        raise InputError(f"{idle[0]!r} changes nothing in CATO's recipe on {where}; leave it out")
    if answer_seeds is not None and not 1 <= answer_seeds <= len(setup.seeds):
        raise InputError(f"the answers' seeds must be 1 to {len(setup.seeds)}; got {answer_seeds}")
    jobs: dict[str, RunConfig] = {}
    names: dict[tuple[str, str, str], list[str]] = {}
    for seed in setup.seeds:
        for benchmark, answers in table.items():
            for (question, answer), changes in answers.items():
                if changes and seed not in setup.seeds[:answer_seeds]:
                    continue
                job, config = one_change(setup, benchmark, changes, seed)
                jobs[job] = config
                names.setdefault((benchmark, question, answer), []).append(job)
    finished = setup.train(jobs, "ablation")
    results = {
        **setup.record(finished),
        "rows": [
            _row(*key, [finished[job] for job in group], table[key[0]][key[1:]])
            for key, group in names.items()
        ],
    }
    write_json(setup.out / "ablation.json", results)
    write_page(results, setup.out)
    return results


def answers_for(
    benchmark: str, scale: str, questions: Sequence[str]
) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """The recipe itself, and what every answer changes in it, where its model has the settings.

    An answer that comes to the same as one before to the same question is left out.
    """
    unknown = [name for name in questions if name not in QUESTIONS]
    if unknown:
        raise InputError(f"no question {unknown[0]!r}; choose from {', '.join(QUESTIONS)}")
    problem = get_benchmark(benchmark).problem(scale)
    base = recipe(benchmark, scale).to_dict()
    if problem.geometry == "cloud":
        del base["loss"]["gradient_scale"], base["loss"]["gdl"]  # its points have no gradients
    if problem.time == "steady":
        del base["train"]["frames_per_step"]
    chosen: dict[tuple[str, str], dict[str, dict[str, Any]]] = {("", RECIPE): {}}
    for question in questions or QUESTIONS:
        for answer, settings in QUESTIONS[question].items():
            if all(set(new) <= set(base[group]) for group, new in settings.items()):
                others = {
                    group: {
                        name: value for name, value in new.items() if base[group][name] != value
                    }
                    for group, new in settings.items()
                }
                changes = {group: new for group, new in others.items() if new}
                before = [known for (asked, _), known in chosen.items() if asked == question]
                if changes and changes not in before:
                    chosen[question, answer] = changes
    return chosen


def one_change(setup: Setup, benchmark: str, changes: Changes, seed: int) -> tuple[str, RunConfig]:
    """The name and settings of a training of CATO.

    The name is by what is changed, so that equal answers to two questions are one training, and
    the recipe itself is that of the comparison.
    """
    model = setup.own_model(benchmark)
    train = {"seed": seed}
    if "data" in changes:  # with fewer samples there are as many steps
        train["steps"] = setup.num_steps(recipe(benchmark, setup.scale, model))
    config = setup.config(benchmark, model, changes, {"train": train})
    settings = [f"{name}={value}" for new in changes.values() for name, value in new.items()]
    return setup.job(benchmark, "_".join(settings).replace(" ", "") or model, seed), config


def _row(
    benchmark: str, question: str, answer: str, runs: list[Run], changes: Changes
) -> dict[str, Any]:
    config = runs[0].config
    return {
        "benchmark": benchmark,
        "model": config.model_name,
        "question": question,
        "answer": answer,
        "changes": {group: dict(new) for group, new in changes.items()},
        "settings": {
            **{group: config.to_dict()[group] for group in ("model", "loss", "train")},
            "data": {"count": data_spec(config).counts["train"]},
        },
        "parameters": size_of(runs[0]),
        **outcome(runs),
        **gradient_errors(runs),
    }


def write_page(results: dict[str, Any], out: Path) -> None:
    """ablation.md, from the results alone."""
    settings = results["settings"]
    lines = [
        f"Scale `{settings['scale']}`, {budget_of(settings)}, "
        f"{len(settings['seeds'])} seed(s), one thread. The figure is the lowest validation error "
        "(relative L2 on physical values); *change* is against the recipe, negative is better; ± "
        "is the standard deviation over the seeds; what has none was trained with the first. "
        "*Error of ∇u* is that of the mesh gradient of the solution on the same samples, where the "
        "problem is steady on a mesh.",
    ]
    for benchmark, rows in by_benchmark(results["rows"]).items():
        title = model_entry(rows[0]["model"]).title
        lines += ["", f"## {title} on {get_benchmark(benchmark).title}", "", _recipe(rows)]
        lines += ["", *_table(rows)]
    save_page(out, "ablation", "One change at a time", lines)


def _recipe(rows: list[dict[str, Any]]) -> str:
    """What the recipe has where answers differ from it."""
    base = rows[0]["settings"]
    asked = [(group, name) for row in rows for group, new in row["changes"].items() for name in new]
    values = [f"`{name}` {base[group][name]}" for group, name in dict.fromkeys(asked)]
    return f"The recipe has {', '.join(values)}."


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """The recipe, then the answers of each question, best first."""
    base = rows[0]
    lines = [
        "| question | answer | validation error | change | error of ∇u | minutes | parameters |",
        "|---|---|---|---|---|---|---|",
    ]
    questions = list(dict.fromkeys(row["question"] for row in rows))
    for row in sorted(rows, key=lambda r: (questions.index(r["question"]), r["validation"])):
        change = "" if row is base else f"{row['validation'] / base['validation'] - 1:+.1%}"
        error, slopes = percent(row["validation"], row["validation_spread"]), "–"
        if row["gradient_error"] is not None:
            slopes = percent(row["gradient_error"], row["gradient_spread"])
        lines.append(
            f"| {row['question']} | {row['answer']} | {error} | {change} | {slopes} "
            f"| {row['minutes']:.1f} | {row['parameters']:,} |"
        )
    return lines
