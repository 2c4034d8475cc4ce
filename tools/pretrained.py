"""The models that come with the library: cato/pretrained, and their cards, docs/pretrained.md.

    make pretrained                              # train the `small` recipes, then package them
    python -m tools.pretrained --from RUN RUN …  # package finished runs

A packaged model is a run folder without the files that only training needs. It is evaluated after
packaging, so that the figures on its card are those of exactly these weights. Resumable.
"""

import argparse
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from cato.benchmarks import BENCHMARKS, get_benchmark
from cato.cli.catalogue import pretrained_card
from cato.errors import InputError, Interrupted
from cato.files import write_json
from cato.inference.evaluate import evaluate_run
from cato.progress import note
from cato.runs.checkpoint import load_checkpoint, save_checkpoint
from cato.runs.folder import PRETRAINED, Run, open_run, pretrained_names
from cato.runs.settings import DataConfig, build_settings, command_of
from cato.training.train import resume, train
from reproduce.studies.compare import draw_median
from tools.pages import Pages, render, table, write_pages
from tools.results import ROOT

PAGE = ROOT / "docs" / "pretrained.md"
PICTURES = PAGE.parent / "images"
RUNS = Path("runs") / "pretrained-training"


def main() -> None:
    """Train what is missing or take finished runs, package them, and write the page."""
    parser = argparse.ArgumentParser(description="train and package the pretrained models")
    parser.add_argument("--from", dest="runs", nargs="+", type=Path, metavar="RUN", default=[])
    given = parser.parse_args().runs
    try:
        for source in given or BENCHMARKS:
            run = open_run(source) if given else trained(source)
            name = run.config.benchmark
            package(run, PRETRAINED / name)
            draw_median(open_run(PRETRAINED / name), PICTURES / f"pretrained-{name}.png")
            note(f"packaged {name}")
    except (InputError, Interrupted) as error:
        sys.exit(str(error))
    write_pages(pages())
    print(f"wrote {PAGE.relative_to(ROOT)} and {PRETRAINED.relative_to(ROOT)}")


def trained(benchmark: str) -> Run:
    """The run of a benchmark's `small` recipe, trained to the end."""
    folder = RUNS / benchmark
    config = build_settings(benchmark, "small")
    if not (folder / "run.json").exists():
        return train(config, folder)
    if open_run(folder).config != config:
        raise InputError(f"{folder} was trained by another recipe; remove it to train again")
    return resume(folder)


def package(run: Run, target: Path) -> None:
    """Evaluate a slim copy of a finished run and move it to `target`."""
    data, log = run.config.data, run.log()
    if data != replace(DataConfig(), seed=data.seed):
        raise InputError(f"{run.folder} was not trained on the data of a scale in ./data")
    checkpoint = load_checkpoint(run.checkpoints, "best")
    if checkpoint is None or log[-1]["step"] < checkpoint.state["num_steps"]:
        raise InputError(f"{run.folder} is not trained to the end; cato train --resume it first")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        slim = Run(Path(temporary) / target.name, run.config, run.problem, packaged_record(run))
        write_json(slim.folder / "run.json", slim.record)
        slim.write_log(log)
        save_checkpoint(slim.checkpoints, "best", checkpoint.state["step"], checkpoint)
        evaluate_run(slim)
        shutil.rmtree(target, ignore_errors=True)
        shutil.move(slim.folder, target)


def packaged_record(run: Run) -> dict[str, Any]:
    """run.json with all settings, and a command without folders of this machine."""
    return run.record | {"config": run.config.to_dict(), "command": command_of(run.config)}


def pages() -> Pages:
    """docs/pretrained.md, from the packaged models alone."""
    cards = [pretrained_card(name) for name in pretrained_names()]
    header = (
        *("model", "mesh", "test error", "training mean"),
        *("band coverage", "parameters", "MB", "trained"),
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
            }
            for card in cards
        ],
    )
    return {PAGE: text}


def overview_row(card: dict[str, Any]) -> tuple[str, ...]:
    """A model's line in the table of all."""
    name, covered = card["name"], card["covered_samples"]
    return (
        f"[{name}](#{name})",
        card["mesh"],
        f"{card['relative_l2']:.2%}",
        f"{card['mean_predictor']:.1%}",
        ", ".join(f"{output} {share:.1%}" for output, share in covered.items()),
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
        "training": f"`{card['command']}`, started {card['trained']}",
        "test error": f"{card['relative_l2']:.2%} over {card['test_samples']} samples, "
        f"worst {card['worst']:.2%}",
        "files": f"[cato/pretrained/{name}](../cato/pretrained/{name})",
    }


if __name__ == "__main__":
    main()
