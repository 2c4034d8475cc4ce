"""The models that come with the library: cato/pretrained, and their cards, docs/pretrained.md.

    make pretrained                                  # train the `small` recipes, then package
    python -m tools.pretrained --benchmarks darcy …  # some of them
    python -m tools.pretrained --from RUN RUN …      # package finished runs
    python -m tools.pretrained --evaluate            # measure the packaged models again

Every recipe is trained with three seeds, one thread each, and the run with the median test error is
packaged: the error of the benchmark's headline, see `errors_by_field`. Its run.json has the errors
of all seeds, tools/results/pretrained.json their settings, figures and provenance. Resumable, also
on another machine: `--seeds 1 2` adds to the seeds in the results file.

A packaged model is a run folder without the files that only training needs. It is evaluated after
packaging, so that the figures on its card are those of exactly these weights.
"""

import argparse
import json
import shutil
import sys
import uuid
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from cato.benchmarks import BENCHMARKS, get_benchmark
from cato.cli.catalogue import pretrained_card
from cato.errors import InputError, Interrupted
from cato.files import atomic_folder, write_sealed
from cato.inference.evaluate import ALL_ERRORS, errors_by_field, evaluate_run, headline_figures
from cato.progress import note
from cato.runs.checkpoint import load_checkpoint, save_checkpoint
from cato.runs.folder import PRETRAINED, RECORD, Run, open_run, pretrained_names
from cato.runs.settings import DataConfig, command_of
from reproduce.experiment import Experiment
from reproduce.jobs import figures_of, is_done
from reproduce.results import percent, provenance_of
from reproduce.studies.compare import draw_median
from tools.pages import Pages, render, table, write_pages
from tools.results import ROOT, Row, has_results, read_results, write_results

PAGE = ROOT / "docs" / "pretrained.md"
PICTURES = PAGE.parent / "images"
RUNS = Path("runs") / "pretrained-training"
SEEDS = (0, 1, 2)
LIMIT_MINUTES = 20
"""Of one thread, which is ten minutes on two cores; see `tools.recipes`."""
COLUMNS = ("relative_l2", "median", "worst", "mean_predictor")
"""Figures of a field on its card."""


