"""Which models can be exported, and how exactly.

    python tools/exports.py            # writes the table of docs/export.md
    python tools/exports.py cato fno   # their rows only

Every model is exported small to both formats; its row in the table between the page's two marks is
written anew. A cell says for which meshes the file is, and the largest relative difference from
PyTorch; the batch size is free in all.
"""

import sys
import tempfile
from pathlib import Path

import torch

from cato.data.normalise import Normaliser
from cato.errors import InputError
from cato.export.files import FORMATS
from cato.export.trace import Traced
from cato.export.write import export_traced
from cato.files import atomic_write
from cato.models.registry import MODELS, build_model
from cato.problem import Problem
from cato.surrogate import Surrogate

PAGE = Path(__file__).parent.parent / "docs" / "export.md"
GRID = Problem("grid", "grid", (24, 33), ("a",), ("u",))
CLOUD = Problem("cloud", "cloud", (50,), ("a",), ("u",))
BEGIN, END = "<!-- survey: begin -->", "<!-- survey: end -->"


def small_surrogate(name: str) -> Surrogate:
    """A model with random weights: two layers, few channels, other settings at their defaults."""
    entry = MODELS[name]
    problem = GRID if "grid" in entry.operator.geometries else CLOUD
    small = {"width": 36, "heads": 3, "depth": 2}  # a multiple of WMT's 9 and of SAOT's 4
    known = {key: small[key] for key in small if key in entry.config.__dataclass_fields__}
    torch.manual_seed(0)
    return Surrogate(build_model(name, entry.config(**known), problem), Normaliser(problem))


def outcomes(name: str) -> dict[str, str]:
    """What an export comes to in every format, for people."""
    traced = Traced(small_surrogate(name))
    return {kind: _outcome(traced, kind) for kind in FORMATS}


def _outcome(traced: Traced, format_name: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / f"model.{format_name}"
        try:
            figures = export_traced(traced, target, format_name)
        except InputError as error:
            return f"no: {str(error).partition(': ')[2]}"
    difference = f"{figures['largest_difference']:.0e}"
    if figures["why_fixed"] is None:
        return f"any mesh; {difference}"
    return f"fixed mesh; {difference}. {figures['why_fixed']}"


def write_page(page: Path, rows: dict[str, dict[str, str]]) -> None:
    """Write these rows into the table of a page; other models keep theirs."""
    text = page.read_text()
    if BEGIN not in text or END not in text:
        raise InputError(f"{page} must hold the lines {BEGIN} and {END}, between which to write")
    head, rest = text.split(BEGIN)
    table, tail = rest.split(END)
    kept = {line.split("|")[1].strip(): line for line in table.splitlines() if "|" in line}
    lines = [f"| model | {' | '.join(FORMATS)} |", "|---" * (1 + len(FORMATS)) + "|"]
    for name, entry in MODELS.items():
        if name in rows:
            cells = [rows[name][kind].replace("|", "/") for kind in FORMATS]
            lines.append(f"| {entry.title} | {' | '.join(cells)} |")
        elif entry.title in kept:
            lines.append(kept[entry.title])
    with atomic_write(page) as temporary:
        temporary.write_text("\n".join([f"{head}{BEGIN}", *lines, f"{END}{tail}"]))


def main(names: list[str]) -> None:
    """Measure the models, all by default."""
    for name in names or list(MODELS):
        write_page(PAGE, {name: outcomes(name)})


if __name__ == "__main__":
    main(sys.argv[1:])
