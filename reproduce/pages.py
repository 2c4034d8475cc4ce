"""The pages: Markdown from results files and the templates in reproduce/templates.

Every page follows from the results files alone, so `python -m reproduce pages` can rewrite all of
them in seconds.
"""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from cato.benchmarks import get_benchmark
from cato.errors import InputError
from cato.files import atomic_write
from cato.training.optim import DECAY
from cato.viz.pages import data_uri
from cato.viz.pages import render as render_template
from reproduce.claims import claims
from reproduce.experiment import RESULTS, all_experiments, definitions
from reproduce.figures import save_figure
from reproduce.figures.heatmap import heatmap
from reproduce.recipes import recipe_changes
from reproduce.results import (
    Row,
    budget_of,
    by_benchmark,
    read_results,
    rows_of,
    seeds_of,
    setting_of,
)
from reproduce.verdicts import MEANINGS, Claim

ROOT = Path(__file__).parents[1]
TEMPLATES = Path(__file__).with_name("templates")
HEATMAP = "heatmap.png"
COMPARISONS = ("epochs", "screen", "time")
"""Experiments of the heat map."""
AS_IN_PAPER = {
    ("rotary scale", "1, as in the paper"): "rotary scale 1",
    ("optimizer", "AdamW 1e-3"): "AdamW, rate 1e-3",
    ("optimizer", "AdamW 3e-3"): "AdamW, rate 3e-3",
    ("loss", "gradients in raw units"): "gradients in raw units",
}
"""Answers of the ablation that are the paper's choices, in words."""
IMAGE = re.compile(r"!\[(.*?)\]\((.*?)\)")


def study_of(kind: str) -> Any:
    """The module of `reproduce.studies` that runs experiments of a kind."""
    return import_module(f"reproduce.studies.{kind.replace('-', '_')}")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def render(template: str, **context: Any) -> str:
    """A Markdown page from its template, without repeated blank lines."""
    shared = {"table": table, "title_of": lambda name: get_benchmark(name).title}
    text = render_template(template, templates=TEMPLATES, **shared, **context)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def page_of(results: Row) -> str:
    """The page of one experiment."""
    kind, settings = results["kind"], results.get("settings", {})
    context = study_of(kind).page(results)
    if "seeds" in settings:
        context |= {"seeds": seeds_of(settings), "budget": budget_of(settings)}
    return render(
        "study.md",
        kind=kind,
        experiment_name=results["experiment"],
        experiment=definitions()["experiments"][results["experiment"]],
        settings=settings,
        provenance=provenance_summary(results),
        recipe_changes=recipe_changes(results),
        **context,
    )


def write_page(results: Row, out: Path) -> None:
    """Write the page of one experiment next to its results file."""
    _write(out / f"{results['kind']}.md", page_of(results))


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(text)


def provenance_summary(results: Row) -> dict[str, Any]:
    """Where the rows of a results file come from, without repetitions."""
    found = [row["provenance"] for row in rows_of(results)]
    commits = [part[:7] for p in found for part in str(p["commit"]).split(", ")]
    dates = sorted({p["date"][:10] for p in found})
    return {
        "commits": ", ".join(f"`{commit}`" for commit in dict.fromkeys(commits)),
        "versions": ", ".join(dict.fromkeys(str(p["cato"]) for p in found)),
        "dates": dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}",
        "machines": " and ".join(dict.fromkeys(_machine(p["hardware"]) for p in found)),
        "processor": ", ".join(dict.fromkeys(p["hardware"]["processor"] for p in found)),
        "torch": ", ".join(dict.fromkeys(p["torch"] for p in found)),
        "recovered": any(p.get("recovered") for p in found),
    }


def _machine(hardware: Mapping[str, Any]) -> str:
    gpu = f"with {hardware['gpu']}" if hardware.get("gpu") else "without a GPU"
    return f"{hardware['cores']} cores of {hardware['processor']} {gpu}"


def pages() -> dict[Path, str]:
    """Text of every page of the committed results, by path."""
    return all_pages(ROOT / RESULTS, ROOT / "docs")[1]


