"""The model cards: docs/models/NAME.md, one screen each, from the code, recipes and results.

    make cards

What a model is and how it deviates from its paper is the docstring of its module; settings are the
`paper` recipes; sizes are counted; errors and times are those of the results files, where they are.
"""

import sys
from pathlib import Path
from typing import Any

from cato.benchmarks import get_benchmark
from cato.cli.catalogue import benchmarks_of, size_on
from cato.config import to_dict
from cato.files import atomic_write, read_json
from cato.models.registry import MODELS, model_entry
from cato.physics import LossConfig
from cato.runs.settings import TrainConfig, options_of, recipe

ROOT = Path(__file__).parent.parent
CARDS = ROOT / "docs" / "models"
ERRORS = ROOT / "docs" / "studies" / "time" / "compare.json"
SPEED = ROOT / "tools" / "results" / "models.json"


def main() -> None:
    """Write all cards and their index."""
    for name in MODELS:
        with atomic_write(CARDS / f"{name}.md") as temporary:
            temporary.write_text(card(name))
    with atomic_write(CARDS / "index.md") as temporary:
        temporary.write_text(index())
    print(f"wrote {len(MODELS) + 1} pages to {CARDS.relative_to(ROOT)}")


def card(name: str) -> str:
    """The page of one model."""
    entry = model_entry(name)
    module = sys.modules[entry.operator.__module__]
    lines = [
        f"# {entry.title}",
        "",
        "<!-- written by `make cards`; do not edit -->",
        "",
        f"*{entry.family}; {', '.join(entry.operator.geometries)}* — {entry.reference}.",
        "",
        (module.__doc__ or "").strip(),
        "",
        f"Code: [{source(module)}](../../{source(module)}). Use: `cato train darcy --model {name}`"
        if "grid" in entry.operator.geometries
        else f"Code: [{source(module)}](../../{source(module)}). Use: `cato train elasticity`",
        "",
        "## The `paper` recipes",
        "",
        "| benchmark | model | training | loss | parameters | published |",
        "|---|---|---|---|---|---|",
        *(recipe_row(name, benchmark) for benchmark in benchmarks_of(name)),
        "",
        *measured(name),
    ]
    return "\n".join(lines)


def source(module: Any) -> str:
    """Path of a module in the repository."""
    return module.__name__.replace(".", "/") + ".py"


def recipe_row(name: str, benchmark: str) -> str:
    """One benchmark: what the recipe says beyond the defaults, and the size it gives."""
    config = recipe(benchmark, "paper", name)
    count = size_on(name, benchmark)
    compared = ""
    paper = get_benchmark(benchmark).paper
    if paper is not None and (published := paper.public_millions.get(name)):
        compared = f"{published} M ({count / published / 1e6 - 1:+.1%})"
    return (
        f"| {get_benchmark(benchmark).title} | {changes(config.model, type(config.model)())} "
        f"| {changes(config.train, TrainConfig())} | {changes(config.loss, LossConfig())} "
        f"| {count:,} | {compared} |"
    )


def changes(config: Any, default: Any) -> str:
    """The settings that are not the default's."""
    ours, theirs = options_of(to_dict(config)), options_of(to_dict(default))
    return (
        ", ".join(f"{key} {value}" for key, value in ours.items() if value != theirs[key])
        or "the defaults"
    )


def measured(name: str) -> list[str]:
    """What the results files say of the model."""
    lines = []
    for row in rows_of(ERRORS, name):
        lines.append(
            f"- {get_benchmark(row['benchmark']).title} `small`: test error "
            f"{row['relative_l2']:.2%} in the time that all models get, where the training mean "
            f"has {row['mean_predictor']:.1%} ([all models](../studies/time/compare.md))."
        )
    for row in rows_of(SPEED, name):
        lines.append(
            f"- A training step at the {get_benchmark(row['benchmark']).title} `paper` setting: "
            f"{1000 * row['step_seconds_per_sample']:.0f} ms per sample, {row['memory_gib']:.2f} "
            f"GiB ([all models](speed.md))."
        )
    return ["## Measured", "", *lines, ""] if lines else []


def rows_of(path: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a results file that belong to a model."""
    rows = read_json(path, "results")["rows"] if path.exists() else []
    return [row for row in rows if row["model"] == name]


def index() -> str:
    """All models in a table."""
    lines = [
        "# Model cards",
        "",
        "<!-- written by `make cards`; do not edit -->",
        "",
        "| model | family | geometry | reference |",
        "|---|---|---|---|",
    ]
    for name, entry in MODELS.items():
        geometries = ", ".join(entry.operator.geometries)
        lines.append(
            f"| [{entry.title}]({name}.md) | {entry.family} | {geometries} | {entry.reference} |"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
