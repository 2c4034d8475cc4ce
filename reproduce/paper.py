"""What the paper reports on each benchmark: paper.toml in the benchmark's folder, if it has one."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files

from cato.benchmarks import BENCHMARKS


@dataclass(frozen=True)
class PaperNumbers:
    """What the paper reports on one benchmark."""

    error: float  # Relative L2 error of CATO (Table 1).
    rival: str  # The model with the lowest error after CATO.
    rival_error: float  # Its error.
    text_rival_error: float | None = None  # Its error in the text, if that is another number.
    is_highlighted: bool = False  # Whether the paper names this gain among its largest.
    # Parameters, in millions, of models in their public settings.
    public_millions: Mapping[str, float] = field(default_factory=dict)


PAPER = {
    name: PaperNumbers(**tomllib.loads(path.read_text(encoding="utf-8")))
    for name, benchmark in BENCHMARKS.items()
    if (path := files(benchmark.folder) / "paper.toml").is_file()
}
