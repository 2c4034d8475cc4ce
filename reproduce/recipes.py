"""How the current recipes differ from those that a results file was measured with."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cato.benchmarks import get_benchmark
from cato.models.registry import model_class
from cato.runs.settings import RunConfig, options_of, run_config
from reproduce.experiment import load
from reproduce.results import Row, rows_of

NOT_RECIPE = (
    *("steps", "minutes", "min_steps", "seed", "accelerator", "checkpoint_minutes"),
    *("precision", "compile"),
)
"""Training settings that an experiment or a machine chooses."""


def recipe_changes(results: Row) -> list[str]:
    """Every setting that a recipe has changed since, as `option`: old → new (where).

    Of an ablation only the recipe itself counts, not the answers that change it on purpose.
    """
    by_time = results.get("settings", {}).get("minutes") is not None
    places: dict[tuple[str, str, str], list[str]] = {}
    for row in rows_of(results):
        settings = row.get("provenance", {}).get("settings", {})
        if "model_name" not in settings or row.get("changes"):
            continue
        then, now = _then(settings), _now(settings, results["experiment"])
        where = f"{model_class(then.model_name).title} on {get_benchmark(then.benchmark).title}"
        for option, old, new in _differences(then, now):
            if not (by_time and option == "train.epochs"):
                places.setdefault((option, str(old), str(new)), []).append(where)
    return [
        f"`{option}` {old} → {new} ({_some(list(dict.fromkeys(found)))})"
        for (option, old, new), found in places.items()
    ]


def _then(settings: Mapping[str, Any]) -> RunConfig:
    values = dict(settings)
    # Results of version 0.1 have no such setting: the published conditioning was the only one.
    values["data"] = {"conditioning": "published"} | dict(values["data"])
    values["train"] = dict(values["train"]) | {"seed": 0}
    return run_config(values, "results")


def _now(settings: Mapping[str, Any], experiment: str) -> RunConfig:
    """Today's recipe with the schedule and the conditioning of the experiment."""
    (part, *_) = replace(load(experiment), scale=settings["scale"], share=1.0).by_budget
    return part.config(settings["benchmark"], settings["model_name"])


def _differences(then: RunConfig, now: RunConfig) -> Iterator[tuple[str, Any, Any]]:
    old, new = options_of(then.to_dict()), options_of(now.to_dict())
    for option in new:
        group, _, name = option.partition(".")
        is_recipe = group in ("model", "loss") or option == "data.conditioning"
        if group == "train":
            is_recipe = name not in NOT_RECIPE
        if is_recipe and old.get(option) != new[option]:
            yield option, old.get(option), new[option]


def _some(places: list[str]) -> str:
    """At most three places by name."""
    if len(places) <= 3:
        return ", ".join(places)
    return f"{', '.join(places[:2])} and {len(places) - 2} more"
