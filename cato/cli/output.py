"""What commands have in common: options, and output as tables or one JSON object."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from cato.files import to_json
from cato.progress import is_first_process


@dataclass(kw_only=True)
class Command:
    """Options of every command."""

    json: bool = False  # Print one JSON object.


@dataclass
class RunCommand(Command):
    """Argument of the commands on a run."""

    folder: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run folder, or a pretrained model, see `cato pretrained`."""


def show(title: str, figures: dict[str, Any], as_json: bool, then: str = "") -> None:
    """Print results: a table of names and values, or one JSON object."""
    if not is_first_process():
        return
    if as_json:
        print(to_json(figures))
        return
    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in figures.items():
        words = name.replace("_", " ")
        if isinstance(value, dict) and all(isinstance(part, dict) for part in value.values()):
            for key, part in value.items():
                table.add_row(f"{words}: {key}", readable(part))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            # What each is about, its first entry; --json has all of it.
            table.add_row(words, "\n".join(readable(next(iter(part.values()))) for part in value))
        elif value is not None:
            text = str(value) if name == "seed" else readable(value)  # no thousands separators
            table.add_row(words, text)
    out = Console()
    out.print(table)
    if then:
        out.print(f"next: {then}")


def show_errors(title: str, figures: dict[str, Any], as_json: bool, then: str = "") -> None:
    """Print results with the figures of an evaluation; a table has a line for each field."""
    from cato.inference.evaluate import ALL_ERRORS, ERRORS, errors_by_field

    if not as_json and "fields" in figures:
        errors = {
            field: {name: value for name in ERRORS if (value := found.get(name)) is not None}
            for field, found in errors_by_field(figures).items()
        }
        others = {name: value for name, value in figures.items() if name not in ALL_ERRORS}
        figures = {"error": errors} | others
    show(title, figures, as_json, then)


def show_rows(title: str, rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print a list: one line each, or one JSON object."""
    if as_json:
        print(to_json({title: rows}))
        return
    table = Table(title_justify="left")
    for name in rows[0]:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*map(readable, row.values()))
    Console().print(table)


def readable(value: Any) -> str:
    """A value as text for a table."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(readable, value))
    if isinstance(value, dict):
        return "; ".join(f"{key.replace('_', ' ')} {readable(v)}" for key, v in value.items())
    return str(value)
