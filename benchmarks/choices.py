"""What the paper leaves open, decided by measurement: small Darcy trainings that differ in one choice.

    python benchmarks/choices.py            # runs what is missing, then writes benchmarks/results/choices.json

Every variant is trained with the same seeds, samples and epochs on one thread; the figure is the
lowest validation error (relative L2), since the test split must choose nothing. Runs are kept in
runs/choices, so a killed study goes on where it stopped.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from cato.files import write_json
from cato.training.config import RunConfig, recipe, run_config
from cato.training.run import open_run
from cato.training.train import resume, train

RUNS = Path("runs/choices")
RESULTS = Path(__file__).parent / "results" / "choices.json"
NUM_SAMPLES, NUM_EPOCHS = 450, 16

PHYSICAL = {"gradient": 0.2, "flux": 0.2, "consistency": 0.05, "gdl": 0.0}
BASE: dict[str, dict[str, Any]] = {
    "data": {"count": NUM_SAMPLES},
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
            "muon 4e-3": {"train": {"muon_learning_rate": 4e-3}},
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
    ),
    "chart": Choice(
        "Does the learned chart beat plain coordinates?",
        {
            "learned": {},
            "normalised": {"model": {"chart": "normalised"}},
            "raw": {"model": {"chart": "raw"}},
        },
    ),
    "projections": Choice(
        "One set of query, key and value projections for both axes, or two?",
        {"shared": {}, "separate": {"model": {"share_qkv": False}}},
    ),
    "mlp ratio": Choice(
        "How wide is the MLP of a block?",
        {
            "1": {"model": {"mlp_ratio": 1.0}},
            "2": {},
            "4": {"model": {"mlp_ratio": 4.0}},
        },
        seeds=(0,),
    ),
}


def main() -> None:
    """Run what is missing and write the table."""
    torch.set_num_threads(1)
    for name, choice in CHOICES.items():
        for answer, overrides in choice.answers.items():
            for seed in choice.seeds:
                config = configuration(overrides, seed)
                folder = RUNS / key(overrides, seed)
                if (folder / "run.json").exists():
                    assert open_run(folder).config == config, f"{folder} has other settings"
                    resume(folder)
                else:
                    print(f"{name}: {answer}, seed {seed}", flush=True)
                    train(config, folder)
        write_results()


def configuration(overrides: dict[str, dict[str, Any]], seed: int) -> RunConfig:
    """The small recipe with the base settings of this study and the answer's own."""
    values = recipe("darcy", "small", "cato").to_dict()
    for source in (BASE, overrides, {"train": {"seed": seed}}):
        for group, settings in source.items():
            values[group] = values[group] | settings
    return run_config(values, "choices")


def key(overrides: dict[str, dict[str, Any]], seed: int) -> str:
    """Folder of a run: answers to different questions with equal settings share one."""
    words = [
        f"{group}.{name}={value}"
        for group, settings in sorted(overrides.items())
        for name, value in sorted(settings.items())
    ]
    return "_".join([*words, f"seed={seed}"]) or "base"


def write_results() -> None:
    """Collect the finished runs."""
    table = {}
    for name, choice in CHOICES.items():
        rows = {}
        for answer, overrides in choice.answers.items():
            logs = [
                open_run(folder).log()
                for seed in choice.seeds
                if (folder := RUNS / key(overrides, seed)).joinpath("run.json").exists()
            ]
            done = [log for log in logs if log and log[-1]["epoch"] >= NUM_EPOCHS]
            if done:
                errors = [min(line["validation"] for line in log) for log in done]
                rows[answer] = {
                    "validation_relative_l2": mean(errors),
                    "spread": stdev(errors) if len(errors) > 1 else None,
                    "seeds": len(errors),
                    "seconds": mean(log[-1]["seconds"] for log in done),
                }
        if rows:
            table[name] = {"question": choice.question, "answers": rows}
    settings = {"samples": NUM_SAMPLES, "epochs": NUM_EPOCHS, "threads": 1, "scale": "small"}
    write_json(RESULTS, {"settings": settings, "choices": table})
    print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
