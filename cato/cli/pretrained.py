"""The models that come with the library: `cato pretrained` and their cards."""

from dataclasses import dataclass
from typing import Any

from tyro.conf import Positional

from cato.cli.output import Command, show, show_rows


@dataclass
class Pretrained(Command):
    """List the models that come with cato, or show one."""

    name: Positional[str] = ""
    """A model's name, for its card."""

    def run(self) -> None:
        from cato.runs.folder import pretrained_names

        if self.name:
            then = "" if self.json else f"cato.load({self.name!r}) in Python, or cato serve"
            show(self.name, pretrained_card(self.name), self.json, then)
        else:
            rows = [_row(pretrained_card(name)) for name in pretrained_names()]
            show_rows("pretrained", rows, self.json)


def pretrained_card(name: str) -> dict[str, Any]:
    """Card of a model: purpose, origin and measured errors."""
    import torch

    from cato.benchmarks import get_benchmark
    from cato.errors import InputError
    from cato.files import read_json
    from cato.models.registry import build_model
    from cato.runs.folder import PRETRAINED, open_run, pretrained_names
    from cato.runs.load import data_spec

    if name not in pretrained_names():
        raise InputError(
            f"no model {name!r} comes with cato; there are {', '.join(pretrained_names())}"
        )
    run = open_run(PRETRAINED / name)
    config, problem = run.config, run.problem
    figures = read_json(run.source / "evaluation.json", "evaluation")
    with torch.device("meta"):  # shapes only, no memory
        model = build_model(config.model_name, config.model, problem)
    return {
        "name": name,
        "title": get_benchmark(name).title,
        "model": config.model_name,
        "mesh": f"{problem.geometry} {' × '.join(map(str, problem.shape))}",
        "inputs": list(problem.inputs),
        "outputs": list(problem.outputs),
        "frames": problem.num_steps,
        "relative_l2": figures["relative_l2"],
        "worst": figures["worst"],
        "mean_predictor": figures["mean_predictor"],
        "test_samples": figures["num_samples"],
        "covered_samples": figures["band"]["covered_samples"],
        "parameters": sum(p.numel() for p in model.parameters()),
        "megabytes": sum(p.stat().st_size for p in run.source.rglob("*") if p.is_file()) / 1e6,
        "data_seed": config.data.seed,
        "training_samples": data_spec(config).counts["train"],
        "trained": run.record["created"][:10],
        "command": run.record["command"],
    }


def _row(card: dict[str, Any]) -> dict[str, Any]:
    """One line of the list."""
    shown = ("name", "mesh", "relative_l2", "mean_predictor", "parameters", "trained")
    return {name: card[name] for name in shown}
