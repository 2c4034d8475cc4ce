"""The lists of `cato models` and `cato pretrained`: sizes, settings, origin, measured errors."""

from typing import Any

from cato.benchmarks import BENCHMARKS, get_benchmark
from cato.config import to_dict
from cato.errors import InputError
from cato.inference.evaluate import ALL_ERRORS, errors_by_field
from cato.models.registry import MODELS, model_class, num_parameters
from cato.runs.folder import PRETRAINED, open_run, pretrained_names
from cato.runs.load import data_spec
from cato.runs.settings import build_settings, options_of


def model_table() -> list[dict[str, Any]]:
    """One row for each model; sizes are those of the paper's settings."""
    return [_row(name) for name in MODELS]


def _row(name: str) -> dict[str, Any]:
    entry = model_class(name)
    return {
        "name": name,
        "family": entry.family,
        "geometry": ", ".join(entry.geometries),
        "parameters": size_on(name, counted_on(name)),
        "reference": entry.reference,
    }


def model_card(name: str) -> dict[str, Any]:
    """One model: reference, size, and its settings by default and in the paper's recipe."""
    entry, benchmark = model_class(name), counted_on(name)
    counted = options_of(to_dict(build_settings(benchmark, "paper", name).model))
    settings = {
        f"--model.{key.replace('_', '-')}": {"default": value, f"{benchmark}_paper": counted[key]}
        for key, value in options_of(to_dict(entry.config_class())).items()
    }
    return {
        "title": entry.title,
        **_row(name),
        "parameters_counted_on": f"{benchmark}, paper",
        "runs_on": ", ".join(benchmarks_of(name)),
        "not_on_clouds_because": entry.why_not_cloud or None,
        **settings,
    }


def benchmarks_of(name: str) -> list[str]:
    """The benchmarks that a model can be trained on."""
    geometries = model_class(name).geometries
    return [b for b in BENCHMARKS if get_benchmark(b).problem("paper").geometry in geometries]


def counted_on(name: str) -> str:
    """The benchmark at whose paper setting a model's parameters are counted."""
    return benchmarks_of(name)[0]


def size_on(name: str, benchmark: str) -> int:
    """Number of parameters in the paper recipe of a benchmark."""
    problem = get_benchmark(benchmark).problem("paper")
    return num_parameters(name, build_settings(benchmark, "paper", name).model, problem)


def pretrained_table() -> list[dict[str, Any]]:
    """One row for each model that comes with the library."""
    rows = []
    for card in map(pretrained_card, pretrained_names()):
        fields = list(errors_by_field(card).items())[:2]  # the headline and all outputs
        rows.append(
            {
                "name": card["name"],
                "mesh": card["mesh"],
                "test_error": {name: errors["relative_l2"] for name, errors in fields},
                "training_mean": {name: errors["mean_predictor"] for name, errors in fields},
                "parameters": card["parameters"],
                "trained": card["trained"],
            }
        )
    return rows


def pretrained_card(name: str) -> dict[str, Any]:
    """Card of a model: purpose, origin and measured errors."""
    if name not in pretrained_names():
        raise InputError(
            f"no model {name!r} comes with cato; there are {', '.join(pretrained_names())}"
        )
    run = open_run(PRETRAINED / name)
    config, problem = run.config, run.problem
    figures = run.read_figures(run.source / "evaluation.json")
    return {
        "name": name,
        "title": get_benchmark(name).title,
        "model": config.model_name,
        "mesh": f"{problem.geometry} {' × '.join(map(str, problem.shape))}",
        "inputs": list(problem.inputs),
        "outputs": list(problem.outputs),
        "frames": problem.num_steps,
        **{key: figures[key] for key in ALL_ERRORS},
        "test_error_by_seed": run.record.get("test_error_by_seed"),
        "seed": config.train.seed,
        "test_samples": figures["num_samples"],
        "covered_samples": figures["band"]["covered_samples"],
        "false_alarms": figures["training_range"]["false_alarms"],
        "parameters": num_parameters(config.model_name, config.model, problem),
        "megabytes": sum(p.stat().st_size for p in run.source.rglob("*") if p.is_file()) / 1e6,
        "data_seed": config.data.seed,
        "training_samples": data_spec(config).counts["train"],
        "trained": run.record["created"][:10],
        "minutes": run.log()[-1]["seconds"] / 60,
        "command": run.command,
    }
