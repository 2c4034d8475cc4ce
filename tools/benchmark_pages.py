"""The pages of the benchmarks: docs/benchmarks/index.md, parts of each card, and the site's menu.

A card is written by hand but for its blocks: the recipes of CATO, and the statistics of
`tools.survey`. A benchmark without a card gets one with its description, to be completed.
"""

import json
from typing import Any

from cato.benchmarks import BENCHMARKS, get_benchmark
from cato.models.registry import default_model
from cato.physics.losses import LossConfig
from cato.problem import Problem
from cato.runs.folder import PRETRAINED, open_run, pretrained_names
from cato.runs.settings import TrainConfig, build_settings
from reproduce.experiment import all_experiments
from tools import darcy_floor
from tools.cards import changes
from tools.pages import Pages, render, replace_block, table, with_block
from tools.results import ROOT, Row, read_results

CARDS = ROOT / "docs" / "benchmarks"
MENU = ROOT / "mkdocs.yml"


def pages() -> Pages:
    """The index, all cards, and the menu of the site."""
    surveys = {row["benchmark"]: row for row in read_results("survey")["rows"]}
    menu = "".join(f"      - benchmarks/{name}.md\n" for name in BENCHMARKS) + "      # "
    measured = [e for e in all_experiments() if (ROOT / e.results).exists()]
    studies = "".join(
        f"      - {json.dumps(e.title, ensure_ascii=False)}: {e.page.relative_to('docs')}\n"
        for e in measured
    )
    return {
        CARDS / "index.md": index(),
        **{CARDS / f"{name}.md": card(name, surveys.get(name)) for name in BENCHMARKS},
        MENU: replace_block(
            with_block(MENU, "benchmarks", menu), "studies", f"{studies}      # ", str(MENU)
        ),
    }


def index() -> str:
    """All benchmarks in a table."""
    header = ("benchmark", "problem", "geometry", "mesh at `paper`", "train / validation / test")
    return render("benchmarks.md", benchmarks=table(header, map(index_row, BENCHMARKS)))


def index_row(name: str) -> tuple[str, ...]:
    """One benchmark: its title, the summary of its class, and its sizes at `paper`."""
    benchmark = get_benchmark(name)
    problem, scale = benchmark.problem("paper"), benchmark.scale("paper")
    words = " points" if problem.geometry == "cloud" else ""
    words += f", {problem.num_steps} frames" if problem.num_steps > 1 else ""
    return (
        f"[{benchmark.title}]({name}.md)",
        (type(benchmark).__doc__ or "").splitlines()[0].rstrip("."),
        ("periodic " if any(problem.periodic) else "") + problem.geometry,
        " × ".join(map(str, problem.shape)) + words,
        f"{scale.train} / {scale.validation} / {scale.test}",
    )


def card(name: str, survey: Row | None) -> str:
    """The card of a benchmark with new blocks."""
    path, benchmark = CARDS / f"{name}.md", get_benchmark(name)
    text = path.read_text() if path.exists() else render("benchmark.md", benchmark=benchmark)
    text = replace_block(text, "recipes", recipe_block(name), str(path))
    if name == "darcy":
        text = replace_block(text, "floor", darcy_floor.block(), str(path))
    return (
        text if survey is None else replace_block(text, "survey", survey_block(survey), str(path))
    )


def recipe_block(name: str) -> str:
    """What the network sees and the recipe of CATO, at `paper` and of the pretrained model."""
    published = get_benchmark(name).problem("paper")
    model = default_model(published)
    rows = [recipe_row("`paper`", build_settings(name, "paper", model), published)]
    if name in pretrained_names():
        run = open_run(PRETRAINED / name)
        label = f"`small`, [pretrained model](../pretrained.md#{name})"
        rows.append(recipe_row(label, run.config, run.problem))
    header = ("CATO at", "the network sees", "model", "training", "loss")
    remark = (
        "Settings that are not named have their defaults; "
        "[training](../training.md#conditioning) explains what the network sees."
    )
    return f"\n{table(header, rows)}\n\n{remark}\n\n"


def recipe_row(label: str, config: Any, problem: Problem) -> tuple[str, ...]:
    """What is presented to the network, and the settings that differ from the defaults."""
    seen, train = seen_by_network(problem), config.train  # precision is up to the machine
    if config.data.symmetries:
        seen.append(f"samples mapped at random by {', '.join(config.data.symmetries)}")
    return (
        label,
        "; ".join(seen),
        changes(config.model, type(config.model)()),
        changes(config.train, TrainConfig(precision=train.precision, compile=train.compile)),
        changes(config.loss, LossConfig()),
    )


def seen_by_network(problem: Problem) -> list[str]:
    """Normalisation and conditioning of a problem in words, see `Problem`."""
    conditioning = problem.conditioning
    normalised = [name for name in ("coords", "inputs") if name in problem.normalise]
    is_normalised = "outputs" in problem.normalise
    outputs = {
        "channel": "outputs normalised" if is_normalised else "outputs as they are",
        "node": "outputs about the training mean of their node",
        "last": "outputs as increments of the newest frame",
    }
    words = [f"{name.replace('coords', 'coordinates')} normalised" for name in normalised]
    words.append(outputs[conditioning.reference])
    if any(axis is not None for axis in conditioning.positions):
        words.append("positions as mesh plus displacement")
    if conditioning.mesh_inputs:
        words.append("displacement from the mean mesh as further inputs")
    if problem.has_index_inputs:
        words.append("indices of the nodes as further inputs")
    return words


def survey_block(row: Row) -> str:
    """Statistics of the generated data."""
    channels = [(name, *map(number, values.values())) for name, values in row["channels"].items()]
    diagnostics = [
        (name, number(values["median"]), number(values["largest"]))
        for name, values in row["diagnostics"].items()
    ]
    facts = [
        (name, " … ".join(map(number, fact.values() if isinstance(fact, dict) else [fact])))
        for name, fact in row["facts"].items()
    ]
    parts = [
        f"![Samples](../images/survey-{row['benchmark']}.png)",
        f"{row['num_accepted']} samples of the training split at `{row['scale']}` scale, "
        f"seed {row['settings']['seed']}: {row['num_accepted']} of {row['num_drawn']} draws were "
        f"accepted ({row['acceptance_rate']:.1%}).",
        table(("channel", "min", "mean", "std", "max"), channels),
        table(("diagnostic", "median", "largest"), diagnostics),
    ]
    if facts:
        header = ("per sample, or over all samples", "smallest … median … largest")
        parts.append(table(header, facts))
    return "\n" + "\n\n".join(parts) + "\n\n"


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.3g}"
