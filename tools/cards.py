"""The model cards, docs/models/NAME.md, and their index: from the code, recipes and results files.

    make cards

The description of a model and its deviations from its paper are the docstring of its module;
settings are the `paper` recipes; sizes are counted; errors and times are those of the results files
of the pages that the card links to.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cato.benchmarks import BENCHMARKS, get_benchmark
from cato.cli.catalogue import benchmarks_of, counted_on, size_on
from cato.config import to_dict
from cato.files import read_json
from cato.inference.evaluate import ALL_OUTPUTS
from cato.models.registry import MODELS, model_class
from cato.physics.losses import LossConfig
from cato.runs.settings import TrainConfig, build_settings, options_of
from reproduce.paper import PAPER
from reproduce.results import by_headline, title_with_field
from tools.pages import Pages, render, table, write_pages
from tools.results import ROOT, Row
from tools.speed_page import EFFICIENCY, model_label

CARDS = ROOT / "docs" / "models"
STUDIES = ROOT / "docs" / "studies"
SCREEN, ERRORS = (STUDIES / study / "compare.json" for study in ("screen", "time"))
ERRORS = SCREEN if SCREEN.exists() else ERRORS
"""The comparison of all models in equal time: the screen, once it was run."""


def pages() -> Pages:
    """All cards and their index."""
    cards = {CARDS / f"{name}.md": card(name) for name in MODELS}
    return cards | {CARDS / "index.md": index()}


def card(name: str) -> str:
    """The page of one model."""
    entry = model_class(name)
    module = sys.modules[entry.__module__]
    comparison = results(ERRORS)
    return render(
        "card.md",
        comparison_page=f"../studies/{ERRORS.parent.name}/compare.md",
        name=name,
        entry=entry,
        docstring=re.sub(
            r"docs/(decisions/[\w-]+\.md)", r"[\1](../\1)", module.__doc__ or ""
        ).strip(),
        source=module.__name__.replace(".", "/") + ".py",
        example=counted_on(name),
        recipes=table(
            ("benchmark", "model", "training", "loss", "parameters", "published"),
            [recipe_row(name, benchmark) for benchmark in benchmarks_of(name)],
        ),
        errors=error_table([r for r in by_headline(comparison["rows"]) if r["model"] == name]),
        minutes=f"{comparison['settings']['minutes']:g}",
        steps=step_table(name),
    )


def results(path: Path) -> dict[str, Any]:
    """A results file of a study."""
    return read_json(path, "results of a study")


def recipe_row(name: str, benchmark: str) -> tuple[str, ...]:
    """One benchmark: what the recipe changes from the defaults, and the resulting size."""
    config = build_settings(benchmark, "paper", name)
    count = size_on(name, benchmark)
    compared = ""
    paper = PAPER.get(benchmark)
    if paper is not None and (published := paper.public_millions.get(name)):
        compared = f"{published} M ({count / published / 1e6 - 1:+.1%})"
    return (
        get_benchmark(benchmark).title,
        changes(config.model, type(config.model)()),
        changes(config.train, TrainConfig()),
        changes(config.loss, LossConfig()),
        f"{count:,}",
        compared,
    )


def changes(config: Any, default: Any) -> str:
    """The settings that differ from the defaults."""
    ours, theirs = options_of(to_dict(config)), options_of(to_dict(default))
    changed = [f"{key} {value}" for key, value in ours.items() if value != theirs[key]]
    return ", ".join(changed) or "defaults"


def error_table(rows: Sequence[Row]) -> str:
    """Test errors of the study in equal time, or nothing; that of all outputs second."""
    rows = [
        shown
        for row in rows
        for shown in (row, row | row["fields"].get(ALL_OUTPUTS, {}) | {"field": ALL_OUTPUTS})
        if shown is row or row["field"] not in ("", ALL_OUTPUTS)
    ]
    cells = [
        (
            title_with_field(row),
            f"{row['relative_l2']:.2%}",
            str(len(row["errors"])),
            f"{row['mean_predictor']:.1%}",
        )
        for row in rows
    ]
    header = ("benchmark", "test error", "seeds", "error of the training mean")
    return table(header, cells) if cells else ""


def step_table(name: str) -> str:
    """Training steps of the efficiency study, or nothing; of CATO with and without its loops."""
    study = results(EFFICIENCY)
    names = ("cato", "plain_cato") if name == "cato" else (name,)
    rows = [row for row in study["rows"] + study["plain"] if row["model"] in names]
    rows.sort(key=lambda row: (list(BENCHMARKS).index(row["benchmark"]), row["model"]))
    cells = [
        (
            get_benchmark(row["benchmark"]).title,
            *((model_label(row["model"]),) if name == "cato" else ()),
            f"{row['step_in_matmuls']:.1f}",
            f"{1000 * row['step_seconds_per_sample']:.0f}",
            f"{row['memory_gib']:.2f}",
        )
        for row in rows
    ]
    kind = ("",) if name == "cato" else ()
    header = ("benchmark", *kind, "matmuls", "ms per sample", "memory, GiB")
    return table(header, cells) if cells else ""


def index() -> str:
    """All models in a table."""
    cells = [
        (
            f"[{entry.title}]({name}.md)",
            entry.family,
            ", ".join(entry.geometries),
            entry.reference,
        )
        for name, entry in MODELS.items()
    ]
    return render("cards.md", models=table(("model", "family", "geometry", "reference"), cells))


def main() -> None:
    """Write the cards that changed."""
    for path in write_pages(pages()):
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
