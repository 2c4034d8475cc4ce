"""DataSpec: everything that determines the contents and the name of a generated file."""

import hashlib
import json
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

from cato.benchmarks import get_benchmark
from cato.benchmarks.contract import SPLITS, Benchmark
from cato.data.arrays import sample_shapes
from cato.errors import InputError
from cato.problem import Problem

DEFAULT_ROOT = Path("data")  # Folder of generated files, relative to the working folder.


@dataclass(frozen=True)
class DataSpec:
    """A set of samples of one benchmark, validated on construction."""

    benchmark: str
    scale: str
    seed: int = 0  # Any non-negative number.
    count: int | None = None  # Number of training samples, default from the scale.
    resolution: int | None = None  # Nodes per side, default from the scale.
    splits: tuple[str, ...] = SPLITS  # Which splits to generate.

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InputError(f"the seed must be 0 or more; got {self.seed}")
        if self.count is not None and self.count < 1:
            raise InputError(f"the number of training samples must be 1 or more; got {self.count}")
        unknown = [split for split in self.splits if split not in SPLITS]
        if unknown or not self.splits:
            raise InputError(f"splits must be some of {', '.join(SPLITS)}; got {self.splits}")
        object.__setattr__(self, "splits", tuple(s for s in SPLITS if s in self.splits))
        self.definition.problem(self.scale, self.resolution)  # raises if it does not exist

    @property
    def definition(self) -> Benchmark[Any]:
        return get_benchmark(self.benchmark)

    @property
    def parameters(self) -> Any:
        return self.definition.parameters(self.scale, self.resolution)

    @property
    def problem(self) -> Problem:
        return self.definition.problem_for(self.parameters)

    @property
    def counts(self) -> dict[str, int]:
        """Number of samples of each split."""
        scale = self.definition.scale(self.scale)
        counts = {
            "train": scale.train if self.count is None else self.count,
            "validation": scale.validation,
            "test": scale.test,
        }
        return {split: counts[split] for split in self.splits}

    @property
    def tasks(self) -> list[tuple[str, int]]:
        """Split and index of every sample."""
        return [(split, k) for split, count in self.counts.items() for k in range(count)]

    @property
    def num_bytes(self) -> int:
        """Size of all samples; a mesh that they share does not count."""
        shapes = sample_shapes(self.problem)
        if self.definition.coords(self.parameters) is not None:
            del shapes["coords"]
        return 4 * sum(map(prod, shapes.values())) * sum(self.counts.values())

    @property
    def identity(self) -> dict[str, Any]:
        """Everything the samples depend on, JSON-ready. Equal identities mean equal data."""
        return {
            "benchmark": self.benchmark,
            "revision": self.definition.revision,
            "scale": self.scale,
            "seed": self.seed,
            "parameters": asdict(self.parameters),
            "counts": self.counts,
        }

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def file_name(self) -> str:
        """For example darcy-small-seed0.h5; non-default count, resolution and splits are added."""
        name = f"{self.benchmark}-{self.scale}-seed{self.seed}"
        name += "" if self.count is None else f"-n{self.count}"
        name += "" if self.resolution is None else f"-r{self.resolution}"
        name += "" if self.splits == SPLITS else "-" + "-".join(self.splits)
        return name + ".h5"

    def command(self, root: Path) -> str:
        """The command that generates these data."""
        words = ["cato generate", self.benchmark, "--scale", self.scale]
        words += ["--seed", str(self.seed)] if self.seed else []
        words += [] if self.count is None else ["--count", str(self.count)]
        words += [] if self.resolution is None else ["--resolution", str(self.resolution)]
        words += [] if self.splits == SPLITS else ["--splits", *self.splits]
        words += [] if root == DEFAULT_ROOT else ["--out", str(root)]
        return " ".join(words)

    def remedy(self, root: Path) -> str:
        """Advice in error messages about a file that cannot be used."""
        return f"delete it and run `{self.command(root)}`"