def all_pages(folder: Path, out: Path) -> tuple[list[Claim], dict[Path, str]]:
    """The claims, and the text of all pages by path, from the results files alone.

    Args:
        folder: Folder with a folder of results for each experiment.
        out: Folder of results.md and studies.md.
    """
    found = _all_results(folder)
    if not found:
        raise InputError(f"{folder} holds no results; run an experiment first")
    stated = claims(found)
    texts = {folder / name / f"{r['kind']}.md": page_of(r) for name, r in found.items()}
    link = Path(os.path.relpath(folder, out)).as_posix()
    shared = {"experiments": _experiments(found, link), "cost": _total_cost(found)}
    shared |= {"plan": plan_of_the_table(costs_to_come())}
    about = _results_page(stated, found)
    texts[out / "results.md"] = render("results.md", **shared, **about, folder=link)
    texts[out / "studies.md"] = render("studies.md", **shared)
    return stated, texts


def write_all(folder: Path, out: Path) -> tuple[list[Claim], list[Path]]:
    """Write all pages, the heat map and results.html, which has all pages and pictures in one file.

    Args:
        folder: Folder with a folder of results for each experiment.
        out: Folder of results.md, studies.md and results.html.

    Returns:
        The claims, and the files written.
    """
    stated, texts = all_pages(folder, out)
    for path, text in texts.items():
        _write(path, text)
    if compared := [r for name, r in _all_results(folder).items() if name in COMPARISONS]:
        save_figure(heatmap(compared), folder / HEATMAP)
    order = [out / "results.md", *(path for path in texts if path.parent != out)]
    _write(out / "results.html", _as_html({path: texts[path] for path in order}))
    return stated, [*texts, out / "results.html"]


def _all_results(folder: Path) -> dict[str, Row]:
    paths = {e.name: folder / e.name / f"{e.kind}.json" for e in all_experiments()}
    return {name: read_results(path) for name, path in paths.items() if path.exists()}


def _results_page(stated: list[Claim], found: Mapping[str, Row]) -> dict[str, Any]:
    """Claims by verdict, their settings as letters, and their details by number."""
    counts = Counter(claim.verdict for claim in stated)
    settings = list(dict.fromkeys(claim.setting for claim in stated if claim.setting))
    letters = dict(zip(settings, _letters(len(settings)), strict=True))
    verdicts = [verdict for verdict in MEANINGS if verdict in counts]
    ordered = [claim for verdict in verdicts for claim in stated if claim.verdict == verdict]
    numbered = dict(enumerate(ordered, start=1))
    groups = [
        {
            "verdict": verdict,
            "meaning": MEANINGS[verdict],
            "rows": [
                [str(n), c.text, c.paper, c.ours, letters.get(c.setting, "")]
                for n, c in numbered.items()
                if c.verdict == verdict
            ],
        }
        for verdict in verdicts
    ]
    compared = [found[name] for name in COMPARISONS if name in found]
    summaries = [provenance_summary(results) for results in found.values()]
    return {
        "total": len(stated),
        "counts": [(verdict, counts[verdict]) for verdict in verdicts],
        "groups": groups,
        "details": [(number, c.details) for number, c in numbered.items() if c.details],
        "settings": [(letter, setting) for setting, letter in letters.items()],
        "heatmap": HEATMAP if compared else None,
        "protocols": [setting_of(results) for results in compared],
        "machines": " and ".join(dict.fromkeys(p["machines"] for p in summaries)),
        "recovered": any(p["recovered"] for p in summaries),
        "ours": _ours(found["ablation"]) if "ablation" in found else None,
    }


def _letters(number: int) -> list[str]:
    """a to z, then aa to az."""
    return [*ascii_lowercase, *(f"a{letter}" for letter in ascii_lowercase)][:number]


