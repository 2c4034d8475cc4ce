"""Which models can be exported, measured: `python -m cato.export.survey docs/export.md`.

Every model of the registry, small, is exported to both formats; the table between the page's two
marks is written anew after each.
"""

import sys
import tempfile
from pathlib import Path

import torch

from cato.data.normalise import Normaliser
from cato.errors import InputError
from cato.export.files import FORMATS
from cato.export.write import export_surrogate
from cato.files import atomic_write
from cato.models.registry import MODELS, build_model
from cato.problem import Problem
from cato.surrogate import Surrogate

GRID = Problem("grid", "grid", (13, 17), ("a",), ("u",))
CLOUD = Problem("cloud", "cloud", (50,), ("a",), ("u",))
BEGIN, END = "<!-- survey: begin -->", "<!-- survey: end -->"


def small_surrogate(name: str) -> Surrogate:
    """A model with random weights: one layer, few channels, other settings at their defaults."""
    entry = MODELS[name]
    problem = GRID if "grid" in entry.operator.geometries else CLOUD
    small = {"width": 36, "heads": 3, "depth": 1}  # a multiple of WMT's 9 and of SAOT's 4
    known = {key: small[key] for key in small if key in entry.config.__dataclass_fields__}
    torch.manual_seed(0)
    return Surrogate(build_model(name, entry.config(**known), problem), Normaliser(problem))


def outcome(name: str, format_name: str) -> str:
    """What an export comes to, for people."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / f"model.{format_name}"
        try:
            figures = export_surrogate(small_surrogate(name), target, format_name)
        except InputError as error:
            return f"no: {str(error).partition(': ')[2]}"
    return "any mesh" if figures["why_fixed"] is None else f"fixed mesh: {figures['why_fixed']}"


def write_page(page: Path, rows: dict[str, dict[str, str]]) -> None:
    """Replace the table of a page."""
    text = page.read_text()
    if BEGIN not in text or END not in text:
        raise InputError(f"{page} must hold the lines {BEGIN} and {END}, between which to write")
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    lines = [f"| model | {' | '.join(FORMATS)} |", "|---" * (1 + len(FORMATS)) + "|"]
    for name, row in rows.items():
        cells = [row[kind].replace("|", "/") for kind in FORMATS]
        lines.append(f"| {MODELS[name].title} | {' | '.join(cells)} |")
    with atomic_write(page) as temporary:
        temporary.write_text("\n".join([f"{head}{BEGIN}", *lines, f"{END}{tail}"]))


def main(page: Path, names: list[str]) -> None:
    """Measure the models, all by default."""
    rows: dict[str, dict[str, str]] = {}
    for name in names or list(MODELS):
        rows[name] = {kind: outcome(name, kind) for kind in FORMATS}
        write_page(page, rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
