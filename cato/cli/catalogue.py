"""What `cato models` shows: every model with its family, geometry, size and settings."""

from dataclasses import fields
from typing import Any

from cato.config import to_dict
from cato.data.benchmarks import BENCHMARKS, get_benchmark
from cato.models.registry import MODELS, build_model, model_entry
from cato.training.config import recipe


def model_table() -> list[dict[str, Any]]:
    """One row for each model; sizes are those of the paper's settings."""
    return [
        {
            "name": name,
            "family": entry.family,
            "geometry": ", ".join(entry.operator.geometries),
            "parameters": num_parameters(name, counted_on(name)),
            "reference": entry.reference,
        }
        for name, entry in MODELS.items()
    ]


def model_card(name: str) -> dict[str, Any]:
    """One model: what it is, its settings on each benchmark of the paper, and their defaults."""
    entry = model_entry(name)
    row = next(row for row in model_table() if row["name"] == name)
    settings = {
        f"--model.{field.name.replace('_', '-')}": value
        for field, value in zip(fields(entry.config), to_dict(entry.config()).values(), strict=True)
    }
    return {
        "title": entry.title,
        **row,
        "parameters_counted_on": f"{counted_on(name)}, paper",
        "runs_on": ", ".join(benchmarks_of(name)),
        "not_on_clouds_because": entry.operator.why_not_cloud or None,
        **settings,
    }


def benchmarks_of(name: str) -> list[str]:
    """The benchmarks that a model can be trained on."""
    geometries = model_entry(name).operator.geometries
    return [b for b in BENCHMARKS if get_benchmark(b).problem("paper").geometry in geometries]


def counted_on(name: str) -> str:
    """The benchmark at whose paper setting a model is counted: Darcy, for clouds Elasticity."""
    return "darcy" if "grid" in model_entry(name).operator.geometries else "elasticity"


def num_parameters(name: str, benchmark: str) -> int:
    """Size of a model at its paper setting for a benchmark."""
    problem = get_benchmark(benchmark).problem("paper")
    model = build_model(name, recipe(benchmark, "paper", name).model, problem)
    return sum(p.numel() for p in model.parameters())
