"""Results files: one JSON file per experiment, every row with its provenance.

A row is an item of any list of objects in the file, at any depth, but not inside another row. Its
`provenance` has the keys of `PROVENANCE`: commit, cato version, resolved settings, key of the data,
hardware and date.

`relative_l2` of a row is the error of all outputs jointly, the published metric. Tables show the
headline of the benchmark first, see `by_headline`. Rows that were measured before the errors of
single fields were have no `fields`.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from cato.benchmarks import BENCHMARKS
from cato.errors import InputError
from cato.files import read_json, write_json
from cato.inference.evaluate import ALL_OUTPUTS, errors_by_field
from cato.models.registry import model_class, num_parameters
from cato.runs.folder import Run
from reproduce.jobs import figures_of
from reproduce.profiling import NO_DATA
from reproduce.provenance import provenance

FORMAT = 2
"""Bump it if rows get other keys, so that older files are refused by name."""
PROVENANCE = ("commit", "cato", "settings", "data", "hardware", "date")

Row = dict[str, Any]


def save_results(path: Path, name: str, kind: str, results: Row) -> Row:
    """Write a results file; returns its contents as they are read.

    Args:
        path: Where.
        name: Of the experiment.
        kind: Of the experiment.
        results: All else.
    """
    contents = {"format": FORMAT, "experiment": name, "kind": kind, **results}
    write_json(path, contents)
    return read_results(path)


def read_results(path: Path) -> Row:
    """Read a results file; one of another format is an error that says what to do."""
    results = read_json(path, "results")
    found = results.get("format") if isinstance(results, dict) else None
    if found != FORMAT:
        raise InputError(
            f"{path} has results of format {found}, expected {FORMAT}: another version of cato "
            "wrote it; rerun the experiment, finished trainings are kept"
        )
    return dict(results)


def rows_of(results: Any) -> Iterator[Row]:
    """All rows of a results file."""
    for value in results.values():
        if isinstance(value, dict):
            yield from rows_of(value)
        elif isinstance(value, list):
            yield from (row for row in value if isinstance(row, dict))


def provenance_of(runs: Sequence[Run]) -> Row:
    """Provenance of a row: one training with several seeds, as the run folders record it."""
    last = max((run.record for run in runs), key=lambda record: record["created"])
    environment = dict(last["environment"])
    versions = {name: environment.pop(name) for name in ("python", "torch")}
    settings = runs[0].config.to_dict()
    del settings["data"]["root"]
    settings["train"]["seed"] = [run.config.train.seed for run in runs]
    commits = dict.fromkeys(str(run.record.get("commit")) for run in runs)
    return {
        "commit": ", ".join(commits),
        "cato": last["cato"],
        "settings": settings,
        "data": last["data"],
        "hardware": environment,
        "date": last["created"],
        **versions,
    }


def measured_now(settings: Mapping[str, Any], data: str = NO_DATA) -> Row:
    """Provenance of a measurement that this process makes without a training."""
    return {**provenance(), "settings": dict(settings), "data": data}


def outcome(runs: Sequence[Run]) -> Row:
    """Errors, cost and provenance of the same training with several seeds."""
    logs = [run.log() for run in runs]
    found = [figures_of(run) for run in runs]
    validations = [min(_or_infinite(line["validation"]) for line in log) for log in logs]
    measured = all("fields" in figures for figures in found)  # not in jobs of version 0.1
    return {
        **_over_seeds(found),
        "headline": found[0]["headline"] if measured else None,
        "fields": {
            name: _over_seeds([figures["fields"][name] for figures in found])
            for name in (found[0]["fields"] if measured else ())
        },
        "validation": mean(validations),
        "validation_spread": spread(validations),
        "epochs": mean(log[-1]["epoch"] for log in logs),
        "minutes": mean(log[-1]["seconds"] / 60 for log in logs),
        "diverged": sum(bool(figures.get("diverged")) for figures in found),
        "provenance": provenance_of(runs),
    }


def _over_seeds(figures: Sequence[Mapping[str, Any]]) -> Row:
    """Test error of the same training with several seeds."""
    errors = [_or_infinite(found["relative_l2"]) for found in figures]
    return {
        "relative_l2": mean(errors),
        "spread": spread(errors),
        "errors": errors,
        "mean_predictor": figures[0]["mean_predictor"],
    }


def _or_infinite(error: float | None) -> float:
    """An error that is not finite, of a training that diverged, is worse than any other."""
    return error if error is not None and isfinite(error) else inf


def by_headline(rows: Sequence[Row]) -> list[Row]:
    """The rows with the errors of their benchmark's headline; `field` names it.

    If it was not measured in every row of a benchmark, all of them keep the error of all outputs,
    and `field` says so. It is empty for benchmarks without a headline. `fields` has the errors of
    all fields in the order to show them, all outputs jointly among them.
    """
    headlines = {name: next(iter(BENCHMARKS[name].headline), "") for name in by_benchmark(rows)}
    measured = {
        name: all(headlines[name] in row.get("fields", ()) for row in group)
        for name, group in by_benchmark(rows).items()
    }
    shown = []
    for row in rows:
        name, headline = row["benchmark"], headlines[row["benchmark"]]
        field = headline if measured[name] else ALL_OUTPUTS
        fields = errors_by_field(row)
        errors = fields[field] if headline else {}
        shown.append({**row, **errors, "field": headline and field, "fields": fields})
    return shown


def title_of(row: Row) -> str:
    """Title of a row's model, which marks our variant of CATO."""
    title = model_class(row["model"]).title
    settings = row.get("provenance", {}).get("settings", {})
    is_ours = settings.get("model", {}).get("variant") == "ours"
    return f"{title}, our variant" if is_ours else title