def main() -> None:
    """Train what is missing or take finished runs, package them, and write the page."""
    parser = argparse.ArgumentParser(description="train and package the pretrained models")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--from", dest="runs", nargs="+", type=Path, metavar="RUN", default=[])
    what.add_argument("--evaluate", action="store_true", help="new figures, no training")
    parser.add_argument("--benchmarks", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    given = parser.parse_args()
    names: list[str] = given.benchmarks
    try:
        if given.evaluate:
            for name in names:
                packaged = PRETRAINED / name
                evaluate_run(replace(open_run(packaged), folder=packaged))
        else:
            runs = [open_run(run) for run in given.runs] or train_seeds(names, given.seeds)
            names = list(dict.fromkeys(run.config.benchmark for run in runs))
            for name in names:
                package_median([run for run in runs if run.config.benchmark == name])
    except (InputError, Interrupted) as error:
        sys.exit(str(error))
    for name in names:
        draw_median(open_run(PRETRAINED / name), PICTURES / f"pretrained-{name}.png")
    write_pages(pages())
    print(f"wrote {PAGE.relative_to(ROOT)} and {PRETRAINED.relative_to(ROOT)}")


def train_seeds(benchmarks: Sequence[str], seeds: Sequence[int]) -> list[Run]:
    """The runs of the `small` recipes with these seeds, trained to the end."""
    experiment = Experiment("pretrained models", "compare", seeds=tuple(seeds), runs=RUNS)
    jobs = {
        f"{name}-seed{seed}": experiment.config(
            name, experiment.our_model(name), {"train": {"seed": seed}}
        )
        for seed in seeds
        for name in benchmarks
    }
    return list(experiment.train(jobs).values())


def package_median(runs: Sequence[Run]) -> None:
    """Package the run with the median test error, and record all of them.

    Seeds of the same recipe that the results file has from an earlier call count too.

    Args:
        runs: Runs of one recipe with different seeds.
    """
    given = {run.config.train.seed: run for run in runs}
    recipes = {repr(replace(r.config, train=replace(r.config.train, seed=0))) for r in runs}
    if len(given) < len(runs) or len(recipes) > 1:
        folders = ", ".join(str(run.folder) for run in runs)
        raise InputError(f"{folders} must differ in the seed and in no other setting")
    name = runs[0].config.benchmark
    target = PRETRAINED / name
    known = read_results("pretrained")["rows"] if has_results("pretrained") else []
    rows = {seed: seed_row(run) for seed, run in given.items()}
    recipe = _recipe(next(iter(rows.values())))
    earlier = [row for row in known if _recipe(row) == recipe]
    rows = {row["seed"]: row | {"is_shipped": False} for row in earlier} | rows
    errors = {seed: headline_figures(row)["relative_l2"] for seed, row in sorted(rows.items())}
    ranked = sorted(errors, key=lambda seed: inf if errors[seed] is None else errors[seed])
    median = ranked[len(ranked) // 2]
    if median in given:
        package(given[median], target)
    elif open_run(target).config.train.seed != median:
        raise InputError(f"the median is seed {median} of {name}, which must be trained again")
    shipped = open_run(target)
    record = shipped.record | {"test_error_by_seed": errors}
    write_sealed(target / RECORD, record, shipped.id)
    rows[median]["is_shipped"] = True
    others = [row for row in known if row["benchmark"] != name]
    order = list(BENCHMARKS)
    ordered = sorted(
        [*others, *rows.values()], key=lambda row: (order.index(row["benchmark"]), row["seed"])
    )
    write_results("pretrained", {"rows": ordered})
    note(f"packaged seed {median} of {len(rows)} of {name}")


def _recipe(row: Row) -> str:
    """What the trainings of one recipe with different seeds have in common."""
    settings = row["settings"] | {"train": row["settings"]["train"] | {"seed": 0}}
    return json.dumps([row["data"], settings], sort_keys=True)


def seed_row(run: Run) -> Row:
    """One training for the results file, with its errors on the test split."""
    figures = figures_of(run) if is_done(run.folder) else evaluate_run(run).figures
    last, origin = run.log()[-1], provenance_of([run])
    minutes = last["seconds"] / 60
    if minutes > LIMIT_MINUTES:
        note(f"{run.folder} trained {minutes:.1f} minutes; the limit is {LIMIT_MINUTES}")
    return {
        "benchmark": run.config.benchmark,
        "seed": run.config.train.seed,
        "is_shipped": False,
        "model": run.config.model_name,
        "steps": last["step"],
        "minutes": minutes,
        **{key: figures[key] for key in ALL_ERRORS},
        "settings": origin.pop("settings"),
        "data": origin.pop("data"),
        "provenance": origin,
    }


def package(run: Run, target: Path) -> None:
    """Evaluate a slim copy of a finished run and move it to `target`."""
    data, log = run.config.data, run.log()
    places = ("root", "count", "resolution", "original", "file")
    if any(getattr(data, name) != getattr(DataConfig(), name) for name in places):
        raise InputError(f"{run.folder} was not trained on the data of a scale in ./data")
    checkpoint = load_checkpoint(run.checkpoints, "best")
    if checkpoint is None or log[-1]["step"] < checkpoint.state["num_steps"]:
        raise InputError(f"{run.folder} is not trained to the end; cato train --resume it first")
    # All settings, and a command without folders of this machine.
    config, command = run.config.to_dict(), command_of(run.config)
    record = run.record | {"id": uuid.uuid4().hex, "config": config, "command": command}
    with atomic_folder(target) as temporary:
        slim = Run(temporary, run.config, run.problem, record)
        write_sealed(slim.folder / RECORD, record, slim.id)
        slim.write_log(log)
        save_checkpoint(slim.checkpoints, "best", checkpoint.state["step"], checkpoint)
        evaluate_run(slim)
        shutil.rmtree(target, ignore_errors=True)


def pages() -> Pages:
    """docs/pretrained.md, from the packaged models alone."""
    cards = [pretrained_card(name) for name in pretrained_names()]
    header = (
        *("model", "mesh", "test error", "training mean", "test error by seed"),
        *("band coverage", "false alarms", "parameters", "MB", "trained"),
    )
    text = render(
        "pretrained.md",
        megabytes=sum(card["megabytes"] for card in cards),
        overview=table(header, map(overview_row, cards)),
        cards=[
            {
                "name": card["name"],
                "title": get_benchmark(card["name"]).title,
                "description": get_benchmark(card["name"]).description,
                "table": table(("", ""), facts(card).items()),
                "errors": table(
                    ("field", "test error", "median", "worst", "training mean"),
                    [
                        (field, *(percent(found[key]) for key in COLUMNS))
                        for field, found in errors_by_field(card).items()
                    ],
                ),
                "samples": card["test_samples"],
            }
            for card in cards
        ],
    )
    return {PAGE: text}


def overview_row(card: dict[str, Any]) -> tuple[str, ...]:
    """A model's line in the table of all: the errors of the headline and of all outputs."""
    name, covered = card["name"], card["covered_samples"]
    fields = list(errors_by_field(card).items())[:2]
    seeds = card["test_error_by_seed"]
    return (
        f"[{name}](#{name})",
        card["mesh"],
        ", ".join(f"{field} {percent(found['relative_l2'])}" for field, found in fields),
        ", ".join(f"{field} {percent(found['mean_predictor'])}" for field, found in fields),
        ", ".join(map(percent, seeds.values())) if seeds else "one seed",
        ", ".join(f"{output} {share:.1%}" for output, share in covered.items()),
        f"{card['false_alarms']:.1%}",
        f"{card['parameters']:,}",
        f"{card['megabytes']:.2f}",
        card["trained"],
    )


def facts(card: dict[str, Any]) -> dict[str, str]:
    """A model's card."""
    name = card["name"]
    frames = f", {card['frames']} frames" if card["frames"] > 1 else ""
    inputs = ", ".join(card["inputs"]) or "the mesh"
    return {
        "benchmark": f"[{get_benchmark(name).title}](benchmarks/{name}.md)",
        "mesh": card["mesh"],
        "inputs; outputs": f"{inputs}; {', '.join(card['outputs'])}{frames}",
        "architecture": f"[{card['model']}](models/{card['model']}.md), "
        f"{card['parameters']:,} parameters",
        "data": f"{card['training_samples']} training samples, generated with seed "
        f"{card['data_seed']}",
        "training": f"`{card['command']}`, started {card['trained']}, "
        f"{card['minutes']:.1f} minutes",
        "seed": seed_fact(card),
        "files": f"[cato/pretrained/{name}](../cato/pretrained/{name})",
    }


def seed_fact(card: dict[str, Any]) -> str:
    """The packaged seed, and the errors of all from which it was chosen."""
    errors = card["test_error_by_seed"]
    if not errors or len(errors) == 1:
        return f"{card['seed']}; no other has been trained yet"
    words = ", ".join(f"seed {seed} {percent(error)}" for seed, error in errors.items())
    return f"{card['seed']}, the median of {words}"


if __name__ == "__main__":
    main()
