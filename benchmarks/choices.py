"""What the paper leaves open, decided by measurement: Darcy trainings that differ in one choice.

    make choices      # writes benchmarks/results/choices.json and docs/choices.md

Every variant is trained with the same seeds, samples and epochs on one thread; the figure is the
lowest validation error (relative L2), since the test split must choose nothing. Runs are kept in
runs/choices, so a killed study goes on where it stopped.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from cato.data.generate import generate
from cato.files import write_json
from cato.progress import progress_bar
from cato.training.config import RunConfig, recipe, run_config
from cato.training.run import environment, open_run
from cato.training.train import resume, train

ROOT = Path(__file__).parent.parent
RUNS = Path("runs/choices")
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "choices.json", ROOT / "docs" / "choices.md"
NUM_SAMPLES, NUM_EPOCHS = 450, 12

PHYSICAL = {"gradient": 0.2, "flux": 0.2, "consistency": 0.05, "gdl": 0.0}
BASE: dict[str, dict[str, Any]] = {
    "data": {"count": NUM_SAMPLES},
    "model": {"rotary_scale": 10.0},
    "loss": {"gradient": 0.0, "flux": 0.0, "consistency": 0.0, "gdl": 0.1},
    "train": {"epochs": NUM_EPOCHS, "optimizer": "muon"},
}


@dataclass(frozen=True)
class Choice:
    """One question, and the settings of each answer."""

    question: str
    answers: dict[str, dict[str, dict[str, Any]]]
    seeds: tuple[int, ...] = (0, 1)


CHOICES = {
    "optimizer": Choice(
        "AdamW as in the paper, or Muon for the matrices of the blocks?",
        {
            "muon 2e-3": {},
            "adamw 1e-3": {"train": {"optimizer": "adamw"}},
            "adamw 2e-3": {"train": {"optimizer": "adamw", "learning_rate": 2e-3}},
        },
        seeds=(0, 1, 2),
    ),
    "loss": Choice(
        "Which terms beside the value, and in which unit are gradients measured?",
        {
            "value": {"loss": {"gdl": 0.0}},
            "value + gdl": {},
            "physical, rms": {"loss": PHYSICAL},
            "physical, raw": {"loss": PHYSICAL | {"gradient_scale": "raw"}},
            "physical, rms + gdl": {"loss": PHYSICAL | {"gdl": 0.1}},
        },
    ),
    "rotary scale": Choice(
        "How far does the fastest rotary pair turn over a unit of the chart?",
        {
            "1": {"model": {"rotary_scale": 1.0}},
            "10": {},
            "30": {"model": {"rotary_scale": 30.0}},
            "learned from 10": {"model": {"learn_rotary_scale": True}},
        },
        seeds=(0,),
    ),
}


def main() -> None:
    """Train what is missing, one job per core, and write the table."""
    if len(sys.argv) > 1:
        train_one(sys.argv[1])
        return
    jobs = list(jobs_by_key())
    generate("darcy", "small", count=NUM_SAMPLES)
    with ThreadPoolExecutor(os.cpu_count()) as pool, progress_bar("choices", len(jobs)) as bar:
        for number, _ in enumerate(pool.map(run_job, jobs), start=1):
            bar(number)
    results = collect()
    write_json(RESULTS, results)
    write_page(results)
    print(f"wrote {RESULTS.relative_to(ROOT)} and {PAGE.relative_to(ROOT)}")


def run_job(job: str) -> None:
    """Train in a process of its own, on one thread."""
    command = [sys.executable, __file__, job]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{job} failed:\n{done.stderr}")


def train_one(job: str) -> None:
    """Train one answer with one seed, or go on with it."""
    torch.set_num_threads(1)
    config, folder = jobs_by_key()[job], RUNS / job
    if not (folder / "run.json").exists():
        train(config, folder)
    else:
        assert open_run(folder).config == config, f"{folder} has other settings"
        resume(folder)


def jobs_by_key() -> dict[str, RunConfig]:
    """Every training of the study; answers to different questions with equal settings share one."""
    return {
        key(overrides, seed): configuration(overrides, seed)
        for choice in CHOICES.values()
        for overrides in choice.answers.values()
        for seed in choice.seeds
    }


def configuration(overrides: dict[str, dict[str, Any]], seed: int) -> RunConfig:
    """The small recipe with the base settings of this study and the answer's own."""
    values = recipe("darcy", "small", "cato").to_dict()
    for source in (BASE, overrides, {"train": {"seed": seed}}):
        for group, settings in source.items():
            values[group] = values[group] | settings
    return run_config(values, "choices")


def key(overrides: dict[str, dict[str, Any]], seed: int) -> str:
    """Name of a job and of its run folder."""
    words = [
        f"{group}.{name}={value}"
        for group, settings in sorted(overrides.items())
        for name, value in sorted(settings.items())
    ]
    return "_".join([*words, f"seed={seed}"])


def collect() -> dict[str, Any]:
    """Lowest validation error of every answer, with its spread over the seeds."""
    table = {}
    for name, choice in CHOICES.items():
        rows = {}
        for answer, overrides in choice.answers.items():
            logs = [open_run(RUNS / key(overrides, seed)).log() for seed in choice.seeds]
            errors = [min(line["validation"] for line in log) for log in logs]
            rows[answer] = {
                "validation_relative_l2": mean(errors),
                "spread": stdev(errors) if len(errors) > 1 else None,
                "errors": errors,
            }
        table[name] = {"question": choice.question, "answers": rows}
    settings = {"samples": NUM_SAMPLES, "epochs": NUM_EPOCHS, "scale": "small"}
    return {"settings": settings, "environment": environment(), "choices": table}


def write_page(results: dict[str, Any]) -> None:
    """docs/choices.md, from the results alone."""
    lines = [
        "# Choices the paper leaves open",
        "",
        "<!-- written by `make choices` from benchmarks/results/choices.json; do not edit -->",
        "",
        f"CATO on Darcy `small`: {NUM_SAMPLES} samples, {NUM_EPOCHS} epochs, one thread each. The",
        "figure is the lowest validation error (relative L2); the test split chooses nothing.",
    ]
    for choice in results["choices"].values():
        lines += ["", f"## {choice['question']}", ""]
        lines += [
            "| answer | validation error | spread | seeds |",
            "|---|---|---|---|",
        ]
        ranked = sorted(
            choice["answers"].items(), key=lambda item: item[1]["validation_relative_l2"]
        )
        for answer, row in ranked:
            spread = "" if row["spread"] is None else f"± {row['spread']:.2%}"
            lines.append(
                f"| {answer} | {row['validation_relative_l2']:.2%} | {spread} "
                f"| {len(row['errors'])} |"
            )
    PAGE.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
