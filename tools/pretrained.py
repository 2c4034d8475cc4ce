"""The models that come with the library: cato/pretrained, and their cards, docs/pretrained.md.

    make pretrained                                        # train the `small` recipes, then ship
    python tools/pretrained.py --from RUN RUN …       # ship finished runs

What is shipped is a run folder without what only a training needs. It is evaluated as it is
shipped, so that the figures on the cards are those of exactly these weights. After a kill the same
command goes on.
"""

import argparse
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from cato.benchmarks import BENCHMARKS, get_benchmark
from cato.cli.pretrained import pretrained_card
from cato.errors import InputError, Interrupted
from cato.files import atomic_write, write_json
from cato.inference.evaluate import evaluate_run
from cato.progress import note
from cato.runs.checkpoint import load_checkpoint, save_checkpoint
from cato.runs.folder import PRETRAINED, Run, open_run, pretrained_names
from cato.runs.settings import DataConfig, command_of, recipe
from cato.training.train import resume, train
from reproduce.compare import draw_median

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "pretrained.md"
PICTURES = PAGE.parent / "images"
RUNS = Path("runs") / "pretrained-training"


def main() -> None:
    """Train what is missing or take what is given, ship it, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--from", dest="runs", nargs="+", type=Path, metavar="RUN", default=[])
    given = parser.parse_args().runs
    try:
        for source in given or BENCHMARKS:
            run = open_run(source) if given else trained(source)
            name = run.config.benchmark
            ship(run, PRETRAINED / name)
            draw_median(open_run(PRETRAINED / name), PICTURES / f"pretrained-{name}.png")
            note(f"shipped {name}")
    except (InputError, Interrupted) as error:
        sys.exit(str(error))
    with atomic_write(PAGE) as temporary:
        temporary.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)} and {PRETRAINED.relative_to(ROOT)}")


def trained(benchmark: str) -> Run:
    """The run of a benchmark's `small` recipe, trained to the end."""
    folder = RUNS / benchmark
    config = recipe(benchmark, "small")
    if not (folder / "run.json").exists():
        return train(config, folder)
    if open_run(folder).config != config:
        raise InputError(f"{folder} was trained by another recipe; remove it to train again")
    return resume(folder)


def ship(run: Run, target: Path) -> None:
    """Evaluate the slim copy of a finished run and put it at `target`."""
    data, log = run.config.data, run.log()
    if data != replace(DataConfig(), seed=data.seed):
        raise InputError(f"{run.folder}: shipped models are trained on a scale's data in ./data")
    checkpoint = load_checkpoint(run.checkpoints, "best")
    if checkpoint is None or log[-1]["step"] < checkpoint.state["num_steps"]:
        raise InputError(f"{run.folder} is not trained to the end; cato train --resume it first")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        slim = Run(Path(temporary) / target.name, run.config, run.problem, shipped_record(run))
        write_json(slim.folder / "run.json", slim.record)
        slim.write_log(log)
        save_checkpoint(slim.checkpoints, "best", checkpoint.state["step"], checkpoint)
        evaluate_run(slim)
        shutil.rmtree(target, ignore_errors=True)
        shutil.move(slim.folder, target)


def shipped_record(run: Run) -> dict[str, Any]:
    """run.json with all settings spelled out, and the command free of this machine's folders."""
    return run.record | {"config": run.config.to_dict(), "command": command_of(run.config)}