def title_with_field(row: Row) -> str:
    """Title of a row's benchmark, with the field whose error `by_headline` chose."""
    title = BENCHMARKS[row["benchmark"]].title
    return f"{title}, {row['field']}" if row["field"] else title


def gradient_errors(runs: Sequence[Run]) -> dict[str, float | None]:
    """Relative error of ∇u on the validation samples of a steady mesh: mean and spread of seeds."""
    errors = [figures_of(run)["gradient_error"] for run in runs]
    if None in errors:
        return {"gradient_error": None, "gradient_spread": None}
    return {"gradient_error": mean(errors), "gradient_spread": spread(errors)}


def size_of(run: Run) -> int:
    """Number of parameters of a run's model."""
    return num_parameters(run.config.model_name, run.config.model, run.problem)


def median_sample(errors: Float[Tensor, " S"]) -> int:
    """Index of the sample with the median error; of an even number, the larger of the two."""
    return int(errors.argsort(stable=True)[len(errors) // 2])


def spread(values: Sequence[float]) -> float | None:
    """Standard deviation of two or more finite values, otherwise None."""
    return stdev(values) if len(values) > 1 and all(map(isfinite, values)) else None


def log_slope(values: Sequence[float], results: Sequence[float]) -> float:
    """Exponent s of result ~ value^s, by least squares of the logarithms."""
    return float(np.polyfit(np.log(values), np.log(results), 1)[0])


def by_benchmark(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows grouped by their benchmark, in order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["benchmark"], []).append(row)
    return groups


def percent(value: float | None, deviation: float | None = None) -> str:
    """An error for a table, with its spread if it has one."""
    if value is None:
        return "not finite"
    return f"{value:.2%}" + ("" if deviation is None else f" ± {deviation:.2%}")


def budget_of(settings: Mapping[str, Any]) -> str:
    """Training budget, from the settings in a results file."""
    if settings.get("minutes") is not None:
        return f"{settings['minutes']:g} minutes each"
    share = settings["share"]
    return "the recipe's epochs" if share == 1 else f"{share:.0%} of the recipe's steps"


def seeds_of(settings: Mapping[str, Any]) -> str:
    """Number of seeds, from the settings in a results file."""
    number = len(settings["seeds"])
    return f"{number} seed" + ("" if number == 1 else "s")


def setting_of(results: Mapping[str, Any]) -> str:
    """Scale, budget and seeds of an experiment."""
    settings = results["settings"]
    return f"`{settings['scale']}`, {budget_of(settings)}, {seeds_of(settings)}"