def _ours(ablation: Row) -> dict[str, Any]:
    """Differences between our recipes and the paper's, and their effect on the error."""
    scale = ablation["settings"]["scale"]
    rows = [
        [get_benchmark(name).title, words, f"{row['validation'] / base['validation'] - 1:+.1%}"]
        for name, (base, *others) in by_benchmark(ablation["rows"]).items()
        for row in others
        if (words := AS_IN_PAPER.get((row["question"], row["answer"])))
    ]
    recipe = ablation["rows"][0]["provenance"]["settings"]
    return {"scale": scale, "recipe": recipe, "rows": rows}


def _experiments(found: Mapping[str, Row], to_folder: str) -> list[dict[str, Any]]:
    """Every experiment with its question, command, page and cost."""
    listed, costs = [], costs_to_come()
    for experiment in all_experiments():
        name, kind = experiment.name, experiment.kind
        results = found.get(name)
        trained = list(results.get("minutes", {}).values()) if results else []
        minutes = experiment.minutes[-1:]
        is_to_run = name in costs and (not results or (results["settings"]["minutes"],) != minutes)
        listed.append(
            {
                "name": name,
                "title": experiment.title,
                "question": experiment.question,
                "page": f"{to_folder}/{name}/{kind}.md" if results else None,
                "cost": _cost(trained) or experiment.cost or "not measured",
                "planned": _cost(costs[name]) if is_to_run else None,
                "is_outdated": bool(results and recipe_changes(results)),
            }
        )
    return listed


@cache
def costs_to_come() -> dict[str, list[float]]:
    """Minutes of every training of the experiments in equal time, if all are run in order.

    A training that extends a shorter one costs what comes after its trunk; one that an experiment
    before has made costs nothing.
    """
    costs: dict[str, list[float]] = {}
    made: dict[tuple[Path, str], set[float]] = {}
    for experiment in all_experiments():
        study = study_of(experiment.kind)
        if not (experiment.minutes and hasattr(study, "planned")):
            continue
        schedules = {part.schedule for part in experiment.by_budget}
        added = costs.setdefault(experiment.name, [])
        for training, minutes in study.planned(experiment):
            before = made.setdefault((experiment.runs, training), set())
            trunk = max((m for m in before if m < minutes), default=0.0)
            trunk *= 1 - DECAY if schedules == {"wsd"} else 0
            if minutes not in before:
                added.append(minutes - trunk)
            before.add(minutes)
    return costs


def plan_of_the_table(costs: Mapping[str, list[float]]) -> dict[str, Any]:
    """The experiments of the paper's table: trainings, core hours, and what was saved."""
    parts = [experiment for experiment in all_experiments() if experiment.plan]
    rows = []
    for e in parts:
        minutes = costs[e.name]
        hours = f"{sum(minutes) / 60:.1f}"
        rows.append([f"`make study-{e.name}`", str(len(minutes)), hours, e.plan])
    return {"rows": rows, "hours": sum(sum(costs[e.name]) for e in parts) / 60}


def _cost(minutes: Sequence[float]) -> str:
    """Number and duration of trainings, if there are any."""
    return f"{len(minutes)} trainings, {sum(minutes) / 60:.1f} core hours" if minutes else ""


def _total_cost(found: Mapping[str, Row]) -> dict[str, Any]:
    """Trainings and core hours of all experiments; shared trainings count once."""
    minutes: dict[str, float] = {}
    for results in found.values():
        minutes |= results.get("minutes", {})
    return {"trainings": len(minutes), "hours": sum(minutes.values()) / 60}


def _as_html(texts: Mapping[Path, str]) -> str:
    """Several pages as one HTML file that needs nothing else: pictures are inside."""
    from markdown import markdown  # type: ignore[import-untyped]

    parts = []
    for path, text in texts.items():

        def embed(match: re.Match[str], folder: Path = path.parent) -> str:
            caption, name = match.groups()
            image = folder / name
            if not image.exists():
                return f"*{caption}*"
            return f"![{caption}]({data_uri(image)})"

        parts.append(markdown(IMAGE.sub(embed, text), extensions=["tables", "fenced_code"]))
    body, title = "\n<hr>\n".join(parts), "Results of all experiments"
    return render_template("results.html.j2", templates=TEMPLATES, title=title, body=body)
