"""Results files, tools/results/NAME.json: a dictionary of lists of rows.

Every row carries where it comes from: `settings` (what was measured), `data` (key of the data) and
`provenance` (see `cato.runs.provenance`). Rows that were measured before this
was recorded have it from the history of the repository, marked with `"recovered": true`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cato.files import read_json, write_json
from reproduce.profiling import NO_DATA
from reproduce.provenance import provenance

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "tools" / "results"

Row = dict[str, Any]


def stamped(row: Mapping[str, Any], settings: Mapping[str, Any], data: str = NO_DATA) -> Row:
    """A row with its settings, the key of its data and the provenance of this process."""
    return {**row, "settings": dict(settings), "data": data, "provenance": provenance()}


def results_name(measurement: str, device: str) -> str:
    """The results file of a measurement that is made on CPUs and on GPUs."""
    return measurement if device == "cpu" else f"{measurement}_gpu"


def has_results(name: str) -> bool:
    """Whether a measurement has been made."""
    return (RESULTS / f"{name}.json").exists()


def read_results(name: str) -> dict[str, list[Row]]:
    """The rows of a results file."""
    return read_json(RESULTS / f"{name}.json", f"results of `python -m tools.{name}`")


def write_results(name: str, results: Mapping[str, list[Row]]) -> None:
    """Replace a results file."""
    write_json(RESULTS / f"{name}.json", dict(results))
    print(f"wrote {(RESULTS / name).relative_to(ROOT)}.json")


def update_rows(name: str, new: Iterable[Row], key: str, order: Iterable[str]) -> None:
    """Replace some rows of a results file and keep the others.

    Args:
        name: Name of the file.
        new: The rows to write.
        key: What identifies a row.
        order: Identifiers of all rows, in the order of the file.
    """
    path = RESULTS / f"{name}.json"
    rows = read_results(name)["rows"] if path.exists() else []
    known = {row[key]: row for row in [*rows, *new]}
    write_results(name, {"rows": [known[one] for one in order if one in known]})


def machine(row: Mapping[str, Any]) -> str:
    """The machine and the date of a row, for a page."""
    origin = row["provenance"]
    hardware = origin["hardware"]
    threads = "one thread" if hardware["threads"] == 1 else f"{hardware['threads']} threads"
    processor = hardware["gpu"] if hardware.get("gpu") else hardware["processor"]
    return (
        f"{threads} of {processor}, PyTorch {origin['torch']}, {origin['date'][:10]}, "
        f"commit {origin['commit'][:7]}"
    )
