"""How far to trust `cato advise`: its predictions next to what whole trainings reach.

    make bench-advice                           # both data sets, about an hour on one core
    python -m tools.advice --minutes 1          # shorter trainings and advice
    python -m tools.advice --trial              # seconds of training; writes nothing

Half of the training samples of each data set are advised on; the others are the "more samples". The
advice gets the steps that fit into its minutes on one thread, and a training those of as many
minutes. Resumable: trainings are kept in RUNS, and the row of a data set is written when it is
measured.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from cato.files import read_json, write_json
from cato.processes import Worker
from cato.runs.load import load_splits
from cato.runs.settings import RunConfig, build_settings, run_config
from cato.training.advice import (
    MINUTES,
    RESERVE,
    UNITS,
    WIDER,
    Plan,
    conclude,
    short_trainings,
)
from cato.training.learning_curve import CONFIDENCE, Trained
from reproduce.jobs import run_jobs
from reproduce.step_timing import in_equal_time, measure_speeds, speed_key
from tools.pages import Pages, table, with_block, write_pages
from tools.results import ROOT, Row, has_results, machine, read_results, stamped, update_rows
from tools.user_data import EXAMPLES

PAGE = ROOT / "docs" / "user-data.md"
RUNS = Path("runs") / "advice"
SAMPLES = 640  # Of which 512 are for training.
WAYS = {"now": "as planned", "samples": "twice the samples", "minutes": "twice the minutes"}
WAYS |= {"width": "twice the width"}


def write_data(name: str, folder: Path, samples: int) -> Path:
    """The file of an example, with more samples than it has by default."""
    script, file = EXAMPLES[name]
    path = folder.resolve() / file
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(ROOT / "examples" / script), "--samples", str(samples)]
        subprocess.run([*command, "--out", str(path)], check=True)
    return path


def measure(name: str, folder: Path, minutes: float, samples: int = SAMPLES) -> Row:
    """Predicted and measured validation errors on a data set."""
    file = write_data(name, folder, samples)
    whole = build_settings(file, "small", None, {"train": {"steps": 1}})
    num_train = len(load_splits(whole).train) // 2
    now = replace(whole, data=replace(whole.data, count=num_train))
    now = in_equal_time({"now": now}, minutes, folder, workers=1)["now"]
    seconds = measure_speeds({"now": now}, folder / "speeds.json", 1)[speed_key(now)]
    assert now.train.steps is not None
    jobs = {
        "now": now,
        "samples": replace(now, data=whole.data),
        "minutes": replace(now, train=replace(now.train, steps=2 * now.train.steps)),
        "width": replace(now, model=replace(now.model, width=WIDER * now.model.width)),
    }
    predicted = _advised(now, seconds, minutes, folder / "advice.json")
    runs = run_jobs(jobs, folder, 1, name)
    measured = {way: min(line["validation"] for line in run.log()) for way, run in runs.items()}
    settings = {
        "minutes": minutes,
        "seed": now.train.seed,
        "samples": num_train,
        "steps": now.train.steps,
        "confidence": CONFIDENCE,
        **{group: now.to_dict()[group] for group in ("model", "loss", "train")},
    }
    row = {"name": name, "measured": measured, **predicted}
    return stamped(row, settings, now.data.fingerprint)


def _advised(config: RunConfig, seconds: float, minutes: float, path: Path) -> Row:
    """The advice, whose trainings `path` keeps."""
    if not path.exists():
        num_steps = int((1 - RESERVE) * 60 * minutes / UNITS / seconds)
        with Worker() as worker:
            write_json(path, worker.run(run_trainings, config.to_dict(), num_steps))
    found = read_json(path, "trainings of an advice")
    rows = [Trained(**row) for row in found["trainings"]]
    planned = _plan(config, seconds, rows[0].samples)
    advice = conclude(planned, rows, (Trained(**found["wider"]), seconds))
    ways = {"more samples": "samples", "more minutes": "minutes", "larger model": "width"}
    predicted = {
        ways[change.what.split(":")[0]]: change.error and asdict(change.error)
        for change in advice.changes
    }
    predicted["now"] = advice.expected and asdict(advice.expected)
    return {"predicted": predicted, "verdict": advice.verdict, **found}


def _plan(config: RunConfig, seconds: float, samples: int) -> Plan:
    steps = config.train.steps
    assert steps is not None
    return Plan(config.model_name, [], samples, steps, steps * seconds / 60, seconds, 0)


def run_trainings(settings: Mapping[str, Any], num_steps: int) -> Row:
    """In a worker process: the short trainings."""
    torch.set_num_threads(1)
    config = run_config(settings, "advice")
    splits = load_splits(config)
    planned = _plan(config, 0.0, len(splits.train))
    rows, wider = short_trainings(config, splits, planned, num_steps)
    assert wider is not None
    return {"trainings": [asdict(row) for row in rows], "wider": asdict(wider[0])}


def pages() -> Pages:
    """The page with its table."""
    if not has_results("advice"):
        return {}
    return {PAGE: with_block(PAGE, "advice", block(read_results("advice")["rows"]))}


def block(rows: Sequence[Row]) -> str:
    """The table and what was measured."""
    cells = [
        (
            row["name"],
            words,
            _interval(row["predicted"][way]),
            f"{row['measured'][way]:.2%}",
        )
        for row in rows
        for way, words in WAYS.items()
    ]
    told = [
        (found, row["measured"][way])
        for row in rows
        for way in WAYS
        if (found := row["predicted"][way]) is not None
    ]
    inside = sum(found["low"] <= error <= found["high"] for found, error in told)
    settings = rows[0]["settings"]
    text = table(("data", "training", "predicted", "measured"), cells)
    return (
        f"\n{text}\n\n"
        f"Validation error of {settings['samples']} training samples and one seed, after "
        f"{settings['minutes']:g} minutes of training on one thread; the advice had as long. "
        f"{inside} of {len(told)} predictions have the measured error in their "
        f"{settings['confidence']:.0%} interval. Measured by `make bench-advice` "
        f"({machine(rows[0])}).\n\n"
    )


def _interval(found: Mapping[str, float] | None) -> str:
    if found is None:
        return "cannot be told"
    return f"{found['median']:.2%} ({found['low']:.2%} to {found['high']:.2%})"


def main() -> None:
    """Measure data sets, then write results and page."""
    parser = argparse.ArgumentParser(description="predictions of cato advise against trainings")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EXAMPLES)}")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of a training and advice")
    parser.add_argument("--trial", action="store_true", help="seconds each; writes nothing")
    options = parser.parse_args()
    if unknown := set(options.names) - set(EXAMPLES):
        parser.error(f"unknown data: {', '.join(unknown)}; choose from {', '.join(EXAMPLES)}")
    torch.set_num_threads(1)
    for name in options.names or EXAMPLES:
        if options.trial:
            with tempfile.TemporaryDirectory() as trial:
                print(json.dumps(measure(name, Path(trial), 0.02, samples=80), indent=1))
            continue
        folder = RUNS.resolve() / f"{Path(EXAMPLES[name][1]).stem}-{options.minutes:g}"
        update_rows("advice", [measure(name, folder, options.minutes)], "name", EXAMPLES)
        write_pages(pages())


if __name__ == "__main__":
    main()
