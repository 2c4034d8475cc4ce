"""The lists of `cato models`: family, geometry, size and settings of every model."""

from typing import Any

from cato.benchmarks import BENCHMARKS, get_benchmark
from cato.config import to_dict
from cato.models.registry import MODELS, model_entry, num_parameters
from cato.runs.settings import options_of, recipe


def model_table() -> list[dict[str, Any]]:
    """One row for each model; sizes are those of the paper's settings."""
    return [_row(name) for name in MODELS]


def _row(name: str) -> dict[str, Any]:
    entry = model_entry(name)
    return {
        "name": name,
        "family": entry.family,
        "geometry": ", ".join(entry.operator.geometries),
        "parameters": size_on(name, counted_on(name)),
        "reference": entry.reference,
    }


def model_card(name: str) -> dict[str, Any]:
    """One model: reference, size, and its settings by default and in the paper's recipe."""
    entry, benchmark = model_entry(name), counted_on(name)
    counted = options_of(to_dict(recipe(benchmark, "paper", name).model))
    settings = {
        f"--model.{key.replace('_', '-')}": {"default": value, f"{benchmark}_paper": counted[key]}
        for key, value in options_of(to_dict(entry.config())).items()
    }
    return {
        "title": entry.title,
        **_row(name),
        "parameters_counted_on": f"{benchmark}, paper",
        "runs_on": ", ".join(benchmarks_of(name)),
        "not_on_clouds_because": entry.operator.why_not_cloud or None,
        **settings,
    }


def benchmarks_of(name: str) -> list[str]:
    """The benchmarks that a model can be trained on."""
    geometries = model_entry(name).operator.geometries
    return [b for b in BENCHMARKS if get_benchmark(b).problem("paper").geometry in geometries]


def counted_on(name: str) -> str:
    """The benchmark at whose paper setting a model's parameters are counted."""
    return benchmarks_of(name)[0]


def size_on(name: str, benchmark: str) -> int:
    """Number of parameters in the paper recipe of a benchmark."""
    problem = get_benchmark(benchmark).problem("paper")
    return num_parameters(name, recipe(benchmark, "paper", name).model, problem)
