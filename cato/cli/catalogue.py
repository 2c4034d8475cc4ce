"""What `cato models` shows: every model with its family, geometry, size and settings."""

from dataclasses import fields
from typing import Any

from cato.models.registry import MODELS, ModelEntry, build_model, model_entry
from cato.problem import Problem

_REFERENCE_PROBLEMS = {
    "grid": Problem("darcy", "grid", (85, 85), ("a",), ("u",)),
    "cloud": Problem("elasticity", "cloud", (972,), (), ("stress",)),
}
"""Models are counted at the paper's Darcy setting, those for clouds at its Elasticity setting."""

_PAPER_SETTINGS: dict[str, dict[str, Any]] = {
    "cato": {"width": 96, "depth": 8, "heads": 8},
    "cato_pc": {"width": 144, "depth": 8, "heads": 8},
}


def model_table() -> list[dict[str, Any]]:
    """One row for each model."""
    return [
        {
            "name": name,
            "family": entry.family,
            "geometry": ", ".join(entry.operator.geometries),
            "parameters": _num_parameters(name, entry),
            "reference": entry.reference,
        }
        for name, entry in MODELS.items()
    ]


def model_card(name: str) -> dict[str, Any]:
    """One model with its settings and their defaults."""
    entry = model_entry(name)
    row = next(row for row in model_table() if row["name"] == name)
    settings = {f"--model.{f.name.replace('_', '-')}": f.default for f in fields(entry.config)}
    return {"title": entry.title, **row, **settings}


def _num_parameters(name: str, entry: ModelEntry) -> int:
    geometry = "grid" if "grid" in entry.operator.geometries else "cloud"
    config = entry.config(**_PAPER_SETTINGS.get(name, {}))
    model = build_model(name, config, _REFERENCE_PROBLEMS[geometry])
    return sum(p.numel() for p in model.parameters())
