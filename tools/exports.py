"""Which models can be exported, and how exactly: tools/results/exports.json and docs/export.md.

    make bench-export                      # all models
    python -m tools.exports cato fno       # these only; the others keep their rows
    python -m tools.exports --trial fno    # print, write nothing

Every model is exported small to both formats. A cell says for which meshes the file works, and the
largest relative difference from PyTorch; the batch size is free in all.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from cato.config import to_dict
from cato.data.normalise import Normaliser
from cato.errors import InputError
from cato.export import export_surrogate
from cato.export.formats import FORMATS
from cato.models.registry import MODELS, build_model
from cato.problem import Problem
from cato.surrogate import Surrogate
from tools.pages import Pages, table, with_block, write_pages
from tools.results import ROOT, Row, read_results, stamped, update_rows

PAGE = ROOT / "docs" / "export.md"
GRID = Problem("grid", "grid", (24, 33), ("a",), ("u",))
CLOUD = Problem("cloud", "cloud", (50,), ("a",), ("u",))
SMALL = {"width": 36, "heads": 3, "depth": 2}  # a multiple of WMT's 9 and of SAOT's 4


def pages() -> Pages:
    """The page with its table."""
    return {PAGE: with_block(PAGE, "exports", export_table(read_results("exports")["rows"]) + "\n")}


def export_table(rows: Sequence[Row]) -> str:
    """All models and formats."""
    cells = [(MODELS[row["model"]].title, *(row[kind] for kind in FORMATS)) for row in rows]
    return table(("model", *FORMATS), cells)


def measure(name: str) -> Row:
    """Outcomes of exporting one model."""
    config, problem = small_setting(name)
    settings = {"model": to_dict(config), "problem": problem.to_dict()}
    return stamped({"model": name, **outcomes(name)}, settings)


def small_setting(name: str) -> tuple[Any, Problem]:
    """Two layers and few channels, other settings at their defaults."""
    entry = MODELS[name]
    problem = GRID if "grid" in entry.geometries else CLOUD
    known = {key: SMALL[key] for key in SMALL if key in entry.config_class.__dataclass_fields__}
    return entry.config_class(**known), problem


def small_surrogate(name: str) -> Surrogate:
    """A small model with random weights."""
    config, problem = small_setting(name)
    torch.manual_seed(0)
    return Surrogate(build_model(name, config, problem), Normaliser(problem))


def outcomes(name: str) -> dict[str, str]:
    """Outcome of the export in every format, for people."""
    surrogate = small_surrogate(name)
    return {kind: _outcome(surrogate, kind) for kind in FORMATS}


def _outcome(surrogate: Surrogate, format_name: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / f"model.{format_name}"
        try:
            figures = export_surrogate(surrogate, target, format_name)
        except InputError as error:
            return f"no: {str(error).partition(': ')[2]}"
    difference = f"{figures['largest_difference']:.0e}"
    if figures["why_fixed"] is None:
        return f"any mesh; {difference}"
    return f"fixed mesh; {difference}. {figures['why_fixed']}"


def main() -> None:
    """Measure the models, all by default."""
    parser = argparse.ArgumentParser(description="which models can be exported")
    parser.add_argument("names", nargs="*", metavar="model", help="all by default")
    parser.add_argument("--trial", action="store_true", help="print, write nothing")
    options = parser.parse_args()
    for name in options.names or MODELS:
        row = measure(name)
        print(json.dumps(row))
        if not options.trial:
            update_rows("exports", [row], "model", MODELS)
            write_pages(pages())


if __name__ == "__main__":
    main()