def page() -> str:
    """docs/pretrained.md, from what is shipped alone."""
    cards = [pretrained_card(name) for name in pretrained_names()]
    total = sum(card["megabytes"] for card in cards)
    lines = [
        "# Pretrained models",
        "",
        "<!-- written by `make pretrained`; do not edit -->",
        "",
        f"Small trained models for the six benchmarks come with `cato`, {total:.1f} MB together. "
        "A benchmark's name stands for its model wherever a run folder is asked for, unless there "
        "is a file or folder of that name:",
        "",
        "```python",
        "import numpy as np",
        "",
        "import cato",
        "",
        'model = cato.load("darcy")',
        "a = np.full((1, 29, 29, 1), 3, np.float32)  # permeability",
        "a[:, :15] = 12",
        "u = model.predict(a)  # pressure, (1, 29, 29, 1)",
        'np.savez("in.npz", inputs=a)',
        "```",
        "",
        "```sh",
        "cato pretrained                    # the list; `cato pretrained darcy` for one",
        "cato predict darcy in.npz out.npz  # with a band around every value",
        "cato serve --open                  # all of them, with the explorer",
        "cato evaluate darcy                # generates its data first",
        "```",
        "",
        "What is computed from them is written into `runs/pretrained/NAME`; the library's own "
        "files are never touched, and their training cannot be resumed.",
        "",
        "| model | mesh | test error | training mean | band covers | parameters | MB | trained |",
        "|---|---|---|---|---|---|---|---|",
        *(row(card) for card in cards),
        "",
        "*Test error*: relative L2, mean over held-out samples. *Training mean*: the same of "
        "always answering the mean of the training solutions. *Band covers*: for each output, the "
        "share of test samples with at least 90 % of their nodes inside the "
        "[band](user-data.md#the-band), which is made to cover 90 %.",
        "",
        "## What they are for, and what not",
        "",
        "- Inputs drawn as the benchmark draws them, in its units; each card has the link. Others "
        "are answered too, but nobody has measured how well.",
        "- The mesh of the table. The models take other mesh sizes, for which neither error nor "
        "band is measured: `cato evaluate darcy --resolution 57`.",
        "- Trying things, teaching, demonstrations, and tests of what is built around a model. "
        "They come from `small` recipes, minutes of training on two cores at reduced resolution, "
        "and are not the paper's results.",
        "- Weights and data were made by this repository alone; its licence, MIT, holds for them.",
        "",
        "`make pretrained` trains all six anew, evaluates them and writes this page; after a kill "
        "it goes on. Seeds fix data and training; other hardware rounds otherwise, which training "
        "amplifies, so that its figures differ a little.",
        "",
    ]
    return "\n".join(lines + [line for card in cards for line in section(card)])


def row(card: dict[str, Any]) -> str:
    """A model's line in the table."""
    name, covered = card["name"], card["covered_samples"]
    bands = ", ".join(f"{output} {share:.1%}" for output, share in covered.items())
    cells = (
        f"[{name}](#{name})",
        card["mesh"],
        f"{card['relative_l2']:.2%}",
        f"{card['mean_predictor']:.1%}",
        bands,
        f"{card['parameters']:,}",
        f"{card['megabytes']:.2f}",
        card["trained"],
    )
    return f"| {' | '.join(cells)} |"


def section(card: dict[str, Any]) -> list[str]:
    """A model's card."""
    name = card["name"]
    benchmark = get_benchmark(name)
    frames = f", {card['frames']} frames" if card["frames"] > 1 else ""
    inputs = ", ".join(card["inputs"]) or "the mesh itself"
    facts = {
        "benchmark": f"[{benchmark.title}](benchmarks/{name}.md), which says how inputs are drawn",
        "mesh": card["mesh"],
        "inputs, outputs": f"{inputs}; {', '.join(card['outputs'])}{frames}",
        "architecture": f"[{card['model']}](models/{card['model']}.md), "
        f"{card['parameters']:,} parameters",
        "data": f"{card['training_samples']} training samples, generated with seed "
        f"{card['data_seed']}",
        "training": f"`{card['command']}`, begun {card['trained']}",
        "test error": f"{card['relative_l2']:.2%} over {card['test_samples']} samples, "
        f"worst {card['worst']:.2%}",
        "files": f"[cato/pretrained/{name}](../cato/pretrained/{name})",
    }
    table = [f"| {key} | {value} |" for key, value in facts.items()]
    picture = f"![{benchmark.title}: a test sample of median error](images/pretrained-{name}.png)"
    head = [f"## {name}", "", benchmark.description, "", "| | |", "|---|---|"]
    return [*head, *table, "", picture, ""]


if __name__ == "__main__":
    main()
