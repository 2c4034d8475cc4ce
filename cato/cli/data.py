"""`cato generate`, `cato benchmarks` and `cato models`: the commands that need no run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from cato.cli.output import Command, show, show_rows


@dataclass
class Generate(Command):
    """Generate the data of a benchmark. An interrupted call is resumed."""

    benchmark: Positional[str]
    """A benchmark, see `cato benchmarks`, or `all`."""
    scale: str = "small"
    """paper, small or smoke."""
    seed: int = 0
    """Seed of the samples."""
    count: int | None = None
    """Number of training samples; that of the scale by default."""
    resolution: int | None = None
    """Nodes per side; those of the scale by default."""
    splits: tuple[str, ...] = ("train", "validation", "test")
    """Splits to generate."""
    workers: int | None = None
    """Worker processes; one per core by default. Samples do not depend on it."""
    out: Path = Path("data")
    """Folder of the file."""

    def run(self) -> None:
        from cato.data.generate import generate_file

        rows = [
            self._described(generate_file(spec, self.out, self.workers)) for spec in self.specs()
        ]
        if self.benchmark == "all":
            show_rows("generated", rows, self.json)
        else:
            show("generated", rows[0], self.json)

    def specs(self) -> list[Any]:
        """The files to generate, all validated before the first is generated."""
        from cato.benchmarks import BENCHMARKS
        from cato.data.spec import DataSpec

        names = list(BENCHMARKS) if self.benchmark == "all" else [self.benchmark]
        return [
            DataSpec(name, self.scale, self.seed, self.count, self.resolution, self.splits)
            for name in names
        ]

    def _described(self, path: Path) -> dict[str, Any]:
        """Contents of a file."""
        from cato.data.store import num_rejected, read_header

        remedy = "delete it and generate it again"
        header = read_header(path, remedy)
        return {
            "path": str(path),
            "nodes": " × ".join(map(str, header.problem.shape)),
            **header.identity["counts"],
            "rejected_draws": num_rejected(path, remedy),
            "seed": self.seed,
        }


@dataclass
class Benchmarks(Command):
    """List the benchmarks, or describe one."""

    name: Positional[str] = ""
    """A benchmark's name."""

    def run(self) -> None:
        from cato.benchmarks import BENCHMARKS, get_benchmark

        if self.name:
            benchmark = get_benchmark(self.name)
            scales = {
                name: f"{' × '.join(map(str, benchmark.problem(name).shape))} nodes, "
                f"{scale.train} + {scale.validation} + {scale.test} samples"
                for name, scale in benchmark.scales.items()
            }
            card = {"title": benchmark.title, "description": benchmark.description, **scales}
            show(self.name, card, self.json)
        else:
            rows = [
                {
                    "name": name,
                    "title": benchmark.title,
                    "geometry": benchmark.problem("paper").geometry,
                    "nodes": " × ".join(map(str, benchmark.problem("paper").shape)),
                    "time": benchmark.problem("paper").time,
                }
                for name, benchmark in BENCHMARKS.items()
            ]
            show_rows("benchmarks", rows, self.json)


@dataclass
class Models(Command):
    """List the models, or show one with its settings."""

    name: Positional[str] = ""
    """A model's name, for its settings."""

    def run(self) -> None:
        from cato.cli.catalogue import model_card, model_table

        if self.name:
            show(self.name, model_card(self.name), self.json)
        else:
            show_rows("models", model_table(), self.json)
